"""From what one request left behind to its Timeline.

Spans before the answer come from the transport, `answer_spans` makes the rest from the chunks' stamps, and what a
server reports of its own work divides the wait. Our own time between two phases is a `caller` span: it is ours, not
the server's.
"""

from __future__ import annotations

import ipaddress
import itertools
from typing import Any, NamedTuple

import msgspec

from unslow.core.timeline import (
    TOKEN_KINDS,
    Chunks,
    End,
    Facts,
    Hop,
    Outcome,
    Phase,
    ServerTimings,
    Span,
    Timeline,
    Usage,
    answer_spans,
    reported_spans,
)
from unslow.measure.probe.complaint import one_line
from unslow.measure.probe.reading import Reading
from unslow.measure.probe.relayed import gateway_spans
from unslow.measure.probe.target import shown_url
from unslow.measure.transport import Answer, Head, Http3Answer, Request, Trail

_WIDE_NS = 2_000_000
"""Stamps less certain than this are told of."""

_KEPT_HEADERS = frozenset((
    "age", "alt-svc", "cache-control", "cf-cache-status", "cf-ray", "connection", "content-length", "date",
    "keep-alive", "openai-processing-ms", "openai-version", "request-id", "retry-after", "server", "server-timing",
    "transfer-encoding", "via", "x-accel-buffering", "x-cache", "x-envoy-upstream-service-time", "x-groq-region",
    "x-request-id", "x-unslow-id", "x-unslow-upstream",
))  # fmt: skip
_KEPT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
_IDS = ("x-unslow-id", "x-request-id", "request-id")
_LONGEST_TEXT = 256


class Seen(NamedTuple):
    """What is left of a request: what was done, the answer if its head came, and when it ended (raw monotonic)."""

    trail: Trail
    answer: Answer | Http3Answer | None
    reading: Reading | None
    end_ns: int


class Known(NamedTuple):
    """What was known beforehand."""

    trace_id: str
    dialect: str
    model: str | None
    stream: bool


def timeline_of(seen: Seen, request: Request, outcome: Outcome, known: Known) -> Timeline:
    """Make the Timeline."""
    trail = seen.trail
    step_ns = trail.clock_step_ns()
    if step_ns:
        trail.note(f"the wall clock was set by {step_ns / 1e6:.1f} ms meanwhile: stamps are that much less certain")
    chunks = seen.reading.chunks(step_ns) if seen.reading else Chunks()
    _note_wide_stamps(chunks, trail)
    answered, end_ns = _answered(seen, chunks, outcome, known)
    spans = [*trail.spans(), *answered]
    return Timeline(
        trace_id=known.trace_id,
        party=Hop.CLIENT,
        started_at=trail.started_at,
        end_ns=end_ns,
        spans=(*spans, *_own_time(spans)),
        chunks=chunks,
        facts=_facts(seen, request, outcome, known),
        outcome=outcome,
        clock=trail.clock(),
        clocks=(trail.kernel_clock(),),
    )


def _answered(seen: Seen, chunks: Chunks, outcome: Outcome, known: Known) -> tuple[list[Span], int]:
    """Spans from the last byte sent on, and the end of all."""
    zero = seen.trail.zero_ns
    end = max(seen.end_ns - zero, chunks.arrival_ns[-1] if chunks.arrival_ns else 0)
    if seen.answer is None:
        return [], end
    sent, first = seen.answer.sent_ns - zero, seen.answer.head.first.at_ns - zero
    end = max(end, first)
    whole_refusal = (outcome.kind or "").startswith("http_")
    spans = answer_spans(
        Hop.CLIENT,
        sent_ns=sent,
        first_byte_ns=first,
        end_ns=end,
        chunks=chunks,
        attempt=seen.trail.attempt,
        cut_off=outcome.end is not End.COMPLETED and not whole_refusal,
    )
    relayed = gateway_spans(seen.answer.head, sent_ns=sent, first_byte_ns=first)
    return [*spans, *relayed, *_reported(seen, sent, first, chunks, known)], end


def _reported(seen: Seen, sent_ns: int, first_byte_ns: int, chunks: Chunks, known: Known) -> tuple[Span, ...]:
    server = seen.reading.server if seen.reading else None
    if seen.reading is None or server is None:
        return ()
    who = _worker(known.dialect, seen.trail.facts.get("remote_address"))
    if not seen.reading.streamed:
        return reported_spans(who, server, sent_ns=sent_ns, first_token_ns=first_byte_ns, whole=True)
    stamps = [t for t, kind in zip(chunks.arrival_ns, chunks.kind, strict=True) if kind in TOKEN_KINDS]
    if not stamps:
        return ()
    return reported_spans(who, server, sent_ns=sent_ns, first_token_ns=stamps[0], last_token_ns=stamps[-1])


