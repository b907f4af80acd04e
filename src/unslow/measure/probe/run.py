"""One request from its first millisecond to its Timeline.

Theory of operation. The transport sends and gives the head; `_read` takes the body to the answer's own end mark, or
to a limit; `_judged` says what became of it; `record.py` makes the Timeline of what was seen. A request that fails
gives a Timeline too, whose outcome says in which phase and how.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from unslow.core.timeline import End, Outcome, Phase, Timeline
from unslow.core.wire.dialects import by_name
from unslow.errors import UpstreamError
from unslow.measure.probe.complaint import complaint, one_line
from unslow.measure.probe.encodings import BadEncoding
from unslow.measure.probe.reading import Reading
from unslow.measure.probe.record import Known, Seen, timeline_of
from unslow.measure.transport import (
    Answer,
    Arrival,
    ExchangeFailed,
    Head,
    Http3Answer,
    Http3Session,
    Request,
    Session,
    TimedOut,
    Trail,
    Truncated,
    outcome_of,
)
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.failures import SECOND_NS

_LINGER_NS = SECOND_NS
"""How long the end of the HTTP message may stay away after the answer's own end mark."""


class Asked(NamedTuple):
    """A request and what it asks for."""

    request: Request
    dialect: str
    model: str | None
    stream: bool
    trace_id: str


class Run:
    """One request from its first millisecond to its Timeline."""

    def __init__(self, session: Session | Http3Session, asked: Asked) -> None:
        self._session, self._asked = session, asked
        self._trail = Trail(total_s=session.settings.total_timeout_s)
        self._answer: Answer | Http3Answer | None = None
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
        seen = Seen(self._trail, self._answer, self._reading, self._end_ns)
        asked = self._asked
        return timeline_of(
            seen, asked.request, outcome, Known(asked.trace_id, asked.dialect, asked.model, asked.stream)
        )

    def _exchange(self) -> Outcome:
        answer = self._answer = self._session.ask(self._asked.request, self._trail)
        dialect = by_name(self._asked.dialect)
        head = answer.head
        kind = head.header("content-type") if head.status < 300 else None
        self._reading = Reading(
            dialect, kind, head.header("content-encoding"), self._trail.zero_ns, self._asked.request.path
        )
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

    def _read(self, answer: Answer | Http3Answer, reading: Reading) -> Outcome | None:
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

    def _feed(self, reading: Reading, arrival: Arrival) -> None:
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
        if reading.streamed:
            if not self._asked.stream:
                self._trail.note("asked for one piece, answered as a stream")
            return Outcome() if reading.ended else _ended_early(self._has_token())
        if self._asked.request.method == "GET":
            return Outcome()  # a listing: whoever asked reads it
        content_type = one_line(head.header("content-type") or "no content type")
        if "json" in content_type and (reading.usage or reading.finish_reason or reading.text):
            if self._asked.stream:
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


def _cut(kind: str, why: str) -> Outcome:
    return Outcome(End.ABORTED, Phase.DECODE, kind, why)


def _ended_early(has_token: bool) -> Outcome:
    why = "the stream ended without its end mark: the server, or something between, cut it"
    return outcome_of(Truncated(why, phase=Phase.DECODE if has_token else Phase.WAIT))
