"""Newline-delimited JSON (Ollama's stream): each line that is not blank is an event without a name.

The same promises as `sse`: linear work, bounded memory, the same events for any split of the bytes.
"""

from __future__ import annotations

from unslow.core.wire.events import Comment, SseEvent
from unslow.core.wire.sse import MAX_EVENT_BYTES

_BLANK = b" \t\r"
_STRETCH_BYTES = 1 << 16


class NdjsonDecoder:
    """Bytes of one NDJSON stream in, one event a line out."""

    __slots__ = ("_line", "_line_bytes", "_pending", "limit")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.limit = max_event_bytes
        self._line = bytearray()
        self._line_bytes = 0
        self._pending = 0

    def feed(self, data: bytes) -> list[SseEvent | Comment]:
        """Decode the next bytes: the lines that they completed."""
        found: list[SseEvent | Comment] = []
        for at in range(0, len(data), _STRETCH_BYTES):
            *lines, rest = data[at : at + _STRETCH_BYTES].split(b"\n")
            for line in lines:
                self._keep(line)
                self._pending += 1
                self._emit(found)
            self._keep(rest)
        return found

    def close(self) -> list[SseEvent | Comment]:
        """End of the stream. A last line needs no newline; it is `truncated` unless it ends like a JSON value."""
        found: list[SseEvent | Comment] = []
        self._emit(found, ended=True)
        return found

    def _keep(self, part: bytes) -> None:
        self._line_bytes += len(part)
        room = self.limit - len(self._line)
        if part and room > 0:
            self._line += part[:room]

    def _emit(self, found: list[SseEvent | Comment], *, ended: bool = False) -> None:
        line, size = bytes(self._line), self._line_bytes
        self._line.clear()
        self._line_bytes = 0
        self._pending += size
        text = line.strip(_BLANK)
        if not text and size <= self.limit:
            return
        cut = size > self.limit or (ended and text[-1:] not in (b"}", b"]"))
        found.append(SseEvent(text, wire_bytes=self._pending, truncated=cut))
        self._pending = 0
