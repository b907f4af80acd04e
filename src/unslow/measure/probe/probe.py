"""One endpoint, measured: each request becomes a Timeline, whatever comes of it.

Theory of operation. `measure` sends one request over the session's connection and reads the answer to its end mark.
Spans before the answer come from the transport; `answer_spans` makes the rest from the chunks' stamps. Our own time
between two phases is a `caller` span: it is ours, not the server's. A request that fails still gives a Timeline,
whose outcome says in which phase and how.
"""

from __future__ import annotations

import itertools
import secrets
from typing import Any

import msgspec

from unslow.core.timeline import (
    ChunkKind,
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
from unslow.core.wire.dialects import by_name
from unslow.errors import UpstreamError
from unslow.measure.probe.complaint import complaint, one_line
from unslow.measure.probe.encodings import OFFERED, BadEncoding
from unslow.measure.probe.reading import Reading
from unslow.measure.probe.redact import Redactor
from unslow.measure.probe.settings import ProbeSettings
from unslow.measure.probe.target import endpoint, first_model, listing, question, shown_url
from unslow.measure.transport import (
    Answer,
    ExchangeFailed,
    Head,
    Request,
    Session,
    TimedOut,
    Trail,
    TransportSettings,
    Truncated,
    outcome_of,
)
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.failures import SECOND_NS

_LINGER_NS = SECOND_NS
"""How long the end of the HTTP message may stay away after the answer's own end mark."""

_WIDE_NS = 2_000_000
_PLAIN_SECRETS = frozenset(("accept", "accept-encoding", "accept-language", "content-type", "user-agent"))
_KEPT_HEADERS = frozenset((
    "age", "alt-svc", "cache-control", "cf-cache-status", "cf-ray", "connection", "content-length", "date",
    "keep-alive", "openai-processing-ms", "openai-version", "request-id", "retry-after", "server", "server-timing",
    "transfer-encoding", "via", "x-accel-buffering", "x-cache", "x-envoy-upstream-service-time", "x-groq-region",
    "x-request-id", "x-unslow-id", "x-unslow-upstream",
))  # fmt: skip
_KEPT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
_IDS = ("x-unslow-id", "x-request-id", "request-id")
_LONGEST_HEADER = 256


class Probe:
    """Asks one endpoint again and again. Raises LocalProtocolError for settings that cannot be asked at all."""

    def __init__(self, settings: ProbeSettings, transport: TransportSettings | None = None) -> None:
        self.settings, self.transport = settings, transport or TransportSettings()
        self.endpoint = endpoint(settings.url, settings.dialect)
        self.model = settings.model
        private = [value for name, value in settings.headers if name.lower() not in _PLAIN_SECRETS]
        self._redactor = Redactor([settings.api_key or "", *private, *_userinfo(self.transport.proxy)])
        self._session = Session(self.transport)
        self._session.prepare(self._question("0" * 32, "probe"))

    @property
    def shown_url(self) -> str:
        """The URL as reports show it."""
        return self._redactor.text(shown_url(self.settings.url))

    def find_model(self) -> Timeline | None:
        """Name the model where the settings name none: the first that the endpoint lists. Not measured.

        None when the model is known; else the Timeline of the listing that failed.
        """
        if self.model is not None:
            return None
        session = Session(self.transport)
        request = listing(self.endpoint, self.settings)
        session.prepare(request)
        run = _Run(self, session, request, stream=False)
        timeline = run.timeline()
        session.close()
        if timeline.outcome.end is not End.COMPLETED:
            return self._named(timeline)
        self.model = first_model(run.body)
        if self.model is not None:
            return None
        why = f"{shown_url(request.url)} lists no model that could be asked: name one with --model"
        outcome = Outcome(End.FAILED, Phase.DRAIN, "no_model", why)
        return self._redactor.timeline(msgspec.structs.replace(timeline, outcome=outcome))

    def measure(self, *, cold: bool = False) -> Timeline:
        """Send one request and measure it. `cold`: on a connection of its own."""
        if cold:
            self._session.close()
        trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
        request = self._question(trace_id, self.model or "", span_id)
        run = _Run(self, self._session, request, stream=self.settings.stream, trace_id=trace_id)
        return self._redactor.timeline(run.timeline())

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _question(self, trace_id: str, model: str, span_id: str = "0" * 16) -> Request:
        asked = question(self.endpoint, model, self.settings, f"00-{trace_id}-{span_id}-01")
        named = {name.lower() for name, _ in (*asked.headers, *asked.private)}
        if "accept-encoding" in named:
            return asked
        return msgspec.structs.replace(asked, headers=(*asked.headers, ("accept-encoding", OFFERED)))

    def _named(self, timeline: Timeline) -> Timeline:
        """A failed listing, with what to do about it."""
        outcome = timeline.outcome
        if (outcome.kind or "").startswith("http_4") and outcome.kind not in ("http_401", "http_403", "http_429"):
            detail = f"{outcome.detail}; the models cannot be listed, so name one with --model"
            timeline = msgspec.structs.replace(timeline, outcome=msgspec.structs.replace(outcome, detail=detail))
        return self._redactor.timeline(timeline)


class _Run:
    """One request from its first millisecond to its Timeline."""

    def __init__(self, probe: Probe, session: Session, request: Request, *, stream: bool, trace_id: str = "") -> None:
        self._probe, self._session, self._request, self._stream = probe, session, request, stream
        self._trace_id = trace_id or secrets.token_hex(16)
        self._trail = Trail(total_s=session.settings.total_timeout_s)
        self._answer: Answer | None = None
        self._reading: Reading | None = None
        self._end_ns = 0

    @property
    def body(self) -> bytes:
        """The body of an answer that is no event stream."""
        return self._reading.body if self._reading else b""

    def timeline(self) -> Timeline:
        """Run the request."""
        try:
            outcome = self._exchange()
        except UpstreamError as error:
            outcome = outcome_of(error)
            self._end_ns = self._failed_at()
            if self._answer is not None and outcome.phase is Phase.DRAIN and not self._has_token():
                outcome = msgspec.structs.replace(outcome, phase=Phase.WAIT)
        finally:
            self._session.finish(self._trail)
            if self._answer is not None and not self._answer.complete:
                self._session.close()
        return self._built(outcome)

    def _exchange(self) -> Outcome:
        answer = self._answer = self._session.ask(self._request, self._trail)
        dialect = by_name(self._probe.endpoint.dialect)
        head = answer.head
        kind = head.header("content-type") if head.status < 400 and self._stream else None
        self._reading = Reading(dialect, kind, head.header("content-encoding"), self._trail.zero_ns, self._request.path)
        cut = self._read(answer, self._reading)
        self._end_ns = answer.last_ns or now_ns()
        if head.status >= 300:
            detail = complaint(head.status, self._reading.body, head.header("retry-after"))
            return Outcome(End.FAILED, Phase.WAIT, f"http_{head.status}", detail)
        if not self._reading.known_encoding:
            why = f"the body is encoded as {one_line(head.header('content-encoding') or '')}, which was not asked for"
            return Outcome(End.FAILED, Phase.DRAIN, "unknown_encoding", why)
        self._reading.close()
        return cut or self._judged(head, self._reading)

    def _read(self, answer: Answer, reading: Reading) -> Outcome | None:
        """Read to the end; an Outcome where we cut the answer ourselves."""
        limits = self._session.settings
        started = now_ns()
        cut_at = started + int(limits.max_seconds * SECOND_NS)
        idle_at = started + int(limits.idle_timeout_s * SECOND_NS)
        linger_at: int | None = None
        while True:
            until = min(t for t in (cut_at, idle_at, self._trail.until_ns, linger_at) if t is not None)
            arrivals = answer.body(until)
            for arrival in arrivals:
                self._feed(reading, arrival)
            if arrivals:
                idle_at = now_ns() + int(limits.idle_timeout_s * SECOND_NS)
            if reading.done and linger_at is None:
                linger_at = now_ns() + _LINGER_NS
            if reading.size_bytes > limits.max_bytes:
                return _cut("max_bytes", f"the answer was cut after {limits.max_bytes} bytes (--max-bytes)")
            if not arrivals and answer.complete:
                return None
            if arrivals or now_ns() < until:
                continue
            if until == linger_at:
                self._trail.note("the server did not end the HTTP message after the answer's own end")
                return None
            if until == cut_at:
                return _cut("max_seconds", f"the answer was cut after {limits.max_seconds:g} s (--max-seconds)")
            raise self._too_late(until, idle_at)

    def _feed(self, reading: Reading, arrival: Any) -> None:
        try:
            reading.feed(arrival)
        except BadEncoding as error:
            why = f"the body is not in the encoding that its head names: {error}"
            raise ExchangeFailed(why, phase=Phase.DRAIN, kind="bad_encoding") from error

    def _too_late(self, until: int, idle_at: int) -> TimedOut:
        phase = Phase.DECODE if self._has_token() else Phase.WAIT
        if until == idle_at:
            return TimedOut(phase, self._session.settings.idle_timeout_s, what="the answer stopped: nothing came")
        return TimedOut(phase, self._trail.total_s, total=True, what="no end of the answer")

    def _judged(self, head: Head, reading: Reading) -> Outcome:
        """What became of an answer that came whole."""
        if reading.error:
            said = one_line(reading.error)
            return Outcome(End.FAILED, Phase.DECODE, "stream_error", f"the provider broke off: {said}")
        if not self._stream or reading.streamed:
            if reading.streamed and not reading.ended:
                return _ended_early(self._has_token())
            return Outcome()
        content_type = one_line(head.header("content-type") or "no content type")
        if "json" in content_type and (reading.usage or reading.finish_reason):
            self._trail.note("asked for a stream, answered in one piece")
            return Outcome()
        why = f"answered {content_type}, not an answer of the API: check the URL (with or without /v1) and --dialect"
        return Outcome(End.FAILED, Phase.DRAIN, "not_an_answer", why)

    def _has_token(self) -> bool:
        return self._reading is not None and bool(self._reading.text)

    def _failed_at(self) -> int:
        spans = self._trail.spans()
        if self._answer is None and spans:
            return self._trail.zero_ns + max(s.end_ns for s in spans)
        return now_ns()

    def _built(self, outcome: Outcome) -> Timeline:
        trail, reading = self._trail, self._reading
        step = trail.clock_step_ns()
        if step:
            trail.note(f"the wall clock was set by {step / 1e6:.1f} ms meanwhile: stamps are that much less certain")
        chunks = reading.chunks(step) if reading else Chunks()
        end = max(self._end_ns - trail.zero_ns, chunks.arrival_ns[-1] if chunks.arrival_ns else 0)
        spans = list(trail.spans())
        if self._answer is not None:
            sent, first = self._answer.sent_ns - trail.zero_ns, self._answer.head.first.at_ns - trail.zero_ns
            end = max(end, first)
            spans += answer_spans(
                Hop.CLIENT,
                sent_ns=sent,
                first_byte_ns=first,
                end_ns=end,
                chunks=chunks,
                attempt=trail.attempt,
                cut_off=outcome.end is not End.COMPLETED,
            )
            spans += self._reported(sent, chunks.arrival_ns, chunks.kind)
        wide = sum(error > _WIDE_NS for error in chunks.error_ns)
        if wide:
            widest = max(chunks.error_ns) / 1e6
            trail.note(
                f"our own reader was held up: {wide} chunks came merged, each known to ± {widest:.0f} ms at worst"
            )
        return Timeline(
            trace_id=self._trace_id, party=Hop.CLIENT, started_at=trail.started_at, end_ns=end,
            spans=(*spans, *_own_time(spans, self._until_sent(spans))), chunks=chunks, facts=self._facts(outcome),
            outcome=outcome, clock=trail.clock(), clocks=(trail.kernel_clock(),),
        )  # fmt: skip

    def _until_sent(self, spans: list[Span]) -> int:
        sends = [s.end_ns for s in spans if s.phase is Phase.SEND]
        return max(sends or [s.end_ns for s in spans], default=0)

    def _reported(self, sent_ns: int, arrivals: tuple[int, ...], kinds: tuple[ChunkKind, ...]) -> tuple[Span, ...]:
        server = self._reading.server if self._reading else None
        tokens = (ChunkKind.REASONING, ChunkKind.CONTENT, ChunkKind.TOOL)
        first = next((at for at, kind in zip(arrivals, kinds, strict=True) if kind in tokens), None)
        if server is None or first is None:
            return ()
        return reported_spans(self._who(), server, sent_ns=sent_ns, first_token_ns=first)

    def _who(self) -> Hop:
        return Hop.ENGINE if self._probe.endpoint.dialect == "ollama" else Hop.PROVIDER

    def _facts(self, outcome: Outcome) -> Facts:
        trail, answer, reading = self._trail, self._answer, self._reading
        known: dict[str, Any] = {
            "url": shown_url(self._request.url),
            "method": self._request.method,
            "dialect": self._probe.endpoint.dialect,
            "model": self._probe.model,
            "stream": self._stream,
        }
        if answer is not None:
            head = answer.head
            known |= {
                "status": head.status,
                "http_version": head.version,
                "content_type": _short(head.header("content-type")),
                "content_encoding": _short(head.header("content-encoding")),
                "request_id": next((_short(v) for name in _IDS if (v := head.header(name))), None),
                "headers": _kept(head),
            }
        if reading is not None:
            known |= {
                "response_bytes": reading.size_bytes,
                "model_answered": _short(reading.model),
                "finish_reason": _short(reading.finish_reason),
                "usage": self._usage(reading, outcome),
                "server": _with_header(reading.server, answer),
            }
        trail.facts |= known
        if "redirects" in trail.facts:
            trail.facts["redirects"] = tuple(shown_url(url) for url in trail.facts["redirects"])
        return trail.built_facts()

    def _usage(self, reading: Reading, outcome: Outcome) -> Usage | None:
        """What the provider counted, else the whole text counted again, where we have all of it."""
        if reading.usage is not None and reading.usage.completion_tokens is not None:
            return reading.usage
        from unslow.core.tokens import settle

        whole = outcome.end is End.COMPLETED and reading.text_is_whole
        return settle(reading.usage, text=reading.text, model=reading.model or self._probe.model, whole=whole)


def _own_time(spans: list[Span], until_ns: int) -> list[Span]:
    """Our own time before the request was out: whatever no phase covers there."""
    own, at = [], 0
    edges = sorted((s.start_ns, s.end_ns) for s in spans if s.start_ns < until_ns)
    for start, end in itertools.chain(edges, [(until_ns, until_ns)]):
        if start > at:
            own.append(Span(Phase.CALLER, Hop.CALLER, at, start))
        at = max(at, end)
    return own


def _cut(kind: str, why: str) -> Outcome:
    return Outcome(End.ABORTED, Phase.DECODE, kind, why)


def _ended_early(has_token: bool) -> Outcome:
    why = "the stream ended without its end mark: the server, or something between, cut it"
    return outcome_of(Truncated(why, phase=Phase.DECODE if has_token else Phase.WAIT))


def _kept(head: Head) -> dict[str, str]:
    kept = {}
    for name, value in head.headers:
        low = name.lower()
        if low in _KEPT_HEADERS or low.startswith(_KEPT_PREFIXES):
            kept[low] = one_line(value)[:_LONGEST_HEADER]
    return kept


def _short(text: str | None) -> str | None:
    return None if text is None else one_line(text)[:_LONGEST_HEADER]


def _with_header(server: ServerTimings | None, answer: Answer | None) -> ServerTimings | None:
    """OpenAI says in `openai-processing-ms` how long it worked; the body's own timings say more."""
    said = answer.head.header("openai-processing-ms") if answer is not None else None
    try:
        total_ns = int(float(said or "") * 1_000_000)
    except (ValueError, OverflowError):
        return server
    if total_ns < 0 or (server is not None and server.total_ns is not None):
        return server
    return msgspec.structs.replace(server or ServerTimings(), total_ns=total_ns)


def _userinfo(proxy: str | None) -> list[str]:
    from urllib.parse import unquote, urlsplit

    if not proxy:
        return []
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return [unquote(parts.password)] if parts.password else []
