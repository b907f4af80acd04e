"""How long to wait before a child is started again. Pure."""

from __future__ import annotations

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Doubling pauses from `min_s` to `max_s`; a child that ran `steady_s` starts over at `min_s`."""

    min_s: float = 0.2
    max_s: float = 15.0
    steady_s: float = 30.0

    def pause_s(self, failures: int) -> float:
        """Pause before the next start, after so many failures in a row (1 for the first)."""
        return float(min(self.max_s, self.min_s * 2 ** min(failures - 1, 32)))

    def failures_after(self, failures: int, ran_s: float) -> int:
        """Failures in a row, once a child that ran for `ran_s` has ended."""
        return 1 if ran_s >= self.steady_s else failures + 1
