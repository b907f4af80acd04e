"""The ledger: wall time split into rows that sum to it exactly.

Theory of operation. Cut [0, end_ns) at every span boundary; each piece goes to one of the spans that cover it:

1. What won before what was lost, but for one thing: an outer hop's `wait` yields to an attempt that was lost further
   in. So overlapping attempts count once, under the one that won; a slow losing AAAA query explains nothing once the
   connection goes on; and a gateway's failed first try is what its client waited for.
2. `wait` yields to anything that is not `wait`: it only says that its party saw nothing.
3. measured before reported before inferred.
4. the finer before the coarser: the inner hop before the outer one, so that what an outer party keeps is the way to
   the inner one; of one hop, the shorter before the longer. What is still equal is settled by attempt, phase and
   start, so the order in which spans were noted never matters.

What no span covers is a row of its own, `unexplained` (phase None). Time: O(n log n) in the number of spans.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from unslow.core.timeline.record import Hop, Phase, Source, Span, Timeline

PHASES = tuple(Phase)
_PHASE_ORDER = {phase: n for n, phase in enumerate(PHASES)}
_HOP_ORDER = {hop: n for n, hop in enumerate(Hop)}
_SOURCE_ORDER = {source: n for n, source in enumerate(Source)}


class Slice(msgspec.Struct, frozen=True):
    """A stretch of wall time and the span that explains it (None: nothing does)."""

    start_ns: int
    end_ns: int
    span: Span | None


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the ledger. `phase` None is the time that nothing explains."""

    phase: Phase | None
    duration_ns: int
    hop: Hop | None = None
    source: Source | None = None
    attempt: int = 0
    won: bool = True

    @property
    def label(self) -> str:
        """The row's name as people read it: `wait`, `wait (lost attempt 1)`, `unexplained`."""
        if self.phase is None:
            return "unexplained"
        return self.phase.value if self.won else f"{self.phase.value} (lost attempt {self.attempt + 1})"


def ledger(timeline: Timeline) -> tuple[Row, ...]:
    """Rows in the order of phases, `unexplained` last; their durations sum to `timeline.end_ns` exactly."""
    sums: dict[tuple[Phase | None, Hop | None, Source | None, int, bool], int] = defaultdict(int)
    for piece in slices(timeline):
        s = piece.span
        key = (s.phase, s.hop, s.source, s.attempt, s.won) if s else (None, None, None, 0, True)
        sums[key] += piece.end_ns - piece.start_ns
    rows = [Row(phase, ns, hop, source, attempt, won) for (phase, hop, source, attempt, won), ns in sums.items()]
    return tuple(sorted(rows, key=_row_order))


def slices(timeline: Timeline) -> tuple[Slice, ...]:
    """Wall time [0, end_ns) in order, each stretch with the span that explains it."""
    pieces = _clip(_attempts_once(timeline.spans), timeline.end_ns)
    return tuple(_merge(_sweep(pieces, timeline.end_ns)))


_Piece = tuple[int, int, Span]


def _row_order(row: Row) -> tuple[int, int, int, int, bool]:
    if row.phase is None:
        return (len(PHASES), 0, 0, 0, False)
    hop = _HOP_ORDER[row.hop] if row.hop else 0
    return (_PHASE_ORDER[row.phase], hop, row.attempt, _SOURCE_ORDER[row.source] if row.source else 0, row.won)


def _attempts_once(spans: Iterable[Span]) -> Iterator[_Piece]:
    """Spans as pieces, with every lost attempt cut where a won span of its own hop or one further in runs (rule 1)."""
    won: list[Span] = []
    lost: dict[Hop, list[Span]] = defaultdict(list)
    for span in spans:
        if span.won:
            won.append(span)
            yield span.start_ns, span.end_ns, span
        else:
            lost[span.hop].append(span)
    for hop, attempts in lost.items():
        inward = _union([(s.start_ns, s.end_ns) for s in won if _HOP_ORDER[s.hop] >= _HOP_ORDER[hop]])
        for span in attempts:
            yield from ((a, b, span) for a, b in _minus(span.start_ns, span.end_ns, inward))


def _union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def _minus(start: int, end: int, holes: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """[start, end) without the holes, which are apart and in order."""
    for n in range(bisect.bisect_right(holes, start, key=lambda hole: hole[1]), len(holes)):
        a, b = holes[n]
        if a >= end:
            break
        if a > start:
            yield start, a
        start = b
    if start < end:
        yield start, end


def _clip(pieces: Iterable[_Piece], end_ns: int) -> list[_Piece]:
    clipped = [(max(0, a), min(b, end_ns), span) for a, b, span in pieces]
    return sorted((p for p in clipped if p[0] < p[1]), key=lambda p: p[0])


_Rank = tuple[int, int, int, int, int, int, int]


def _rank(span: Span) -> _Rank:
    """Smaller wins: rules 1 and 2, then 3, then 4, then what settles ties."""
    opaque = span.phase is Phase.WAIT
    standing = (3 if opaque else 0) if span.won else (2 if opaque else 1)
    finer = (-_HOP_ORDER[span.hop], span.end_ns - span.start_ns)
    return (standing, _SOURCE_ORDER[span.source], *finer, span.attempt, _PHASE_ORDER[span.phase], span.start_ns)


def _sweep(pieces: list[_Piece], end_ns: int) -> Iterator[Slice]:
    """Walk the cuts from left to right with a heap of the pieces that are open: O(n log n)."""
    cuts = sorted({0, end_ns, *(p[0] for p in pieces), *(p[1] for p in pieces)})
    heap: list[tuple[_Rank, int, int, Span]] = []
    n = 0
    for start, end in itertools.pairwise(cuts):
        while n < len(pieces) and pieces[n][0] <= start:
            heapq.heappush(heap, (_rank(pieces[n][2]), n, pieces[n][1], pieces[n][2]))
            n += 1
        while heap and heap[0][2] <= start:
            heapq.heappop(heap)
        yield Slice(start, end, heap[0][3] if heap else None)


def _merge(pieces: Iterable[Slice]) -> Iterator[Slice]:
    held: Slice | None = None
    for piece in pieces:
        if held is not None and held.span is piece.span:
            held = Slice(held.start_ns, piece.end_ns, held.span)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held
