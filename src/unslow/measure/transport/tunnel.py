"""An HTTP proxy on the way: where it is, and CONNECT through it (RFC 9110 9.3.6)."""

from __future__ import annotations

import base64
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from unslow.core.timeline import Phase
from unslow.errors import LocalProtocolError
from unslow.measure.transport.failures import DialFailed, ExchangeFailed
from unslow.measure.transport.http1 import Http1
from unslow.measure.transport.link import Link
from unslow.measure.transport.message import Headers, Origin, Request
from unslow.measure.transport.trail import Deadline


class Proxy(NamedTuple):
    """A plain HTTP proxy. `headers` hold its own credentials, which go to it alone."""

    host: str
    port: int
    headers: Headers

    @property
    def shown(self) -> str:
        """Its address, without credentials."""
        return f"http://{self.host}:{self.port}"


def proxy_of(url: str) -> Proxy:
    """Read a proxy's URL. Raises LocalProtocolError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise LocalProtocolError(f"the proxy is no URL: {error}") from error
    if parts.scheme != "http" or not parts.hostname:
        raise LocalProtocolError("only http:// proxies are spoken to (HTTP CONNECT): give http://host:port")
    headers: Headers = ()
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = (("Proxy-Authorization", "Basic " + base64.b64encode(pair.encode()).decode()),)
    return Proxy(parts.hostname, port or 80, headers)


def connect_through(link: Link, proxy: Proxy, target: Origin, deadline: Deadline, max_header_bytes: int) -> None:
    """Ask the proxy for a tunnel. Raises DialFailed, TimedOut and OSError."""
    http = _Connect(link, max_header_bytes=max_header_bytes)
    request = Request(url=f"http://{_host_port(target)}/", method="CONNECT", headers=proxy.headers)
    try:
        head = http.head(deadline.until_ns) if http.begin(request, deadline.until_ns) else None
    except ExchangeFailed as error:
        why = f"the proxy {proxy.shown} gave no proper answer ({error})"
        raise DialFailed(why, phase=Phase.PROXY, kind="proxy_broken") from error
    if head is None:
        raise deadline.error()
    if not 200 <= head.status < 300:
        advice = "it wants credentials: http://user:password@host:port" if head.status == 407 else "see its rules"
        why = f"the proxy {proxy.shown} refused the tunnel with {head.status}: {advice}"
        raise DialFailed(why, phase=Phase.PROXY, kind=f"proxy_{head.status}")


class _Connect(Http1):
    """CONNECT: the request target is host:port, and a 2xx has no body (RFC 9110 9.3.6)."""

    def _head_bytes(self, request: Request) -> bytes:
        authority = _host_port(request.origin)
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        lines += [f"{name}: {value}" for name, value in request.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _host_port(origin: Origin) -> str:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return f"{host}:{origin.port}"
