"""HTTP/2 by ALPN and by prior knowledge, against the h2 library as the server."""

from __future__ import annotations

import itertools
import time

import h2.errors
import pytest
from tests.support.h2_server import H2Peer, h2_play
from tests.support.timed_server import Peer, serving
from tests.support.tls import Certificates

from unslow.errors import UpstreamError
from unslow.measure.transport import Answer, Arrival, Request, Session, Trail, TransportSettings


def ask(url: str, body: bytes = b"x", times: int = 1, **options: object) -> tuple[Answer, list[Arrival], Trail]:
    session = Session(TransportSettings(**options))  # type: ignore[arg-type]
    try:
        for _ in range(times):
            trail = Trail()
            request = Request(url=url, headers=(("X-Kind", "a"), ("connection", "close")), body=body)
            session.prepare(request)
            arrivals = []
            answer = session.ask(request, trail)
            while got := answer.body(trail.until_ns):
                arrivals += got
            session.finish(trail)
    finally:
        session.close()
    return answer, arrivals, trail


def stream(sent: list[int]) -> object:
    def answer(server: H2Peer, number: int, head: dict[str, str], body: bytes) -> None:
        server.begin(number)
        for n in range(4):
            time.sleep(0.01)
            sent.append(server.data(number, b"part %d" % n))
        time.sleep(0.01)
        server.data(number, b"", end=True)

    return h2_play(answer)


def test_by_alpn_with_stamps_of_each_frame(certificates: Certificates) -> None:
    sent: list[int] = []
    context = certificates.context(alpn=("h2", "http/1.1"))
    with serving(stream(sent), tls=context) as server:  # type: ignore[arg-type]
        answer, arrivals, trail = ask(server.url + "/", ca_file=certificates.file)
    assert (answer.head.version, trail.facts["alpn"]) == ("HTTP/2", "h2")
    assert [a.data for a in arrivals] == [b"part %d" % n for n in range(4)]
    for arrival, at in zip(arrivals, sent, strict=True):
        assert arrival.end().at_ns + arrival.end().error_ns >= at - 1_000
    assert min(b.at_ns - a.at_ns for a, b in itertools.pairwise(arrivals)) >= 9_000_000


def test_prior_knowledge_and_reuse_of_the_connection() -> None:
    seen = []

    def answer(server: H2Peer, number: int, head: dict[str, str], body: bytes) -> None:
        seen.append((number, head, body))
        server.begin(number)
        server.data(number, b"ok", end=True)

    with serving(h2_play(answer)) as server:
        _, arrivals, trail = ask(server.url + "/v1/y?z", body=b"question", times=2, http="2")
        assert server.connections == 1
    assert trail.facts["reused"] is True
    number, head, body = seen[1]
    assert (number, body, arrivals[0].data) == (3, b"question", b"ok")
    assert (head[":method"], head[":path"], head[":scheme"], head["x-kind"]) == ("POST", "/v1/y?z", "http", "a")
    assert "connection" not in head


def test_large_bodies_wait_for_the_window_both_ways() -> None:
    big = bytes(300_000)

    def answer(server: H2Peer, number: int, head: dict[str, str], body: bytes) -> None:
        server.begin(number)
        for at in range(0, len(body), 16384):
            server.data(number, body[at : at + 16384])
        server.data(number, b"", end=True)

    with serving(h2_play(answer)) as server:
        _, arrivals, _ = ask(server.url + "/", body=big, http="2")
    assert sum(len(a.data) for a in arrivals) == len(big)


def test_reset_and_goaway_are_told_apart() -> None:
    def reset(server: H2Peer, number: int, head: dict[str, str], body: bytes) -> None:
        server.begin(number)
        server.h2.reset_stream(number, h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
        server.flush()

    def goaway(server: H2Peer, number: int, head: dict[str, str], body: bytes) -> None:
        server.h2.close_connection(h2.errors.ErrorCodes.INADEQUATE_SECURITY, last_stream_id=0)
        server.flush()

    for play, kind, word in ((reset, "h2_reset", "ENHANCE_YOUR_CALM"), (goaway, "h2_goaway", "INADEQUATE_SECURITY")):
        with serving(h2_play(play)) as server, pytest.raises(UpstreamError, match=word) as caught:
            ask(server.url + "/", http="2")
        assert getattr(caught.value, "kind", "") == kind


def test_close_in_the_middle_is_truncation() -> None:
    def answer(server: H2Peer, number: int, head: dict[str, str], body: bytes) -> None:
        server.begin(number)
        server.data(number, b"half")
        raise ConnectionResetError  # closes the socket

    with serving(h2_play(answer)) as server, pytest.raises(UpstreamError) as caught:
        ask(server.url + "/", http="2")
    assert getattr(caught.value, "kind", "") in ("truncated", "connection_reset")  # by FIN, or by RST


@pytest.mark.parametrize("wire", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 100])
def test_server_without_http2(wire: bytes) -> None:
    def play(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(wire)

    with serving(play) as server, pytest.raises(UpstreamError, match=r"--http 1\.1") as caught:
        ask(server.url + "/", http="2")
    assert getattr(caught.value, "kind", "") == "not_http2"


def test_tls_server_without_http2(certificates: Certificates) -> None:
    context = certificates.context(alpn=("http/1.1",))
    with serving(lambda peer: None, tls=context) as server, pytest.raises(UpstreamError) as caught:
        ask(server.url + "/", http="2", ca_file=certificates.file)
    assert getattr(caught.value, "kind", "") in ("no_http2", "tls_failed")