def _worker(dialect: str, remote: str | None) -> Hop:
    """Who does the work: an engine that somebody runs (Ollama, or on a private network), else a provider."""
    host = (remote or "").rpartition(":")[0].strip("[]")
    try:
        own = ipaddress.ip_address(host.partition("%")[0]).is_private
    except ValueError:
        own = False
    return Hop.ENGINE if own or dialect == "ollama" else Hop.PROVIDER


def _own_time(spans: list[Span]) -> list[Span]:
    """Our own time before the request was out: whatever no phase covers there."""
    sends = [s.end_ns for s in spans if s.phase is Phase.SEND]
    until_ns = max(sends or [s.end_ns for s in spans], default=0)
    own, at = [], 0
    edges = sorted((s.start_ns, s.end_ns) for s in spans if s.start_ns < until_ns)
    for start, end in itertools.chain(edges, [(until_ns, until_ns)]):
        if start > at:
            own.append(Span(Phase.CALLER, Hop.CALLER, at, start))
        at = max(at, end)
    return own


def _note_wide_stamps(chunks: Chunks, trail: Trail) -> None:
    wide = sum(error > _WIDE_NS for error in chunks.error_ns)
    if wide:
        widest = max(chunks.error_ns) / 1e6
        trail.note(
            f"our reader was held up, or outrun: {wide} chunks came merged, each known to ± {widest:.0f} ms at worst"
        )


def _facts(seen: Seen, request: Request, outcome: Outcome, known: Known) -> Facts:
    facts = dict(seen.trail.facts)
    named = {"dialect": known.dialect, "model": known.model, "stream": known.stream}
    facts |= {"url": shown_url(request.url), "method": request.method, **named}
    if seen.answer is not None:
        facts |= _said_in_head(seen.answer.head)
    if seen.reading is not None:
        facts |= _said_in_body(seen.reading, outcome, known)
        facts["server"] = _with_header(seen.reading.server, seen.answer)
    if "redirects" in facts:
        facts["redirects"] = tuple(shown_url(url) for url in facts["redirects"])
    return Facts(**facts, notes=tuple(seen.trail.notes))


def _said_in_head(head: Head) -> dict[str, Any]:
    return {
        "status": head.status,
        "http_version": head.version,
        "content_type": _short(head.header("content-type")),
        "content_encoding": _short(head.header("content-encoding")),
        "request_id": next((_short(v) for name in _IDS if (v := head.header(name))), None),
        "headers": _kept(head),
    }


def _said_in_body(reading: Reading, outcome: Outcome, known: Known) -> dict[str, Any]:
    return {
        "response_bytes": reading.size_bytes,
        "model_answered": _short(reading.model),
        "finish_reason": _short(reading.finish_reason),
        "usage": _usage(reading, outcome, known),
    }


def _usage(reading: Reading, outcome: Outcome, known: Known) -> Usage | None:
    """What the provider counted, else the whole text counted again, where we have all of it."""
    if reading.usage is not None and reading.usage.completion_tokens is not None:
        return reading.usage
    from unslow.core.tokens import settle

    whole = outcome.end is End.COMPLETED and reading.text_is_whole
    return settle(reading.usage, text=reading.text, model=reading.model or known.model, whole=whole)


def _kept(head: Head) -> dict[str, str]:
    kept = {}
    for name, value in head.headers:
        low = name.lower()
        if low in _KEPT_HEADERS or low.startswith(_KEPT_PREFIXES):
            kept[low] = one_line(value)[:_LONGEST_TEXT]
    return kept


def _short(text: str | None) -> str | None:
    return None if text is None else one_line(text)[:_LONGEST_TEXT]


def _with_header(server: ServerTimings | None, answer: Answer | Http3Answer | None) -> ServerTimings | None:
    """OpenAI says in `openai-processing-ms` how long it worked; the body's own timings say more."""
    said = answer.head.header("openai-processing-ms") if answer is not None else None
    try:
        total_ns = int(float(said or "") * 1_000_000)
    except (ValueError, OverflowError):
        return server
    if total_ns < 0 or (server is not None and server.total_ns is not None):
        return server
    return msgspec.structs.replace(server or ServerTimings(), total_ns=total_ns)
