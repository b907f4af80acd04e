"""A response's head, read strictly: what an upstream garbles is refused before a byte of it goes on."""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

from unslow.core.wire.http1.grammar import Field, read_fields, read_length, tokens
from unslow.errors import RemoteProtocolError

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n")
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class ResponseHead(msgspec.Struct, gc=False):
    """What a response's head says. `keep` is whether its connection may serve another request.

    `index` has the last value of each field.
    """

    status: int
    phrase: bytes
    minor: int
    fields: list[Field]
    index: dict[bytes, bytes]
    length: int | None = None
    chunked: bool = False
    keep: bool = True
    content_type: bytes = b""
    encoding: bytes = b""
    named: tuple[bytes, ...] = ()


def reason(status: int) -> bytes:
    """The phrase that belongs to a status (RFC 9110, section 15)."""
    return _REASONS.get(status, b"")


def read_response_head(data: bytes, *, max_headers: int = 256) -> ResponseHead:
    """Read a head: `data` ends with the CRLF of its last field line. Raises RemoteProtocolError."""
    line = _STATUS_LINE.match(data)
    if line is None:
        raise RemoteProtocolError("its status line breaks the grammar of HTTP/1.1", status_hint=502)
    fields = read_fields(data[line.end() :])
    if fields is None or len(fields) > max_headers:
        raise RemoteProtocolError("its header lines break the grammar of HTTP/1.1", status_hint=502)
    minor, status, phrase = line.groups(b"")
    index = dict(fields)
    head = ResponseHead(int(status), phrase, int(minor), fields, index)
    if len(index) < len(fields):
        _refuse_repeated(fields)
    _read_framing(head, index)
    head.content_type = index.get(b"content-type", b"")
    head.encoding = index.get(b"content-encoding", b"").lower()
    return head


def _read_framing(head: ResponseHead, index: dict[bytes, bytes]) -> None:
    """How the body is framed (RFC 9112, section 6.3), and whether the connection goes on."""
    length, coding = index.get(b"content-length"), index.get(b"transfer-encoding")
    if length is not None:
        head.length = read_length(length)
        if head.length is None:
            raise RemoteProtocolError("its Content-Length cannot be read", status_hint=502)
    if coding is not None:
        if coding.lower() != b"chunked":
            raise RemoteProtocolError("its transfer coding is not chunked", status_hint=502)
        if length is not None:
            raise RemoteProtocolError("it states its body's length twice", status_hint=502)
        head.chunked = True
    if b"connection" in index:
        head.named = tuple(token for name, value in head.fields if name == b"connection" for token in tokens(value))
    head.keep = b"close" not in head.named and (bool(head.minor) or (b"keep-alive" in head.named and not head.chunked))


def _refuse_repeated(fields: list[Field]) -> None:
    """Refuse lengths that contradict each other; one that is said twice the same is one (RFC 9110, section 8.6)."""
    if len({value for name, value in fields if name == b"content-length"}) > 1:
        raise RemoteProtocolError("its Content-Length cannot be read", status_hint=502)
    if sum(name == b"transfer-encoding" for name, _ in fields) > 1:
        raise RemoteProtocolError("its transfer coding is not chunked", status_hint=502)
