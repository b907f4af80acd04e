"""Timelines that several parties took of one exchange, joined on the outermost party's clock.

Theory of operation. Parties are placed from the outside in, each by the best that is known:

1. A party that shares a clock with one already placed maps exactly onto that one, and inherits its error.
2. Any other is placed by causality inside the party just outside of it: an inner party began after the outer one's
   last byte sent, and nothing of the answer (its first byte, its first and last token, its end) was there outside
   before it was there inside. It is centred between these bounds, and half the slack is the error (RFC 5905's
   assumption of equal ways), added to the error of the party that it was placed in.

A duration that several parties pass on from one report stands once, as the innermost party tells it. Facts about the
exchange that an outer party does not know are taken from the next inner one; facts about a party's own connection
(addresses, TLS, HTTP version) are that party's alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from unslow.core.timeline.answer import first_ns, last_ns
from unslow.core.timeline.facts import Facts
from unslow.core.timeline.metrics import first_byte_ns, sent_ns
from unslow.core.timeline.record import TOKEN_KINDS, Clock, End, Hop, Source, Span, Timeline

_HOP_ORDER = {hop: n for n, hop in enumerate(Hop)}

SHARED_FACTS = (
    *("dialect", "finish_reason", "model", "model_answered", "request_id", "retries", "server"),
    *("stream", "upstream", "usage"),
)
"""Facts about the exchange, whoever noted them."""


class _Placed(NamedTuple):
    """A party and how its offsets map onto the outermost party's axis."""

    party: Timeline
    shift_ns: int
    error_ns: int

    @property
    def clock(self) -> Clock:
        """The party's clock on that axis."""
        return Clock(self.party.clock.id, self.party.clock.offset_ns + self.shift_ns, self.error_ns)


def join(timelines: Iterable[Timeline]) -> Timeline:
    """Join Timelines of one trace into the outermost party's, with the others' spans mapped onto its axis.

    Raises ValueError for no Timelines, or for more than one trace.
    """
    parties = sorted(timelines, key=lambda t: (_HOP_ORDER[t.party], -t.end_ns))
    if not parties:
        raise ValueError("nothing to join")
    if len({t.trace_id for t in parties}) > 1:
        raise ValueError("these Timelines belong to more than one trace")
    outer = parties[0]
    placed = [_Placed(outer, 0, 0)]
    spans, facts = list(outer.spans), outer.facts
    for inner in parties[1:]:
        placed.append(_place(placed, inner))
        spans = _with(spans, [_moved(span, placed[-1].shift_ns) for span in inner.spans])
        facts = _filled(facts, inner.facts)
    clocks = (*outer.clocks, *(p.clock for p in placed[1:]))
    return msgspec.structs.replace(outer, spans=tuple(spans), clocks=clocks, facts=facts)


def clock_of(outer: Timeline, inner: Timeline) -> Clock:
    """Where `inner`'s clock lies on `outer`'s axis, and by how much that can be wrong."""
    return _place([_Placed(outer, 0, 0)], inner).clock


def _place(placed: list[_Placed], inner: Timeline) -> _Placed:
    for known in placed:
        if known.party.clock.id == inner.clock.id != "unknown":
            shift = known.shift_ns + known.party.clock.offset_ns - inner.clock.offset_ns
            return _Placed(inner, shift, known.error_ns)
    around = placed[-1]
    start = sent_ns(around.party) or 0
    slack = _latest_ns(around.party, inner) - start
    half = max(0, slack) // 2
    error = max(0, slack) - half if slack >= 0 else -slack  # longer than the window: wrong by at least the excess
    return _Placed(inner, around.shift_ns + start + half, around.error_ns + error)


def _latest_ns(outer: Timeline, inner: Timeline) -> int:
    """The latest place of `inner`'s start on `outer`'s axis: nothing is known outside before it is known inside.

    Who hung up may have ended first, and missed tokens that the inner party still saw.
    """
    error = max(outer.chunks.error_ns, default=0) + max(inner.chunks.error_ns, default=0)
    whole = outer.outcome.end is End.COMPLETED
    pairs = [(first_byte_ns(outer), first_byte_ns(inner)), (_first_token_ns(outer), _first_token_ns(inner))]
    if whole:
        pairs.append((last_ns(outer.chunks), last_ns(inner.chunks)))
    latest = [a - b + error for a, b in pairs if a is not None and b is not None]
    if whole or not latest:
        latest.append(outer.end_ns - inner.end_ns)
    return min(latest)


def _first_token_ns(timeline: Timeline) -> int | None:
    return first_ns(timeline.chunks, TOKEN_KINDS)


def _moved(span: Span, by_ns: int) -> Span:
    return msgspec.structs.replace(span, start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns)


def _with(outer: list[Span], inner: list[Span]) -> list[Span]:
    """Both parties' spans; where both speak of one hop, a report stands once and attempts are numbered on."""
    told = {(s.hop, s.source) for s in inner if s.source is not Source.MEASURED}
    kept = [s for s in outer if (s.hop, s.source) not in told]
    hops = {s.hop for s in inner}
    taken = {hop: max((s.attempt for s in kept if s.hop == hop), default=-1) + 1 for hop in hops}
    return kept + [msgspec.structs.replace(s, attempt=s.attempt + taken[s.hop]) for s in inner]


def _filled(facts: Facts, inner: Facts) -> Facts:
    """Take what is unknown about the exchange from the inner party, and its notes after ours."""
    known = {name: getattr(inner, name) for name in SHARED_FACTS if getattr(facts, name) is None}
    notes = (*facts.notes, *(note for note in inner.notes if note not in facts.notes))
    return msgspec.structs.replace(facts, notes=notes, **known)
