"""What the recorder is told at its start: one JSON line on stdin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from unslow.errors import ConfigError

Positive = Annotated[int, msgspec.Meta(ge=1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Token = Annotated[str, msgspec.Meta(min_length=16, pattern="^[A-Za-z0-9_.~-]+$")]


class UpstreamSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An upstream as the console shows it; `has_key` says that a key is configured, never which."""

    name: str
    url: str
    has_key: bool = False


class ConfigSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The console's config page: what is configured, without secrets. `settings` is free-form and is redacted again."""

    models: tuple[str, ...] = ()
    upstreams: tuple[UpstreamSummary, ...] = ()
    engine: dict[str, object] | None = None
    settings: dict[str, object] = {}


class RecorderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the recorder.

    - `socket_path`: Unix stream socket on which gateway workers report; created with mode 0600.
    - `console_host`, `console_port`: where the console, its API and `/metrics` listen; port 0 takes a free one.
    - `console_token`: the per-run secret that the console and its API ask for, at least 16 URL-safe characters.
    - `console_allowed_hosts`: further names (`host` or `host:port`) that may stand in a Host header.
    - `gateway_url`: the gateway's address as a browser reaches it; the page may connect to it. Set by unslow unless
      the file says otherwise.
    - `history_path`: SQLite file of past exchanges; None keeps them in memory until the recorder ends.
    - `history_max_rows`, `history_max_bytes`: bounds of the history; the oldest exchanges go first.
    - `access_log`: a file, `-` for stderr, or None for no access log.
    - `access_log_min_ms`: log only exchanges that took at least this many milliseconds, and failures.
    - `access_log_errors_only`: log only exchanges that failed, were aborted, or have a status outside 200-299.
    - `access_log_sample_ratio`: share (0 to 1) of successes to log, chosen by trace id; failures are always logged.
    - `metrics_max_models`: model names that get a label of their own in `/metrics`; further ones are `other`.
    - `metrics_slo_s`: latency thresholds in seconds that get an exact histogram boundary besides the built-in ones.
    - `config_summary`: what the console's config page shows.
    """

    socket_path: str
    console_token: Token
    console_host: str = "127.0.0.1"
    console_port: Port = 0
    console_allowed_hosts: tuple[str, ...] = ()
    gateway_url: str | None = None
    history_path: str | None = None
    history_max_rows: Positive = 10_000
    history_max_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 256 << 20
    access_log: str | None = None
    access_log_min_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None
    access_log_errors_only: bool = False
    access_log_sample_ratio: Ratio = 1.0
    metrics_max_models: Positive = 50
    metrics_slo_s: tuple[Annotated[float, msgspec.Meta(gt=0)], ...] = ()
    config_summary: ConfigSummary = ConfigSummary()


def console_hosts(host: str, port: int, allowed: Iterable[str] = ()) -> frozenset[str]:
    """The values of a Host header that name a console listening there; a name of `allowed` may have a port."""
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
    names = {"127.0.0.1", "localhost", "[::1]", bracketed} - {"0.0.0.0", "[::]"}  # noqa: S104
    known = [name.lower() for name in allowed]
    portless = {name for name in known if ":" not in name or name.endswith("]")}
    hosts = {f"{name}:{port}" for name in names | portless} | set(known)
    return frozenset(hosts | names if port == 80 else hosts)


def read_settings(line: bytes) -> RecorderSettings:
    """Read the settings line. Raises ConfigError naming the key."""
    try:
        return msgspec.json.decode(line, type=RecorderSettings)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recorder's settings: {error}") from error
