"""The record of an exchange as the gateway saw it: built once, after the answer went out.

Spans, from the request's first byte: `send` [first byte, routed) while the request comes in; `queue` until there is
a place; `dns`, `connect`, `tls` of each address tried; `send` until the last byte is with the upstream's socket;
then what `answer_spans` makes of the answer, and the stretches that the upstream itself reported.
"""

from __future__ import annotations

from time import perf_counter_ns, time
from typing import TYPE_CHECKING

import msgspec

from unslow.core.timeline import (
    Chunks,
    Clock,
    End,
    Facts,
    Hop,
    Phase,
    ServerTimings,
    Span,
    Timeline,
    Usage,
    answer_spans,
    last_ns,
    ledger,
    reported_spans,
)
from unslow.core.wire.dialects import dialect_for
from unslow.serve.recorder.protocol import Finished

if TYPE_CHECKING:
    from unslow.serve.gateway.answer import Answer
    from unslow.serve.gateway.exchange import Exchange
    from unslow.serve.gateway.observer import Observer

KEPT_HEADERS = frozenset(
    (b"openai-processing-ms", b"retry-after", b"server", b"x-request-id", b"x-envoy-upstream-service-time", b"cf-ray")
)
_SEND, _GATEWAY, _COMPLETED = Phase.SEND, Hop.GATEWAY, End.COMPLETED
"""Looked up once: a member of an Enum costs ten times a name."""
_NO_CHUNKS = Chunks()
_encoder = msgspec.json.Encoder()


class _Said:
    """What an answer that was not streamed said of itself, in the words of an Observer."""

    __slots__ = ("finish_reason", "model", "server", "usage")

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.server: ServerTimings | None = None
        self.finish_reason: str | None = None
        self.model: str | None = None


_NOTHING = _Said()


def finished(exchange: Exchange, end_ns: int) -> Finished:
    """The message for the recorder."""
    path = exchange.path if len(exchange.path) <= 256 else exchange.path[:256]
    worker = exchange.gateway.settings.worker
    message = Finished(timeline_of(exchange, end_ns), worker, exchange.key_name, path, exchange.known.sampled)
    if exchange.connection is None:
        exchange.answer = None  # or they keep each other alive
    return message


def comment_of(exchange: Exchange, now_ns: int) -> bytes:
    """The ledger up to now as an SSE comment."""
    timeline = timeline_of(exchange, now_ns)
    rows = [
        {"phase": row.phase, "hop": row.hop, "duration_ns": row.duration_ns, "source": row.source}
        for row in ledger(timeline)
    ]
    body = {"id": exchange.id, "trace_id": exchange.trace_id, "end_ns": timeline.end_ns, "rows": rows}
    return b": unslow %b\n\n" % _encoder.encode(body)


def timeline_of(exchange: Exchange, end_ns: int) -> Timeline:
    """The Timeline, party gateway."""
    zero = exchange.started_ns
    answer = exchange.answer
    chunks = _NO_CHUNKS if answer is None or answer.observer is None else answer.observer.chunks(zero)
    said = _said(exchange, answer)
    settings = exchange.gateway.settings
    return Timeline(
        trace_id=exchange.trace_id,
        party=_GATEWAY,
        started_at=time() - (perf_counter_ns() - zero) / 1e9,
        end_ns=end_ns - zero,
        spans=(*_before(exchange, end_ns), *_after(exchange, answer, said, chunks, end_ns)),
        chunks=chunks,
        facts=_facts(exchange, answer, said),
        outcome=exchange.outcome,
        clock=Clock(settings.clock_id, -zero),
    )


def _said(exchange: Exchange, answer: Answer | None) -> _Said | Observer:
    if answer is None:
        return _NOTHING
    if answer.observer is not None:
        return answer.observer
    if not answer.sample:
        return _NOTHING
    said = _Said()
    for delta in dialect_for(exchange.path, host=exchange.host).body(b"".join(answer.sample)):
        said.usage = delta.usage or said.usage
        said.server = delta.server or said.server
        said.finish_reason = delta.finish_reason or said.finish_reason
        said.model = delta.model or said.model
    return said


