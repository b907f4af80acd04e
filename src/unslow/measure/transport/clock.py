"""The session's clocks: one monotonic axis, and the kernel's wall-clock stamps mapped onto it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from unslow.core.timeline import Clock

_SAMPLES = 15
_STEP_NS = 200_000
"""A move of the wall clock against the monotonic one that sampling noise does not explain: somebody set the clock."""

now_ns = time.perf_counter_ns


class Mapping(NamedTuple):
    """`monotonic = wall + offset_ns`, wrong by at most `error_ns`."""

    offset_ns: int
    error_ns: int


def map_wall_clock() -> Mapping:
    """Read the wall clock between two readings of the monotonic one; the tightest pair of several wins.

    Both clocks run at one rate on Linux (adjtimex slews both), so one sample holds until somebody sets the clock.
    """
    best: Mapping | None = None
    for _ in range(_SAMPLES):
        before, wall, after = now_ns(), time.time_ns(), now_ns()
        half = (after - before + 1) // 2
        if best is None or half < best.error_ns:
            best = Mapping(before + half - wall, half)
    assert best is not None
    return best


def drift_ns(first: Mapping, last: Mapping) -> int:
    """How far the wall clock was set between two samples; 0 for noise."""
    moved = abs(last.offset_ns - first.offset_ns)
    return moved if moved > _STEP_NS + first.error_ns + last.error_ns else 0


def boot_id() -> str:
    """Names this boot of this machine: clocks of one boot are one clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def own_clock(zero_ns: int) -> Clock:
    """The monotonic clock of this machine, with `zero_ns` as the axis' 0."""
    boot = boot_id()
    if boot == "unknown":
        return Clock("unknown")
    return Clock(f"monotonic:{boot}", -zero_ns, 0)
