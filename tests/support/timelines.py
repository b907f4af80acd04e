"""Timelines for tests: any valid one (Hypothesis), and one exchange whose every figure is known by hand."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from unslow.core.timeline import (
    TOKEN_KINDS,
    Beyond,
    ChunkKind,
    Chunks,
    Clock,
    CountSource,
    End,
    Facts,
    Hop,
    Outcome,
    Phase,
    ServerTimings,
    Source,
    Span,
    TcpInfo,
    Timeline,
    Usage,
    answer_spans,
    reported_spans,
)

MS = 1_000_000

moments = st.one_of(st.integers(-200, 1_200), st.integers(-(10**12), 10**12))
lengths = st.one_of(st.integers(0, 1_000), st.integers(0, 10**12))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
maybe_text = st.none() | texts
maybe_count = st.none() | st.integers(0, 10**9)


@st.composite
def series(draw: st.DrawFn, hop: Hop, attempt: int, source: Source) -> list[Span]:
    """Spans of one hop, attempt and source: apart, some without length, some outside the exchange, any won or lost."""
    cuts = sorted(draw(st.lists(moments, min_size=2, max_size=8)))
    won = draw(st.booleans())
    pairs = list(itertools.pairwise(cuts))[:: draw(st.sampled_from((1, 2)))]
    phases = draw(st.lists(st.sampled_from(Phase), min_size=len(pairs), max_size=len(pairs)))
    return [Span(phase, hop, a, b, source, attempt, won) for phase, (a, b) in zip(phases, pairs, strict=True)]


@st.composite
def spans(draw: st.DrawFn) -> tuple[Span, ...]:
    """Hedges, retries, happy eyeballs and reports: many series that overlap each other at will."""
    keys = st.tuples(st.sampled_from(Hop), st.integers(0, 3), st.sampled_from(Source))
    found: list[Span] = []
    for hop, attempt, source in draw(st.lists(keys, unique=True, max_size=7)):
        found += draw(series(hop, attempt, source))
    return tuple(draw(st.permutations(found)))


@st.composite
def chunks(draw: st.DrawFn) -> Chunks:
    """Columns in order of arrival, with or without stamp errors and sums beyond."""
    arrivals = sorted(draw(st.lists(lengths, max_size=12)))
    n = len(arrivals)

    def column(of: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(of, min_size=n, max_size=n)))

    last = arrivals[-1] if arrivals else 0
    return Chunks(
        arrival_ns=tuple(arrivals),
        size_bytes=column(st.integers(0, 10**6)),
        kind=tuple(draw(st.lists(st.sampled_from(ChunkKind), min_size=n, max_size=n))),
        tokens=tuple(draw(st.lists(st.none() | st.integers(0, 50), min_size=n, max_size=n))),
        error_ns=column(st.integers(0, 10**7)) if draw(st.booleans()) else (),
        beyond=draw(st.none() | beyonds(last)),
    )


@st.composite
def beyonds(draw: st.DrawFn, after_ns: int) -> Beyond:
    """Sums over chunks that were not kept, of which some carried tokens or none did."""
    kinds = draw(st.dictionaries(st.sampled_from(ChunkKind), st.integers(1, 10**6), min_size=1))
    at = [after_ns + d for d in sorted(draw(st.lists(st.integers(0, 10**9), min_size=4, max_size=4)))]
    tokens = bool(TOKEN_KINDS & kinds.keys())
    return Beyond(
        count=sum(kinds.values()),
        size_bytes=draw(st.integers(0, 10**9)),
        kinds=kinds,
        last_ns=at[3],
        last_token_ns=at[2] if tokens else None,
        max_gap_ns=draw(st.integers(0, 10**9)),
        tokens=draw(maybe_count) if tokens else None,
        first_token_ns=at[0] if tokens else None,
        first_output_ns=at[1] if {ChunkKind.CONTENT, ChunkKind.TOOL} & kinds.keys() else None,
    )


server_timings = st.builds(
    ServerTimings, queue_ns=maybe_count, load_ns=maybe_count, prefill_ns=maybe_count, decode_ns=maybe_count
)
usages = st.builds(Usage, maybe_count, maybe_count, maybe_count, maybe_count, source=st.sampled_from(CountSource))
facts = st.builds(
    Facts,
    url=maybe_text,
    status=st.none() | st.integers(100, 599),
    stream=st.none() | st.booleans(),
    model=maybe_text,
    reused=st.none() | st.booleans(),
    addresses=st.lists(texts, max_size=2).map(tuple),
    usage=st.none() | usages,
    server=st.none() | server_timings,
    tcp=st.none() | st.builds(TcpInfo, rtt_ns=maybe_count),
    headers=st.dictionaries(texts, texts, max_size=2),
    notes=st.lists(texts, max_size=2).map(tuple),
)
clocks = st.builds(Clock, st.sampled_from(("unknown", "a", "b", "c")), moments, lengths)
outcomes = st.builds(Outcome, st.sampled_from(End), st.none() | st.sampled_from(Phase), maybe_text, maybe_text)


@st.composite
def accounts(draw: st.DrawFn) -> Timeline:
    """A valid Timeline of spans only: all that the ledger looks at."""
    return Timeline("t", draw(st.sampled_from(Hop)), 0.0, draw(lengths), draw(spans()))


@st.composite
def timelines(draw: st.DrawFn, trace_id: str | None = None) -> Timeline:
    """Any valid Timeline."""
    return Timeline(
        trace_id=draw(texts) if trace_id is None else trace_id,
        party=draw(st.sampled_from(Hop)),
        started_at=draw(st.floats(0, 4e9)),
        end_ns=draw(lengths),
        spans=draw(spans()),
        chunks=draw(chunks()),
        facts=draw(facts),
        outcome=draw(outcomes),
        clock=draw(clocks),
        clocks=tuple(draw(st.lists(clocks, max_size=2))),
        scheduled_ns=draw(st.none() | st.integers(-(10**9), 0)),
    )


def known(*, reused: bool = False, name: str = "req-1") -> Timeline:
    """One streamed exchange in round milliseconds.

    dns 0-10, connect lost 10-260 and won 260-280, tls 280-320, send 320-321, first byte (role chunk) 381, first
    reasoning token 1000 (reported: queue 100, prefill 500), first content token 1200, 50 tokens 10 ms apart to 1690
    with one gap of 60 ms instead of 10, done 1745, end 1750; nothing explains 1750-1760.
    """
    setup: tuple[Span, ...] = (
        Span(Phase.DNS, Hop.RESOLVER, 0, 10 * MS),
        Span(Phase.CONNECT, Hop.CLIENT, 10 * MS, 260 * MS, attempt=0, won=False),
        Span(Phase.CONNECT, Hop.CLIENT, 260 * MS, 280 * MS, attempt=1),
        Span(Phase.TLS, Hop.CLIENT, 280 * MS, 320 * MS, attempt=1),
    )
    sent = 321 * MS
    reasoning = [1000 + 10 * n for n in range(20)]
    content = [1200 + 10 * n + (50 if n >= 25 else 0) for n in range(50)]
    stamps = [381, *reasoning, *content, 1745]
    kinds = [ChunkKind.ROLE, *[ChunkKind.REASONING] * 20, *[ChunkKind.CONTENT] * 50, ChunkKind.DONE]
    columns = Chunks(
        arrival_ns=tuple(t * MS for t in stamps),
        size_bytes=tuple(200 for _ in stamps),
        kind=tuple(kinds),
        tokens=tuple(1 if kind in TOKEN_KINDS else None for kind in kinds),
        error_ns=tuple(20_000 for _ in stamps),
    )
    server = ServerTimings(queue_ns=100 * MS, prefill_ns=500 * MS)
    return Timeline(
        trace_id="0af7651916cd43dd8448eb211c80319c",
        party=Hop.CLIENT,
        started_at=1_700_000_000.0,
        end_ns=1760 * MS,
        spans=(
            *(() if reused else setup),
            Span(Phase.SEND, Hop.CLIENT, 320 * MS, sent, attempt=1),
            *answer_spans(
                Hop.CLIENT, sent_ns=sent, first_byte_ns=381 * MS, end_ns=1750 * MS, chunks=columns, attempt=1
            ),
            *reported_spans(Hop.PROVIDER, server, sent_ns=sent, first_token_ns=1000 * MS, attempt=1),
        ),
        chunks=columns,
        facts=Facts(
            url="https://api.example.com/v1/chat/completions",
            status=200,
            stream=True,
            model="smollm2-135m",
            http_version="1.1",
            tls_version="TLSv1.3",
            reused=reused,
            remote_address="203.0.113.7:443",
            finish_reason="stop",
            usage=Usage(20, 70, 20, 16),
            server=server,
            request_id=name,
            stamps="kernel",
        ),
        clock=Clock("monotonic:boot", -5_000),
    )


def failed() -> Timeline:
    """An exchange that never got a first byte."""
    return Timeline(
        trace_id="f",
        party=Hop.CLIENT,
        started_at=1_700_000_000.0,
        end_ns=3010 * MS,
        spans=(
            Span(Phase.CONNECT, Hop.CLIENT, 0, 9 * MS),
            Span(Phase.SEND, Hop.CLIENT, 9 * MS, 10 * MS),
            *answer_spans(Hop.CLIENT, sent_ns=10 * MS, first_byte_ns=None, end_ns=3010 * MS, chunks=Chunks()),
        ),
        outcome=Outcome(End.FAILED, Phase.WAIT, "first_byte_timeout", "no byte of the answer within 3 s"),
    )
