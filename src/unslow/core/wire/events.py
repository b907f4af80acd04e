"""What decoders produce: wire events, and what a provider's frames mean.

bytes → `SseEvent`/`Comment` (sse, ndjson) → `Delta` (a dialect) → chunks of a Timeline.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from unslow.core.timeline import ChunkKind, ServerTimings, Usage


class SseEvent(NamedTuple):
    """One dispatched event of a stream (WHATWG HTML, 9.2); an NDJSON line is one with an empty name.

    `data` is what the `data:` lines carried, joined by newlines. `wire_bytes` is its size on the wire: every byte of
    the stream counts once, so the sum up to an event is the offset in the stream at which it was complete.
    `truncated` marks data that is not whole: cut at the decoder's limit, or left over when the stream ended (only
    `close()` gives those; a browser would not dispatch them).
    """

    data: bytes
    name: str = ""
    id: str = ""
    wire_bytes: int = 0
    truncated: bool = False


class Comment(NamedTuple):
    """A comment line (`: ping`): bytes on the wire that carry nothing, a keep-alive."""

    text: bytes
    wire_bytes: int = 0


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one frame of a provider meant. A frame that means two things gives two, in the order to show them.

    `text` is generated text (of the answer, the reasoning or a tool call). `tokens` is how many tokens the frame
    itself says it carries (None: it does not say). `usage` and `server` are the frame's own totals and timings.
    `hidden` marks a frame that proves reasoning which nobody may read (encrypted or redacted): no token was seen.
    """

    kind: ChunkKind
    text: str = ""
    tokens: int | None = None
    usage: Usage | None = None
    server: ServerTimings | None = None
    finish_reason: str | None = None
    model: str | None = None
    error: str | None = None
    hidden: bool = False


class Dialect(Protocol):
    """How one provider's API speaks. Stateless between streams: `reader()` makes the state of one stream."""

    name: str

    def reader(self) -> Reader:
        """Make a reader for one streamed answer."""
        ...

    def body(self, data: bytes) -> list[Delta]:
        """Read an answer that was not streamed (one JSON body)."""
        ...


class Reader(Protocol):
    """Reads the frames of one streamed answer in order. Never raises on what a provider sends: it degrades."""

    def read(self, event: SseEvent) -> list[Delta]:
        """Read one frame: what it meant, nothing for a frame without meaning for timing."""
        ...
