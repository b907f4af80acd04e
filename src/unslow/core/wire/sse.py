"""Server-sent events, decoded by the rules of WHATWG HTML, section 9.2.6.

Theory of operation. A line ends at CR, LF or CRLF; a line's field goes into the event in progress; an empty line
dispatches it. The answer is the same for any split of the bytes, the work is linear in them, and what is kept never
exceeds `max_event_bytes` for the line and the event in progress:

- Only new bytes are searched for line ends. The unfinished line grows in one buffer up to the limit; what is past it
  is counted, not kept, and its event comes out with `truncated` set.
- A CR ends its line at once (waiting for an LF would delay the event); an LF right after it is swallowed and counts
  to what comes next.
- A comment has the bytes of its own line, an event all other bytes since the last event. So each byte is counted
  once, and the sum of `wire_bytes` up to an event is its end's offset in the stream.

The usual reads take short cuts that do nothing else: one unnamed event with one data line, and whole events each of
one data line, named or not.
"""

from __future__ import annotations

from unslow.core.wire.events import Comment, SseEvent

MAX_EVENT_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_STRETCH_BYTES = 1 << 16
"""Input is split into lines by stretches, so that a huge read of empty lines makes no huge list."""

_event = tuple.__new__
"""Makes an `SseEvent` from a tuple in half the time of calling it."""


