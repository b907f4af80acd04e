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
    """What a response's head says. `keep` is whether its connection may serve another request."""

    status: int
    phrase: bytes
    minor: int
    fields: list[Field]
    length: int | None = None
    chunked: bool = False
    keep: bool = True
    content_type: bytes = b""
    encoding: bytes = b""
    named: tuple[bytes, ...] = ()

    def get(self, name: bytes) -> bytes | None:
        """The first field of that name (lower case)."""
        return next((value for key, value in self.fields if key == name), None)


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
    head = ResponseHead(int(status), phrase, int(minor), fields)
    for name, value in fields:
        if name in _READ:
            _read(head, name, value)
    if head.chunked and head.length is not None:
        raise RemoteProtocolError("it states its body's length twice", status_hint=502)
    head.keep = b"close" not in head.named and (bool(head.minor) or b"keep-alive" in head.named)
    return head


_READ = frozenset((b"content-length", b"transfer-encoding", b"connection", b"content-type", b"content-encoding"))


def _read(head: ResponseHead, name: bytes, value: bytes) -> None:
    if name == b"content-type":
        head.content_type = value
    elif name == b"content-length":
        length = read_length(value)
        if length is None or head.length not in (None, length):
            raise RemoteProtocolError("its Content-Length cannot be read", status_hint=502)
        head.length = length
    elif name == b"transfer-encoding":
        if value.lower() != b"chunked" or head.chunked:
            raise RemoteProtocolError("its transfer coding is not chunked", status_hint=502)
        head.chunked = True
    elif name == b"connection":
        head.named += tuple(tokens(value))
    else:
        head.encoding = value.lower()
