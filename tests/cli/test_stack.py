"""What the processes are told: where the console may be opened from, and with which key `up` asks."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from unslow.cli.config import Config, load, parse
from unslow.cli.stack import Plan, make_plan
from unslow.cli.up import with_own_key
from unslow.serve.gateway.settings import UpstreamSettings

UPSTREAMS = (UpstreamSettings(name="a", url="http://127.0.0.1:1/v1"),)
CONTAINER = Path(__file__).parents[2] / "deploy" / "unslow.toml"


def planned(config: Config, tmp_path: Path) -> Plan:
    return make_plan(config, tmp_path, gateway={"port": 0}, recorder={}, upstreams=UPSTREAMS)


def test_the_console_s_page_may_call_from_where_it_is_opened(tmp_path: Path) -> None:
    plan = planned(parse("[recorder]\nconsole_port = 0\n", {}), tmp_path)
    assert plan.recorder is not None
    port = plan.recorder.console_port
    assert plan.gateway.allowed_origins == (f"http://127.0.0.1:{port}", f"http://localhost:{port}")
    assert plan.recorder.gateway_url == f"http://127.0.0.1:{plan.gateway.port}"


def test_a_console_under_another_name_may_call_too(tmp_path: Path) -> None:
    text = """
    [recorder]
    console_port = 0
    console_allowed_hosts = ["Console.example:443", "box"]
    gateway_url = "https://api.example"
    """
    plan = planned(parse(text, {}), tmp_path)
    assert plan.recorder is not None
    port = plan.recorder.console_port
    for origin in ("https://console.example:443", f"http://box:{port}", "https://box", f"http://localhost:{port}"):
        assert origin in plan.gateway.allowed_origins
    assert plan.recorder.gateway_url == "https://api.example"


def test_the_container_listens_everywhere_and_asks_for_a_key(tmp_path: Path) -> None:
    config = load(CONTAINER, {"UNSLOW_KEY": "k" * 24})
    plan = planned(config, tmp_path)
    assert plan.gateway.host == "0.0.0.0"
    assert [key.name for key in plan.gateway.api_keys] == ["unslow_key"]
    assert plan.recorder is not None
    assert plan.recorder.console_host == "0.0.0.0"
    assert plan.recorder.console_allowed_hosts == (), "known by loopback names only, until told otherwise"
    assert all(origin.endswith(f":{plan.recorder.console_port}") for origin in plan.gateway.allowed_origins)


def test_the_container_does_not_start_without_a_key() -> None:
    with pytest.raises(Exception, match="UNSLOW_KEY"):
        load(CONTAINER, {})


def test_up_asks_with_a_key_of_its_own_where_one_is_needed() -> None:
    assert with_own_key(Config()) == (Config(), None)
    config, key = with_own_key(load(CONTAINER, {"UNSLOW_KEY": "k" * 24}))
    assert key is not None
    assert config.api_keys[-1].sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert len(config.api_keys) == 2
