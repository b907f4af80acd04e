"""One coarse timer for all connections: each is visited about twice a second, and nothing is armed or cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

BUCKETS = 2
TICK_S = 0.25


class Timed(Protocol):
    """What the wheel visits."""

    def expire(self, now_ns: int) -> None:
        """Act on whatever wait is overdue."""
        ...


class Wheel:
    """Connections in a few buckets; one bucket a tick."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: list[set[Timed]] = [set() for _ in range(BUCKETS)]
        self._turn = self._next = 0
        self.on_turn: list[Callable[[int], None]] = []
        """Called once a turn of the wheel (about twice a second) with the time."""

    def add(self, timed: Timed) -> set[Timed]:
        """Visit it from now on; discard it from the set given back to stop."""
        self._next = (self._next + 1) % BUCKETS
        bucket = self._buckets[self._next]
        bucket.add(timed)
        return bucket

    def start(self) -> None:
        """Turn until the loop ends."""
        self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._loop.call_later(TICK_S, self._tick)
        now_ns = perf_counter_ns()
        self._turn = (self._turn + 1) % BUCKETS
        for timed in list(self._buckets[self._turn]):
            timed.expire(now_ns)
        if not self._turn:
            for call in self.on_turn:
                call(now_ns)
