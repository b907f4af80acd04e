"""Framing of bodies: where one ends, and what it carries (RFC 9112, sections 6 and 7).

Theory of operation. Every framing has one method, `feed(data)`, which gives the payload in these bytes as a list of
pieces, and sets `done` at the body's end. What comes after the end is left in `surplus`. A framing checks as it
goes and raises RemoteProtocolError, so that no byte of a broken body needs to be passed on.

`ChunkedAnswer` runs on llhttp (by httptools), since it sees every chunk of every stream; `ChunkedUpload` is our own,
since what clients send must not be read leniently anywhere.
"""

from __future__ import annotations

import re
from typing import Protocol

import httptools

from unslow.core.wire.http1.grammar import read_fields
from unslow.core.wire.http1.response import ResponseHead
from unslow.errors import RemoteProtocolError

_CHUNK_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 16384


class Body(Protocol):
    """A framing in progress."""

    done: bool
    surplus: bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Payload in these bytes. Raises RemoteProtocolError."""
        ...


class NoBody:
    """A message without a body: nothing may follow."""

    __slots__ = ("done", "surplus")

    def __init__(self) -> None:
        self.done, self.surplus = True, b""

    def feed(self, data: bytes) -> list[bytes]:
        """Everything is surplus."""
        self.surplus += data
        return []


class FixedBody:
    """A body of a stated length."""

    __slots__ = ("done", "left_bytes", "surplus")

    def __init__(self, length_bytes: int) -> None:
        self.left_bytes, self.done, self.surplus = length_bytes, length_bytes == 0, b""

    def feed(self, data: bytes) -> list[bytes]:
        """Payload up to the stated length."""
        left = self.left_bytes - len(data)
        if left > 0:
            self.left_bytes = left
            return [data]
        self.done, self.left_bytes = True, 0
        if left < 0:
            self.surplus, data = data[left:], data[:left]
        return [data] if data else []


class UntilClose:
    """A body that ends with its connection."""

    __slots__ = ("done", "surplus")

    def __init__(self) -> None:
        self.done, self.surplus = False, b""

    def feed(self, data: bytes) -> list[bytes]:
        """All of it."""
        return [data]


class ChunkedAnswer:
    """An upstream's chunked body, on llhttp. Bytes after its end are an error: no request asked for them.

    `feed` is what every framing has. Where each call counts, `parse` alone appends what it finds to `pieces`, and
    its caller clears them; it raises the errors in `BROKEN`.
    """

    __slots__ = ("done", "parse", "pieces", "surplus")
    BROKEN = (httptools.HttpParserError, httptools.HttpParserUpgrade)

    def __init__(self) -> None:
        self.done, self.surplus, self.pieces = False, b"", list[bytes]()
        watch = _Watch(self)
        parser = httptools.HttpResponseParser(watch)
        parser.feed_data(_CHUNK_HEAD)
        watch.primed = True
        self.parse = parser.feed_data

    def feed(self, data: bytes) -> list[bytes]:
        """Payload of these bytes, in a list that the next call reuses. Raises RemoteProtocolError."""
        pieces = self.pieces
        pieces.clear()
        try:
            self.parse(data)
        except self.BROKEN as error:
            raise RemoteProtocolError("its chunked body is broken", status_hint=502) from error
        return pieces


class _Watch:
    """What llhttp calls. Bound methods of C types, so that a chunk costs no Python frame."""

    def __init__(self, body: ChunkedAnswer) -> None:
        self.primed, self._ended = False, False
        self.on_body = body.pieces.append
        self._body: ChunkedAnswer | None = body

    def on_message_begin(self) -> None:
        """Another message begins: bytes that nobody asked for."""
        if self.primed:
            raise RemoteProtocolError("bytes after the end of its answer", status_hint=502)

    def on_message_complete(self) -> None:
        """Mark the end, and let go: a body and its parser that hold each other live until the collector comes."""
        body, self._body = self._body, None
        if body is not None:
            body.done = True


class ChunkedUpload:
    """A client's chunked body, read strictly: sizes in bare hexadecimal, CRLF everywhere, trailers checked."""

    __slots__ = ("_held", "_left_bytes", "_state", "done", "surplus")

    def __init__(self) -> None:
        self.done, self.surplus = False, b""
        self._held, self._left_bytes, self._state = b"", 0, "size"

    def feed(self, data: bytes) -> list[bytes]:
        """Payload of these bytes. Raises RemoteProtocolError."""
        data, self._held = self._held + data, b""
        pieces: list[bytes] = []
        at = 0
        while not self.done and at < len(data):
            step = _STEPS[self._state](self, data, at, pieces)
            if step < 0:
                self._held = data[at:]
                return pieces
            at = step
        self.surplus = data[at:] if self.done else b""
        return pieces

    def _size(self, data: bytes, at: int, _pieces: list[bytes]) -> int:
        end = _line_end(data, at, _MAX_LINE_BYTES)
        if end < 0:
            return -1
        line = _CHUNK_LINE.fullmatch(data, at, end)
        if line is None:
            raise RemoteProtocolError("a chunk's size is not a hexadecimal number")
        self._left_bytes = int(line[1], 16)
        self._state = "data" if self._left_bytes else "trailer"
        return end + 2

    def _data(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        piece = data[at : at + self._left_bytes]
        pieces.append(piece)
        self._left_bytes -= len(piece)
        if not self._left_bytes:
            self._state = "end"
        return at + len(piece)

    def _end(self, data: bytes, at: int, _pieces: list[bytes]) -> int:
        end = data[at : at + 2]
        if end == b"\r\n":
            self._state = "size"
            return at + 2
        if end == b"\r":
            return -1
        raise RemoteProtocolError("a chunk is not as long as it says")

    def _trailer(self, data: bytes, at: int, _pieces: list[bytes]) -> int:
        """Trailers are checked and left out, as RFC 9110, section 6.5.1 lets an intermediary do."""
        if data.startswith(b"\r\n", at):
            self.done = True
            return at + 2
        end = data.find(b"\r\n\r\n", at)
        if (len(data) - 3 if end < 0 else end) - at > _MAX_TRAILER_BYTES:  # three bytes of the end may be there
            raise RemoteProtocolError("trailers over the limit", status_hint=431)
        if end < 0:
            return -1
        if read_fields(data[at : end + 2]) is None:
            raise RemoteProtocolError("a trailer breaks the grammar of HTTP/1.1")
        self.done = True
        return end + 4


_STEPS = {
    "size": ChunkedUpload._size,
    "data": ChunkedUpload._data,
    "end": ChunkedUpload._end,
    "trailer": ChunkedUpload._trailer,
}


def _line_end(data: bytes, at: int, limit_bytes: int) -> int:
    end = data.find(b"\r\n", at, at + limit_bytes)
    if end < 0 and (len(data) - at >= limit_bytes or b"\n" in data[at:]):
        raise RemoteProtocolError("a chunk's size line does not end")
    return end


def chunk(piece: bytes) -> bytes:
    """One chunk; the last chunk (`0`) is never made here."""
    return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""


def upload_body(*, chunked: bool, length: int | None) -> Body:
    """The framing of a request's body (RFC 9112, section 6.3)."""
    return ChunkedUpload() if chunked else FixedBody(length or 0)


def answer_body(head: ResponseHead, method: bytes) -> Body:
    """The framing of a response's body (RFC 9112, section 6.3)."""
    if method == b"HEAD" or head.status in (204, 304):
        return NoBody()
    if head.chunked:
        return ChunkedAnswer()
    return UntilClose() if head.length is None else FixedBody(head.length)
