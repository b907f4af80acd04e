"""Latencies derived from a Timeline; each is `None` where the record does not tell.

Definitions (all in nanoseconds from an *origin*, see `Origin`):

- TTFB: first byte of the answer. TTFE: first stream event. TTFT: first generated token of any channel (reasoning,
  content, tool). TTFOT: first token that the reader sees (content, tool). A role-only or empty delta is no token.
- ICL: gaps between chunks that carry tokens. TPOT = (e2e - TTFT)/(n - 1), as the industry prints it.
  TPOT* = (t_last - t_first)/(n - n_first_chunk), unknown where the first chunk's count is unknown. NTPOT = e2e/n.
  In the first two n counts tokens received: reasoning that a provider keeps to itself comes before TTFT, not after it.
- Burst index: the share of ICL gaps below a tenth of their mean (buffering: TTFT up while the gaps fall).
- Fluidity index (Etalon, arXiv:2407.07000): the share of tokens that meet their deadlines, slack carried over.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

from unslow.core.timeline.answer import first_ns, last_ns
from unslow.core.timeline.record import OUTPUT_KINDS, TOKEN_KINDS, ChunkKind, Chunks, End, Phase, Source, Span, Timeline

BURST_RATIO = 0.1
"""A gap below this share of the mean gap is near zero."""


class Origin(StrEnum):
    """Where a latency starts: when it was due (`scheduled`), when it began, or when the request was on the wire."""

    SCHEDULED = "scheduled"
    START = "start"
    WIRE = "wire"


class Metrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """One exchange in numbers. `error_ns` is the stamp error of the TTFT chunk."""

    origin: Origin
    e2e_ns: int
    ttfb_ns: int | None = None
    ttfe_ns: int | None = None
    ttft_ns: int | None = None
    ttfot_ns: int | None = None
    icl_p50_ns: int | None = None
    icl_p95_ns: int | None = None
    icl_max_ns: int | None = None
    tpot_ns: float | None = None
    tpot_star_ns: float | None = None
    ntpot_ns: float | None = None
    burst_ratio: float | None = None
    send_lag_ns: int | None = None
    completion_tokens: int | None = None
    ttft_error_ns: int | None = None
    last_token_error_ns: int | None = None


def metrics(timeline: Timeline, origin: Origin = Origin.START) -> Metrics | None:
    """Derive the metrics; None where the Timeline does not know the origin asked for.

    What came before the origin (an answer that starts while the request is still being sent) is unknown as a latency.
    """
    zero = origin_ns(timeline, origin)
    if zero is None:
        return None
    chunks, gaps = timeline.chunks, icl_ns(timeline)
    first, last = first_ns(chunks, TOKEN_KINDS), last_ns(chunks)
    usage = timeline.facts.usage
    n, received = usage.completion_tokens if usage else None, received_tokens(timeline)
    e2e, ttft = timeline.end_ns - zero, _since(first, zero)
    return Metrics(
        origin=origin,
        e2e_ns=e2e,
        ttfb_ns=_since(first_byte_ns(timeline), zero),
        ttfe_ns=_since(_first_event_ns(chunks), zero),
        ttft_ns=ttft,
        ttfot_ns=_since(first_ns(chunks, OUTPUT_KINDS), zero),
        icl_p50_ns=quantile(gaps, 0.5),
        icl_p95_ns=quantile(gaps, 0.95),
        icl_max_ns=_widest(timeline, gaps),
        tpot_ns=(e2e - ttft) / (received - 1) if received is not None and received > 1 and ttft is not None else None,
        tpot_star_ns=_tpot_star(chunks, first, last, received),
        ntpot_ns=e2e / n if n else None,
        burst_ratio=burst_ratio(gaps),
        send_lag_ns=_send_lag(timeline),
        completion_tokens=n,
        ttft_error_ns=_error_at(chunks, first),
        last_token_error_ns=_error_at(chunks, last),
    )


def received_tokens(timeline: Timeline) -> int | None:
    """Tokens that came over the wire: those generated, without reasoning that the provider kept to itself."""
    usage, chunks = timeline.facts.usage, timeline.chunks
    if usage is None or usage.completion_tokens is None:
        return None
    seen = {*chunks.kind, *(chunks.beyond.kinds if chunks.beyond else ())}
    hidden = 0 if ChunkKind.REASONING in seen else usage.reasoning_tokens or 0
    return max(0, usage.completion_tokens - hidden)


def origin_ns(timeline: Timeline, origin: Origin) -> int | None:
    """The offset of an origin on the Timeline's axis."""
    if origin is Origin.START:
        return 0
    if origin is Origin.SCHEDULED:
        return timeline.scheduled_ns
    return sent_ns(timeline)


def sent_ns(timeline: Timeline) -> int | None:
    """When the last byte of the request was on the wire: the end of the party's own winning `send`."""
    sends = [s.end_ns for s in timeline.spans if s.phase is Phase.SEND and s.won and s.hop == timeline.party]
    return max(sends, default=None)


