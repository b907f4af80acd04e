"""Heads that were read before.

Theory of operation. A client sends the same head with every request, but for its body's length. So the line of the
length is cut out, and what is left is looked up: if it was read before, byte for byte, all that follows from it is
known as well: its fields, whether it may pass the door, and what it looks like on its way to an upstream. What is new
is read strictly, and remembered up to a bound. Heads of answers likewise: of an engine's only length and date change.
"""

from __future__ import annotations

import re
from copy import copy

from unslow.core.wire.http1 import (
    RequestHead,
    ResponseHead,
    read_length,
    read_request_head,
    read_response_head,
    refuse_upgrade_with_body,
)
from unslow.errors import RemoteProtocolError
from unslow.serve.gateway.way import Way

MAX_HEADS = 512
MAX_REMEMBERED_BYTES = 4096
"""Heads that are remembered, and how long each may be: 2 MB a worker."""
_LENGTH_LINES = (b"\r\ncontent-length: ", b"\r\nContent-Length: ")
"""How everybody writes it. Other spellings are read as any field is."""
_DATE_LINES = (b"\r\ndate: ", b"\r\nDate: ")
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


class Known:
    """What follows from a head alone. `may_pass` and `key_name` are the door's, once it let one of these in."""

    __slots__ = ("content_type", "head", "key_name", "may_pass", "path", "sampled", "sent", "trace_id", "wants_ledger")

    def __init__(self, head: RequestHead) -> None:
        index = head.index
        self.head = head
        self.path = head.path.decode("latin-1")
        self.content_type = index.get(b"content-type", b"")
        self.wants_ledger = index.get(b"x-unslow-ledger") == b"1"
        given = index.get(b"traceparent")
        found = None if given is None else _TRACEPARENT.fullmatch(given)
        self.trace_id = None if found is None else found[1].decode()
        self.sampled = None if found is None else bool(int(found[2], 16) & 1)
        if given is not None and found is None:  # ours takes its place
            head.fields = [field for field in head.fields if field[0] != b"traceparent"]
        self.may_pass = False
        self.key_name: str | None = None
        self.sent: dict[Way, bytes] = {}
        """The head as it goes out on each way, but for the lines of one request."""


class Heads:
    """Reads heads, and remembers them."""

    def __init__(self, max_headers: int) -> None:
        self._max_headers = max_headers
        self._known: dict[bytes, Known] = {}

    def read(self, block: bytes) -> tuple[Known, int | None]:
        """What is known of a head, and its body's stated length. `block` ends with the CRLF of its last line.

        Raises RemoteProtocolError with a status.
        """
        block, length = _without_length(block)
        known = self._known.get(block) or self._read(block)
        head = known.head
        if length is None:
            return known, head.length
        if head.chunked or head.length is not None:
            raise RemoteProtocolError("the head states its body's length more than once")
        if head.upgrade is not None:
            refuse_upgrade_with_body(head, length)
        return known, length

    def _read(self, block: bytes) -> Known:
        known = Known(read_request_head(block, max_headers=self._max_headers))
        if len(block) <= MAX_REMEMBERED_BYTES:
            if len(self._known) >= MAX_HEADS:
                self._known.clear()
            self._known[block] = known
        return known


class AnswerHead:
    """The head of one answer. `kept` is what of it goes on, by whether a key of ours went along; `date` is its line."""

    __slots__ = ("date", "head", "kept")

    def __init__(self, head: ResponseHead, kept: dict[bool, bytes], date: bytes) -> None:
        self.head, self.kept, self.date = head, kept, date


class AnswerHeads:
    """Reads heads of answers, and remembers them."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[ResponseHead, dict[bool, bytes]]] = {}

    def read(self, block: bytes) -> AnswerHead:
        """Read a head; `block` ends with the CRLF of its last line. Raises RemoteProtocolError."""
        block, length = _without_length(block)
        block, date = _without_date(block)
        known, kept = self._known.get(block) or self._read(block)
        if length is None:
            return AnswerHead(known, kept, date)
        if known.chunked or known.length not in (None, length):
            raise RemoteProtocolError("it states its body's length twice", status_hint=502)
        head = copy(known)
        head.length = length
        return AnswerHead(head, kept, date)

    def _read(self, block: bytes) -> tuple[ResponseHead, dict[bool, bytes]]:
        known: tuple[ResponseHead, dict[bool, bytes]] = (read_response_head(block), {})
        if len(block) <= MAX_REMEMBERED_BYTES:
            if len(self._known) >= MAX_HEADS:
                self._known.clear()
            self._known[block] = known
        return known


def _without_date(block: bytes) -> tuple[bytes, bytes]:
    """A head without its date, and the date's line."""
    for line in _DATE_LINES:
        at = block.find(line)
        if at >= 0:
            end = block.find(b"\r\n", at + 2)
            value = block[at + len(line) : end]
            if value.isascii() and value.decode().isprintable():
                return block[:at] + block[end:], block[at + 2 : end + 2]
    return block, b""


def _without_length(block: bytes) -> tuple[bytes, int | None]:
    for line in _LENGTH_LINES:
        at = block.find(line)
        if at >= 0:
            start = at + len(line)
            end = block.find(b"\r\n", start)
            length = read_length(block[start:end])
            return (block, None) if length is None else (block[:at] + block[end:], length)
    return block, None
