"""Whatever bytes a server sends, in whatever pieces: an answer or an UpstreamError, and an end."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import h2.config
import h2.connection
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.errors import UpstreamError
from unslow.measure.transport import Arrival, Request
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.http1 import Http1
from unslow.measure.transport.http2 import Http2
from unslow.measure.transport.message import Conversation

REQUEST = Request(url="http://localhost/x", body=b"q")


class Pieces:
    """A channel that brings these pieces and then ends."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [p for p in pieces if p]
        self.sent = b""

    @property
    def eof(self) -> bool:
        return not self._pieces

    def send(self, data: bytes, until_ns: int) -> bool:
        self.sent += data
        return True

    def receive(self, until_ns: int) -> list[Arrival]:
        if not self._pieces:
            return []
        now = now_ns()
        return [Arrival(self._pieces.pop(0), now, now, 0, whole=True, tail=True)]


def split(wire: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, *(c % (len(wire) + 1) for c in cuts), len(wire)})
    return [wire[a:b] for a, b in itertools.pairwise(at)]


def talk(make: Callable[[Pieces], Conversation], pieces: list[bytes]) -> tuple[int, bytes] | str:
    until = now_ns() + 10**10
    try:
        conversation = make(Pieces(pieces))
        conversation.begin(REQUEST, until)
        head = conversation.head(until)
        if head is None:
            return "no head"
        body = b""
        while arrivals := conversation.body(until):
            body += b"".join(a.data for a in arrivals)
    except UpstreamError as error:
        return str(getattr(error, "kind", "unnamed"))
    return head.status, body


def http1(channel: Pieces) -> Conversation:
    return Http1(channel, max_header_bytes=4096)


def http2(channel: Pieces) -> Conversation:
    return Http2(channel, max_header_bytes=4096)


def h2_wire(status: bytes = b"200", kind: bytes = b"text/event-stream") -> bytes:
    config = h2.config.H2Configuration(client_side=False, validate_outbound_headers=False)
    server = h2.connection.H2Connection(config=config)
    client = Pieces([])
    http2(client).begin(REQUEST, now_ns() + 10**10)
    server.initiate_connection()
    server.receive_data(client.sent)
    server.send_headers(1, [(b":status", status), (b"content-type", kind)])
    for n in range(3):
        server.send_data(1, b"part %d" % n, end_stream=n == 2)
    return bytes(server.data_to_send())


H1_WIRE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n"
H2_WIRE = h2_wire()


def test_headers_that_are_no_utf8_and_a_status_that_is_no_number() -> None:
    assert talk(http2, [h2_wire(kind=b"caf\xe9 \xff")]) == (200, b"part 0part 1part 2")
    assert talk(http2, [h2_wire(status=b"abc")]) == "h2_protocol_error"
    assert talk(http1, [H1_WIRE.replace(b"X: y", b"X: caf\xe9 \xff")]) == (200, b"hello world")


CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@given(CUTS)
@settings(deadline=None)
def test_any_split_gives_the_same_answer(cuts: list[int]) -> None:
    assert talk(http1, split(H1_WIRE, cuts)) == (200, b"hello world")
    assert talk(http2, split(H2_WIRE, cuts)) == (200, b"part 0part 1part 2")


@given(st.lists(st.binary(max_size=200), max_size=8))
@settings(deadline=None)
def test_noise_ends_in_a_named_failure(pieces: list[bytes]) -> None:
    for make in (http1, http2):
        said = talk(make, pieces)
        assert said != "unnamed"


@given(st.integers(0, 2), st.integers(0, 10_000), st.binary(min_size=1, max_size=6), CUTS)
@settings(deadline=None, max_examples=400)
def test_damaged_answers_end(how: int, at: int, noise: bytes, cuts: list[int]) -> None:
    for make, wire in ((http1, H1_WIRE), (http2, H2_WIRE)):
        n = at % len(wire)
        damaged = (wire[:n] + noise + wire[n + len(noise) :], wire[:n] + noise + wire[n:], wire[:n])[how]
        said = talk(make, split(damaged, cuts))
        assert said != "unnamed"
