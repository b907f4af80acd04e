"""What every surface shows of an exchange: terminal, HTML file, JSON and the console read this and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from unslow.core.timeline import (
    Hop,
    Metrics,
    Origin,
    Phase,
    Row,
    Source,
    Timeline,
    ledger,
    metrics,
    slices,
)

REPORT_SCHEMA_VERSION = 1


class LedgerRow(msgspec.Struct, frozen=True):
    """A row of the ledger, ready to show. `phase` is None for the time that nothing explains."""

    label: str
    duration_ns: int
    phase: Phase | None
    hop: Hop | None
    source: Source | None
    attempt: int
    won: bool


class Bar(msgspec.Struct, frozen=True):
    """A stretch of wall time on the waterfall; `row` is the index of its ledger row."""

    start_ns: int
    end_ns: int
    row: int


class Exchange(msgspec.Struct, frozen=True):
    """One exchange, derived values included. `id` names it in the history; rows sum to `timeline.end_ns`."""

    id: str
    timeline: Timeline
    rows: tuple[LedgerRow, ...]
    bars: tuple[Bar, ...]
    metrics: Metrics
    wire: Metrics | None


class Target(msgspec.Struct, frozen=True):
    """What was measured. `url` carries no credentials."""

    url: str
    model: str | None
    dialect: str | None


class Report(msgspec.Struct, frozen=True):
    """A report: what was asked, every exchange, and the findings (none yet in this version)."""

    schema_version: int
    unslow_version: str
    created_at: float
    target: Target
    exchanges: tuple[Exchange, ...]
    findings: tuple[dict[str, Any], ...] = ()


def exchange(timeline: Timeline) -> Exchange:
    """Derive what is shown of one Timeline."""
    rows = ledger(timeline)
    index = {_key(row): n for n, row in enumerate(rows)}
    bars = []
    for piece in slices(timeline):
        s = piece.span
        key = (s.phase, s.hop, s.source, s.attempt, s.won) if s else (None, None, None, 0, True)
        bars.append(Bar(piece.start_ns, piece.end_ns, index[key]))
    started = metrics(timeline)
    assert started is not None  # a Timeline always knows its own start
    return Exchange(
        id=timeline.facts.request_id or timeline.trace_id,
        timeline=timeline,
        rows=tuple(LedgerRow(r.label, r.duration_ns, r.phase, r.hop, r.source, r.attempt, r.won) for r in rows),
        bars=tuple(bars),
        metrics=started,
        wire=metrics(timeline, Origin.WIRE),
    )


def report(target: Target, timelines: Iterable[Timeline], *, version: str, created_at: float) -> Report:
    """A report of these Timelines, in the order given."""
    return Report(REPORT_SCHEMA_VERSION, version, created_at, target, tuple(exchange(t) for t in timelines))


def _key(row: Row) -> tuple[Phase | None, Hop | None, Source | None, int, bool]:
    return (row.phase, row.hop, row.source, row.attempt, row.won)
