"""From stamps of an answer to its spans: the one place that turns chunks into wait, thinking, decode and drain."""

from __future__ import annotations

from collections.abc import Iterator

from unslow.core.timeline.facts import ServerTimings
from unslow.core.timeline.record import OUTPUT_KINDS, TOKEN_KINDS, Chunks, Hop, Phase, Source, Span


def answer_spans(
    party: Hop,
    *,
    sent_ns: int,
    first_byte_ns: int | None,
    end_ns: int,
    chunks: Chunks,
    attempt: int = 0,
) -> tuple[Span, ...]:
    """Spans from the last byte sent to the end, as `party` measured them.

    wait [sent, first byte) and, where bytes came before tokens, [first byte, first token); thinking [first reasoning
    token, first output token); decode [first output token, last token); drain [last token or first byte, end).
    """
    cuts = list(_cuts(sent_ns, first_byte_ns, end_ns, chunks))
    spans = []
    for (phase, start), (_, end) in zip(cuts, [*cuts[1:], (Phase.DRAIN, end_ns)], strict=True):
        if end > start or phase is Phase.WAIT:
            spans.append(Span(phase, party, start, max(start, end), attempt=attempt))
    return tuple(spans)


def _cuts(sent_ns: int, first_byte_ns: int | None, end_ns: int, chunks: Chunks) -> Iterator[tuple[Phase, int]]:
    yield Phase.WAIT, sent_ns
    if first_byte_ns is None:
        return
    pairs = list(zip(chunks.kind, chunks.arrival_ns, strict=True))
    first = next((t for kind, t in pairs if kind in TOKEN_KINDS), None)
    if first is None:
        yield Phase.DRAIN, first_byte_ns
        return
    shown = next((t for kind, t in pairs if kind in OUTPUT_KINDS), None)
    last = max(t for kind, t in pairs if kind in TOKEN_KINDS)
    if chunks.beyond is not None and chunks.beyond.last_token_ns is not None:
        last = chunks.beyond.last_token_ns
    if first > first_byte_ns:
        yield Phase.WAIT, first_byte_ns
    if shown is None:
        yield Phase.THINKING, first
    else:
        if shown > first:
            yield Phase.THINKING, first
        yield Phase.DECODE, shown
    if end_ns > last:
        yield Phase.DRAIN, last


def reported_spans(
    hop: Hop, server: ServerTimings, *, sent_ns: int, first_token_ns: int, attempt: int = 0
) -> tuple[Span, ...]:
    """Place reported durations inside the wait, ending at the first token: load, queue, then prefill.

    A report says how long, not when: the stretch is laid back from the first token and cut at `sent_ns`. A model's
    load is time in the queue for the request that waits for it.
    """
    queue = (server.load_ns or 0) + (server.queue_ns or 0)
    prefill_start = max(sent_ns, first_token_ns - (server.prefill_ns or 0))
    queue_start = max(sent_ns, prefill_start - queue)
    parts = ((Phase.QUEUE, queue_start, prefill_start), (Phase.PREFILL, prefill_start, first_token_ns))
    return tuple(Span(p, hop, a, b, Source.REPORTED, attempt) for p, a, b in parts if b > a)
