"""Every definition of a latency, against figures worked out by hand; unknown stays unknown."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.timelines import MS, known, timelines

from unslow.core.timeline import (
    Beyond,
    ChunkKind,
    Chunks,
    End,
    Facts,
    Hop,
    Origin,
    Outcome,
    Phase,
    Span,
    Timeline,
    Usage,
    fluidity,
    icl_ns,
    metrics,
    quantile,
)

ROLE, REASONING, CONTENT, DONE = ChunkKind.ROLE, ChunkKind.REASONING, ChunkKind.CONTENT, ChunkKind.DONE


def stream(*chunks: tuple[int, ChunkKind, int | None], end: int, usage: Usage | None = None) -> Timeline:
    stamps, kinds, tokens = zip(*chunks, strict=True) if chunks else ((), (), ())
    columns = Chunks(stamps, (1,) * len(stamps), kinds, tokens)
    spans = (Span(Phase.SEND, Hop.CLIENT, 0, 10), Span(Phase.WAIT, Hop.CLIENT, 10, stamps[0] if stamps else end))
    return Timeline("t", Hop.CLIENT, 0.0, end, spans, columns, Facts(usage=usage))


def test_an_exchange_known_by_hand() -> None:
    m = metrics(known())
    assert m is not None
    assert (m.ttfb_ns, m.ttfe_ns, m.ttft_ns, m.ttfot_ns) == (381 * MS, 381 * MS, 1000 * MS, 1200 * MS)
    assert (m.e2e_ns, m.completion_tokens) == (1760 * MS, 70)
    assert (m.icl_p50_ns, m.icl_p95_ns, m.icl_max_ns) == (10 * MS, 10 * MS, 60 * MS)
    assert m.tpot_ns == pytest.approx((1760 - 1000) * MS / 69)
    assert m.tpot_star_ns == pytest.approx((1740 - 1000) * MS / 69)
    assert m.ntpot_ns == pytest.approx(1760 * MS / 70)
    assert m.burst_ratio == 0.0
    assert (m.ttft_error_ns, m.last_token_error_ns) == (20_000, 20_000)
    assert m.send_lag_ns is None


def test_the_wire_origin_starts_at_the_last_byte_sent() -> None:
    wire = metrics(known(), Origin.WIRE)
    assert wire is not None
    assert (wire.e2e_ns, wire.ttfb_ns, wire.ttft_ns) == (1439 * MS, 60 * MS, 679 * MS)
    assert metrics(known(), Origin.SCHEDULED) is None


def test_the_scheduled_origin_counts_what_the_sender_was_late() -> None:
    late = stream((100, CONTENT, 1), end=200)
    late = Timeline(late.trace_id, late.party, 0.0, 200, late.spans, late.chunks, scheduled_ns=-50)
    due = metrics(late, Origin.SCHEDULED)
    assert due is not None
    assert (due.ttft_ns, due.e2e_ns, due.send_lag_ns) == (150, 250, 60)


def test_the_wire_origin_of_a_retried_request_is_the_try_that_won() -> None:
    spans = (
        Span(Phase.SEND, Hop.CLIENT, 0, 10, won=False),
        Span(Phase.WAIT, Hop.CLIENT, 10, 90, won=False),
        Span(Phase.SEND, Hop.CLIENT, 90, 100, attempt=1),
        Span(Phase.WAIT, Hop.CLIENT, 100, 130, attempt=1),
        Span(Phase.SEND, Hop.GATEWAY, 105, 110),
        Span(Phase.WAIT, Hop.GATEWAY, 110, 120),
    )
    timeline = Timeline("t", Hop.CLIENT, 0.0, 200, spans, facts=Facts(status=200))
    started, wire = metrics(timeline), metrics(timeline, Origin.WIRE)
    assert started is not None
    assert wire is not None
    assert (started.ttfb_ns, wire.ttfb_ns, wire.e2e_ns) == (130, 30, 100)


def test_tpot_star_counts_what_the_first_chunk_brought() -> None:
    four = [(100, CONTENT, 4), (120, CONTENT, 4), (140, CONTENT, 4), (160, CONTENT, 4)]
    m = metrics(stream((20, ROLE, None), *four, (161, DONE, None), end=180, usage=Usage(completion_tokens=16)))
    assert m is not None
    assert m.tpot_star_ns == pytest.approx(60 / 12)  # 5 a token, which is true; (e2e - TTFT)/(n - 1) is not
    assert m.tpot_ns == pytest.approx(80 / 15)
    unknown = metrics(stream(*[(t, kind, None) for t, kind, _ in four], end=180, usage=Usage(completion_tokens=16)))
    assert unknown is not None
    assert unknown.tpot_star_ns is None
    assert unknown.tpot_ns is not None


def test_reasoning_that_nobody_saw_is_not_spread_over_the_time_after_the_first_token() -> None:
    seen = [(1000, CONTENT, 1), (1010, CONTENT, 1), (1020, CONTENT, 1)]
    usage = Usage(completion_tokens=203, reasoning_tokens=200)
    m = metrics(stream(*seen, end=1020, usage=usage))
    assert m is not None
    assert (m.tpot_ns, m.tpot_star_ns, m.completion_tokens) == (10.0, 10.0, 203)
    streamed = metrics(stream((990, REASONING, 200), *seen, end=1020, usage=usage))
    assert streamed is not None
    assert streamed.tpot_ns == pytest.approx(30 / 202)


def test_tokens_that_came_all_at_once_have_no_rate() -> None:
    at_once = stream((50, CONTENT, 1), (50, CONTENT, 1), end=60, usage=Usage(completion_tokens=2))
    m = metrics(at_once)
    assert m is not None
    assert m.tpot_star_ns is None


def test_an_answer_before_the_request_was_out_has_no_latency_from_the_wire() -> None:
    columns = Chunks((5, 30), (1, 1), (CONTENT, CONTENT), (1, 1))
    spans = (Span(Phase.SEND, Hop.CLIENT, 0, 10), Span(Phase.WAIT, Hop.CLIENT, 10, 10))
    timeline = Timeline("t", Hop.CLIENT, 0.0, 40, spans, columns)
    started, wire = metrics(timeline), metrics(timeline, Origin.WIRE)
    assert started is not None
    assert wire is not None
    assert (started.ttfb_ns, started.ttft_ns) == (5, 5)
    assert (wire.ttfb_ns, wire.ttft_ns, wire.e2e_ns) == (None, None, 30)


def test_the_last_of_several_sends_is_when_the_request_was_out() -> None:
    spans = (Span(Phase.SEND, Hop.GATEWAY, 0, 10), Span(Phase.SEND, Hop.GATEWAY, 40, 55))
    wire = metrics(Timeline("t", Hop.GATEWAY, 0.0, 100, spans), Origin.WIRE)
    assert wire is not None
    assert wire.e2e_ns == 45


def test_a_burst_shows_as_gaps_near_zero() -> None:
    buffered = [(100, CONTENT, 1), (100, CONTENT, 1), (100, CONTENT, 1), (100, CONTENT, 1), (500, CONTENT, 1)]
    m = metrics(stream(*buffered, end=500))
    assert m is not None
    assert m.burst_ratio == 0.75
    assert icl_ns(stream(*buffered, end=500)) == [0, 0, 0, 400]
    few = metrics(stream(*buffered[:4], end=500))
    assert few is not None
    assert few.burst_ratio is None


def test_what_came_beyond_the_kept_chunks_counts_where_it_can() -> None:
    sums = Beyond(50, 50, {CONTENT: 49, DONE: 1}, 950, 940, max_gap_ns=77, first_token_ns=120, first_output_ns=130)
    kept = Chunks((20, 100), (1, 1), (ROLE, REASONING), (None, 2), (5, 6), beyond=sums)
    m = metrics(Timeline("t", Hop.CLIENT, 0.0, 960, chunks=kept, facts=Facts(usage=Usage(completion_tokens=44))))
    assert m is not None
    assert (m.ttft_ns, m.ttfot_ns, m.icl_max_ns, m.icl_p50_ns) == (100, 130, 77, None)
    assert m.tpot_star_ns == pytest.approx((940 - 100) / 42)
    assert (m.ttft_error_ns, m.last_token_error_ns) == (6, None)


def test_nothing_known_is_none_and_never_zero() -> None:
    m = metrics(Timeline("t", Hop.CLIENT, 0.0, 500))
    assert m is not None
    assert m.e2e_ns == 500
    named = {name for name in m.__struct_fields__ if getattr(m, name) is not None}
    assert named == {"origin", "e2e_ns"}
    assert metrics(Timeline("t", Hop.CLIENT, 0.0, 500), Origin.WIRE) is None
    keepalive = metrics(stream((50, ChunkKind.KEEPALIVE, None), end=90))
    assert keepalive is not None
    assert (keepalive.ttfe_ns, keepalive.ttft_ns, keepalive.icl_max_ns) == (None, None, None)


def test_a_wait_that_ended_without_an_answer_is_no_first_byte() -> None:
    spans = (Span(Phase.SEND, Hop.CLIENT, 0, 10), Span(Phase.WAIT, Hop.CLIENT, 10, 500))
    m = metrics(Timeline("t", Hop.CLIENT, 0.0, 500, spans))
    assert m is not None
    assert m.ttfb_ns is None


def test_a_gateways_own_answer_is_no_first_byte_of_the_upstream() -> None:
    spans = (Span(Phase.SEND, Hop.GATEWAY, 0, 10), Span(Phase.WAIT, Hop.GATEWAY, 10, 500))
    own = Timeline("t", Hop.GATEWAY, 0.0, 500, spans, facts=Facts(status=504))

    def ttfb_ns(timeline: Timeline) -> int | None:
        m = metrics(timeline)
        assert m is not None
        return m.ttfb_ns

    assert ttfb_ns(msgspec.structs.replace(own, outcome=Outcome(End.FAILED, Phase.WAIT, "first_byte_timeout"))) is None
    assert ttfb_ns(msgspec.structs.replace(own, outcome=Outcome(End.FAILED, Phase.WAIT, "http_504"))) == 500
    assert ttfb_ns(msgspec.structs.replace(own, outcome=Outcome(End.FAILED, Phase.DRAIN, "reset"), end_ns=600)) == 500
    assert ttfb_ns(own) == 500


@settings(deadline=None, max_examples=150)
@given(timelines(), st.sampled_from(Origin))
def test_no_latency_is_negative_and_first_things_come_first(timeline: Timeline, origin: Origin) -> None:
    m = metrics(timeline, origin)
    if m is None:
        return
    firsts = [v for v in (m.ttfb_ns, m.ttfe_ns, m.ttft_ns, m.ttfot_ns) if v is not None]
    assert all(v >= 0 for v in firsts)
    assert firsts == sorted(firsts)
    assert (m.burst_ratio is None) or 0 <= m.burst_ratio <= 1
    assert m.icl_p50_ns is None or m.icl_max_ns is None or m.icl_p50_ns <= m.icl_max_ns


@pytest.mark.parametrize(
    ("n", "q", "rank"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (4, 0.5, 2), (20, 0.95, 19), (100, 0.95, 95), (100, 0.55, 55), (5, 0, 1)],
)
def test_quantiles_are_nearest_rank(n: int, q: float, rank: int) -> None:
    assert quantile(list(range(n, 0, -1)), q) == rank
    assert quantile([], q) is None


@given(st.lists(st.integers(), min_size=1), st.integers(0, 100))
def test_a_quantile_is_a_value_with_enough_values_at_or_below_it(values: list[int], percent: int) -> None:
    found = quantile(values, percent / 100)
    assert found in values
    assert sum(v <= found for v in values) * 100 >= percent * len(values)
    assert sum(v < found for v in values) * 100 < max(1, percent) * len(values)


def test_fluidity_carries_slack_over_and_resets_on_a_miss() -> None:
    tokens = [(100, CONTENT, 1), (105, CONTENT, 1), (130, CONTENT, 1), (150, CONTENT, 1), (151, CONTENT, 1)]
    timeline = stream(*tokens, end=200)
    # due: 100, 110, 120 (late: 130), 140 (late: 150), 160
    assert fluidity(timeline, ttft_target_ns=100, tpot_target_ns=10) == pytest.approx(3 / 5)
    assert fluidity(timeline, ttft_target_ns=200, tpot_target_ns=10) == 1.0
    assert fluidity(timeline, ttft_target_ns=90, tpot_target_ns=10, origin=Origin.WIRE) == pytest.approx(3 / 5)
    assert fluidity(stream(end=5), ttft_target_ns=1, tpot_target_ns=1) is None
    assert fluidity(timeline, ttft_target_ns=1, tpot_target_ns=1, origin=Origin.SCHEDULED) is None


def test_fluidity_counts_tokens_not_chunks() -> None:
    four = [(100, CONTENT, 4), (120, CONTENT, 4), (150, CONTENT, 4), (160, CONTENT, 4)]
    # due at 100, 120, 140 (late, one token misses: the three behind it are ahead of theirs), 150 + 20
    assert fluidity(stream(*four, end=200), ttft_target_ns=100, tpot_target_ns=5) == pytest.approx(15 / 16)
