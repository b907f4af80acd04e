"""Latencies derived from a Timeline; each is `None` where the record does not tell.

Definitions (all in nanoseconds from an *origin*, see `Origin`):

- TTFB: first byte of the answer. TTFE: first stream event. TTFT: first generated token of any channel (reasoning,
  content, tool). TTFOT: first token that the reader sees (content, tool). A role-only or empty delta is no token.
- ICL: gaps between chunks that carry tokens. TPOT = (e2e - TTFT)/(n - 1), as the industry prints it.
  TPOT* = (t_last - t_first)/(n - n_first_chunk), unknown where the first chunk's count is unknown. NTPOT = e2e/n.
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

from unslow.core.timeline.record import OUTPUT_KINDS, TOKEN_KINDS, ChunkKind, Phase, Source, Timeline

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
    """Derive the metrics; None where the Timeline does not know the origin asked for."""
    zero = origin_ns(timeline, origin)
    if zero is None:
        return None
    chunks = timeline.chunks
    first = first_of(timeline, TOKEN_KINDS)
    last = last_token_ns(timeline)
    gaps = icl_ns(timeline)
    n = timeline.facts.usage.completion_tokens if timeline.facts.usage else None
    e2e = timeline.end_ns - zero
    ttft = None if first is None else chunks.arrival_ns[first] - zero
    return Metrics(
        origin=origin,
        e2e_ns=e2e,
        ttfb_ns=_since(first_byte_ns(timeline), zero),
        ttfe_ns=_since(_arrival(timeline, frozenset(ChunkKind) - {ChunkKind.KEEPALIVE}), zero),
        ttft_ns=ttft,
        ttfot_ns=_since(_arrival(timeline, OUTPUT_KINDS), zero),
        icl_p50_ns=quantile(gaps, 0.5),
        icl_p95_ns=quantile(gaps, 0.95),
        icl_max_ns=_widest(timeline, gaps),
        tpot_ns=(e2e - ttft) / (n - 1) if n is not None and n > 1 and ttft is not None else None,
        tpot_star_ns=_tpot_star(timeline, first, last, n),
        ntpot_ns=e2e / n if n else None,
        burst_ratio=burst_ratio(gaps),
        send_lag_ns=_send_lag(timeline),
        completion_tokens=n,
        ttft_error_ns=None if first is None or not chunks.error_ns else chunks.error_ns[first],
        last_token_error_ns=_last_error(timeline),
    )


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
    """When the first byte of the answer came: the end of the first measured, winning `wait` of the party."""
    waits = [s for s in timeline.spans if s.phase is Phase.WAIT and s.won and s.hop == timeline.party]
    measured = [s for s in waits if s.source is Source.MEASURED]
    if not measured or (timeline.facts.status is None and not timeline.chunks):
        return None
    return min(measured, key=lambda s: s.start_ns).end_ns


def first_of(timeline: Timeline, kinds: frozenset[ChunkKind]) -> int | None:
    """Index of the first kept chunk of these kinds."""
    return next((n for n, kind in enumerate(timeline.chunks.kind) if kind in kinds), None)


def last_token_ns(timeline: Timeline) -> int | None:
    """Arrival of the last chunk that carried tokens, kept or not."""
    chunks = timeline.chunks
    if chunks.beyond is not None and chunks.beyond.last_token_ns is not None:
        return chunks.beyond.last_token_ns
    return max((t for t, k in zip(chunks.arrival_ns, chunks.kind, strict=True) if k in TOKEN_KINDS), default=None)


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


def fluidity(timeline: Timeline, *, ttft_target_ns: int, tpot_target_ns: int) -> float | None:
    """Share of token chunks that arrive by their deadline; time saved early is slack for later ones.

    The first chunk is due at `ttft_target_ns`, each next one `tpot_target_ns` after the last one's deadline; a miss
    moves the deadlines to the late arrival. None without token chunks.
    """
    chunks = timeline.chunks
    stamps = [t for t, k in zip(chunks.arrival_ns, chunks.kind, strict=True) if k in TOKEN_KINDS]
    if not stamps:
        return None
    met, due = 0, ttft_target_ns
    for stamp in stamps:
        if stamp <= due:
            met += 1
        else:
            due = stamp
        due += tpot_target_ns
    return met / len(stamps)


def _arrival(timeline: Timeline, kinds: frozenset[ChunkKind]) -> int | None:
    n = first_of(timeline, kinds)
    return None if n is None else timeline.chunks.arrival_ns[n]


def _since(value: int | None, zero: int) -> int | None:
    return None if value is None else value - zero


def _widest(timeline: Timeline, gaps: list[int]) -> int | None:
    beyond = timeline.chunks.beyond
    return max([*gaps, beyond.max_gap_ns] if beyond else gaps, default=None)


def _tpot_star(timeline: Timeline, first: int | None, last: int | None, n: int | None) -> float | None:
    if first is None or last is None or n is None:
        return None
    n_first = timeline.chunks.tokens[first]
    if n_first is None or n <= n_first:
        return None
    return (last - timeline.chunks.arrival_ns[first]) / (n - n_first)


def _send_lag(timeline: Timeline) -> int | None:
    sent = sent_ns(timeline)
    return None if sent is None or timeline.scheduled_ns is None else sent - timeline.scheduled_ns


def _last_error(timeline: Timeline) -> int | None:
    chunks = timeline.chunks
    if not chunks.error_ns or (chunks.beyond and chunks.beyond.last_token_ns is not None):
        return None
    errors = [e for e, k in zip(chunks.error_ns, chunks.kind, strict=True) if k in TOKEN_KINDS]
    return errors[-1] if errors else None
