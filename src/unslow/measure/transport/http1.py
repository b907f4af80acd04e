"""HTTP/1.1 (RFC 9112), one exchange at a time on a stamped channel. httptools frames; stamps pass through."""

from __future__ import annotations

import httptools

from unslow.core.timeline import Phase
from unslow.measure.transport.arrival import Arrival, Channel
from unslow.measure.transport.failures import ExchangeFailed, Truncated
from unslow.measure.transport.message import Head, Headers, Request

_NO_BODY = frozenset((204, 304))


class Http1:
    """A connection. `absolute`: the request line carries the whole URL (a plain proxy, RFC 9112 3.2.2)."""

    _head: Head | None
    _headers: list[tuple[str, str]]
    _bodies: list[Arrival]
    _parts: list[bytes]
    _now: Arrival | None
    _first: Arrival | None

    def __init__(self, channel: Channel, *, max_header_bytes: int, absolute: bool = False) -> None:
        self._channel, self._max_header_bytes, self._absolute = channel, max_header_bytes, absolute
        self.complete, self.reusable = True, True
        self._reset()

    @property
    def last_ns(self) -> int | None:
        """When the last bytes of the exchange came."""
        return self._now.at_ns if self._now else None

    def begin(self, request: Request, until_ns: int) -> bool:
        """Send a request."""
        self._reset()
        self.complete = False
        return self._channel.send(self._head_bytes(request) + request.body, until_ns)

    def head(self, until_ns: int) -> Head | None:
        """Wait for the final head; interim ones (1xx) are passed over."""
        while self._head is None:
            arrivals = self._channel.receive(until_ns)
            if not arrivals and not self._channel.eof:
                return None
            if not arrivals:
                raise self._closed_early()
            for arrival in arrivals:
                self._feed(arrival)
        return self._head

    def body(self, until_ns: int) -> list[Arrival]:
        """Wait for bytes of the body."""
        while not self._bodies and not self.complete:
            arrivals = self._channel.receive(until_ns)
            if not arrivals and not self._channel.eof:
                break
            if not arrivals:
                self._end_of_input()
            for arrival in arrivals:
                self._feed(arrival)
        bodies, self._bodies = self._bodies, []
        return bodies

    # httptools calls these while it is fed.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """The head is whole: an interim one is dropped."""
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = []
            return
        assert self._now is not None
        version = self._parser.get_http_version()
        self._head = Head(f"HTTP/{version}", status, self._seal(), (self._first or self._now).within())
        self.reusable = self._parser.should_keep_alive()
        self._framed = status in _NO_BODY or any(
            n.lower() == "content-length" or (n.lower() == "transfer-encoding" and "chunked" in v.lower())
            for n, v in self._head.headers
        )

    def on_body(self, data: bytes) -> None:
        """Bytes of the body."""
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """The end of an answer; of an interim one it means nothing."""
        if self._head is not None:
            self.complete = True

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head = None
        self._headers = []
        self._bodies = []
        self._parts = []
        self._now = None
        self._first = None
        self._head_bytes_seen = 0
        self._framed = False

    def _seal(self) -> Headers:
        headers, self._headers = tuple(self._headers), []
        return headers

    def _head_bytes(self, request: Request) -> bytes:
        target = request.absolute if self._absolute else request.path
        lines = [f"{request.method} {target} HTTP/1.1", f"Host: {request.origin.authority}"]
        lines += [f"{name}: {value}" for name, value in (*request.headers, *request.private)]
        if request.body or request.method == "POST":
            lines.append(f"Content-Length: {len(request.body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _feed(self, arrival: Arrival) -> None:
        if self.complete:
            self.reusable = False  # bytes nobody asked for
            return
        self._now = arrival
        self._first = self._first or arrival
        try:
            self._parser.feed_data(arrival.data)
        except httptools.HttpParserError as error:
            raise self._garbage(error) from error
        if self._head is None:
            self._head_bytes_seen += len(arrival.data)
            if self._head_bytes_seen > self._max_header_bytes:
                why = f"the head of the answer is longer than {self._max_header_bytes} bytes"
                raise ExchangeFailed(why, phase=Phase.WAIT, kind="head_too_large")
        if self._parts:
            body = b"".join(self._parts)
            self._parts = []
            self._bodies.append(arrival._replace(data=body, tail=arrival.tail and not self.complete))

    def _garbage(self, error: Exception) -> ExchangeFailed:
        if self._head is None:
            why = "the server answered bytes that are not HTTP/1.1: check the port (a TLS port needs https://)"
            return ExchangeFailed(why, phase=Phase.WAIT, kind="not_http")
        why = f"the server broke the framing of its answer ({error}): see its logs, and any proxy between"
        return ExchangeFailed(why, phase=Phase.DRAIN, kind="bad_framing")

    def _closed_early(self) -> ExchangeFailed:
        self.reusable = False
        why = "the server closed the connection without an answer: see its logs"
        return ExchangeFailed(why, phase=Phase.WAIT, kind="closed_early", unanswered=self._first is None)

    def _end_of_input(self) -> None:
        self.reusable = False
        if self._framed:
            raise Truncated("the connection closed in the middle of the answer: see the server's logs", phase="drain")
        self.complete = True  # the body ran until the close (RFC 9112 6.3)
