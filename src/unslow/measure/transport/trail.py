"""What one measured request leaves behind while it runs: spans, facts, notes; and its deadlines."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from unslow.core.timeline import Clock, Hop, Phase, Span
from unslow.measure.transport.clock import Mapping, drift_ns, map_wall_clock, now_ns, own_clock
from unslow.measure.transport.failures import SECOND_NS, TimedOut


class Deadline:
    """When a phase must be over: its own limit or the whole exchange's, whichever comes first."""

    def __init__(self, phase: Phase, limit_s: float, trail: Trail, *, what: str = "") -> None:
        own = now_ns() + int(limit_s * SECOND_NS)
        self.total = trail.until_ns < own
        self.until_ns = min(own, trail.until_ns)
        self.phase, self.what = phase, what
        self.limit_s = trail.total_s if self.total else limit_s

    def check(self) -> None:
        """Raise TimedOut once the time is up."""
        if now_ns() >= self.until_ns:
            raise self.error()

    def error(self) -> TimedOut:
        """The failure that this deadline stands for."""
        return TimedOut(self.phase, self.limit_s, total=self.total, what=self.what)


class Trail:
    """Times are raw monotonic nanoseconds until `spans()` moves them onto the record's axis.

    A *leg* is one try to get an answer (the first request, each redirect, a retry on a fresh connection); what a
    leg's attempts were is numbered on across legs, so that spans of one hop and attempt never overlap.
    """

    def __init__(self, *, total_s: float = 600.0) -> None:
        self.wall: Mapping = map_wall_clock()
        self.started_at = time.time()
        self.zero_ns = now_ns()
        self.total_s = total_s
        self.until_ns = self.zero_ns + int(total_s * SECOND_NS)
        self.attempt = 0
        self.facts: dict[str, Any] = {}
        self.notes: list[str] = []
        self._spans: list[Span] = []
        self._leg_start = 0
        self._next_attempt = 1

    def span(
        self, phase: Phase, hop: Hop, start_ns: int, end_ns: int, *, attempt: int | None = None, won: bool = True
    ) -> None:
        """Note a span in raw monotonic time; by default of the attempt that is being made."""
        number = self.attempt if attempt is None else attempt
        start = start_ns - self.zero_ns
        self._spans.append(Span(phase, hop, start, max(start, end_ns - self.zero_ns), attempt=number, won=won))

    def new_attempt(self) -> int:
        """A number no attempt has had."""
        number = self._next_attempt
        self._next_attempt += 1
        return number

    def new_leg(self) -> None:
        """What was done so far led to no answer of its own: mark it lost and number on."""
        lost = [msgspec.structs.replace(s, won=False) for s in self._spans[self._leg_start :]]
        self._spans[self._leg_start :] = lost
        self._leg_start = len(self._spans)
        self.attempt = self.new_attempt()

    def note(self, text: str) -> None:
        """Add a line about what we did ourselves."""
        if text not in self.notes:
            self.notes.append(text)

    def spans(self) -> tuple[Span, ...]:
        """Spans on the record's axis (offsets from `zero_ns`)."""
        return tuple(self._spans)

    def clock_step_ns(self) -> int:
        """How far somebody set the wall clock since the start: kernel stamps are wrong by as much."""
        return drift_ns(self.wall, map_wall_clock())

    def clock(self) -> Clock:
        """The axis as other parties on this machine can read it."""
        return own_clock(self.zero_ns)

    def kernel_clock(self) -> Clock:
        """How the kernel's wall-clock stamps were mapped onto the axis."""
        return Clock("kernel:realtime", self.wall.offset_ns - self.zero_ns, self.wall.error_ns)
