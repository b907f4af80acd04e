"""HTTP/2 (RFC 9113) by the h2 library, one exchange at a time. Frames are cut here so that each keeps its stamp."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from unslow.core.timeline import Phase
from unslow.measure.transport.arrival import Arrival, Channel, Units
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.failures import ExchangeFailed, Truncated
from unslow.measure.transport.message import Head, Request

_HEADER_BYTES = 9
_FRAME_BYTES = 16384
_WINDOW_BYTES = (1 << 24) - 1
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host"))


class Http2:
    """A connection. `settle` sends our preface; the exchange's frames follow."""

    _head: Head | None
    _bodies: list[Arrival]
    _reading: Arrival | None

    def __init__(self, channel: Channel, *, max_header_bytes: int) -> None:
        self._channel = channel
        config = h2.config.H2Configuration(client_side=True, header_encoding=None)
        self._h2 = h2.connection.H2Connection(config=config)
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: max_header_bytes,
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 100,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES - 65535)
        self._units = Units(_HEADER_BYTES, _frame_length, _HEADER_BYTES + _FRAME_BYTES)
        self.complete, self.reusable = True, True
        self._stream = 0
        self._reset()

    @property
    def last_ns(self) -> int | None:
        """When the last frame of the exchange came."""
        return self._reading.at_ns if self._reading else None

    def begin(self, request: Request, until_ns: int) -> bool:
        """Send a request (and, on a new connection, the preface before it)."""
        self._reset()
        self.complete = False
        try:
            self._stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(self._stream, _header_block(request), end_stream=not request.body)
            return self._send_body(request.body, until_ns)
        except h2.exceptions.ProtocolError as error:
            why = f"the connection takes no further request ({error})"
            raise ExchangeFailed(why, phase=Phase.SEND, kind="h2_closed", unanswered=True) from error

    def head(self, until_ns: int) -> Head | None:
        """Wait for the final head."""
        while self._head is None:
            if not self._pump(until_ns):
                return None
        return self._head

    def body(self, until_ns: int) -> list[Arrival]:
        """Wait for bytes of the body."""
        while not self._bodies and not self.complete:
            if not self._pump(until_ns):
                break
        bodies, self._bodies = self._bodies, []
        return bodies

    def _reset(self) -> None:
        self._head = None
        self._bodies = []
        self._reading = None

    def _send_body(self, body: bytes, until_ns: int) -> bool:
        sent = 0
        while sent < len(body):
            room = min(self._h2.local_flow_control_window(self._stream), self._h2.max_outbound_frame_size)
            if room <= 0:
                if not self._flush(until_ns) or not self._pump(until_ns):
                    return False
                continue
            part = body[sent : sent + room]
            sent += len(part)
            self._h2.send_data(self._stream, part, end_stream=sent == len(body))
        return self._flush(until_ns)

    def _flush(self, until_ns: int) -> bool:
        data = self._h2.data_to_send()
        return self._channel.send(data, until_ns) if data else True

    def _pump(self, until_ns: int) -> bool:
        """Take one read; False when the time is up."""
        arrivals = self._channel.receive(until_ns)
        if not arrivals and not self._channel.eof:
            return False
        if not arrivals:
            raise self._closed()
        for arrival in arrivals:
            for frame in self._frames(arrival):
                self._feed(frame)
        self._flush(now_ns() + 1_000_000_000)
        return True

    def _frames(self, arrival: Arrival) -> list[Arrival]:
        try:
            return self._units.split(arrival)
        except ValueError as error:
            raise _not_h2() from error

    def _feed(self, frame: Arrival) -> None:
        self._reading = frame
        try:
            events = self._h2.receive_data(frame.data)
        except h2.exceptions.ProtocolError as error:
            if self._head is None and not frame.data[3:4] < b"\x0a":
                raise _not_h2() from error
            why = f"the server broke HTTP/2 ({type(error).__name__}: {error})"
            raise ExchangeFailed(why, phase=self._phase(), kind="h2_protocol_error") from error
        for event in events:
            self._take(event, frame)

    def _take(self, event: h2.events.Event, frame: Arrival) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self._goaway(event)
            return
        if getattr(event, "stream_id", None) != self._stream:
            return
        if isinstance(event, h2.events.ResponseReceived):
            self._begin_answer(event, frame)
        elif isinstance(event, h2.events.DataReceived):
            self._data(event, frame)
        elif isinstance(event, h2.events.StreamReset):
            self._reset_stream(event)
        elif isinstance(event, h2.events.StreamEnded):
            self.complete = True

    def _begin_answer(self, event: h2.events.ResponseReceived, frame: Arrival) -> None:
        pairs = [(_text(name), _text(value)) for name, value in event.headers or ()]
        said = next((value for name, value in pairs if name == ":status"), "")
        if not (said.isascii() and said.isdigit() and len(said) == 3):
            raise ExchangeFailed(f"the server sent {said[:20]!r} as status", phase=Phase.WAIT, kind="h2_protocol_error")
        status = int(said)
        headers = tuple((name, value) for name, value in pairs if not name.startswith(":"))
        self._head = Head("HTTP/2", status, headers, frame.within())

    def _data(self, event: h2.events.DataReceived, frame: Arrival) -> None:
        if event.flow_controlled_length:
            self._h2.acknowledge_received_data(event.flow_controlled_length, self._stream)
        if event.data:
            self._bodies.append(frame._replace(data=event.data))

    def _reset_stream(self, event: h2.events.StreamReset) -> None:
        self.reusable = False
        if self._head is not None and event.error_code == h2.errors.ErrorCodes.NO_ERROR:
            self.complete = True  # the server wants no more of the request (RFC 9113 8.1)
            return
        refused = event.error_code == h2.errors.ErrorCodes.REFUSED_STREAM
        why = f"the server reset the stream ({_code(event.error_code)})"
        raise ExchangeFailed(why, phase=self._phase(), kind="h2_reset", unanswered=refused)

    def _goaway(self, event: h2.events.ConnectionTerminated) -> None:
        self.reusable = False
        taken = event.last_stream_id is None or self._stream <= event.last_stream_id
        if self.complete or (taken and event.error_code == h2.errors.ErrorCodes.NO_ERROR):
            return
        why = f"the server ended the connection (GOAWAY, {_code(event.error_code)})"
        raise ExchangeFailed(why, phase=self._phase(), kind="h2_goaway", unanswered=not taken)

    def _closed(self) -> ExchangeFailed | Truncated:
        self.reusable = False
        if self._head is not None:
            return Truncated("the connection closed in the middle of the answer: see the server's logs", phase="drain")
        why = "the server closed the connection without an answer: see its logs"
        return ExchangeFailed(why, phase=Phase.WAIT, kind="closed_early", unanswered=self._reading is None)

    def _phase(self) -> Phase:
        return Phase.WAIT if self._head is None else Phase.DRAIN


def _frame_length(header: bytes) -> int:
    return int.from_bytes(header[:3], "big")


def _header_block(request: Request) -> list[tuple[str, str]]:
    origin = request.origin
    pseudo = [
        (":method", request.method),
        (":scheme", origin.scheme),
        (":authority", origin.authority),
        (":path", request.path),
    ]
    rest = [(name.lower(), value) for name, value in (*request.headers, *request.private)]
    if request.body:
        rest.append(("content-length", str(len(request.body))))
    return pseudo + [(name, value) for name, value in rest if name not in _HOP_BY_HOP]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _code(code: int | None) -> str:
    try:
        return h2.errors.ErrorCodes(code or 0).name
    except ValueError:
        return f"code {code}"


def _not_h2() -> ExchangeFailed:
    why = "the server does not speak HTTP/2 here: use --http 1.1"
    return ExchangeFailed(why, phase=Phase.WAIT, kind="not_http2")
