"""The record of one exchange, its ledger and its metrics. See `record.py` for the theory of operation."""

from unslow.core.timeline.answer import answer_spans, last_ns, reported_spans
from unslow.core.timeline.facts import CountSource, Facts, ServerTimings, TcpInfo, Usage
from unslow.core.timeline.join import clock_of, join
from unslow.core.timeline.jsonl import dump_line, load_line, load_lines
from unslow.core.timeline.ledger import Row, Slice, ledger, slices
from unslow.core.timeline.metrics import Metrics, Origin, fluidity, icl_ns, metrics, quantile, sent_ns
from unslow.core.timeline.record import (
    OUTPUT_KINDS,
    SCHEMA_VERSION,
    TOKEN_KINDS,
    Beyond,
    ChunkKind,
    Chunks,
    Clock,
    End,
    Hop,
    Outcome,
    Phase,
    Source,
    Span,
    Timeline,
    problems,
)

__all__ = [
    "OUTPUT_KINDS",
    "SCHEMA_VERSION",
    "TOKEN_KINDS",
    "Beyond",
    "ChunkKind",
    "Chunks",
    "Clock",
    "CountSource",
    "End",
    "Facts",
    "Hop",
    "Metrics",
    "Origin",
    "Outcome",
    "Phase",
    "Row",
    "ServerTimings",
    "Slice",
    "Source",
    "Span",
    "TcpInfo",
    "Timeline",
    "Usage",
    "answer_spans",
    "clock_of",
    "dump_line",
    "fluidity",
    "icl_ns",
    "join",
    "last_ns",
    "ledger",
    "load_line",
    "load_lines",
    "metrics",
    "problems",
    "quantile",
    "reported_spans",
    "sent_ns",
    "slices",
]
