"""What a worker refuses at its start: one line that names the setting, and never a key."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import ask, relay, say, worker
from tests.support.nursery import forked
from tests.support.tls import Certificates

from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1:1/v1"


async def refused(told: Any) -> str:
    """The line that a worker which does not start leaves on stderr."""
    process = await forked()
    process.write((told if isinstance(told, bytes) else json.dumps(told).encode()) + b"\n")
    try:
        async with asyncio.timeout(10):
            out, code = await process.readline(), await process.wait()
    except TimeoutError:
        process.send_signal(signal.SIGKILL)
        await process.wait()
        raise
    finally:
        err = process.errors()
    assert (code, out) == (1, b"")
    assert err.startswith("gateway: ")
    assert err.count("\n") == 1, err
    return err.removeprefix("gateway: ")


def upstream(**more: Any) -> dict[str, Any]:
    """Settings with one upstream."""
    return {"port": 0, "upstreams": [{"name": "a", "url": URL, **more}]}


@pytest.mark.parametrize(
    "url",
    [
        "http://" + "a" * 64 + ".example/v1",
        "http://a..b/v1",
        "ftp://x/v1",
        "x",
        "http:///v1",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://u:p@h/v1",
        "http://h/v1?key=x",
    ],
)
async def test_a_url_that_can_be_no_upstream(url: str) -> None:
    assert (await refused(upstream(url=url))).startswith("upstreams.a.url: ")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff", "cannot be read"),
        ({"port": 0}, "upstreams"),
        ({"port": 0, "upstreams": []}, "upstreams: no upstream is configured"),
        ({**upstream(), "prot": 1}, "prot"),
        ({**upstream(), "port": "x"}, "port"),
        ({"port": 0, "upstreams": [{"name": "a", "url": URL}] * 2}, "two upstreams have the same name"),
        ({**upstream(), "host": "0.0.0.0"}, "host: 0.0.0.0 can be reached from other machines; configure api_keys"),
        ({**upstream(), "api_keys": [{"name": "k", "sha256": "xyz"}]}, "api_keys"),
        ({**upstream(), "api_keys": [{"name": "k", "sha256": "ab"}]}, "api_keys"),
        (upstream(name="a\r\nb"), "cannot be a name in a header"),
        (upstream(name=""), "cannot be a name in a header"),
        (upstream(key_header="x y"), "upstreams.a.key_header"),
    ],
)
async def test_settings_that_cannot_be_used(told: Any, words: str) -> None:
    assert words in await refused(told)


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret", "sk-\r\nx: sk-secret", ""])
async def test_a_key_that_breaks_its_header_is_refused_and_not_shown(key: str) -> None:
    said = await refused(upstream(api_key=key))
    assert said.startswith("upstreams.a.api_key: ")
    assert "secret" not in said


async def test_a_file_of_certificates_that_is_none(tmp_path: Path, certificates: Certificates) -> None:
    for file in (str(tmp_path / "missing.pem"), __file__):
        said = await refused(upstream(url="https://localhost:1/v1", ca_file=file))
        assert said.startswith("upstreams.a.ca_file: ")
        assert file in said
    async with relay(UpstreamSettings(name="a", url="https://localhost:1/v1", ca_file=certificates.file)) as gateway:
        assert (await say(gateway.port, ask())).code == "connect_failed"


async def test_a_port_that_is_taken_has_an_exit_code_of_its_own() -> None:
    async with relay(URL) as gateway:
        process = await worker(json.dumps({**upstream(), "port": gateway.port}).encode() + b"\n")
        _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode() == (
        f"gateway: cannot listen on 127.0.0.1:{gateway.port}: Address already in use; choose another port\n"
    )
