"""A request's body on its way: held until there is a connection, and as long as it may have to be sent again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from unslow.core.policy.model_scan import ModelScan
from unslow.core.wire.http1 import chunk

SCANNED_BYTES = 64 << 10
"""A body up to this size that came whole is decoded rather than scanned for its model."""
UNREAD_BYTES = 4096
"""A body up to this size that came whole is looked into when somebody asks; with one upstream, that is afterwards."""


class _Asked(msgspec.Struct):
    model: str | None = None


_decode = msgspec.json.Decoder(_Asked).decode


class Upload:
    """The body of one request. `held` is None once it is too long to be sent again."""

    __slots__ = (
        "_bound", "_found", "_scan", "_unread", "chunked", "done", "held", "held_bytes", "model_known", "size_bytes",
    )  # fmt: skip

    def __init__(self, *, chunked: bool, content_type: bytes, bound_bytes: int) -> None:
        self.chunked, self._bound = chunked, bound_bytes
        self.done = self.model_known = False
        self.held: list[bytes] | None = []
        self.held_bytes = self.size_bytes = 0
        self._found: str | None = None
        self._unread: list[bytes] | None = None
        self._scan: ModelScan | bytes = content_type

    def add(self, pieces: list[bytes], *, done: bool) -> None:
        """Count and scan what came."""
        self.done = done
        if not pieces:
            return
        size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        first = not self.size_bytes
        self.size_bytes += size
        if self.model_known:
            return
        if first and done and size <= UNREAD_BYTES:
            self._unread, self.model_known = pieces, True
        elif not (first and done and size <= SCANNED_BYTES and self._quick(b"".join(pieces))):
            self._look(pieces)

    @property
    def model(self) -> str | None:
        """The model, as far as it is known by now."""
        if self._unread is not None:
            pieces, self._unread = self._unread, None
            if not self._quick(b"".join(pieces)):
                self._look(pieces)
        return self._found

    def _quick(self, body: bytes) -> bool:
        try:
            self._found = _decode(body).model
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        self.model_known = True
        return True

    def _look(self, pieces: list[bytes]) -> None:
        if isinstance(self._scan, bytes):
            self._scan = ModelScan(self._scan)
        for piece in pieces:
            self.model_known = self._scan.feed(piece)
        self._found = self._scan.model

    def hold(self, pieces: list[bytes]) -> None:
        """Keep pieces that could not be sent yet."""
        if self.held is not None:
            self.held += pieces
            self.held_bytes += sum(map(len, pieces))

    @property
    def full(self) -> bool:
        """Whether more is held than may be: the client has to wait."""
        return self.held_bytes > self._bound

    def start(self) -> bytes:
        """What goes out with the head. What is too long to be held is let go here."""
        body = b"".join(self.held or ())
        if self.full:
            self.held = None
        return chunk(body) if self.chunked and not self.done else body

    def forward(self, pieces: list[bytes], write: Callable[[bytes], None], *, answering: bool) -> None:
        """Send on, and keep as long as it may have to be sent again."""
        for piece in pieces:
            write(chunk(piece) if self.chunked else piece)
        if self.done and self.chunked:
            write(b"0\r\n\r\n")
        self.hold(pieces)
        if answering or self.full:
            self.held = None

    def framing(self, length: int | None) -> bytes:
        """Field lines that frame the body for the upstream; `length` is what the client stated."""
        if length is not None:
            return b"content-length: %d\r\n" % length
        if not self.chunked:
            return b""
        return b"content-length: %d\r\n" % self.size_bytes if self.done else b"transfer-encoding: chunked\r\n"
