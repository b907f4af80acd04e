"""A request's head, read so strictly that it can mean one thing only.

What another parser might read differently is refused, not repaired (request smuggling, RFC 9112, section 11.2):
Content-Length beside Transfer-Encoding, a second Content-Length even if equal, a transfer coding that is not
exactly `chunked`, more than one Host, bare LF, folded lines, space before a colon, control characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from unslow.core.wire.http1.grammar import TOKEN, Field, read_fields, read_length, tokens
from unslow.errors import RemoteProtocolError

_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([\x21-\x22\x24-\x7e]+) HTTP/1\.([01])\r\n")
_VERSION = re.compile(rb" HTTP/([0-9.]+)\r\n")
_AUTHORITY = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~\-]+)(?::[0-9]{1,5})?")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_BARE_CR = re.compile(rb"\r(?!\n|\Z)")


class RequestHead(msgspec.Struct, gc=False):
    """What a request's head says. `length` is None without a Content-Length; `named` is what Connection names."""

    method: bytes
    target: bytes
    minor: int
    fields: list[Field]
    host: bytes
    length: int | None = None
    chunked: bool = False
    close: bool = False
    expects: bool = False
    upgrade: bytes | None = None
    named: list[bytes] = []

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    def get(self, name: bytes) -> bytes | None:
        """The first field of that name (lower case)."""
        return next((value for key, value in self.fields if key == name), None)

    def count(self, name: bytes) -> int:
        """How many fields have that name (lower case)."""
        return sum(key == name for key, _ in self.fields)


def stray_line_end(partial: bytes) -> bool:
    """Whether an incomplete head already holds a line end that no head may have (RFC 9112, section 2.2)."""
    return _BARE_LF.search(partial) is not None or _BARE_CR.search(partial) is not None


def read_request_head(data: bytes, *, max_headers: int = 128) -> RequestHead:
    """Read a head: `data` ends with the CRLF of its last field line. Raises RemoteProtocolError with a status."""
    line = _REQUEST_LINE.match(data)
    if line is None:
        raise _bad_request_line(data)
    fields = read_fields(data[line.end() :])
    if fields is None:
        raise RemoteProtocolError("a header line breaks the grammar of HTTP/1.1 (RFC 9112, section 5)")
    if len(fields) > max_headers:
        raise RemoteProtocolError(f"more than {max_headers} header fields", status_hint=431)
    method, target, minor = line.groups()
    head = RequestHead(method, target, int(minor), fields, b"")
    _read_framing(head)
    _read_host(head)
    return head


def _bad_request_line(data: bytes) -> RemoteProtocolError:
    first = data.partition(b"\n")[0] + b"\n"
    version = _VERSION.search(first)
    if version is not None and version[1] not in (b"1.0", b"1.1"):
        return RemoteProtocolError("this speaks HTTP/1.1 and 1.0 only", status_hint=505)
    return RemoteProtocolError("the request line breaks the grammar of HTTP/1.1 (RFC 9112, section 3)")


def _read_framing(head: RequestHead) -> None:
    counts = {b"content-length": 0, b"transfer-encoding": 0, b"host": 0}
    for name, value in head.fields:
        if name in counts:
            counts[name] += 1
        if name in _READ:
            _READ[name](head, value)
    lengths, codings, hosts = counts.values()
    if lengths > 1 or codings > 1 or (lengths and codings):
        raise RemoteProtocolError("more than one statement of the body's length (Content-Length, Transfer-Encoding)")
    if codings and not head.minor:
        raise RemoteProtocolError("HTTP/1.0 has no Transfer-Encoding")
    if hosts != 1:
        raise RemoteProtocolError("a request carries exactly one Host header")
    head.close = not head.minor or b"close" in head.named
    if b"upgrade" not in head.named:
        head.upgrade = None


def _read_length(head: RequestHead, value: bytes) -> None:
    head.length = read_length(value)
    if head.length is None:
        raise RemoteProtocolError("Content-Length is not a number")


def _read_coding(head: RequestHead, value: bytes) -> None:
    if value.lower() != b"chunked":
        raise RemoteProtocolError("the only transfer coding spoken here is chunked", status_hint=501)
    head.chunked = True


def _read_connection(head: RequestHead, value: bytes) -> None:
    head.named += tokens(value)


def _read_authority(head: RequestHead, value: bytes) -> None:
    head.host = value


def _read_upgrade(head: RequestHead, value: bytes) -> None:
    head.upgrade = value.lower()


def _read_expect(head: RequestHead, value: bytes) -> None:
    if value.lower() != b"100-continue":
        raise RemoteProtocolError("the only expectation known here is 100-continue", status_hint=417)
    head.expects = bool(head.minor)


_READ: dict[bytes, Callable[[RequestHead, bytes], None]] = {
    b"content-length": _read_length,
    b"transfer-encoding": _read_coding,
    b"connection": _read_connection,
    b"host": _read_authority,
    b"expect": _read_expect,
    b"upgrade": _read_upgrade,
}


def _read_host(head: RequestHead) -> None:
    """Take the authority of an absolute target instead of Host (RFC 9112, section 3.2.2)."""
    if head.target[:1] != b"/" and head.target != b"*":
        scheme, found, rest = head.target.partition(b"://")
        authority, slash, path = rest.partition(b"/")
        if not found or scheme.lower() not in (b"http", b"https"):
            raise RemoteProtocolError("the request's target is neither a path nor an http URL")
        if authority.lower() != head.host.lower():
            raise RemoteProtocolError("the request's target and its Host header name different hosts")
        head.target = slash + path or b"/"
    if _AUTHORITY.fullmatch(head.host) is None:
        raise RemoteProtocolError("the Host header is no host name")
