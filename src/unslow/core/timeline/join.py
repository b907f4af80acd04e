"""Timelines that several parties took of one exchange, joined on the outermost party's clock."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unslow.core.timeline.facts import Facts
from unslow.core.timeline.metrics import sent_ns
from unslow.core.timeline.record import Clock, Hop, Span, Timeline

_HOP_ORDER = {hop: n for n, hop in enumerate(Hop)}


def join(timelines: Iterable[Timeline]) -> Timeline:
    """Join Timelines of one trace into the outermost party's, with the others' spans mapped onto its axis.

    Parties that share a clock map exactly. Others are placed by causality: what an inner party did lies between the
    outer one's last byte sent and its end, so it is centred there and half the slack is the error (RFC 5905's
    assumption of equal ways). Facts that the outer party does not know are taken from the next inner one.

    Raises ValueError for no Timelines, or for more than one trace.
    """
    parties = sorted(timelines, key=lambda t: (_HOP_ORDER[t.party], -t.end_ns))
    if not parties:
        raise ValueError("nothing to join")
    if len({t.trace_id for t in parties}) > 1:
        raise ValueError("these Timelines belong to more than one trace")
    outer = parties[0]
    spans, clocks, facts = list(outer.spans), list(outer.clocks), outer.facts
    for inner in parties[1:]:
        clock = clock_of(outer, inner)
        clocks.append(clock)
        spans += [_moved(span, clock.offset_ns) for span in inner.spans]
        facts = _filled(facts, inner.facts)
    return msgspec.structs.replace(outer, spans=tuple(spans), clocks=tuple(clocks), facts=facts)


def clock_of(outer: Timeline, inner: Timeline) -> Clock:
    """How offsets of `inner` map onto `outer`'s axis."""
    if outer.clock.id == inner.clock.id != "unknown":
        return Clock(inner.clock.id, outer.clock.offset_ns - inner.clock.offset_ns, 0)
    start = sent_ns(outer) or 0
    slack = max(0, (outer.end_ns - start) - inner.end_ns)
    return Clock(inner.clock.id, start + slack // 2, slack - slack // 2)


def _moved(span: Span, by_ns: int) -> Span:
    return msgspec.structs.replace(span, start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns)


def _filled(facts: Facts, inner: Facts) -> Facts:
    """Take what is unknown (still at its default) from the inner party."""
    known = msgspec.structs.asdict(inner)
    blank = {k: v for k, v in known.items() if getattr(facts, k) in (None, (), {}) and v not in (None, (), {})}
    return msgspec.structs.replace(facts, **blank)
