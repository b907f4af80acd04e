from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unslow.cli.config import find, load, parse
from unslow.errors import ConfigError

ENV = {"KEY": "sk-secret"}


def failure(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, ENV)
    return caught.value


def test_sections_become_the_settings_of_their_rooms() -> None:
    config = parse(
        """
        [gateway]
        port = 9000
        api_keys_env = ["KEY"]
        [upstreams.a]
        url = "http://127.0.0.1:1/v1"
        api_key_env = "KEY"
        models = ["x", "y-*"]
        [recorder]
        history_max_rows = 5
        [engine]
        threads = 2
        """,
        ENV,
    )
    assert config.gateway == {"port": 9000}
    assert [k.name for k in config.api_keys] == ["key"]
    assert config.upstreams[0].api_key == "sk-secret"
    assert config.upstreams[0].models == ("x", "y-*")
    assert config.recorder == {"history_max_rows": 5}
    assert config.engine == {"threads": 2}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[gateway]\n\nprot = 1\n", 3, "gateway.prot: there is no such setting; did you mean port?"),
        ('[gateway]\nport = "x"\n', 2, "gateway.port: expected int, got string"),
        ("[gatway]\n", 1, "there is no section [gatway]; did you mean gateway?"),
        ("[upstreams.a]\n", 1, "upstreams.a: url is missing"),
        ('[upstreams.a]\nurl="http://h"\napi_key_env="NOPE"\n', 3, "the environment variable NOPE is not set"),
        ('[upstreams.a]\nurl="http://h"\napi_key="sk-1"\n', 3, "upstreams.a.api_key: unslow sets this itself"),
        ('[gateway]\napi_keys_env = "KEY"\n', 2, "expected a list of names"),
        ("[gateway]\nport = \n", 2, "not TOML"),
        ("[recorder]\naccess_log_sample_ratio = 2.0\n", 2, "recorder.access_log_sample_ratio"),
        ("upstreams = 3\n", 1, "write a section [upstreams]"),
        ("[upstreams]\na = 3\n", 2, "write a section [upstreams.a]"),
        ('[upstreams."a b"]\nurl="http://h"\nurll="x"\n', 3, "did you mean url?"),
    ],
)
def test_what_cannot_be_used_names_file_line_and_key(text: str, line: int, words: str) -> None:
    error = failure(text)
    assert error.line == line
    assert words in str(error)
    assert str(error).startswith(f"unslow.toml:{line}: ")
    assert "sk-" not in str(error).replace('api_key="sk-1"', "")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_one_way(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text, {})


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml", {})
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "bad.toml", {})


def test_the_file_is_looked_for_here_and_then_in_the_users_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert find(None, env) is None
    (tmp_path / "xdg/unslow").mkdir(parents=True)
    (tmp_path / "xdg/unslow/unslow.toml").touch()
    assert find(None, env) == tmp_path / "xdg/unslow/unslow.toml"
    (tmp_path / "unslow.toml").touch()
    assert find(None, env) == Path("unslow.toml")
    assert find("other.toml", env) == Path("other.toml")
