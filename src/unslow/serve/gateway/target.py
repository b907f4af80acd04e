"""An upstream's URL taken apart: where to connect, what to call it, and where a client's path goes."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import msgspec

from unslow.errors import ConfigError
from unslow.serve.gateway.settings import UpstreamSettings

BARE_BASE_PATH = "/v1"
"""What a base without any path stands for: engines and providers serve their OpenAI API there."""
_SCHEMES = {"http": 80, "https": 443, "http+unix": 0}
_SAFE = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class Target(msgspec.Struct, frozen=True):
    """Where an upstream is. `authority` goes into Host; `base_path` has no slash at its end."""

    host: str
    port: int
    tls: bool
    authority: bytes
    base_path: str
    unix_path: str | None = None

    @property
    def local(self) -> bool:
        """Whether it runs on this machine: then it is an engine, not a provider."""
        return self.unix_path is not None or self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def where(self) -> str:
        """The address as an error message says it."""
        return self.unix_path or self.authority.decode()


def read_target(name: str, url: str) -> Target:
    """Take a URL apart. Raises ConfigError for one that cannot be an upstream's base."""
    key = f"upstreams.{name}.url"
    try:
        parts = urlsplit(url)
        port = parts.port
        host = _host_name(parts.hostname or "", parts.scheme)
    except ValueError as error:  # UnicodeError too: a name that DNS cannot have
        raise ConfigError(f"{url!r} is no URL: {error}", key=key) from error
    if parts.scheme not in _SCHEMES or not host:
        raise ConfigError(f"{url!r} is no URL; write it like https://api.example.com/v1", key=key)
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("a base URL has no user, query or fragment; put keys into api_key_env", key=key)
    path = parts.path.rstrip("/") or BARE_BASE_PATH
    if parts.scheme == "http+unix":
        return Target(
            "localhost", 0, tls=False, authority=b"localhost", base_path=path, unix_path=unquote(parts.netloc)
        )
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port in (None, _SCHEMES[parts.scheme]) else f"{shown}:{port}"
    return Target(host, port or _SCHEMES[parts.scheme], parts.scheme == "https", authority.encode(), path)


def _host_name(host: str, scheme: str) -> str:
    """A name as DNS, certificates and Host have it. Raises UnicodeError for one that DNS cannot have."""
    if ":" in host or scheme == "http+unix":  # an IPv6 address, a path
        return host
    return host.encode("idna").decode()


def check_upstream(settings: UpstreamSettings) -> None:
    """Refuse what would break a header. Raises ConfigError, which never shows the key."""
    key = f"upstreams.{settings.name}"
    if _SAFE.fullmatch(settings.name) is None:
        why = f"{settings.name!r} cannot be a name in a header; use letters, digits, - and _"
        raise ConfigError(why, key="upstreams")
    if settings.api_key is not None and _SAFE.fullmatch(settings.api_key) is None:
        raise ConfigError("the key begins or ends in white space, or holds control characters", key=f"{key}.api_key")
    if settings.key_header is not None and _TOKEN.fullmatch(settings.key_header) is None:
        raise ConfigError(f"{settings.key_header!r} is no header's name", key=f"{key}.key_header")
