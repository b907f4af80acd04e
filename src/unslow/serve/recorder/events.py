"""Live events to the pages that listen: one bounded queue a listener, the slow one is let go.

`exchange` events are limited to `EXCHANGES_PER_S` (a page cannot show more); the `live` event says how many were
left out. A page that was let go reconnects and asks for the list again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

QUEUE = 256
EXCHANGES_PER_S = 50
KEEPALIVE_S = 10.0
MAX_LISTENERS = 32


class Listener:
    """One page's queue of encoded events; `None` in it is the end."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE)
        self.gone = False

    async def events(self, keepalive_s: float = KEEPALIVE_S) -> AsyncGenerator[bytes, None]:
        """Encoded events as they come, a comment where nothing came for a while; ends when let go."""
        yield b"retry: 1000\n\n: hello\n\n"
        while not (self.gone and self.queue.empty()):
            try:
                event = await asyncio.wait_for(self.queue.get(), keepalive_s)
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            if event is None:
                return
            yield event


class Hub:
    """All listeners."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._closed = False
        self._budget = EXCHANGES_PER_S
        self.skipped = 0
        self.let_go = 0

    def __len__(self) -> int:
        """Listeners now."""
        return len(self._listeners)

    def join(self) -> Listener | None:
        """A new listener; None where there are too many, or at the end."""
        if self._closed or len(self._listeners) >= MAX_LISTENERS:
            return None
        listener = Listener()
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget a listener."""
        self._listeners.discard(listener)

    def admit(self) -> bool:
        """Whether one more `exchange` event may be sent this second; counts those that may not."""
        if self._budget > 0:
            self._budget -= 1
            return True
        self.skipped += 1
        return False

    def refill(self) -> int:
        """Begin a second; how many events the last one left out."""
        skipped, self.skipped, self._budget = self.skipped, 0, EXCHANGES_PER_S
        return skipped

    def send(self, name: str, data: bytes) -> None:
        """Tell every listener. `data` is one line of JSON."""
        event = b"event: %b\ndata: %b\n\n" % (name.encode(), data)
        for listener in tuple(self._listeners):
            try:
                listener.queue.put_nowait(event)
            except asyncio.QueueFull:
                self._let_go(listener)

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        for listener in tuple(self._listeners):
            self._end(listener)

    def _let_go(self, listener: Listener) -> None:
        self.let_go += 1
        self._end(listener)

    def _end(self, listener: Listener) -> None:
        listener.gone = True
        self._listeners.discard(listener)
        if not listener.queue.full():
            listener.queue.put_nowait(None)
