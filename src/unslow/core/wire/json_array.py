"""A JSON array that grows (Gemini's stream without `alt=sse`): each element is an event without a name.

Theory of operation. Only brackets and quotes matter to find where an element ends: outside of a string the next
bracket, quote or top-level comma is searched, inside of one the next quote or backslash. Every byte is looked at once;
an element is kept up to the limit. What stands between elements counts to the next one.
"""

from __future__ import annotations

import re

from unslow.core.wire.events import Comment, SseEvent
from unslow.core.wire.sse import MAX_EVENT_BYTES

_OUTSIDE = re.compile(rb'["\[\]{}]')
_INSIDE = re.compile(rb'["\\]')


class JsonArrayDecoder:
    """Bytes of one JSON array in, one event an element (an object) out. An object alone is an event too."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_kept", "_pending", "_size", "limit")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.limit = max_event_bytes
        self._depth = 0  # braces open; the brackets of the array itself are not counted
        self._in_string = False
        self._escaped = False
        self._kept = bytearray()
        self._size = 0  # true length of the element in progress
        self._pending = 0

    def feed(self, data: bytes) -> list[SseEvent | Comment]:
        """Decode the next bytes: the elements that they completed."""
        found: list[SseEvent | Comment] = []
        at = 0
        while at < len(data):
            at = self._string(data, at) if self._in_string else self._structure(data, at, found)
        return found

    def close(self) -> list[SseEvent | Comment]:
        """End of the stream: an element that was not closed comes out as `truncated`."""
        if not self._size:
            return []
        event = SseEvent(bytes(self._kept), wire_bytes=self._pending, truncated=True)
        self._kept.clear()
        self._size = self._pending = self._depth = 0
        return [event]

    def _string(self, data: bytes, at: int) -> int:
        """Inside of a string: go on to its end, or to the end of the data."""
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        mark = _INSIDE.search(data, at)
        if mark is None:
            self._take(data[start:])
            return len(data)
        self._in_string = mark[0] == b"\\"
        self._escaped = self._in_string
        self._take(data[start : mark.end()])
        return mark.end()

    def _structure(self, data: bytes, at: int, found: list[SseEvent | Comment]) -> int:
        mark = _OUTSIDE.search(data, at)
        end = len(data) if mark is None else mark.end()
        sign = b"" if mark is None else mark[0]
        if self._depth == 0 and sign != b"{":  # between elements
            self._pending += end - at
            return end
        if self._depth == 0:
            self._pending += end - at - 1
            at = end - 1
        self._take(data[at:end])
        self._depth += (sign in (b"{", b"[") and 1) - (sign in (b"}", b"]") and 1)
        self._in_string = sign == b'"'
        if self._depth == 0:
            cut = self._size > self.limit
            found.append(SseEvent(bytes(self._kept), wire_bytes=self._pending, truncated=cut))
            self._kept.clear()
            self._size = self._pending = 0
        return end

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        self._pending += len(part)
        room = self.limit - len(self._kept)
        if room > 0:
            self._kept += part[:room]
