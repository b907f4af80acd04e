"""Admission to one upstream: so many in flight, so many waiting in order of arrival, the rest refused at once."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from unslow.errors import AdmissionRejected

T = TypeVar("T")


class Admission(Generic[T]):
    """Places at an upstream. Cheap when nobody waits: two comparisons."""

    __slots__ = ("_mean_ns", "active", "limit", "max_waiting", "waiting")

    def __init__(self, limit: int, max_waiting: int) -> None:
        self.limit, self.max_waiting = limit, max_waiting
        self.active = 0
        self.waiting: deque[T] = deque()
        self._mean_ns = 0.0

    def offer(self, request: T) -> bool:
        """Give the request a place (True) or put it in the queue (False). Raises AdmissionRejected."""
        if self.active < self.limit and not self.waiting:
            self.active += 1
            return True
        if len(self.waiting) >= self.max_waiting:
            raise AdmissionRejected("queue_full", retry_after_s=self.retry_after_s())
        self.waiting.append(request)
        return False

    def withdraw(self, request: T) -> None:
        """Take a request out of the queue, if it still waits."""
        if request in self.waiting:
            self.waiting.remove(request)

    def release(self, held_ns: int) -> T | None:
        """Give a place back after `held_ns`; the request that gets it now, if one waits."""
        self._mean_ns += (held_ns - self._mean_ns) / 8 if self._mean_ns else held_ns
        if self.waiting and self.active <= self.limit:
            return self.waiting.popleft()
        self.active -= 1
        return None

    def retry_after_s(self) -> float:
        """When a place should be free: the queue ahead, at the pace at which places come back (at least 1 s)."""
        per_place_s = self._mean_ns / 1e9 / max(1, self.limit)
        return max(1.0, (len(self.waiting) + 1) * per_place_s)
