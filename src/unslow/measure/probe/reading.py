"""From arrivals of a body to the columns of a Timeline: undo the encoding, cut events, ask the dialect, stamp."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from unslow.core.timeline import TOKEN_KINDS, ChunkKind, Chunks, ServerTimings, Usage
from unslow.core.wire import decoder_for
from unslow.core.wire.events import Comment, Delta, Dialect, Reader, SseEvent
from unslow.measure.probe.encodings import decoder
from unslow.measure.transport import Arrival, Stamp

MAX_PLAIN_BYTES = 64 * 1024 * 1024
_KEPT_BODY_BYTES = 16 * 1024 * 1024
_KEPT_TEXT = 4 * 1024 * 1024


class Reading:
    """One answer as it comes in. `zero_ns` is the raw time of the record's 0."""

    def __init__(
        self, dialect: Dialect, content_type: str | None, encoding: str | None, zero_ns: int, path: str = ""
    ) -> None:
        self._dialect, self._zero_ns = dialect, zero_ns
        self._undo = decoder(encoding)
        self.known_encoding = self._undo is not None
        self._events = decoder_for(content_type or "", path=path)
        self.streamed = self._events is not None
        self._reader: Reader = dialect.reader()
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._columns: list[tuple[int, int, ChunkKind, int | None, int]] = []
        self._text: list[str] = []
        self._text_size = 0
        self.size_bytes = 0
        self.done = False
        self.usage: Usage | None = None
        self.server: ServerTimings | None = None
        self.finish_reason: str | None = None
        self.model: str | None = None
        self.error: str | None = None

    def feed(self, arrival: Arrival) -> None:
        """Take bytes of the body. Raises BadEncoding."""
        self.size_bytes += len(arrival.data)
        plain = self._undo(arrival.data, MAX_PLAIN_BYTES) if self._undo else arrival.data
        if self._events is None:
            self._keep(plain)
            return
        found = self._events.feed(plain)
        for n, event in enumerate(found, 1):
            ends_here = n == len(found) and plain.endswith((b"\n", b"\r"))
            self._take(event, arrival.end() if ends_here else arrival.within())

    def close(self) -> None:
        """The end of the body: an answer that was not streamed is read as a whole."""
        if self._events is None:
            for delta in self._dialect.body(self.body):
                self._note(delta)
            return
        last = self._columns[-1] if self._columns else None
        stamp = Stamp(last[0] + self._zero_ns, last[4]) if last else Stamp(self._zero_ns, 0)
        for event in self._events.close():
            if isinstance(event, SseEvent) and event.data.strip():
                self._take(event, stamp)

    @property
    def body(self) -> bytes:
        """What was kept of a body that is no event stream."""
        return b"".join(self._kept)

    @property
    def text(self) -> str:
        """All generated text, reasoning included."""
        return "".join(self._text)

    @property
    def text_is_whole(self) -> bool:
        """Whether `text` is all that was generated: not cut by us, no framing of tool calls beside it."""
        called = any(column[2] is ChunkKind.TOOL for column in self._columns)
        return self._text_size < _KEPT_TEXT and not called

    @property
    def ended(self) -> bool:
        """Whether the answer's own end mark came."""
        return self.done or self.finish_reason is not None

    def chunks(self, widen_ns: int = 0) -> Chunks:
        """The columns; every stamp error grows by `widen_ns`."""
        if not self._columns:
            return Chunks()
        arrival, size, kind, tokens, error = zip(*self._columns, strict=True)
        return Chunks(arrival, size, kind, tokens, tuple(e + widen_ns for e in error))

    def _keep(self, plain: bytes) -> None:
        if self._kept_bytes < _KEPT_BODY_BYTES:
            self._kept.append(plain[: _KEPT_BODY_BYTES - self._kept_bytes])
            self._kept_bytes += len(self._kept[-1])

    def _take(self, event: SseEvent | Comment, stamp: Stamp) -> None:
        if isinstance(event, Comment):
            self._add(ChunkKind.KEEPALIVE, event.wire_bytes, None, stamp)
            return
        size = event.wire_bytes
        for delta in self._reader.read(event):
            self._add(delta.kind, size, delta.tokens, stamp)
            self._note(delta)
            size = 0  # the bytes of an event count once

    def _add(self, kind: ChunkKind, size: int, tokens: int | None, stamp: Stamp) -> None:
        at = stamp.at_ns - self._zero_ns
        if self._columns:
            at = max(at, self._columns[-1][0])
        self._columns.append((at, size, kind, tokens, stamp.error_ns))
        self.done = self.done or kind is ChunkKind.DONE

    def _note(self, delta: Delta) -> None:
        self.usage = _filled(self.usage, delta.usage)
        self.server = _filled(self.server, delta.server)
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.model = delta.model or self.model
        self.error = self.error or delta.error
        if delta.kind in TOKEN_KINDS and self._text_size < _KEPT_TEXT:
            self._text.append(delta.text)
            self._text_size += len(delta.text)


_Fields = TypeVar("_Fields", Usage, ServerTimings)


def _filled(held: _Fields | None, new: _Fields | None) -> _Fields | None:
    """The newer one, with what it does not know taken from the older."""
    if held is None or new is None:
        return new or held
    known = {k: v for k, v in msgspec.structs.asdict(new).items() if v is not None}
    return msgspec.structs.replace(held, **known)
