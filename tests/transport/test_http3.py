"""HTTP/3 by libcurl against aioquic, over loopback UDP."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from tests.support.h3_server import H3Peer, serving_h3
from tests.support.timed_server import closed_port
from tests.support.tls import Certificates

from unslow.core.timeline import Phase
from unslow.errors import LocalProtocolError, UpstreamError
from unslow.measure.transport import Arrival, Http3Answer, Http3Session, Request, Trail, TransportSettings
from unslow.measure.transport.http3 import available

pytestmark = pytest.mark.skipif(not available(), reason="pycurl with HTTP/3 is not installed (extra [http3])")


@pytest.fixture
def pem(certificates: Certificates, tmp_path: Path) -> tuple[Path, Path]:
    issued = certificates.ca.issue_cert("localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(chain))
    issued.private_key_pem.write_to_path(str(key))
    return chain, key


def ask(session: Http3Session, url: str) -> tuple[Http3Answer, list[Arrival], Trail]:
    trail, arrivals = Trail(), []
    request = Request(url=url, body=b"question", private=(("authorization", "Bearer canary"),))
    session.prepare(request)
    answer = session.ask(request, trail)
    while got := answer.body(trail.until_ns):
        arrivals += got
    session.finish(trail)
    return answer, arrivals, trail


async def stream(peer: H3Peer, number: int) -> None:
    peer.begin(number, content_type="text/event-stream")
    for n in range(4):
        await asyncio.sleep(0.02)
        peer.data(number, b"part %d" % n, end=n == 3)


def test_answer_facts_and_order_of_phases(certificates: Certificates, pem: tuple[Path, Path]) -> None:
    session = Http3Session(TransportSettings(http="3", ca_file=certificates.file))
    with serving_h3(stream, *pem) as server:
        answer, arrivals, trail = ask(session, server.url + "/v1/x")
        again, _, second = ask(session, server.url + "/v1/x")
        session.close()
        assert [h[":path"] for h in server.heads] == ["/v1/x", "/v1/x"]
        assert server.heads[0]["authorization"] == "Bearer canary"
    assert (answer.head.version, answer.head.status, answer.complete) == ("HTTP/3", 200, True)
    assert answer.head.header("Content-Type") == "text/event-stream"
    assert b"".join(a.data for a in arrivals) == b"part 0part 1part 2part 3"
    assert all(a.error_ns > 0 for a in arrivals)
    assert arrivals[-1].at_ns - arrivals[0].at_ns >= 40_000_000
    assert all(b.at_ns >= a.at_ns for a, b in itertools.pairwise(arrivals))
    facts = trail.facts
    assert (facts["alpn"], facts["reused"], facts["stamps"]) == ("h3", False, "user")
    assert [s.phase for s in trail.spans()] == [Phase.DNS, Phase.CONNECT, Phase.SEND]
    assert (again.head.status, second.facts["reused"]) == (200, True)
    assert [s.phase for s in second.spans()] == [Phase.SEND]


def test_other_origin_gets_no_key(certificates: Certificates, pem: tuple[Path, Path]) -> None:
    session = Http3Session(TransportSettings(http="3", ca_file=certificates.file))
    with serving_h3(stream, *pem) as far:

        async def moved(peer: H3Peer, number: int) -> None:
            peer.begin(number, 307, location=far.url + "/to")
            peer.data(number, b"", end=True)

        with serving_h3(moved, *pem) as near:
            _, _, trail = ask(session, near.url + "/from")
            session.close()
        assert far.heads[0][":path"] == "/to"
        assert "authorization" not in far.heads[0]
    assert trail.facts["redirects"] == (far.url + "/to",)


def test_untrusted_and_absent(pem: tuple[Path, Path]) -> None:
    session = Http3Session(TransportSettings(http="3"))
    with serving_h3(stream, *pem) as server, pytest.raises(UpstreamError, match="certificate"):
        ask(session, server.url)
    session.close()
    session = Http3Session(TransportSettings(http="3", connect_timeout_s=0.5))
    with pytest.raises(UpstreamError, match="--http auto"):
        ask(session, f"https://localhost:{closed_port()}")
    session.close()


def test_what_http3_cannot_do_is_said_beforehand() -> None:
    with pytest.raises(LocalProtocolError, match="proxy"):
        Http3Session(TransportSettings(http="3", proxy="http://h:1"))
    with pytest.raises(LocalProtocolError, match="https"):
        Http3Session(TransportSettings(http="3")).prepare(Request(url="http://localhost/"))
