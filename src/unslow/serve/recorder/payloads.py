"""What the console's API says, as structs; the OpenAPI document is made from them."""

from __future__ import annotations

import msgspec

from unslow.core.timeline import End, Metrics, Phase, Row, Timeline
from unslow.serve.recorder.history import HistoryState
from unslow.serve.recorder.protocol import Snapshot
from unslow.serve.recorder.settings import UpstreamSummary


class SummaryRow(msgspec.Struct, frozen=True):
    """A ledger row in short. `phase` is null for the time that nothing explains."""

    phase: Phase | None
    label: str
    duration_ns: int


class Summary(msgspec.Struct, frozen=True):
    """An exchange as lists show it; `rows` sum to `e2e_ns`."""

    id: str
    started_at: float
    model: str | None
    upstream: str | None
    status: int | None
    end: End
    kind: str | None
    stream: bool | None
    e2e_ns: int
    ttft_ns: int | None
    tokens: int | None
    rows: tuple[SummaryRow, ...]


class Page(msgspec.Struct, frozen=True):
    """A page of exchanges, newest first. `next` is the cursor of the page after it, null at the end."""

    items: tuple[Summary, ...]
    next: str | None


class Live(msgspec.Struct, frozen=True):
    """What the workers do now. `skipped` counts `exchange` events left out since the last `live` (over the rate)."""

    at: float
    workers: tuple[Snapshot, ...]
    skipped: int


class Config(msgspec.Struct, frozen=True):
    """What is configured, and how the history stands."""

    version: str
    gateway_url: str | None
    models: tuple[str, ...]
    upstreams: tuple[UpstreamSummary, ...]
    engine: dict[str, object] | None
    history: HistoryState
    settings: dict[str, object]


class Ready(msgspec.Struct, frozen=True):
    """Readiness. `degraded` has one line for each part that works in a lesser way."""

    ready: bool
    degraded: tuple[str, ...]


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    ok: bool


class Purged(msgspec.Struct, frozen=True):
    """How many records were deleted."""

    deleted: int


class Accepted(msgspec.Struct, frozen=True):
    """The exchange that a Timeline was added to."""

    id: str


class ErrorBody(msgspec.Struct, frozen=True):
    """What went wrong and what to do, in one line."""

    code: str
    message: str


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Every refusal has this shape."""

    error: ErrorBody


def summary(timeline: Timeline, derived: Metrics, rows: tuple[Row, ...]) -> Summary:
    """The summary of a Timeline, from its metrics and ledger."""
    facts, outcome, usage = timeline.facts, timeline.outcome, timeline.facts.usage
    return Summary(
        id=facts.request_id or timeline.trace_id,
        started_at=timeline.started_at,
        model=facts.model,
        upstream=facts.upstream,
        status=facts.status,
        end=outcome.end,
        kind=outcome.kind,
        stream=facts.stream,
        e2e_ns=timeline.end_ns,
        ttft_ns=derived.ttft_ns,
        tokens=usage.completion_tokens if usage else None,
        rows=tuple(SummaryRow(r.phase, r.label, r.duration_ns) for r in rows),
    )
