"""Heads that were read before.

Theory of operation. A client sends the same head with every request, but for its body's length. So the line of the
length is cut out, and what is left is looked up: if it was read before, byte for byte, all that follows from it is
known as well: its fields, whether it may pass the door, and what it looks like on its way to an upstream. What is new
is read strictly, and remembered up to a bound.
"""

from __future__ import annotations

import re

from unslow.core.wire.http1 import RequestHead, read_request_head
from unslow.errors import RemoteProtocolError
from unslow.serve.gateway.way import Way

MAX_HEADS = 512
MAX_REMEMBERED_BYTES = 4096
"""Heads that are remembered, and how long each may be: 2 MB a worker."""
_LENGTH_LINE = re.compile(rb"\r\ncontent-length: ?([0-9]{1,18})(?=\r\n)", re.IGNORECASE)
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


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
        line = _LENGTH_LINE.search(block)
        length = None
        if line is not None:
            length, block = int(line[1]), block[: line.start()] + block[line.end() :]
        known = self._known.get(block) or self._read(block)
        head = known.head
        if length is None:
            return known, head.length
        if head.chunked or head.length is not None:
            raise RemoteProtocolError("the head states its body's length more than once")
        return known, length

    def _read(self, block: bytes) -> Known:
        known = Known(read_request_head(block, max_headers=self._max_headers))
        if len(block) <= MAX_REMEMBERED_BYTES:
            if len(self._known) >= MAX_HEADS:
                self._known.clear()
            self._known[block] = known
        return known