class SseDecoder:
    """Bytes of one `text/event-stream` in, events and comments out."""

    __slots__ = (
        "_cut", "_data", "_fresh", "_head", "_id", "_line", "_line_bytes", "_name", "_pending", "_swallow_lf", "limit",
        "retry_ms",
    )  # fmt: skip

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.limit = max_event_bytes
        self.retry_ms: int | None = None
        self._fresh = False  # between events, past the byte order mark: the fast way is open
        self._head: bytes | None = b""  # start of the stream, until it can be told from a byte order mark
        self._line = bytearray()  # the unfinished line, as far as it is kept
        self._line_bytes = 0  # the unfinished line's true length
        self._swallow_lf = False
        self._data: bytes | bytearray | None = None  # None: no data line yet
        self._cut = False
        self._name = ""
        self._id = ""
        self._pending = 0  # bytes since the last event, finished lines only

    def feed(self, data: bytes) -> list[SseEvent | Comment]:
        """Decode the next bytes: what they completed, in order."""
        if (
            self._fresh
            and data[:6] == b"data: "
            and data.find(b"\n") == (size := len(data)) - 2
            and data[-1] == 10
            and b"\r" not in data
            and size <= self.limit
        ):
            return [_event(SseEvent, (data[6:-2], "", self._id, size, False))]
        if self._fresh and (plain := self._plain(data)) is not None:
            return plain
        if self._head is not None and not self._started(data):
            return []
        elif self._head is not None:
            data, self._head = self._head, None
        found: list[SseEvent | Comment] = []
        for at in range(0, len(data), _STRETCH_BYTES):
            self._stretch(data[at : at + _STRETCH_BYTES], found)
        self._fresh = not (self._line_bytes or self._swallow_lf or self._pending or self._name or self._cut)
        self._fresh = self._fresh and self._data is None
        return found

    def close(self) -> list[SseEvent | Comment]:
        """End of the stream: an event that no empty line completed comes out as `truncated` (section 9.2.6)."""
        found: list[SseEvent | Comment] = []
        if self._head:
            self._stretch(self._head, found)
            self._head = None
        if self._line_bytes:
            self._pending += self._line_bytes
            self._finish(bytes(self._line), self._line_bytes, found)
        if self._data is not None:
            self._cut = True
            self._dispatch(found)
        self._fresh = False
        self._line, self._line_bytes = bytearray(), 0
        return found

    def _plain(self, data: bytes) -> list[SseEvent | Comment] | None:
        """Whole events of one data line each; None for anything else."""
        if data[-2:] != b"\n\n" or len(data) > _STRETCH_BYTES or len(data) > self.limit or b"\r" in data:
            return None
        found: list[SseEvent | Comment] = []
        for part in data[:-2].split(b"\n\n"):
            at = part.find(b"\n")
            if at < 0 and part[:6] == b"data: ":
                found.append(_event(SseEvent, (part[6:], "", self._id, len(part) + 2, False)))
            elif part[:7] == b"event: " and part[at + 1 : at + 7] == b"data: " and part.find(b"\n", at + 1) < 0:
                name = part[7:at].decode("utf-8", "replace")
                found.append(_event(SseEvent, (part[at + 7 :], name, self._id, len(part) + 2, False)))
            else:
                return None
        return found

    def _started(self, data: bytes) -> bool:
        """Whether the stream's start is known; then `_head` holds what follows the byte order mark."""
        head = (self._head or b"") + data
        self._head = head
        if len(head) < len(_BOM) and _BOM.startswith(head):
            return False
        if head.startswith(_BOM):
            self._head = head[len(_BOM) :]
            self._pending += len(_BOM)
        return True

    def _stretch(self, data: bytes, found: list[SseEvent | Comment]) -> None:
        if self._swallow_lf and data:
            self._swallow_lf = False
            if data[0] == 10:
                self._pending += 1
                data = data[1:]
        lines = data.splitlines(keepends=True)
        if not lines:
            return
        if lines[-1][-1] not in b"\r\n":
            rest = lines.pop()
        else:
            rest = b""
            self._swallow_lf = lines[-1][-1] == 13
        if lines and self._line_bytes:
            lines[0] = self._joined(lines[0], found)
        for line in lines:
            if line:
                self._whole(line, found)
        if rest:
            self._keep(rest)

    def _keep(self, rest: bytes) -> None:
        room = self.limit - len(self._line)
        if room > 0:
            self._line += rest[:room]
        self._line_bytes += len(rest)

    def _joined(self, end: bytes, found: list[SseEvent | Comment]) -> bytes:
        """The unfinished line with its end; empty where it was too long to keep and is already dealt with."""
        if self._line_bytes + len(end) <= self.limit:
            line = bytes(self._line) + end
            self._line, self._line_bytes = bytearray(), 0
            return line
        text = end.rstrip(b"\r\n")
        self._keep(text)
        line, size = bytes(self._line), self._line_bytes
        self._line, self._line_bytes = bytearray(), 0
        self._end_line(line, size, end[len(text) :], found)
        return b""

    def _whole(self, line: bytes, found: list[SseEvent | Comment]) -> None:
        """A line with its end."""
        if line[-2:] == b"\r\n":
            self._end_line(line[:-2], len(line) - 2, b"\r\n", found)
        else:
            self._end_line(line[:-1], len(line) - 1, line[-1:], found)

    def _end_line(self, line: bytes, size: int, end: bytes, found: list[SseEvent | Comment]) -> None:
        self._pending += size + 1
        if size == 0:
            self._dispatch(found)
        else:
            self._finish(line, size, found, 1)
        self._pending += len(end) - 1

    def _finish(self, line: bytes, size: int, found: list[SseEvent | Comment], end_bytes: int = 0) -> None:
        """A non-empty line: a comment or a field. `size` is its true length, `line` at most the limit of it."""
        if line[:1] == b":":
            self._pending -= size + end_bytes
            found.append(Comment(line[1 : self.limit].removeprefix(b" "), size + end_bytes))
            return
        field, _, value = line[: self.limit].partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._add(value, whole=size <= self.limit)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit() and len(value) < 16:
            self.retry_ms = int(value)

    def _add(self, value: bytes, *, whole: bool) -> None:
        self._cut = self._cut or not whole
        if self._data is None:
            self._data = value
            return
        if not isinstance(self._data, bytearray):
            self._data = bytearray(self._data)
        room = self.limit - len(self._data)
        self._cut = self._cut or room <= len(value)
        self._data += (b"\n" + value)[: max(0, room)]

    def _dispatch(self, found: list[SseEvent | Comment]) -> None:
        if self._data is not None:
            found.append(SseEvent(bytes(self._data), self._name, self._id, self._pending, self._cut))
            self._pending = 0
            self._data, self._cut = None, False
        self._name = ""
