"""From stamps of an answer to its spans: the one place that turns chunks into wait, thinking, decode and drain.

Theory of operation. An answer is cut at five moments: the last byte sent, the first byte back, the first token, the
first token that the reader sees, and the frame that says it is over (a finish reason, usage, an end mark, an error).
Stamps come from different places (a socket, the kernel, a parser), so a cut never lies before the one it follows, nor
outside [sent, end]: spans stay in order and apart.

Until an answer says that it is over, its reader waits for a token: the model computes its end-of-text token, or a
stalled stream comes to nothing. That is `decode` still. What comes after is `drain`, delivery of what was already
generated. An answer without such a frame is over at its last token, or, if it was cut off, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from unslow.core.timeline.facts import ServerTimings
from unslow.core.timeline.record import OUTPUT_KINDS, TOKEN_KINDS, ChunkKind, Chunks, Hop, Phase, Source, Span

OVER_KINDS = frozenset((ChunkKind.USAGE, ChunkKind.DONE, ChunkKind.ERROR))
"""Kinds that come when nothing more will be generated."""


def answer_spans(
    party: Hop,
    *,
    sent_ns: int,
    first_byte_ns: int | None,
    end_ns: int,
    chunks: Chunks,
    attempt: int = 0,
    cut_off: bool = False,
) -> tuple[Span, ...]:
    """Spans from the last byte sent to the end, as `party` measured them.

    wait [sent, first byte) and, where bytes came before tokens, [first byte, first token); thinking [first reasoning
    token, first output token); decode [first output token, over); drain [over, end), or [first byte, end) for a body
    without events. `cut_off` says that the answer did not come to its end (failed or aborted): without a frame that
    says that it is over its last phase then lasts to `end_ns`.
    """
    if not chunks:
        return _without_chunks(party, sent_ns, first_byte_ns, end_ns, attempt, Phase.WAIT if cut_off else Phase.DRAIN)
    cuts = [*_cuts(sent_ns, first_byte_ns, chunks, cut_off=cut_off), (Phase.DRAIN, end_ns)]
    spans, start = [], sent_ns
    for n, (phase, _) in enumerate(cuts[:-1]):
        end = max(start, min(end_ns, cuts[n + 1][1]))
        if end > start or n == 0:  # the first wait always stands: its end is the first byte
            spans.append(Span(phase, party, start, end, attempt=attempt))
        start = end
    return tuple(spans)


def _without_chunks(
    party: Hop, sent_ns: int, first_byte_ns: int | None, end_ns: int, attempt: int, rest: Phase
) -> tuple[Span, ...]:
    """The same for a body without events: what comes after the first byte is one phase, `rest`."""
    first = end_ns if first_byte_ns is None else min(end_ns, first_byte_ns)
    first = max(sent_ns, first)
    wait = Span(Phase.WAIT, party, sent_ns, first, attempt=attempt)
    return (wait, Span(rest, party, first, end_ns, attempt=attempt)) if end_ns > first else (wait,)


def _cuts(sent_ns: int, first_byte_ns: int | None, chunks: Chunks, *, cut_off: bool) -> Iterator[tuple[Phase, int]]:
    """Phases and when each starts; each lasts until the next one."""
    yield Phase.WAIT, sent_ns
    if first_byte_ns is None:
        return
    first = first_ns(chunks, TOKEN_KINDS)
    if first is None:
        yield from _without_tokens(first_byte_ns, chunks, cut_off=cut_off)
        return
    yield Phase.WAIT, first_byte_ns
    shown = first_ns(chunks, OUTPUT_KINDS)
    yield Phase.THINKING, first
    if shown is not None:
        yield Phase.DECODE, shown
    last = last_ns(chunks) or first
    over = _over_ns(chunks, last)
    if over is not None or not cut_off:
        yield Phase.DRAIN, last if over is None else over


def _without_tokens(first_byte_ns: int, chunks: Chunks, *, cut_off: bool) -> Iterator[tuple[Phase, int]]:
    over = first_ns(chunks, OVER_KINDS)
    if over is not None or cut_off:
        yield Phase.WAIT, first_byte_ns
    if over is not None or not cut_off:
        yield Phase.DRAIN, first_byte_ns if over is None else over


def first_ns(chunks: Chunks, kinds: frozenset[ChunkKind]) -> int | None:
    """Arrival of the first chunk of these kinds (all tokens, or all output), kept or not; None for none."""
    kept = next((t for t, kind in zip(chunks.arrival_ns, chunks.kind, strict=True) if kind in kinds), None)
    if kept is not None or chunks.beyond is None:
        return kept
    if kinds == TOKEN_KINDS:
        return chunks.beyond.first_token_ns
    return chunks.beyond.first_output_ns if kinds == OUTPUT_KINDS else None


def last_ns(chunks: Chunks) -> int | None:
    """Arrival of the last chunk that carried tokens, kept or not; None for none."""
    if chunks.beyond is not None and chunks.beyond.last_token_ns is not None:
        return chunks.beyond.last_token_ns
    pairs = zip(reversed(chunks.arrival_ns), reversed(chunks.kind), strict=True)
    return next((t for t, kind in pairs if kind in TOKEN_KINDS), None)


def _over_ns(chunks: Chunks, last_token_ns: int) -> int | None:
    """When a frame after the last token said that nothing more will come; None for an answer that never said so.

    Where that frame was not kept its moment is unknown: the last token stands for it.
    """
    if chunks.beyond is not None:
        return last_token_ns if OVER_KINDS & chunks.beyond.kinds.keys() else None
    over = None
    for stamp, kind in zip(reversed(chunks.arrival_ns), reversed(chunks.kind), strict=True):
        if kind in TOKEN_KINDS:
            break
        over = stamp if kind in OVER_KINDS else over
    return over


HELD_RATIO = 0.1
"""A stream that took this share less than its reported generation was held back on its way; less is jitter."""


def reported_spans(
    hop: Hop,
    server: ServerTimings,
    *,
    sent_ns: int,
    first_token_ns: int,
    last_token_ns: int | None = None,
    attempt: int = 0,
    whole: bool = False,
) -> tuple[Span, ...]:
    """Place reported durations inside the wait, ending at the first token: load, queue, then prefill.

    A report says how long, not when: the stretch is laid back from the first token and cut at `sent_ns`. A model's
    load is time in the queue for the request that waits for it. Of an answer that came as a `whole`, not streamed,
    generation lies in the wait as well: give its first byte as `first_token_ns`, and decode ends there. So does what
    a hop on the way held back: a stream whose tokens, up to `last_token_ns`, came in less time than their reported
    generation took was generated, in part, before its first token could come.
    """
    decode = server.decode_ns or 0
    before = decode if whole else 0
    if not whole and last_token_ns is not None:
        held = decode - (last_token_ns - first_token_ns)
        before = held if held > HELD_RATIO * decode else 0
    queue = (server.load_ns or 0) + (server.queue_ns or 0)
    lengths = [(Phase.DECODE, before), (Phase.PREFILL, server.prefill_ns or 0), (Phase.QUEUE, queue)]
    spans, end = [], first_token_ns
    for phase, length in lengths:
        start = max(sent_ns, end - length)
        if start < end:
            spans.append(Span(phase, hop, start, end, Source.REPORTED, attempt))
            end = start
    return tuple(reversed(spans))
