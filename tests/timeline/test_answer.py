"""From stamps to spans, and reported durations laid into the wait."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.timelines import chunks, lengths, server_timings

from unslow.core.timeline import (
    Beyond,
    ChunkKind,
    Chunks,
    Facts,
    Hop,
    Phase,
    ServerTimings,
    Source,
    Span,
    Timeline,
    answer_spans,
    ledger,
    metrics,
    problems,
    reported_spans,
)

ROLE, REASONING, CONTENT = ChunkKind.ROLE, ChunkKind.REASONING, ChunkKind.CONTENT
USAGE, DONE, KEEPALIVE = ChunkKind.USAGE, ChunkKind.DONE, ChunkKind.KEEPALIVE


def columns(*chunks: tuple[int, ChunkKind], beyond: Beyond | None = None) -> Chunks:
    n = len(chunks)
    stamps, kinds = tuple(t for t, _ in chunks), tuple(k for _, k in chunks)
    return Chunks(stamps, (1,) * n, kinds, (None,) * n, beyond=beyond)


def cut(
    found: Chunks, *, first_byte: int | None = 20, end: int = 100, cut_off: bool = False
) -> list[tuple[str, int, int]]:
    spans = answer_spans(Hop.CLIENT, sent_ns=10, first_byte_ns=first_byte, end_ns=end, chunks=found, cut_off=cut_off)
    return [(s.phase.value, s.start_ns, s.end_ns) for s in spans]


def test_a_reasoning_answer_is_cut_at_its_four_moments() -> None:
    found = columns((20, ROLE), (40, REASONING), (50, REASONING), (60, CONTENT), (80, CONTENT), (85, USAGE), (90, DONE))
    assert cut(found) == [
        ("wait", 10, 20),
        ("wait", 20, 40),
        ("thinking", 40, 60),
        ("decode", 60, 85),
        ("drain", 85, 100),
    ]


def test_no_byte_came_back() -> None:
    assert cut(Chunks(), first_byte=None) == [("wait", 10, 100)]


def test_a_body_without_token_stamps_is_drained() -> None:
    assert cut(Chunks()) == [("wait", 10, 20), ("drain", 20, 100)]


def test_a_stream_without_tokens_is_waited_for_until_it_says_that_it_is_over() -> None:
    assert cut(columns((20, ROLE), (70, USAGE), (90, DONE))) == [("wait", 10, 20), ("wait", 20, 70), ("drain", 70, 100)]


def test_a_stall_after_the_last_token_is_no_drain() -> None:
    found = columns((20, ROLE), (40, CONTENT), (50, CONTENT))
    assert cut(found, cut_off=True)[-1] == ("decode", 40, 100)
    assert cut(found)[-2:] == [("decode", 40, 50), ("drain", 50, 100)]
    over = columns((40, CONTENT), (50, CONTENT), (60, DONE))
    assert cut(over, cut_off=True)[-1] == ("drain", 60, 100)


def test_until_an_answer_says_that_it_is_over_its_reader_waits_for_a_token() -> None:
    finish = columns((40, CONTENT), (50, CONTENT), (70, USAGE), (71, USAGE), (90, DONE))
    assert cut(finish)[-2:] == [("decode", 40, 70), ("drain", 70, 100)]
    stalled = columns((40, CONTENT), (50, CONTENT), (60, KEEPALIVE), (95, ChunkKind.ERROR))
    assert cut(stalled, cut_off=True)[-2:] == [("decode", 40, 95), ("drain", 95, 100)]
    early_usage = columns((30, USAGE), (40, CONTENT), (50, CONTENT), (60, KEEPALIVE))
    assert cut(early_usage)[-2:] == [("decode", 40, 50), ("drain", 50, 100)]
    assert cut(early_usage, cut_off=True)[-1] == ("decode", 40, 100)


def test_a_stall_before_the_first_token_is_still_the_wait() -> None:
    assert cut(columns((20, ROLE), (30, KEEPALIVE)), cut_off=True) == [("wait", 10, 20), ("wait", 20, 100)]
    assert cut(Chunks(), cut_off=True) == [("wait", 10, 20), ("wait", 20, 100)]


def test_thinking_that_never_came_to_an_answer() -> None:
    assert cut(columns((40, REASONING), (50, REASONING)), cut_off=True)[-1] == ("thinking", 40, 100)


def test_tokens_beyond_the_kept_chunks_move_the_cuts() -> None:
    sums = Beyond(9, 9, {REASONING: 4, CONTENT: 4, DONE: 1}, 95, 90, first_token_ns=55, first_output_ns=70)
    found = columns((40, REASONING), (50, REASONING), beyond=sums)
    assert cut(found)[2:] == [("thinking", 40, 70), ("decode", 70, 90), ("drain", 90, 100)]
    assert cut(columns((30, ROLE), beyond=sums))[1:3] == [("wait", 20, 55), ("thinking", 55, 70)]


def test_an_answer_that_starts_before_the_request_is_out_leaves_a_valid_record() -> None:
    early = columns((5, CONTENT), (8, CONTENT))
    assert cut(early, first_byte=4) == [("wait", 10, 10), ("drain", 10, 100)]
    spans = answer_spans(Hop.CLIENT, sent_ns=10, first_byte_ns=4, end_ns=100, chunks=early)
    timeline = Timeline("t", Hop.CLIENT, 0.0, 100, (Span(Phase.SEND, Hop.CLIENT, 0, 10), *spans), early)
    assert problems(timeline) == []


def test_a_chunk_stamped_before_the_first_byte_does_not_turn_time_back() -> None:
    found = columns((18, CONTENT), (60, CONTENT))
    assert cut(found)[:2] == [("wait", 10, 20), ("decode", 20, 60)]


@settings(deadline=None, max_examples=150)
@given(chunks(), lengths, lengths, st.none() | lengths, st.booleans())
def test_spans_follow_each_other_without_a_gap_from_sent_to_the_end(
    found: Chunks, sent: int, more: int, first_byte: int | None, cut_off: bool
) -> None:
    end = sent + more
    spans = answer_spans(Hop.CLIENT, sent_ns=sent, first_byte_ns=first_byte, end_ns=end, chunks=found, cut_off=cut_off)
    assert spans[0].phase is Phase.WAIT
    assert [sent, *(s.end_ns for s in spans)] == [*(s.start_ns for s in spans), end]
    order = [list(Phase).index(s.phase) for s in spans]
    assert order == sorted(order)
    timeline = Timeline("t", Hop.CLIENT, 0.0, end, (Span(Phase.SEND, Hop.CLIENT, 0, sent), *spans), found)
    assert problems(timeline) == []
    assert all(row.phase is not None for row in ledger(timeline))


@settings(deadline=None, max_examples=150)
@given(server_timings, lengths, lengths, st.booleans())
def test_reports_stay_inside_the_wait_and_never_grow(server: ServerTimings, sent: int, more: int, whole: bool) -> None:
    first = sent + more
    spans = reported_spans(Hop.PROVIDER, server, sent_ns=sent, first_token_ns=first, whole=whole)
    assert all(s.source is Source.REPORTED and sent <= s.start_ns < s.end_ns <= first for s in spans)
    assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(spans))
    said = {
        Phase.QUEUE: (server.load_ns or 0) + (server.queue_ns or 0),
        Phase.PREFILL: server.prefill_ns or 0,
        Phase.DECODE: server.decode_ns or 0,
    }
    assert all(s.duration_ns <= said[s.phase] for s in spans)
    assert whole or all(s.phase is not Phase.DECODE for s in spans)


def test_reports_are_laid_back_from_the_first_token() -> None:
    server = ServerTimings(queue_ns=20, load_ns=10, prefill_ns=40, decode_ns=15)
    spans = reported_spans(Hop.PROVIDER, server, sent_ns=0, first_token_ns=100, attempt=2)
    assert [(s.phase, s.start_ns, s.end_ns, s.attempt) for s in spans] == [
        (Phase.QUEUE, 30, 60, 2),
        (Phase.PREFILL, 60, 100, 2),
    ]
    whole = reported_spans(Hop.PROVIDER, server, sent_ns=0, first_token_ns=100, whole=True)
    assert [(s.phase, s.start_ns, s.end_ns) for s in whole] == [
        (Phase.QUEUE, 15, 45),
        (Phase.PREFILL, 45, 85),
        (Phase.DECODE, 85, 100),
    ]
    cut_short = reported_spans(Hop.PROVIDER, server, sent_ns=70, first_token_ns=100)
    assert [(s.phase, s.start_ns, s.end_ns) for s in cut_short] == [(Phase.PREFILL, 70, 100)]
    assert reported_spans(Hop.PROVIDER, ServerTimings(), sent_ns=0, first_token_ns=100) == ()


def test_a_retried_request_has_its_reports_in_the_attempt_that_won() -> None:
    lost = (Span(Phase.SEND, Hop.CLIENT, 0, 5, won=False), Span(Phase.WAIT, Hop.CLIENT, 5, 400, won=False))
    sent = Span(Phase.SEND, Hop.CLIENT, 400, 410, attempt=1)
    found = columns((600, CONTENT), (700, CONTENT), (710, DONE))
    answer = answer_spans(Hop.CLIENT, sent_ns=410, first_byte_ns=600, end_ns=720, chunks=found, attempt=1)
    server = ServerTimings(queue_ns=500, prefill_ns=100)
    told = reported_spans(Hop.PROVIDER, server, sent_ns=410, first_token_ns=600, attempt=1)
    timeline = Timeline("t", Hop.CLIENT, 0.0, 720, (*lost, sent, *answer, *told), found, Facts(status=200))
    assert [(row.label, row.duration_ns) for row in ledger(timeline)] == [
        ("send (lost attempt 1)", 5),
        ("send", 10),
        ("wait (lost attempt 1)", 395),
        ("queue", 90),
        ("prefill", 100),
        ("decode", 110),
        ("drain", 10),
    ]
    started = metrics(timeline)
    assert started is not None
    assert (started.ttfb_ns, started.ttft_ns, started.e2e_ns) == (600, 600, 720)


def test_generation_that_a_hop_held_back_lies_in_the_wait() -> None:
    server = ServerTimings(queue_ns=10, prefill_ns=20, decode_ns=700)
    spans = reported_spans(Hop.ENGINE, server, sent_ns=0, first_token_ns=800, last_token_ns=801)
    assert [(s.phase, s.start_ns, s.end_ns) for s in spans] == [
        (Phase.QUEUE, 71, 81),
        (Phase.PREFILL, 81, 101),
        (Phase.DECODE, 101, 800),
    ]


def test_jitter_holds_nothing_back() -> None:
    server = ServerTimings(prefill_ns=20, decode_ns=700)
    spans = reported_spans(Hop.ENGINE, server, sent_ns=0, first_token_ns=100, last_token_ns=750)
    assert [s.phase for s in spans] == [Phase.PREFILL]
