"""HTTP/1.1 on real sockets: framing, stamps, endings, and what must not be waited for."""

from __future__ import annotations

import itertools
import time

import pytest
from tests.support.timed_server import Peer, Play, closed_port, serving

from unslow.core.timeline import Phase
from unslow.errors import LocalProtocolError, UpstreamError
from unslow.measure.transport import Answer, Arrival, Request, Session, TimedOut, Trail, TransportSettings


def ask(play: Play, **settings: object) -> tuple[Answer, list[Arrival], Trail]:
    with serving(play) as server:
        return ask_at(server.url + "/v1/x?y=1", **settings)


def ask_at(url: str, **settings: object) -> tuple[Answer, list[Arrival], Trail]:
    session = Session(TransportSettings(**settings))  # type: ignore[arg-type]
    request = Request(url=url, headers=(("content-type", "text/plain"),), body=b"hello")
    session.prepare(request)
    trail = Trail(total_s=session.settings.total_timeout_s)
    try:
        answer = session.ask(request, trail)
        arrivals = []
        while True:
            got = answer.body(trail.until_ns)
            arrivals += got
            if not got:
                break
        session.finish(trail)
    finally:
        session.close()
    return answer, arrivals, trail


def body(arrivals: list[Arrival]) -> bytes:
    return b"".join(a.data for a in arrivals)


def test_request_line_headers_and_body_arrive_as_asked() -> None:
    seen = []

    def play(peer: Peer) -> None:
        seen.append(peer.request())
        peer.answer(b"ok", kind="text/plain")

    answer, arrivals, trail = ask(play)
    line, headers, sent = seen[0]
    assert line == b"POST /v1/x?y=1 HTTP/1.1"
    assert headers["content-length"] == "5"
    assert headers["host"].startswith("localhost:")
    assert sent == b"hello"
    assert (answer.head.status, answer.head.version, body(arrivals)) == (200, "HTTP/1.1", b"ok")
    assert trail.facts["request_bytes"] == 5


def test_chunks_keep_the_moment_at_which_each_was_sent() -> None:
    sent: list[int] = []

    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream()
        for n in range(5):
            time.sleep(0.01)
            sent.append(peer.chunk(b"part %d" % n))
        time.sleep(0.01)
        peer.end_stream()

    _, arrivals, _ = ask(play)
    assert [a.data for a in arrivals] == [b"part %d" % n for n in range(5)]
    for arrival, at in zip(arrivals, sent, strict=True):
        stamp = arrival.end()
        assert at - 1_000 <= stamp.at_ns + stamp.error_ns  # never before it was sent
    gaps = [b.at_ns - a.at_ns for a, b in itertools.pairwise(arrivals)]
    assert min(gaps) >= 9_000_000


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_any_split_of_the_bytes_gives_the_same_body(step: int) -> None:
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: z\r\n\r\n"

    def play(peer: Peer) -> None:
        peer.request()
        for at in range(0, len(wire), step):
            peer.send(wire[at : at + step])

    answer, arrivals, _ = ask(play)
    assert body(arrivals) == b"hello!"
    assert answer.complete


def test_interim_answers_are_passed_over() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        peer.answer(b"late", kind="text/plain")

    answer, arrivals, _ = ask(play)
    assert (answer.head.status, body(arrivals)) == (200, b"late")
    assert answer.head.header("link") is None


def test_body_without_length_runs_until_the_close() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    answer, arrivals, _ = ask(play)
    assert (body(arrivals), answer.complete) == (b"all of it", True)


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (b"", "closed_early"),
        (b"HTTP/1.1 200 OK\r\nConte", "closed_early"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not_http"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "not_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf", "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "bad_framing"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n", "head_too_large"),
    ],
)
def test_broken_answers_are_named(wire: bytes, kind: str) -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.send(wire)

    with pytest.raises(UpstreamError) as caught:
        ask(play)
    assert getattr(caught.value, "kind", None) == kind
    assert "\n" not in str(caught.value)


def test_nothing_listens() -> None:
    with pytest.raises(UpstreamError, match="refused") as caught:
        ask_at(f"http://127.0.0.1:{closed_port()}/")
    assert caught.value.phase == Phase.CONNECT


def test_silent_server_runs_into_the_first_byte_limit() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.sock.recv(1)

    with pytest.raises(TimedOut) as caught:
        ask(play, first_byte_timeout_s=0.05)
    assert caught.value.kind == "wait_timeout"
    assert caught.value.limit_ns == 50_000_000


def test_slow_head_runs_into_the_total_limit() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        for byte in b"HTTP/1.1 200 OK\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":
            peer.send(bytes([byte]))
            time.sleep(0.01)

    with pytest.raises(TimedOut) as caught:
        ask(play, total_timeout_s=0.15)
    assert caught.value.kind == "total_timeout"


def test_server_that_takes_no_request_runs_into_the_send_limit() -> None:
    def play(peer: Peer) -> None:
        time.sleep(1.0)

    with serving(play) as server:
        session = Session(TransportSettings(send_timeout_s=0.1))
        request = Request(url=server.url, body=bytes(64 << 20))
        session.prepare(request)
        with pytest.raises(TimedOut) as caught:
            session.ask(request, Trail())
        session.close()
    assert caught.value.phase == Phase.SEND


def test_connection_is_used_again_only_when_it_may_be() -> None:
    def play(peer: Peer) -> None:
        while peer.request()[0]:
            peer.answer(b"ok", more="" if len(peer.server.requests) < 3 else "Connection: close\r\n")

    with serving(play) as server:
        session, reused = Session(TransportSettings()), []
        for _ in range(4):
            request, trail = Request(url=server.url), Trail()
            session.prepare(request)
            answer = session.ask(request, trail)
            while answer.body(trail.until_ns):
                pass
            session.finish(trail)
            reused.append(trail.facts["reused"])
        session.close()
        assert reused == [False, True, True, False]
        assert server.connections == 2


def test_a_dead_kept_connection_is_replaced_and_said_so() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(b"ok")  # and close without a word

    with serving(play) as server:
        session = Session(TransportSettings())
        for n in range(2):
            request, trail = Request(url=server.url), Trail()
            session.prepare(request)
            answer = session.ask(request, trail)
            while answer.body(trail.until_ns):
                pass
            session.finish(trail)
            time.sleep(0.05)
            assert trail.facts.get("retries", 0) == n
        session.close()
    assert trail.notes == ["the kept connection was closed by the server: asked again on a new one"]
    lost = [s for s in trail.spans() if not s.won]
    assert lost
    assert {s.attempt for s in lost}.isdisjoint({s.attempt for s in trail.spans() if s.won})


@pytest.mark.parametrize("name", ["", "a b", "a\r\nb", "ä"])
def test_headers_that_would_break_the_head_are_refused(name: str) -> None:
    with pytest.raises(LocalProtocolError):
        Session(TransportSettings()).prepare(Request(url="http://localhost/", headers=((name, "x"),)))


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "日本"])
def test_header_values_that_would_break_the_head_are_refused(value: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Session(TransportSettings()).prepare(Request(url="http://localhost/", private=(("x-key", value),)))
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://x/", "x", "http://", "http://h:99999/", "http://u:p@h/", "http://h:0/", "http://[::1/"]
)
def test_urls_that_cannot_be_asked_are_refused(url: str) -> None:
    with pytest.raises(LocalProtocolError):
        Session(TransportSettings()).prepare(Request(url=url))
