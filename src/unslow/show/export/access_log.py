"""Access-log lines: one JSON object an exchange, without anything that the caller wrote or that opens a door.

No query values, no header values, no keys, no bodies: the path is cut at `?`, and the caller's key is named, not
shown. Which exchanges are logged is a pure decision (`Filter`), equal for every hop that samples by trace id.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from unslow.core.timeline import End, Metrics, Row, Timeline

_MASK = (1 << 64) - 1


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a line, unknown ones left out; durations in milliseconds.

    `phases` are the ledger's rows by label and sum to `duration_ms`.
    """

    time: str
    id: str
    trace_id: str
    end: str
    duration_ms: float
    client: str | None = None
    method: str | None = None
    path: str | None = None
    upstream: str | None = None
    model: str | None = None
    status: int | None = None
    stream: bool | None = None
    failed_phase: str | None = None
    kind: str | None = None
    ttft_ms: float | None = None
    ttfot_ms: float | None = None
    tpot_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    request_bytes: int | None = None
    response_bytes: int | None = None
    reused: bool | None = None
    retries: int | None = None
    worker: int | None = None
    phases: dict[str, float] = {}


class Filter(msgspec.Struct, frozen=True):
    """Which exchanges are logged.

    `errors_only` keeps failures (not completed, or a status outside 200-299); `min_ms` keeps those and what took at
    least so long. Of the successes left, `sample_ratio` keeps that share, chosen by the low 64 bits of the trace id
    (W3C Trace Context level 2: those are random), unless the caller's own decision (`sampled`) is known.
    """

    min_ms: float | None = None
    errors_only: bool = False
    sample_ratio: float = 1.0

    def keeps(self, timeline: Timeline, sampled: bool | None = None) -> bool:
        """Whether this exchange is logged."""
        status = timeline.facts.status
        if timeline.outcome.end is not End.COMPLETED or (status is not None and not 200 <= status < 300):
            return True
        if self.errors_only or (self.min_ms is not None and timeline.end_ns < self.min_ms * 1e6):
            return False
        if self.sample_ratio >= 1:
            return True
        return chosen(timeline.trace_id, self.sample_ratio) if sampled is None else sampled


def chosen(trace_id: str, ratio: float) -> bool:
    """Whether a trace falls in the share `ratio`; an id that is no hex number is kept."""
    try:
        low = int(trace_id[-16:], 16) & _MASK
    except ValueError:
        return True
    return low < ratio * (1 << 64)


def line(
    timeline: Timeline,
    derived: Metrics,
    rows: Iterable[Row],
    *,
    client: str | None = None,
    path: str | None = None,
    worker: int | None = None,
) -> bytes:
    """One line, the newline included; `derived` and `rows` are the Timeline's metrics and ledger."""
    facts, outcome, usage = timeline.facts, timeline.outcome, timeline.facts.usage
    return (
        _encoder.encode(
            Line(
                time=_rfc3339(timeline.started_at),
                id=facts.request_id or timeline.trace_id,
                trace_id=timeline.trace_id,
                end=outcome.end.value,
                duration_ms=round(timeline.end_ns / 1e6, 6),
                client=client,
                method=facts.method,
                path=path.partition("?")[0].partition("#")[0] if path else None,
                upstream=facts.upstream,
                model=facts.model,
                status=facts.status,
                stream=facts.stream,
                failed_phase=outcome.phase,
                kind=outcome.kind,
                ttft_ms=_ms(derived.ttft_ns),
                ttfot_ms=_ms(derived.ttfot_ns),
                tpot_ms=_ms(derived.tpot_ns),
                prompt_tokens=usage.prompt_tokens if usage else None,
                completion_tokens=usage.completion_tokens if usage else None,
                cached_tokens=usage.cached_tokens if usage else None,
                reasoning_tokens=usage.reasoning_tokens if usage else None,
                request_bytes=facts.request_bytes,
                response_bytes=facts.response_bytes,
                reused=facts.reused,
                retries=facts.retries,
                worker=worker,
                phases=_phases(rows),
            )
        )
        + b"\n"
    )


_encoder = msgspec.json.Encoder()


def _phases(rows: Iterable[Row]) -> dict[str, float]:
    sums: dict[str, int] = {}
    for row in rows:
        name = f"{row.hop}.{row.label}" if row.hop else row.label
        sums[name] = sums.get(name, 0) + row.duration_ns
    return {name: round(ns / 1e6, 6) for name, ns in sums.items()}


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else round(value_ns / 1e6, 6)


def _rfc3339(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "unknown"
