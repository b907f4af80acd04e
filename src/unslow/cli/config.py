"""`unslow.toml` to the settings of each room. The only place that reads that file.

Sections are `[gateway]`, `[upstreams.NAME]`, `[recorder]` and `[engine]`; their keys are the fields of
`GatewaySettings`, `UpstreamSettings`, `RecorderSettings` and `EngineSettings`, less those that unslow itself sets.
Keys of APIs never stand in the file: `api_key_env` and `api_keys_env` name environment variables. What cannot be used
raises ConfigError with file, key and line.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from unslow.errors import ConfigError
from unslow.serve.engine.settings import EngineSettings
from unslow.serve.gateway.settings import ClientKey, GatewaySettings, UpstreamSettings, client_key
from unslow.serve.recorder.settings import RecorderSettings

NAME = "unslow.toml"
SECTIONS = ("gateway", "upstreams", "recorder", "engine")
OURS = {
    "gateway": ("upstreams", "recorder_socket", "worker", "clock_id", "api_keys"),
    "recorder": ("socket_path", "config_summary", "console_token"),
    "engine": ("socket_path", "host", "port"),
    "upstreams": ("name", "api_key"),
}
"""Fields that unslow fills itself; a file cannot set them."""
EXTRA = {"gateway": ("api_keys_env",), "upstreams": ("api_key_env",)}
"""Keys of the file that are no fields: they name environment variables."""

T = TypeVar("T")


class Config(msgspec.Struct, frozen=True):
    """What a file says, checked: keyword arguments for each room's settings, and the upstreams."""

    gateway: dict[str, Any] = {}
    upstreams: tuple[UpstreamSettings, ...] = ()
    recorder: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    api_keys: tuple[ClientKey, ...] = ()
    path: str | None = None


def find(given: str | None, environment: Mapping[str, str]) -> Path | None:
    """The file to read: the one given, `./unslow.toml`, or `~/.config/unslow/unslow.toml` (XDG)."""
    if given is not None:
        return Path(given)
    base = environment.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return next((path for path in (Path(NAME), Path(base) / "unslow" / NAME) if path.is_file()), None)


def load(path: Path | None, environment: Mapping[str, str]) -> Config:
    """Read and check a file; None gives the defaults."""
    if path is None:
        return Config()
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8 text", file=str(path)) from error
    return parse(text, environment, file=str(path))


def parse(text: str, environment: Mapping[str, str], *, file: str = NAME) -> Config:
    """Check the text of a file."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise ConfigError(f"not TOML: {error}", file=file, line=int(found[1]) if found else None) from error
    return _Reader(text, file, environment).config(tables)


class _Reader:
    """One file being checked; knows where each key stands."""

    def __init__(self, text: str, file: str, environment: Mapping[str, str]) -> None:
        self._file, self._environment = file, environment
        self._lines = dict(_key_lines(text))

    def config(self, tables: dict[str, Any]) -> Config:
        """All sections."""
        for name in tables:
            if name not in SECTIONS:
                self._fail(name, f"there is no section [{name}]{_meant(name, SECTIONS)}")
        gateway = self._table(tables, "gateway")
        keys = tuple(client_key(n.lower(), self._secret("gateway.api_keys_env", n)) for n in self._names(gateway))
        upstreams = tuple(self._upstream(name, t) for name, t in self._table(tables, "upstreams").items())
        checked = msgspec.structs.asdict(self._checked(GatewaySettings, "gateway", gateway, upstreams=upstreams))
        recorder = self._section(RecorderSettings, tables, "recorder", socket_path="", console_token="0" * 16)
        engine = self._section(EngineSettings, tables, "engine")
        return Config({k: checked[k] for k in gateway}, upstreams, recorder, engine, keys, self._file)

    def _section(self, kind: type[Any], tables: dict[str, Any], name: str, **filled: Any) -> dict[str, Any]:
        table = self._table(tables, name)
        settings = self._checked(kind, name, table, **filled)
        return {key: getattr(settings, key) for key in table}

    def _upstream(self, name: str, table: Any) -> UpstreamSettings:
        where = f"upstreams.{name}"
        if not isinstance(table, dict):
            self._fail(where, f"write a section [{where}] with url = …")
        rest = dict(table)
        variable = rest.pop("api_key_env", None)
        if variable is not None and not isinstance(variable, str):
            self._fail(f"{where}.api_key_env", "expected the name of an environment variable")
        key = None if variable is None else self._secret(f"{where}.api_key_env", variable)
        return self._checked(UpstreamSettings, "upstreams", rest, where=where, name=name, api_key=key)

    def _names(self, gateway: dict[str, Any]) -> list[str]:
        names = gateway.pop("api_keys_env", [])
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            self._fail("gateway.api_keys_env", "expected a list of names of environment variables")
        return list(names)

    def _secret(self, key: str, variable: str) -> str:
        value = self._environment.get(variable)
        if not value:
            self._fail(key, f"the environment variable {variable} is not set")
        return value

    def _table(self, tables: dict[str, Any], name: str) -> dict[str, Any]:
        table = tables.get(name, {})
        if not isinstance(table, dict):
            self._fail(name, f"write a section [{name}]")
        return dict(table)

    def _checked(self, kind: type[T], section: str, table: dict[str, Any], *, where: str = "", **filled: Any) -> T:
        where = where or section
        known = [*(f.name for f in msgspec.structs.fields(kind)), *EXTRA.get(section, ())]  # type: ignore[arg-type]
        for key in table:
            if key in OURS[section]:
                self._fail(f"{where}.{key}", "unslow sets this itself")
            if key not in known:
                usable = [k for k in known if k not in OURS[section]]
                self._fail(f"{where}.{key}", f"there is no such setting{_meant(key, usable)}")
        try:
            return msgspec.convert({**table, **filled}, kind)
        except msgspec.ValidationError as error:
            words, _, path = str(error).partition(" - at `$.")
            inner = re.split(r"[.\[`]", path)[0]
            self._fail(f"{where}.{inner}" if inner else where, _plain(words))

    def _fail(self, key: str, why: str) -> NoReturn:
        parts = key.split(".")
        lines = (self._lines.get(".".join(parts[:n])) for n in range(len(parts), 0, -1))
        raise ConfigError(why, file=self._file, key=key, line=next((n for n in lines if n), None))


def _plain(words: str) -> str:
    """A decoder's words in the file's: TOML has tables and strings."""
    missing = re.fullmatch(r"Object missing required field `(\w+)`", words)
    if missing:
        return f"{missing[1]} is missing"
    return (words[:1].lower() + words[1:]).replace("`", "").replace("object", "table").replace("str", "string")


def _meant(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _key_lines(text: str) -> Any:
    """Where each dotted key stands: (key, line number) for sections and for keys in them."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            section = _dotted(head[1])
            yield section, number
        elif entry := re.match(r"""\s*([\w\-."' ]+?)\s*=""", line):
            key = _dotted(entry[1])
            yield (f"{section}.{key}" if section else key), number


def _dotted(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
