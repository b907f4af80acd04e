"""A request's head, read so strictly that it can mean one thing only.

What another parser might read differently is refused, not repaired (request smuggling, RFC 9112, section 11.2):
Content-Length beside Transfer-Encoding, a second Content-Length even if equal, a transfer coding that is not
exactly `chunked`, more than one Host, bare LF, folded lines, space before a colon, control characters, a body before
a switch of protocols.
"""

from __future__ import annotations

import re

import msgspec

from unslow.core.wire.http1.grammar import TOKEN, Field, read_fields, read_length, tokens
from unslow.errors import RemoteProtocolError

_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([\x21-\x22\x24-\x7e]+) HTTP/1\.([01])\r\n")
_VERSION = re.compile(rb" HTTP/([0-9.]+)\r\n")
_AUTHORITY = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~\-]+)(?::[0-9]{1,5})?")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_BARE_CR = re.compile(rb"\r(?!\n|\Z)")


class RequestHead(msgspec.Struct, gc=False):
    """What a request's head says. `length` is None without a Content-Length; `named` is what Connection names.

    `index` has the value of each field; of the ones that mean something here, none occurs twice. `upgrade` is set for
    WebSocket only: behind an upgrade to h2c a client could ask an upstream for anything.
    """

    method: bytes
    target: bytes
    minor: int
    fields: list[Field]
    index: dict[bytes, bytes]
    host: bytes = b""
    length: int | None = None
    chunked: bool = False
    close: bool = False
    expects: bool = False
    upgrade: bytes | None = None
    named: tuple[bytes, ...] = ()

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]


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
    index = dict(fields)
    if len(index) < len(fields):
        _refuse_repeated([name for name, _ in fields])
    head = RequestHead(method, target, 1 if minor == b"1" else 0, fields, index)
    _read_framing(head, index)
    _read_host(head, index)
    return head


_SINGLE = frozenset(
    (
        b"api-key",
        b"authorization",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"traceparent",
        b"transfer-encoding",
        b"upgrade",
        b"x-api-key",
        b"x-goog-api-key",
        b"x-unslow-upstream",
    )
)


def _refuse_repeated(names: list[bytes]) -> None:
    """Refuse a second field where two parsers might each pick another one; lists (Connection) may repeat."""
    for name in set(names):
        if name in _SINGLE and names.count(name) > 1:
            raise RemoteProtocolError(f"the header {name.decode()} stands there more than once")


def _bad_request_line(data: bytes) -> RemoteProtocolError:
    first = data.partition(b"\n")[0] + b"\n"
    version = _VERSION.search(first)
    if version is not None and version[1] not in (b"1.0", b"1.1"):
        return RemoteProtocolError("this speaks HTTP/1.1 and 1.0 only", status_hint=505)
    return RemoteProtocolError("the request line breaks the grammar of HTTP/1.1 (RFC 9112, section 3)")


def _read_framing(head: RequestHead, index: dict[bytes, bytes]) -> None:
    """How the body is framed (RFC 9112, section 6.3), and what happens to the connection."""
    length, coding = index.get(b"content-length"), index.get(b"transfer-encoding")
    if length is not None:
        head.length = read_length(length)
        if head.length is None:
            raise RemoteProtocolError("Content-Length is not a number")
    if coding is not None:
        _read_coding(head, coding)
    if b"connection" in index:
        lists = [tokens(value) for name, value in head.fields if name == b"connection"]
        head.named = tuple(name for names in lists for name in names)
        if b"upgrade" in head.named and index.get(b"upgrade", b"").lower() == b"websocket" and head.minor:
            head.upgrade = b"websocket"
            refuse_upgrade_with_body(head, head.length)
    if b"expect" in index:
        _read_expect(head, index[b"expect"])
    head.close = not head.minor or b"close" in head.named


def refuse_upgrade_with_body(head: RequestHead, length: int | None) -> None:
    """Refuse a body before a switch of protocols: servers on llhttp by httptools take it for what follows the head.

    If they go on in HTTP, it is the next request to them. `length` is what the head states.
    """
    if head.upgrade is not None and (head.chunked or length):
        raise RemoteProtocolError("a request for a WebSocket has no body")


def _read_coding(head: RequestHead, coding: bytes) -> None:
    if coding.lower() != b"chunked":
        raise RemoteProtocolError("the only transfer coding spoken here is chunked", status_hint=501)
    if head.length is not None:
        raise RemoteProtocolError("both Content-Length and Transfer-Encoding state the body's length")
    if not head.minor:
        raise RemoteProtocolError("HTTP/1.0 has no Transfer-Encoding")
    head.chunked = True


def _read_expect(head: RequestHead, value: bytes) -> None:
    if value.lower() != b"100-continue":
        raise RemoteProtocolError("the only expectation known here is 100-continue", status_hint=417)
    head.expects = bool(head.minor)


def _read_host(head: RequestHead, index: dict[bytes, bytes]) -> None:
    """Exactly one Host; an absolute target has to agree with it (RFC 9112, section 3.2)."""
    host = index.get(b"host")
    if host is None:
        raise RemoteProtocolError("a request carries exactly one Host header")
    head.host = host
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
