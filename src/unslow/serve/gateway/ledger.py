"""The ledger inside a stream: one SSE comment before the event that ends it, since clients stop reading there.

Only a stream that asks for it takes this way: its events are looked at before they go out, whole ones at once, and
the start of an unfinished one is held until it is whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from unslow.core.wire.http1 import chunk
from unslow.serve.gateway.observer import Observer

_BLANK = re.compile(rb"\r?\n\r?\n|\r\r")
_MAX_HELD_BYTES = 64 << 10
"""Of an unfinished event; a longer one is no end mark, and goes on as it comes."""


class LedgerComment:
    """Rewrites a stream's payload: chunks out, with the comment before the last event."""

    def __init__(self, observer: Observer, comment: Callable[[int], bytes], *, chunked: bool) -> None:
        self._observer, self._comment, self._chunked = observer, comment, chunked
        self._held = b""
        self._said = False

    def feed(self, pieces: list[bytes], now_ns: int, *, done: bool) -> bytes:
        """What goes to the client for this payload."""
        data = self._held + b"".join(pieces)
        out, at = [], 0
        for blank in _BLANK.finditer(data, max(0, len(self._held) - 3)):
            out.append(self._event(data[at : blank.end()], now_ns))
            at = blank.end()
        self._held = data[at:]
        if done or len(self._held) > _MAX_HELD_BYTES:
            out.append(self._event(self._held, now_ns))
            self._held = b""
        payload = b"".join(out)
        if not self._chunked:
            return payload
        return chunk(payload) + (b"0\r\n\r\n" if done else b"")

    def _event(self, event: bytes, now_ns: int) -> bytes:
        self._observer.look([event], now_ns)
        if self._observer.settled().done and not self._said:
            self._said = True
            return self._comment(now_ns) + event
        return event
