"""TLS by MemoryBIO: facts, trust, stamps through records."""

from __future__ import annotations

import itertools
import time

import pytest
from tests.support.timed_server import Peer, chat, serving
from tests.support.tls import Certificates

from unslow.core.timeline import Phase
from unslow.errors import LocalProtocolError, UpstreamError
from unslow.measure.transport import Arrival, Request, Session, Trail, TransportSettings


def ask(url: str, **options: object) -> tuple[Trail, list[Arrival]]:
    session, trail = Session(TransportSettings(**options)), Trail()  # type: ignore[arg-type]
    request, arrivals = Request(url=url, body=b"x"), []
    session.prepare(request)
    try:
        answer = session.ask(request, trail)
        while got := answer.body(trail.until_ns):
            arrivals += got
        session.finish(trail)
    finally:
        session.close()
    return trail, arrivals


def test_what_was_negotiated_is_noted(certificates: Certificates) -> None:
    with serving(chat(), tls=certificates.context(alpn=("http/1.1",))) as server:
        trail, arrivals = ask(server.url + "/", ca_file=certificates.file)
    facts = trail.facts
    assert facts["tls_version"] == "TLS 1.3"
    assert facts["tls_cipher"]
    assert (facts["alpn"], facts["tls_resumed"], facts["tls_issuer"]) == ("http/1.1", False, "Test Authority")
    assert b"".join(a.data for a in arrivals).endswith(b"data: [DONE]\n\n")
    assert [s for s in trail.spans() if s.phase is Phase.TLS and s.duration_ns > 0]


def test_records_keep_their_stamps(certificates: Certificates) -> None:
    sent: list[int] = []

    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream()
        for n in range(4):
            time.sleep(0.01)
            sent.append(peer.chunk(b"part %d" % n))
        time.sleep(0.01)
        peer.end_stream()

    with serving(play, tls=certificates.context()) as server:
        _, arrivals = ask(server.url + "/", ca_file=certificates.file)
    assert [a.data for a in arrivals] == [b"part %d" % n for n in range(4)]
    for arrival, at in zip(arrivals, sent, strict=True):
        assert arrival.end().at_ns + arrival.end().error_ns >= at - 1_000
    assert min(b.at_ns - a.at_ns for a, b in itertools.pairwise(arrivals)) >= 9_000_000


@pytest.mark.parametrize(
    ("name", "expired", "kind"),
    [
        ("localhost", True, "certificate_expired"),
        ("other.test", False, "certificate_wrong_name"),
    ],
)
def test_bad_certificates_are_told_apart(certificates: Certificates, name: str, expired: bool, kind: str) -> None:
    with serving(chat(), tls=certificates.context(name, expired=expired)) as server:
        with pytest.raises(UpstreamError) as caught:
            ask(server.url + "/", ca_file=certificates.file)
        assert server.requests == []
    assert getattr(caught.value, "kind", "") == kind
    assert caught.value.phase == Phase.TLS


def test_untrusted_issuer_is_refused_unless_told(certificates: Certificates) -> None:
    with serving(chat(), tls=certificates.context()) as server:
        with pytest.raises(UpstreamError, match="--ca-file") as caught:
            ask(server.url + "/")
        assert getattr(caught.value, "kind", "") == "certificate_untrusted"
        trail, arrivals = ask(server.url + "/", insecure=True)
    assert arrivals
    assert trail.facts["tls_issuer"] is None


def test_tls_to_a_plain_port() -> None:
    def play(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with serving(play) as server, pytest.raises(UpstreamError, match="http://") as caught:
        ask(server.url.replace("http:", "https:") + "/")
    assert getattr(caught.value, "kind", "") == "not_tls"


def test_plain_http_to_a_tls_port(certificates: Certificates) -> None:
    with serving(chat(), tls=certificates.context()) as server, pytest.raises(UpstreamError) as caught:
        ask(server.url.replace("https:", "http:") + "/")
    assert getattr(caught.value, "kind", "") in ("not_http", "connection_reset", "closed_early")


def test_server_that_hangs_up_in_the_handshake() -> None:
    with serving(lambda peer: None) as server, pytest.raises(UpstreamError) as caught:
        ask(server.url.replace("http:", "https:") + "/")
    assert caught.value.phase == Phase.TLS


def test_silent_handshake_runs_into_its_limit() -> None:
    def play(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.sock.recv(1000)

    with serving(play) as server, pytest.raises(UpstreamError) as caught:
        ask(server.url.replace("http:", "https:") + "/", tls_timeout_s=0.05)
    assert getattr(caught.value, "kind", "") == "tls_timeout"


def test_resumption_only_when_asked_for(certificates: Certificates) -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(b"ok", more="Connection: close\r\n")

    for wanted in (False, True):
        with serving(play, tls=certificates.context()) as server:
            session = Session(TransportSettings(ca_file=certificates.file, tls_resume=wanted))
            resumed = []
            for _ in range(2):
                trail, request = Trail(), Request(url=server.url + "/")
                session.prepare(request)
                answer = session.ask(request, trail)
                while answer.body(trail.until_ns):
                    pass
                session.finish(trail)
                resumed.append(trail.facts["tls_resumed"])
            session.close()
        assert resumed == [False, wanted]


def test_missing_ca_file_is_wrong_usage() -> None:
    with pytest.raises(LocalProtocolError, match="CA file"):
        Session(TransportSettings(ca_file="/nonexistent.pem")).prepare(Request(url="https://localhost/"))
