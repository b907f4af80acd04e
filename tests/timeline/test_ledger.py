"""The ledger's promises, for any valid Timeline."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.timelines import MS, accounts, known

from unslow.core.timeline import Hop, Phase, Row, Slice, Source, Span, Timeline, ledger, problems, slices

examples = settings(deadline=None, max_examples=100)
CLIENT, GATEWAY, RESOLVER, PROVIDER = Hop.CLIENT, Hop.GATEWAY, Hop.RESOLVER, Hop.PROVIDER


def of(*spans: Span, end: int = 100) -> Timeline:
    timeline = Timeline("t", CLIENT, 0.0, end, spans)
    assert problems(timeline) == []
    return timeline


def shown(timeline: Timeline) -> list[tuple[str, int]]:
    return [(row.label, row.duration_ns) for row in ledger(timeline)]


@examples
@given(accounts())
def test_rows_sum_to_wall_time_to_the_nanosecond(timeline: Timeline) -> None:
    assert problems(timeline) == []
    assert sum(row.duration_ns for row in ledger(timeline)) == timeline.end_ns


@examples
@given(accounts())
def test_slices_tile_wall_time_without_gap_or_overlap(timeline: Timeline) -> None:
    pieces = slices(timeline)
    cuts = [0, *itertools.chain.from_iterable((p.start_ns, p.end_ns) for p in pieces), timeline.end_ns]
    assert cuts[::2] == cuts[1::2]
    assert all(p.start_ns < p.end_ns for p in pieces)
    assert all(a.span is not b.span for a, b in itertools.pairwise(pieces))


@examples
@given(accounts())
def test_rows_are_the_sums_of_their_slices_and_none_is_empty(timeline: Timeline) -> None:
    sums: dict[tuple[object, ...], int] = defaultdict(int)
    for piece in slices(timeline):
        s = piece.span
        sums[(s.phase, s.hop, s.source, s.attempt, s.won) if s else (None, None, None, 0, True)] += (
            piece.end_ns - piece.start_ns
        )
    rows = {(r.phase, r.hop, r.source, r.attempt, r.won): r.duration_ns for r in ledger(timeline)}
    assert rows == sums
    assert all(ns > 0 for ns in rows.values())


def beside(piece: Slice, timeline: Timeline) -> list[Span]:
    """Spans that share time with a slice."""
    return [s for s in timeline.spans if max(s.start_ns, piece.start_ns) < min(s.end_ns, piece.end_ns)]


@examples
@given(accounts())
def test_a_slice_is_explained_by_a_span_that_covers_it_or_by_nothing(timeline: Timeline) -> None:
    for piece in slices(timeline):
        if piece.span is None:
            assert beside(piece, timeline) == []
        else:
            assert piece.span in timeline.spans
            assert piece.span.start_ns <= piece.start_ns < piece.end_ns <= piece.span.end_ns


@examples
@given(accounts(), st.randoms())
def test_the_order_of_spans_does_not_matter(timeline: Timeline, random: object) -> None:
    spans = list(timeline.spans)
    random.shuffle(spans)  # type: ignore[attr-defined]
    other = Timeline(timeline.trace_id, timeline.party, timeline.started_at, timeline.end_ns, tuple(spans))
    assert ledger(other) == ledger(timeline)
    assert slices(other) == slices(timeline)


@examples
@given(accounts())
def test_a_lost_attempt_never_displaces_what_won_on_its_hop(timeline: Timeline) -> None:
    for piece in slices(timeline):
        if piece.span is None or piece.span.won:
            continue
        won = [s for s in beside(piece, timeline) if s.won]
        assert [s for s in won if s.hop == piece.span.hop] == []
        assert [s for s in won if s.phase is not Phase.WAIT] == []


@examples
@given(accounts())
def test_wait_yields_to_everything_that_won(timeline: Timeline) -> None:
    for piece in slices(timeline):
        if piece.span is not None and piece.span.phase is Phase.WAIT and piece.span.won:
            assert [s for s in beside(piece, timeline) if s.won and s.phase is not Phase.WAIT] == []


@examples
@given(accounts())
def test_measured_wins_over_reported_over_inferred(timeline: Timeline) -> None:
    order = list(Source)
    for piece in slices(timeline):
        if piece.span is None or not piece.span.won or piece.span.phase is Phase.WAIT:
            continue
        better = [s for s in beside(piece, timeline) if s.won and s.phase is not Phase.WAIT]
        assert min(order.index(s.source) for s in better) == order.index(piece.span.source)


@examples
@given(accounts())
def test_rows_come_in_the_order_of_phases_and_unexplained_last(timeline: Timeline) -> None:
    order = [*Phase, None]
    places = [order.index(row.phase) for row in ledger(timeline)]
    assert places == sorted(places)
    assert all(row.hop is None and row.source is None for row in ledger(timeline) if row.phase is None)


def test_happy_eyeballs_a_losing_connect_counts_until_the_winner_starts() -> None:
    v6 = Span(Phase.CONNECT, CLIENT, 0, 60, attempt=0, won=False)
    v4 = Span(Phase.CONNECT, CLIENT, 25, 40, attempt=1)
    assert shown(of(v6, v4, end=60)) == [("connect (lost attempt 1)", 45), ("connect", 15)]
    tls = Span(Phase.TLS, CLIENT, 40, 60, attempt=1)
    assert shown(of(v6, v4, tls, end=60)) == [("connect (lost attempt 1)", 25), ("connect", 15), ("tls", 20)]


def test_a_slow_losing_query_explains_nothing_once_the_connection_goes_on() -> None:
    a = Span(Phase.DNS, RESOLVER, 0, 10, attempt=0)
    aaaa = Span(Phase.DNS, RESOLVER, 0, 90, attempt=1, won=False)
    connect, wait = Span(Phase.CONNECT, CLIENT, 10, 30), Span(Phase.WAIT, CLIENT, 30, 100)
    assert shown(of(a, aaaa, connect, wait)) == [("dns", 10), ("connect", 20), ("wait", 70)]


def test_time_spent_until_a_losing_query_gave_up_is_its_own() -> None:
    a = Span(Phase.DNS, RESOLVER, 0, 10, attempt=0)
    aaaa = Span(Phase.DNS, RESOLVER, 0, 60, attempt=1, won=False)
    connect = Span(Phase.CONNECT, CLIENT, 60, 100)
    assert shown(of(a, aaaa, connect)) == [("dns", 10), ("dns (lost attempt 2)", 50), ("connect", 40)]


def test_a_gateways_failed_first_try_is_what_its_client_waited_for() -> None:
    client = Span(Phase.WAIT, CLIENT, 0, 100)
    failed = Span(Phase.CONNECT, GATEWAY, 5, 45, attempt=0, won=False)
    lost_wait = Span(Phase.WAIT, GATEWAY, 45, 60, attempt=0, won=False)
    won = Span(Phase.WAIT, GATEWAY, 60, 95, attempt=1)
    assert ledger(of(client, failed, lost_wait, won)) == (
        Row(Phase.CONNECT, 40, GATEWAY, Source.MEASURED, 0, False),
        Row(Phase.WAIT, 10, CLIENT, Source.MEASURED),
        Row(Phase.WAIT, 15, GATEWAY, Source.MEASURED, 0, False),
        Row(Phase.WAIT, 35, GATEWAY, Source.MEASURED, 1),
    )


def test_a_hedge_counts_once_under_the_one_that_won() -> None:
    slow = Span(Phase.WAIT, GATEWAY, 0, 80, attempt=0, won=False)
    fast = Span(Phase.WAIT, GATEWAY, 50, 70, attempt=1)
    decode = Span(Phase.DECODE, GATEWAY, 70, 100, attempt=1)
    assert shown(of(slow, fast, decode)) == [("wait (lost attempt 1)", 50), ("wait", 20), ("decode", 30)]


def test_reported_work_divides_a_measured_wait_and_nothing_else() -> None:
    wait, decode = Span(Phase.WAIT, CLIENT, 0, 60), Span(Phase.DECODE, CLIENT, 60, 100)
    queue = Span(Phase.QUEUE, PROVIDER, 10, 30, Source.REPORTED)
    prefill = Span(Phase.PREFILL, PROVIDER, 30, 70, Source.REPORTED)
    assert shown(of(wait, decode, queue, prefill)) == [("wait", 10), ("queue", 20), ("prefill", 30), ("decode", 40)]


def test_the_inner_hop_of_one_source_wins_then_the_shorter_span() -> None:
    outer, inner = Span(Phase.DECODE, CLIENT, 0, 100), Span(Phase.DECODE, GATEWAY, 10, 90)
    assert [(r.hop, r.duration_ns) for r in ledger(of(outer, inner))] == [(CLIENT, 20), (GATEWAY, 80)]
    equal = Span(Phase.DECODE, GATEWAY, 0, 100)
    assert [(r.hop, r.duration_ns) for r in ledger(of(outer, equal))] == [(GATEWAY, 100)]
    late = Span(Phase.DECODE, CLIENT, 20, 70)  # shorter, and all of it the gateway's too
    assert [(r.hop, r.duration_ns) for r in ledger(of(late, inner, end=90))] == [(GATEWAY, 80), (None, 10)]
    short = Span(Phase.TLS, CLIENT, 40, 60, attempt=1)
    assert shown(of(outer, short)) == [("tls", 20), ("decode", 80)]


def test_what_is_equal_is_settled_the_same_way_in_any_order() -> None:
    equal = [Span(phase, CLIENT, 0, 100, attempt=n) for n, phase in enumerate((Phase.TLS, Phase.CONNECT, Phase.DNS))]
    first = (Row(Phase.TLS, 100, CLIENT, Source.MEASURED),)
    assert {ledger(of(*order)) for order in itertools.permutations(equal)} == {first}
    shifted = [Span(Phase.DECODE, CLIENT, 10 * n, 10 * n + 50, attempt=n) for n in range(3)]
    assert len({slices(of(*order)) for order in itertools.permutations(shifted)}) == 1


def test_an_event_without_length_may_lie_inside_a_span() -> None:
    inside = (Span(Phase.WAIT, CLIENT, 0, 100), Span(Phase.SEND, CLIENT, 50, 50))
    assert shown(of(*inside)) == [("wait", 100)]


def test_what_nothing_explains_says_so_and_what_lies_outside_is_cut() -> None:
    before, after = Span(Phase.SEND, CLIENT, -50, 10), Span(Phase.DECODE, CLIENT, 60, 500)
    assert shown(of(before, after)) == [("send", 10), ("decode", 40), ("unexplained", 50)]
    assert shown(of()) == [("unexplained", 100)]
    assert shown(of(before, after, end=0)) == []


def test_a_whole_exchange_known_by_hand() -> None:
    assert shown(known()) == [
        ("dns", 10 * MS),
        ("connect (lost attempt 1)", 250 * MS),
        ("connect", 20 * MS),
        ("tls", 40 * MS),
        ("send", 1 * MS),
        ("wait", 79 * MS),
        ("queue", 100 * MS),
        ("prefill", 500 * MS),
        ("thinking", 200 * MS),
        ("decode", 545 * MS),
        ("drain", 5 * MS),
        ("unexplained", 10 * MS),
    ]


def ledger_cpu_s(n: int) -> float:
    hops = (CLIENT, GATEWAY, PROVIDER)
    spans = [Span(Phase.DECODE, hops[i % 3], i, i + 3, attempt=i % 5, won=i % 5 > 0) for i in range(n)]
    started = time.process_time()
    rows = ledger(Timeline("t", CLIENT, 0.0, n + 3, tuple(spans)))
    assert sum(r.duration_ns for r in rows) == n + 3
    return time.process_time() - started


@pytest.mark.slow
def test_time_grows_about_linearly_to_20_000_spans() -> None:
    small = min(ledger_cpu_s(2_000) for _ in range(3))
    assert min(ledger_cpu_s(20_000) for _ in range(2)) < 40 * small


def test_lost_attempts_under_one_long_winner_do_not_take_square_time() -> None:
    lost = [Span(Phase.CONNECT, CLIENT, i, i + 1, attempt=0, won=False) for i in range(20_000)]
    won = [Span(Phase.SEND, CLIENT, 2 * i, 2 * i + 1, attempt=1) for i in range(10_000)]
    started = time.process_time()
    rows = ledger(Timeline("t", CLIENT, 0.0, 20_000, (*lost, *won)))
    assert shown_rows(rows) == [("connect (lost attempt 1)", 10_000), ("send", 10_000)]
    assert time.process_time() - started < 10


def shown_rows(rows: tuple[Row, ...]) -> list[tuple[str, int]]:
    return [(row.label, row.duration_ns) for row in rows]
