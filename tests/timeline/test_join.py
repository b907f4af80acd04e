"""Several parties' Timelines of one exchange, on one axis."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.timelines import timelines

from unslow.core.timeline import (
    ChunkKind,
    Chunks,
    Clock,
    End,
    Facts,
    Hop,
    Outcome,
    Phase,
    ServerTimings,
    Source,
    Span,
    Timeline,
    Usage,
    clock_of,
    dump_line,
    join,
    ledger,
    load_line,
    problems,
    reported_spans,
    sent_ns,
)

OUTER, INNER = Clock("A", -1_000), Clock("A", -1_150)
CLIENT, GATEWAY, ENGINE, PROVIDER = Hop.CLIENT, Hop.GATEWAY, Hop.ENGINE, Hop.PROVIDER


def client(clock: Clock = OUTER) -> Timeline:
    spans = (
        Span(Phase.CONNECT, CLIENT, 0, 50),
        Span(Phase.SEND, CLIENT, 50, 100),
        Span(Phase.WAIT, CLIENT, 100, 900),
        Span(Phase.DECODE, CLIENT, 900, 1000),
    )
    return Timeline("t", CLIENT, 0.0, 1000, spans, clock=clock)


def gateway(clock: Clock = INNER, end: int = 700) -> Timeline:
    spans = (
        Span(Phase.CONNECT, GATEWAY, 10, 60),
        Span(Phase.SEND, GATEWAY, 60, 80),
        Span(Phase.WAIT, GATEWAY, 80, end),
    )
    return Timeline("t", GATEWAY, 0.0, end, spans, clock=clock)


def engine(clock: Clock) -> Timeline:
    spans = (Span(Phase.QUEUE, ENGINE, 0, 100), Span(Phase.PREFILL, ENGINE, 100, 400))
    return Timeline("t", ENGINE, 0.0, 400, spans, clock=clock)


def at(timeline: Timeline, phase: Phase, hop: Hop) -> tuple[int, int]:
    (span,) = (s for s in timeline.spans if s.phase is phase and s.hop is hop)
    return span.start_ns, span.end_ns


def test_parties_that_share_a_clock_map_exactly() -> None:
    joined = join([gateway(), client()])
    # the gateway's zero was read as 1150, the client's as 1000: 150 later
    assert at(joined, Phase.CONNECT, GATEWAY) == (160, 210)
    assert joined.clocks == (Clock("A", -1_000, 0),)
    assert [(r.label, r.hop, r.duration_ns) for r in ledger(joined)] == [
        ("connect", CLIENT, 50),
        ("connect", GATEWAY, 50),
        ("send", CLIENT, 50),
        ("send", GATEWAY, 20),
        ("wait", CLIENT, 110),
        ("wait", GATEWAY, 620),
        ("decode", CLIENT, 100),
    ]


def test_a_foreign_clock_is_placed_by_causality_and_says_by_how_much_it_can_be_wrong() -> None:
    clock = clock_of(client(), gateway(Clock("B", -7)))
    # 900 from the last byte sent to the end, 700 of them the gateway's: 100 on either side
    assert clock == Clock("B", -7 + 200, 100)
    joined = join([client(), gateway(Clock("B", -7))])
    assert at(joined, Phase.CONNECT, GATEWAY) == (210, 260)


def test_a_record_longer_than_its_window_is_wrong_by_at_least_the_excess() -> None:
    clock = clock_of(client(), gateway(Clock("B"), end=950))
    assert (clock.offset_ns, clock.error_ns) == (100, 50)


def test_what_came_outside_no_sooner_than_inside_narrows_the_place() -> None:
    outer = msgspec.structs.replace(client(Clock("A")), chunks=_tokens(500, 980))
    inner = msgspec.structs.replace(gateway(Clock("B")), chunks=_tokens(390, 600))
    # the first token was inside at 390 and outside at 500: the gateway began between 100 and 110
    assert clock_of(outer, inner) == Clock("B", 105, 5)
    blurred = msgspec.structs.replace(outer, chunks=msgspec.structs.replace(outer.chunks, error_ns=(4, 4)))
    assert clock_of(blurred, inner) == Clock("B", 107, 7)


def test_who_hung_up_may_have_ended_first_and_missed_the_last_tokens() -> None:
    outer = msgspec.structs.replace(client(Clock("A")), chunks=_tokens(500, 520), outcome=Outcome(End.ABORTED))
    inner = msgspec.structs.replace(gateway(Clock("B"), end=990), chunks=_tokens(380, 700))
    assert clock_of(outer, inner) == Clock("B", 110, 10)


def _tokens(*arrival_ns: int) -> Chunks:
    n = len(arrival_ns)
    return Chunks(arrival_ns, (1,) * n, (ChunkKind.CONTENT,) * n, (None,) * n)


def test_an_inner_party_follows_the_one_whose_clock_it_shares() -> None:
    joined = join([client(), gateway(Clock("B", -1_000)), engine(Clock("B", -1_200))])
    connect, queue = at(joined, Phase.CONNECT, GATEWAY), at(joined, Phase.QUEUE, ENGINE)
    assert queue[0] - connect[0] == 200 - 10
    assert [c.error_ns for c in joined.clocks] == [100, 100]


def test_a_third_foreign_party_lies_inside_the_second() -> None:
    joined = join([client(), gateway(Clock("B")), engine(Clock("C"))])
    sent = at(joined, Phase.SEND, GATEWAY)[1]
    wait_end = at(joined, Phase.WAIT, GATEWAY)[1]
    assert sent <= at(joined, Phase.QUEUE, ENGINE)[0]
    assert at(joined, Phase.PREFILL, ENGINE)[1] <= wait_end
    assert [c.error_ns for c in joined.clocks] == [100, 100 + 110]


def test_a_clock_named_unknown_is_shared_with_nobody() -> None:
    assert clock_of(client(Clock("unknown")), gateway(Clock("unknown"))).error_ns == 100


def test_a_report_that_both_passed_on_stands_once() -> None:
    server = ServerTimings(queue_ns=50, prefill_ns=200)
    outer, inner = client(), gateway()
    outer = msgspec.structs.replace(
        outer, spans=(*outer.spans, *reported_spans(PROVIDER, server, sent_ns=100, first_token_ns=900))
    )
    inner = msgspec.structs.replace(
        inner, spans=(*inner.spans, *reported_spans(PROVIDER, server, sent_ns=80, first_token_ns=700))
    )
    joined = join([outer, inner])
    told = [s for s in joined.spans if s.source is Source.REPORTED]
    assert [(s.phase, s.start_ns, s.end_ns) for s in told] == [(Phase.QUEUE, 600, 650), (Phase.PREFILL, 650, 850)]
    assert problems(joined) == []


def test_two_parties_of_one_kind_keep_their_attempts_apart() -> None:
    second = msgspec.structs.replace(gateway(end=600), clock=Clock("A", -1_160))
    joined = join([client(), gateway(), second])
    assert problems(joined) == []
    assert sorted({s.attempt for s in joined.spans if s.hop is GATEWAY}) == [0, 1]


def test_facts_of_the_exchange_are_shared_and_facts_of_a_connection_are_not() -> None:
    outer = msgspec.structs.replace(client(), facts=Facts(model="m", status=200, notes=("ours",)))
    theirs = Facts(
        model="n", usage=Usage(1, 2), tls_version="TLSv1.3", remote_address="10.0.0.1:443", notes=("theirs",)
    )
    joined = join([outer, msgspec.structs.replace(gateway(), facts=theirs)])
    assert joined.facts == Facts(model="m", status=200, usage=Usage(1, 2), notes=("ours", "theirs"))


def test_nothing_and_two_traces_do_not_join() -> None:
    with pytest.raises(ValueError, match="nothing"):
        join([])
    with pytest.raises(ValueError, match="more than one trace"):
        join([client(), msgspec.structs.replace(gateway(), trace_id="other")])


def test_one_alone_is_itself() -> None:
    assert join([client()]) == client()


@settings(deadline=None, max_examples=60)
@given(st.lists(timelines(trace_id="t"), min_size=1, max_size=3))
def test_any_join_is_valid_keeps_its_outer_axis_and_sums_to_its_wall_time(parties: list[Timeline]) -> None:
    joined = join(parties)
    order = list(Hop)
    outermost = min(order.index(p.party) for p in parties)
    assert order.index(joined.party) == outermost
    assert joined.end_ns == max(p.end_ns for p in parties if order.index(p.party) == outermost)
    assert problems(joined) == []
    assert sum(row.duration_ns for row in ledger(joined)) == joined.end_ns
    assert load_line(dump_line(joined)) == joined


@settings(deadline=None, max_examples=150)
@given(
    *(st.integers(0, 500), st.integers(0, 2_000), st.integers(0, 2_000), st.integers(0, 2_000)),
    st.lists(st.integers(0, 2_000), max_size=5),
    st.booleans(),
)
def test_the_truth_lies_within_the_error(
    sent: int, there: int, work: int, back: int, tokens: list[int], whole: bool
) -> None:
    inside = sorted(t for t in tokens if t <= work)
    outside = [t + sent + there + back * n // len(inside) for n, t in enumerate(inside, 1)]
    end = sent + there + work + back
    outer = Timeline(
        *("t", CLIENT, 0.0, end if whole or not outside else outside[0], (Span(Phase.SEND, CLIENT, 0, sent),)),
        chunks=_tokens(*outside[: None if whole else 1]),
        outcome=Outcome(End.COMPLETED if whole or not outside else End.ABORTED),
        clock=Clock("A"),
    )
    inner = Timeline("t", GATEWAY, 0.0, work, chunks=_tokens(*inside), clock=Clock("B"))
    clock = clock_of(outer, inner)
    assert sent_ns(outer) == sent
    assert abs(clock.offset_ns - (sent + there)) <= clock.error_ns
