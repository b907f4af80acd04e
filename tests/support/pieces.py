"""Bytes cut anywhere, and a check that work grows no faster than its input. For tests of cores that take bytes."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable

from hypothesis import strategies as st

CUTS = st.lists(st.integers(0, 1 << 16), max_size=6)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes in pieces, none of them empty; cuts may lie anywhere."""
    bounds = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


def each(data: bytes, size_bytes: int) -> list[bytes]:
    """The bytes in pieces of one size."""
    return [data[at : at + size_bytes] for at in range(0, len(data), size_bytes)]


def assert_linear(work: Callable[[bytes], object], unit: bytes, *, start: bytes = b"", base_bytes: int = 8192) -> None:
    """Sixteen times the bytes take less than a hundred times the processor's time: linear is 16, quadratic 256."""
    ratio = 0.0
    for _ in range(3):
        small, large = (_cpu_s(work, start + unit * (size // len(unit))) for size in (base_bytes, 16 * base_bytes))
        ratio = large / max(small, 20e-6)
        if ratio < 100:
            return
    raise AssertionError(f"16 times {unit!r} took {ratio:.0f} times as long")


def _cpu_s(work: Callable[[bytes], object], data: bytes) -> float:
    times = []
    for _ in range(3):
        before = time.process_time()
        work(data)
        times.append(time.process_time() - before)
    return min(times)


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that work holds at once, beside what was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