def first_byte_ns(timeline: Timeline) -> int | None:
    """When the first byte of the answer came: the end of the first measured, winning `wait` of the party.

    Never after its first chunk: stamps of the two may come from different places.
    """
    waits = [s for s in timeline.spans if s.phase is Phase.WAIT and s.won and s.hop == timeline.party]
    measured = [s for s in waits if s.source is Source.MEASURED]
    if not measured:
        return None
    first = min(measured, key=lambda s: (s.start_ns, s.end_ns))
    return min((first.end_ns, *timeline.chunks.arrival_ns[:1])) if _answered(timeline, first) else None


def _answered(timeline: Timeline, wait: Span) -> bool:
    """Whether a wait ended because bytes came, not because the exchange did.

    A gateway's record has a status even where the upstream said nothing: the one of its own answer to the client.
    """
    outcome = timeline.outcome
    if timeline.chunks:
        return True
    if timeline.facts.status is None:
        return False
    completed = outcome.end is End.COMPLETED or (outcome.kind or "").startswith("http_")
    return completed or wait.end_ns < timeline.end_ns


def icl_ns(timeline: Timeline) -> list[int]:
    """Gaps between kept chunks that carry tokens, in order."""
    chunks = timeline.chunks
    stamps = [t for t, k in zip(chunks.arrival_ns, chunks.kind, strict=True) if k in TOKEN_KINDS]
    return [b - a for a, b in itertools.pairwise(stamps)]


_Number = TypeVar("_Number", int, float)


def quantile(values: Sequence[_Number], q: float) -> _Number | None:
    """The q-quantile by the nearest-rank method (no value that was not measured); None for no values.

    The rank is ceil(q × n); the small subtrahend undoes what binary fractions add (0.55 × 100 > 55).
    """
    if not values:
        return None
    rank = math.ceil(q * len(values) - 1e-9)
    return sorted(values)[min(len(values), max(1, rank)) - 1]


def burst_ratio(gaps: list[int]) -> float | None:
    """Share of gaps that are near zero; unknown for fewer than four gaps."""
    if len(gaps) < 4:
        return None
    limit = BURST_RATIO * sum(gaps) / len(gaps)
    return sum(gap < limit or gap == 0 for gap in gaps) / len(gaps)


def fluidity(
    timeline: Timeline, *, ttft_target_ns: int, tpot_target_ns: int, origin: Origin = Origin.START
) -> float | None:
    """Share of tokens that arrive by their deadline; time saved early is slack for later ones.

    The first token is due `ttft_target_ns` after the origin, each next one `tpot_target_ns` after the one before; a
    miss moves the deadlines to the late arrival. A chunk of n tokens delivers n deadlines at once (one where its count
    is unknown). None without kept token chunks, or where the origin is unknown.
    """
    chunks, zero = timeline.chunks, origin_ns(timeline, origin)
    columns = zip(chunks.arrival_ns, chunks.kind, chunks.tokens, strict=True)
    tokens = [(stamp, n or 1) for stamp, kind, n in columns if kind in TOKEN_KINDS]
    if not tokens or zero is None:
        return None
    met, due = 0, zero + ttft_target_ns
    for stamp, n in tokens:
        late = stamp > due
        met += n - late
        due = (stamp if late else due) + n * tpot_target_ns
    return met / sum(n for _, n in tokens)


def _first_event_ns(chunks: Chunks) -> int | None:
    """Arrival of the first kept chunk that is an event: a comment, which keeps the connection alive, is none."""
    pairs = zip(chunks.arrival_ns, chunks.kind, strict=True)
    return next((t for t, kind in pairs if kind is not ChunkKind.KEEPALIVE), None)


def _since(value: int | None, zero: int) -> int | None:
    return None if value is None or value < zero else value - zero


def _widest(timeline: Timeline, gaps: list[int]) -> int | None:
    beyond = timeline.chunks.beyond
    unkept = [beyond.max_gap_ns] if beyond and beyond.last_token_ns is not None else []
    return max([*gaps, *unkept], default=None)


def _tpot_star(chunks: Chunks, first: int | None, last: int | None, n: int | None) -> float | None:
    if first is None or last is None or n is None:
        return None
    columns = zip(chunks.kind, chunks.tokens, strict=True)
    n_first = next((tokens for kind, tokens in columns if kind in TOKEN_KINDS), None)
    if n_first is None or n <= n_first or last <= first:
        return None
    return (last - first) / (n - n_first)


def _send_lag(timeline: Timeline) -> int | None:
    sent = sent_ns(timeline)
    return None if sent is None or timeline.scheduled_ns is None else sent - timeline.scheduled_ns


def _error_at(chunks: Chunks, stamp: int | None) -> int | None:
    """The stamp error of the kept token chunk that arrived at `stamp`; the widest where several did."""
    if not chunks.error_ns or stamp is None:
        return None
    columns = zip(chunks.arrival_ns, chunks.kind, chunks.error_ns, strict=True)
    return max((e for t, kind, e in columns if t == stamp and kind in TOKEN_KINDS), default=None)
