"""How a measured request fails: the tree of `unslow.errors`, each with a stable `kind` for the record's outcome."""

from __future__ import annotations

from unslow.core.timeline import End, Outcome, Phase
from unslow.errors import ConnectFailed, PhaseTimeout, StreamTruncated, UpstreamError

SECOND_NS = 1_000_000_000


class DialFailed(ConnectFailed):
    """No connection. `kind` is stable: `connection_refused`, `name_unknown`, `certificate_expired`."""

    def __init__(self, why: str, *, phase: Phase, kind: str) -> None:
        super().__init__(why, phase=phase)
        self.kind = kind


class ExchangeFailed(UpstreamError):
    """The connection stood, the exchange failed. `kind` is stable: `connection_reset`, `not_http`, `h2_goaway`.

    `unanswered` is True when not one byte of an answer came, so that a fresh connection may be tried.
    """

    def __init__(self, why: str, *, phase: Phase, kind: str, unanswered: bool = False) -> None:
        super().__init__(why, phase=phase)
        self.kind, self.unanswered = kind, unanswered


class Truncated(StreamTruncated):
    """The answer ended before its own end mark."""

    kind = "truncated"


class TimedOut(PhaseTimeout):
    """A phase, or the whole exchange, took longer than its limit."""

    def __init__(self, phase: Phase, limit_s: float, *, total: bool = False, what: str = "") -> None:
        self.kind = "total_timeout" if total else f"{phase}_timeout"
        named = what or f"no end of `{phase}`"
        option = "raise --timeout-s to wait longer" if total else "the other side did not react"
        super().__init__(f"{named} within {limit_s:g} s: {option}", phase=phase, limit_ns=int(limit_s * SECOND_NS))


def outcome_of(error: UpstreamError) -> Outcome:
    """A failure as the record keeps it."""
    kind = getattr(error, "kind", None)
    return Outcome(End.FAILED, Phase(error.phase), kind or "failed", str(error))
