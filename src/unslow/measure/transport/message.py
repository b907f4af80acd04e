"""A request to send, the head of its answer, and what carries both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from unslow.errors import LocalProtocolError
from unslow.measure.transport.arrival import Arrival, Stamp

Headers = tuple[tuple[str, str], ...]

_PATH_SAFE = "%/?:@!$&'()*+,;=~-._"
_PORTS = {"http": 80, "https": 443}
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Origin(NamedTuple):
    """Scheme, host and port: what a key may be sent to (RFC 6454)."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The Host header, the port left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `private` headers (keys, cookies, the user's own) never follow a redirect to another origin."""

    url: str
    method: str = "POST"
    headers: Headers = ()
    private: Headers = ()
    body: bytes = b""

    @property
    def origin(self) -> Origin:
        """Where it goes. Raises LocalProtocolError for a URL that cannot be asked."""
        return origin_of(self.url)

    @property
    def path(self) -> str:
        """Path and query, as the request line has them."""
        parts = urlsplit(self.url)
        return quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_PATH_SAFE)

    @property
    def absolute(self) -> str:
        """The whole URL, as a plain proxy wants it."""
        return f"{self.origin.scheme}://{self.origin.authority}{self.path}"

    def redirected(self, location: str, status: int) -> Request:
        """The request that follows a redirect (RFC 9110 15.4). 303 turns into GET; the others keep the method.

        Raises LocalProtocolError for a target that is no http(s) URL.
        """
        try:
            joined = urljoin(self.url, location)
        except ValueError as error:
            raise LocalProtocolError(f"{location!r} is no URL: {error}") from error
        target = msgspec.structs.replace(self, url=joined)
        if target.origin != self.origin:
            target = msgspec.structs.replace(target, private=())
        if status == 303:
            return msgspec.structs.replace(target, method="GET", body=b"")
        return target


class Head(NamedTuple):
    """Status and headers of an answer. `first` is when its first byte came."""

    version: str
    status: int
    headers: Headers
    first: Stamp

    def header(self, name: str) -> str | None:
        """The first value of a header; names in any case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


class Conversation(Protocol):
    """One HTTP connection that carries one exchange at a time."""

    complete: bool
    reusable: bool

    @property
    def last_ns(self) -> int | None:
        """When the last bytes came that belong to the exchange."""
        ...

    def begin(self, request: Request, until_ns: int) -> bool:
        """Send a request; False when the time is up before."""
        ...

    def head(self, until_ns: int) -> Head | None:
        """Wait for the head of the answer; None when the time is up."""
        ...

    def body(self, until_ns: int) -> list[Arrival]:
        """Wait for bytes of the body. Empty when `complete` and when the time is up."""
        ...


def origin_of(url: str) -> Origin:
    """Scheme, host and port of a URL. Raises LocalProtocolError naming what is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LocalProtocolError(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise LocalProtocolError(f"{url!r} is no http:// or https:// URL")
    if parts.username or parts.password:
        raise LocalProtocolError("the URL holds credentials: put the key into an environment variable instead")
    if port == 0:
        raise LocalProtocolError("port 0 cannot be asked")
    try:
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise LocalProtocolError(f"{parts.hostname!r} is no host name: {error}") from error
    return Origin(parts.scheme, host, port or _PORTS[parts.scheme])


def check_headers(headers: Iterable[tuple[str, str]]) -> None:
    """Raise LocalProtocolError for a header that would break the head (RFC 9110 5.1, 5.5)."""
    for name, value in headers:
        if not name or not _TOKEN.issuperset(name):
            raise LocalProtocolError(f"header name {name!r}: only letters, digits and !#$%&'*+-.^_`|~ may stand there")
        if any((ord(c) < 32 and c != "\t") or ord(c) == 127 for c in value) or not _latin(value):
            raise LocalProtocolError(f"header {name}: its value holds characters that cannot be sent")


def _latin(value: str) -> bool:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