def _before(exchange: Exchange, end_ns: int) -> list[Span]:
    """What came before the request was with the upstream."""
    zero = exchange.started_ns
    spans = [Span(_SEND, _GATEWAY, 0, (exchange.routed_ns or end_ns) - zero)]
    if exchange.queued:
        spans.append(Span(Phase.QUEUE, Hop.GATEWAY, exchange.routed_ns - zero, (exchange.admitted_ns or end_ns) - zero))
    for phase, start_ns, step_end_ns, attempt, won in (*exchange.lost, *exchange.steps):
        stop_ns = step_end_ns or end_ns
        if stop_ns > start_ns:
            spans.append(Span(phase, Hop.GATEWAY, start_ns - zero, stop_ns - zero, attempt=attempt, won=won))
    return spans


def _after(
    exchange: Exchange, answer: Answer | None, said: _Said | Observer, chunks: Chunks, end_ns: int
) -> list[Span]:
    """From the connection on."""
    if answer is None:
        return []
    zero, attempt = exchange.started_ns, exchange.attempt
    first_byte_ns = answer.first_byte_ns or None
    sent_ns = exchange.sent_ns or first_byte_ns or end_ns
    if first_byte_ns is not None and first_byte_ns < sent_ns:
        sent_ns = first_byte_ns  # it answered before it had the whole request
    spans = [Span(_SEND, _GATEWAY, exchange.connected_ns - zero, sent_ns - zero, attempt=attempt)]
    byte_ns = None if first_byte_ns is None else first_byte_ns - zero
    spans += answer_spans(
        _GATEWAY,
        sent_ns=sent_ns - zero,
        first_byte_ns=byte_ns,
        end_ns=end_ns - zero,
        chunks=chunks,
        attempt=attempt,
        cut_off=exchange.outcome.end is not _COMPLETED,
    )
    if said.server is not None and exchange.pool is not None and first_byte_ns is not None:
        hop = Hop.ENGINE if exchange.pool.target.local else Hop.PROVIDER
        whole = answer.observer is None
        token_ns = first_byte_ns if answer.observer is None else answer.observer.first_token_ns
        if token_ns is not None:
            spans += reported_spans(
                hop,
                said.server,
                sent_ns=sent_ns - zero,
                first_token_ns=token_ns - zero,
                last_token_ns=last_ns(chunks),
                attempt=attempt,
                whole=whole,
            )
    return spans


def _facts(exchange: Exchange, answer: Answer | None, said: _Said | Observer) -> Facts:
    head = answer.head if answer is not None else None
    pool = exchange.pool
    return Facts(
        url=None if pool is None else pool.where,
        method=exchange.head.method.decode(),
        status=exchange.status if head is None else head.status,
        stream=None if answer is None or head is None else answer.observer is not None,
        upstream=None if pool is None else pool.name,
        model=exchange.model or exchange.body.model,  # with one upstream, the way is taken before the body came
        model_answered=said.model,
        http_version="1.1",
        reused=exchange.reused if answer is not None else None,
        content_type=None if head is None else head.content_type.decode("latin-1") or None,
        content_encoding=None if head is None else head.encoding.decode("latin-1") or None,
        request_bytes=exchange.body.size_bytes,
        response_bytes=None if answer is None else answer.size_bytes,
        finish_reason=said.finish_reason,
        usage=said.usage,
        server=said.server,
        retries=exchange.sends - 1 if exchange.sends else None,
        request_id=exchange.id,
        headers=_kept_headers(answer),
    )


def _kept_headers(answer: Answer | None) -> dict[str, str]:
    if answer is None or answer.head is None:
        return {}
    return {name.decode(): value.decode("latin-1") for name, value in answer.head.index.items() if name in KEPT_HEADERS}
