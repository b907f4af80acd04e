"""Who runs and who waits: first come, first served, within the places and the KV cache there are.

The backend would take any number of requests and evict or recompute when its cache runs full. Here a request starts
only when its prompt and its longest answer fit beside those that run, so that nothing that runs is ever thrown out.
"""

from __future__ import annotations

from collections import OrderedDict


class Admission:
    """Keys of requests, waiting and running. Pure: no clock, no backend."""

    def __init__(self, max_streams: int, max_queue: int, kv_tokens: int) -> None:
        self._max_streams, self._max_queue, self._free_tokens = max_streams, max_queue, kv_tokens
        self.kv_tokens = kv_tokens
        self._waiting: OrderedDict[int, int] = OrderedDict()
        self._running: dict[int, int] = {}

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that run."""
        return len(self._running)

    def offer(self, key: int, tokens: int) -> bool:
        """Queue a request that may come to hold `tokens`; False when the queue is full."""
        if len(self._waiting) >= self._max_queue + max(0, self._max_streams - len(self._running)):
            return False
        self._waiting[key] = tokens
        return True

    def start(self) -> int | None:
        """The next request's key if it may run now; it then counts as running."""
        if not self._waiting or len(self._running) >= self._max_streams:
            return None
        key, tokens = next(iter(self._waiting.items()))
        if tokens > self._free_tokens:
            return None
        del self._waiting[key]
        self._running[key] = tokens
        self._free_tokens -= tokens
        return key

    def leave(self, key: int) -> bool:
        """The request is over, wherever it was. True if it was running."""
        if key in self._running:
            self._free_tokens += self._running.pop(key)
            return True
        self._waiting.pop(key, None)
        return False
