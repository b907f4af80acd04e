"""Redirects: followed, bounded, and never with the key to another origin."""

from __future__ import annotations

import pytest
from tests.support.timed_server import Peer, serving

from unslow.core.timeline import Phase
from unslow.errors import UpstreamError
from unslow.measure.transport import Request, Session, Trail, TransportSettings

KEY = (("authorization", "Bearer canary"), ("cookie", "c=canary"))


def follow(url: str) -> Trail:
    session, trail = Session(TransportSettings()), Trail()
    request = Request(url=url, body=b"question", private=KEY)
    session.prepare(request)
    try:
        answer = session.ask(request, trail)
        while answer.body(trail.until_ns):
            pass
        session.finish(trail)
    finally:
        session.close()
    return trail


def redirect(target: str, status: str = "307 Temporary Redirect") -> object:
    def play(peer: Peer) -> None:
        while True:
            line, _, _ = peer.request()
            if not line:
                return
            if line.startswith(b"POST /from"):
                peer.answer(b"moved", status=status, more=f"Location: {target}\r\n")
            else:
                peer.answer(b"here")

    return play


def test_same_origin_keeps_the_key_method_and_body() -> None:
    with serving(redirect("/to")) as server:  # type: ignore[arg-type]
        trail = follow(server.url + "/from")
        line, headers, body = server.requests[1]
        assert (line, headers["authorization"], body) == (b"POST /to HTTP/1.1", "Bearer canary", b"question")
        assert server.connections == 1
        assert trail.facts["redirects"] == (server.url + "/to",)


def test_other_port_loses_key_and_cookies() -> None:
    with serving(redirect("/x")) as other:  # type: ignore[arg-type]
        with serving(redirect(other.url + "/to")) as server:  # type: ignore[arg-type]
            trail = follow(server.url + "/from")
        line, headers, body = other.requests[0]
        assert (line, body) == (b"POST /to HTTP/1.1", b"question")
        assert "authorization" not in headers
        assert "cookie" not in headers
        assert "canary" not in str(headers)
        assert any("were not sent there" in note for note in trail.notes)


def test_other_host_loses_the_key_even_on_the_same_port() -> None:
    with serving(redirect("/placeholder")) as server:  # type: ignore[arg-type]
        server._play = redirect(f"http://127.0.0.1:{server.port}/to")  # type: ignore[assignment]
        follow(server.url + "/from")
        assert "authorization" in server.requests[0][1]
        assert "authorization" not in server.requests[1][1]


def test_see_other_turns_into_get() -> None:
    with serving(redirect("/to", "303 See Other")) as server:  # type: ignore[arg-type]
        follow(server.url + "/from")
        assert server.requests[1][0] == b"GET /to HTTP/1.1"
        assert server.requests[1][2] == b""


def test_the_first_leg_is_a_lost_attempt() -> None:
    with serving(redirect("/to")) as server:  # type: ignore[arg-type]
        spans = follow(server.url + "/from").spans()
    sends = [s for s in spans if s.phase is Phase.SEND]
    assert [s.won for s in sends] == [False, True]
    assert sends[0].attempt != sends[1].attempt


def test_circles_end() -> None:
    with serving(redirect("/from")) as server:  # type: ignore[arg-type]
        with pytest.raises(UpstreamError) as caught:
            follow(server.url + "/from")
        assert getattr(caught.value, "kind", "") == "too_many_redirects"
        assert len(server.requests) == 6


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://user:pw@host/", "http://[bad/"])
def test_targets_that_cannot_be_asked_are_refused(target: str) -> None:
    with serving(redirect(target)) as server:  # type: ignore[arg-type]
        with pytest.raises(UpstreamError) as caught:
            follow(server.url + "/from")
        assert getattr(caught.value, "kind", "") == "bad_redirect"
