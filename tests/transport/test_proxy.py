"""An HTTP proxy on the way: a tunnel for https, the whole URL for http."""

from __future__ import annotations

import base64
import select
import socket

import pytest
from tests.support.timed_server import Peer, Play, chat, closed_port, serving
from tests.support.tls import Certificates

from unslow.core.timeline import Phase
from unslow.errors import LocalProtocolError, UpstreamError
from unslow.measure.transport import Request, Session, Trail, TransportSettings


def tunnel(target_port: int, seen: list[dict[str, str]]) -> Play:
    def play(peer: Peer) -> None:
        line, headers, _ = peer.request()
        seen.append({"line": line.decode(), **headers})
        with socket.create_connection(("127.0.0.1", target_port)) as far:
            peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {peer.sock: far, far: peer.sock}
            while True:
                for ready in select.select(list(ends), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    ends[ready].sendall(data)

    return play


def ask(url: str, **options: object) -> Trail:
    session, trail = Session(TransportSettings(**options)), Trail()  # type: ignore[arg-type]
    request = Request(url=url, body=b"x", private=(("authorization", "Bearer canary"),))
    session.prepare(request)
    try:
        answer = session.ask(request, trail)
        while answer.body(trail.until_ns):
            pass
        session.finish(trail)
    finally:
        session.close()
    return trail


def test_https_goes_through_a_tunnel_with_the_proxys_own_credentials(certificates: Certificates) -> None:
    seen: list[dict[str, str]] = []
    with serving(chat(), tls=certificates.context()) as server, serving(tunnel(server.port, seen)) as proxy:
        address = f"http://user:p%40ss@127.0.0.1:{proxy.port}"
        trail = ask(server.url + "/", proxy=address, ca_file=certificates.file)
        assert "canary" not in str(seen)
        assert server.requests[0][1]["authorization"] == "Bearer canary"
        assert "proxy-authorization" not in server.requests[0][1]
        assert seen[0]["line"] == f"CONNECT localhost:{server.port} HTTP/1.1"
        assert seen[0]["proxy-authorization"] == "Basic " + base64.b64encode(b"user:p@ss").decode()
        assert trail.facts["proxy"] == f"http://127.0.0.1:{proxy.port}"
    phases = [s.phase for s in trail.spans()]
    assert phases[:3] == [Phase.CONNECT, Phase.PROXY, Phase.TLS]


def test_http_goes_as_a_whole_url() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(b"from afar")

    with serving(play) as proxy:
        ask("http://unslow.invalid/v1/x?y", proxy=f"http://127.0.0.1:{proxy.port}")
        assert proxy.requests[0][0] == b"POST http://unslow.invalid/v1/x?y HTTP/1.1"
        assert proxy.requests[0][1]["host"] == "unslow.invalid"


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "proxy_407"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "proxy_403"),
        (b"garbage\r\n\r\n", "proxy_broken"),
        (b"", "proxy_broken"),
    ],
)
def test_refused_tunnels(wire: bytes, kind: str) -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.send(wire)

    with serving(play) as proxy, pytest.raises(UpstreamError) as caught:
        ask("https://unslow.invalid/", proxy=f"http://user:canary@127.0.0.1:{proxy.port}")
    assert getattr(caught.value, "kind", "") == kind
    assert caught.value.phase == Phase.PROXY
    assert "canary" not in str(caught.value)


def test_silent_proxy_and_no_proxy_at_all() -> None:
    def silent(peer: Peer) -> None:
        peer.request()
        peer.sock.recv(1)

    with serving(silent) as proxy:
        with pytest.raises(UpstreamError) as caught:
            ask("https://unslow.invalid/", proxy=f"http://127.0.0.1:{proxy.port}", proxy_timeout_s=0.05)
        assert getattr(caught.value, "kind", "") == "proxy_timeout"
    with pytest.raises(UpstreamError) as caught:
        ask("https://unslow.invalid/", proxy=f"http://127.0.0.1:{closed_port()}")
    assert getattr(caught.value, "kind", "") == "connection_refused"


@pytest.mark.parametrize("proxy", ["socks5://h:1", "https://h:1", "http://", "http://h:x"])
def test_proxies_that_cannot_be_spoken_to(proxy: str) -> None:
    with pytest.raises(LocalProtocolError):
        Session(TransportSettings(proxy=proxy))
