"""HTTP/3 (RFC 9114) by libcurl, in the extra `[http3]`.

Theory of operation. libcurl owns the UDP socket, so stamps are ours: its loop is turned in ticks of a millisecond,
and what one turn brings came between the turn before and now: an interval, never a point. The phases before the
answer are libcurl's own timers. QUIC does what TCP's connect and TLS do in one handshake (RFC 9001), so there is one
`connect` span that holds both.
"""

from __future__ import annotations

import importlib.util
import ssl
from typing import Any

from unslow.core.timeline import Hop, Phase
from unslow.errors import LocalProtocolError
from unslow.measure.transport.arrival import Arrival, Stamp
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.failures import DialFailed, ExchangeFailed, Truncated
from unslow.measure.transport.link import shown
from unslow.measure.transport.message import Head, Request, check_headers
from unslow.measure.transport.settings import TransportSettings
from unslow.measure.transport.trail import Deadline, Trail

REDIRECTS = frozenset((301, 302, 303, 307, 308))
_TICK_S = 0.001
_NS_PER_US = 1000
_MISSING = "HTTP/3 needs the extra: pip install 'unslow[http3]'"

# libcurl's error codes (curl/curl.h): what each means here.
_FAILURES: dict[int, tuple[Phase, str, str]] = {
    6: (Phase.DNS, "name_unknown", "the name is not known to the resolver: check the spelling of the URL"),
    7: (Phase.CONNECT, "connection_refused", "no QUIC there; try --http auto"),
    28: (Phase.CONNECT, "connect_timeout", "no QUIC handshake; UDP may be blocked on the way: try --http auto"),
    35: (Phase.CONNECT, "tls_failed", "the QUIC handshake failed; try --http auto"),
    60: (
        Phase.CONNECT,
        "certificate_untrusted",
        "certificate refused: check the host name, or trust it with --ca-file",
    ),
    96: (Phase.CONNECT, "quic_failed", "no QUIC there; try --http auto"),
}


def available() -> bool:
    """Whether a libcurl with HTTP/3 is installed."""
    if importlib.util.find_spec("pycurl") is None:
        return False
    import pycurl

    return bool(pycurl.version_info()[4] & pycurl.VERSION_HTTP3)


class Http3Answer:
    """An answer that libcurl brings in."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer
        assert transfer.head is not None
        self.head: Head = transfer.head
        self.sent_ns = min(transfer.sent_ns, self.head.first.at_ns)

    @property
    def complete(self) -> bool:
        """Whether all of it came."""
        return self._transfer.complete and not self._transfer.arrivals

    @property
    def last_ns(self) -> int | None:
        """When the last bytes came."""
        return self._transfer.last_ns

    def body(self, until_ns: int) -> list[Arrival]:
        """Wait for bytes of the body. Raises UpstreamError."""
        transfer = self._transfer
        while not transfer.arrivals and not transfer.complete and now_ns() < until_ns:
            transfer.turn()
        arrivals, transfer.arrivals = transfer.arrivals, []
        return arrivals


class Http3Session:
    """What `Session` is for TCP: asks, one request after another, over connections that libcurl keeps."""

    def __init__(self, settings: TransportSettings) -> None:
        if not available():
            raise LocalProtocolError(_MISSING)
        if settings.proxy:
            raise LocalProtocolError("HTTP/3 does not go through an HTTP proxy: leave out --http 3 or the proxy")
        self.settings = settings
        self._multi: Any = None
        self._transfer: Transfer | None = None

    def prepare(self, request: Request) -> None:
        """Check a request. Raises LocalProtocolError."""
        check_headers((*request.headers, *request.private))
        if request.origin.scheme != "https":
            raise LocalProtocolError("HTTP/3 needs an https:// URL")

    def ask(self, request: Request, trail: Trail) -> Http3Answer:
        """Send a request, follow its redirects, and give the answer whose head came. Raises UpstreamError."""
        hops: list[str] = []
        while True:
            answer = self._ask_once(request, trail)
            location = answer.head.header("location")
            if answer.head.status not in REDIRECTS or not location:
                return answer
            if len(hops) >= self.settings.max_redirects:
                why = f"more than {self.settings.max_redirects} redirects: the URL runs in circles"
                raise ExchangeFailed(why, phase=Phase.WAIT, kind="too_many_redirects")
            try:
                request = request.redirected(location, answer.head.status)
                self.prepare(request)
            except LocalProtocolError as error:
                why = f"redirected to nowhere: {error}"
                raise ExchangeFailed(why, phase=Phase.WAIT, kind="bad_redirect") from error
            trail.span(Phase.WAIT, Hop.CLIENT, answer.sent_ns, answer.head.first.at_ns)
            hops.append(request.url)
            trail.facts["redirects"] = tuple(hops)
            trail.new_leg()

    def finish(self, trail: Trail) -> None:
        """Note what libcurl knows at the end of an exchange."""
        if self._transfer is not None:
            trail.facts["stamps"] = "user"
            self._transfer.remove()
            self._transfer = None

    def close(self) -> None:
        """Close all connections."""
        if self._transfer is not None:
            self._transfer.remove()
            self._transfer = None
        if self._multi is not None:
            self._multi.close()
            self._multi = None

    def _ask_once(self, request: Request, trail: Trail) -> Http3Answer:
        import pycurl

        if self._transfer is not None:
            self._transfer.remove()
        if self._multi is None:
            self._multi = pycurl.CurlMulti()
        trail.facts["request_bytes"] = len(request.body)
        transfer = self._transfer = Transfer(self._multi, request, self.settings)
        limit_s = self.settings.connect_timeout_s + self.settings.first_byte_timeout_s
        deadline = Deadline(Phase.WAIT, limit_s, trail, what="no answer")
        try:
            while transfer.head is None and not transfer.complete:
                transfer.turn()
                deadline.check()
        finally:
            transfer.note(trail)
        if transfer.head is None:
            raise ExchangeFailed("the server ended without an answer", phase=Phase.WAIT, kind="closed_early")
        return Http3Answer(transfer)


class Transfer:
    """One libcurl transfer, turned by hand."""

    def __init__(self, multi: Any, request: Request, settings: TransportSettings) -> None:
        import pycurl

        self._multi, self._curl = multi, pycurl.Curl()
        self.head: Head | None = None
        self.arrivals: list[Arrival] = []
        self.complete = False
        self.last_ns: int | None = None
        self._lines: list[bytes] = []
        self._first: Stamp | None = None
        self._host = request.origin.authority
        self._configure(request, settings)
        self.start_ns = self._lower_ns = now_ns()
        self.sent_ns = self.start_ns
        self._multi.add_handle(self._curl)

    def turn(self) -> None:
        """Let libcurl work for one tick. Raises UpstreamError."""
        self._multi.select(_TICK_S)
        started = now_ns()
        self._multi.perform()
        self._lower_ns = started
        _, done, failed = self._multi.info_read()
        if done:
            self.complete = True
        for _, code, message in failed:
            raise self._failure(code, message)

    def remove(self) -> None:
        """Give the transfer back; its connection stays with libcurl."""
        self._multi.remove_handle(self._curl)
        self._curl.close()

    def note(self, trail: Trail) -> None:
        """Libcurl's timers as spans, and what it knows of the connection."""
        import pycurl

        read = self._curl.getinfo
        at = {
            name: self.start_ns + read(getattr(pycurl, f"{name}_TIME_T")) * _NS_PER_US
            for name in ("NAMELOOKUP", "CONNECT", "APPCONNECT", "PRETRANSFER", "POSTTRANSFER")
        }
        reused = read(pycurl.NUM_CONNECTS) == 0
        found, shaken = at["NAMELOOKUP"], max(at["CONNECT"], at["APPCONNECT"])
        if not reused and self.head is not None:
            trail.span(Phase.DNS, Hop.RESOLVER, self.start_ns, found)
            trail.span(Phase.CONNECT, Hop.CLIENT, found, shaken)
            trail.note("HTTP/3: connect and TLS are one QUIC handshake; stamps are ours, not the kernel's")
        elif self.head is None:
            trail.span(Phase.CONNECT, Hop.CLIENT, self.start_ns, now_ns())
        if self.head is not None:
            start = max(at["PRETRANSFER"], self.start_ns if reused else shaken)
            self.sent_ns = min(max(start, at["POSTTRANSFER"]), self.head.first.at_ns)
            trail.span(Phase.SEND, Hop.CLIENT, min(start, self.sent_ns), self.sent_ns)
            trail.facts |= {
                "reused": reused,
                "alpn": "h3",
                "tls_version": "TLS 1.3",
                "resolver": "libcurl",
                "local_address": shown((read(pycurl.LOCAL_IP), read(pycurl.LOCAL_PORT))),
                "remote_address": shown((read(pycurl.PRIMARY_IP), read(pycurl.PRIMARY_PORT))),
            }

    def _configure(self, request: Request, settings: TransportSettings) -> None:
        import pycurl

        options: dict[int, Any] = {
            pycurl.URL: request.absolute,
            pycurl.CUSTOMREQUEST: request.method,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_3ONLY,
            pycurl.HTTPHEADER: [f"{name}: {value}" for name, value in (*request.headers, *request.private)],
            pycurl.FOLLOWLOCATION: 0,
            pycurl.NOSIGNAL: 1,
            pycurl.NOPROXY: "*",
            pycurl.CONNECTTIMEOUT_MS: max(1, int(settings.connect_timeout_s * 1000)),
            pycurl.SSL_VERIFYPEER: 0 if settings.insecure else 1,
            pycurl.SSL_VERIFYHOST: 0 if settings.insecure else 2,
            pycurl.CAINFO: settings.ca_file or _trust(),
            pycurl.HEADERFUNCTION: self._on_header,
            pycurl.WRITEFUNCTION: self._on_body,
        }
        if request.method == "POST":
            options[pycurl.POSTFIELDSIZE_LARGE] = len(request.body)
            options[pycurl.COPYPOSTFIELDS] = request.body
        for option, value in options.items():
            self._curl.setopt(option, value)

    def _arrival(self, data: bytes) -> Arrival:
        now = now_ns()
        middle = (self._lower_ns + now) // 2
        self.last_ns = middle
        return Arrival(data, self._lower_ns, middle, now - middle + 1, whole=True, tail=True)

    def _on_header(self, line: bytes) -> None:
        arrival = self._arrival(line)
        if line.startswith(b"HTTP/"):
            self._lines, self._first = [], self._first or arrival.end()
        if line.strip():
            self._lines.append(line)
            return
        status = int(self._lines[0].split()[1]) if self._lines else 0
        if status >= 200 and self.head is None:
            pairs = (row.decode("latin-1").partition(":") for row in self._lines[1:])
            headers = tuple((name, value.strip()) for name, _, value in pairs)
            self.head = Head("HTTP/3", status, headers, self._first or arrival.end())

    def _on_body(self, data: bytes) -> None:
        self.arrivals.append(self._arrival(bytes(data)))

    def _failure(self, code: int, message: str) -> DialFailed | ExchangeFailed | Truncated:
        if self.head is not None:
            return Truncated(f"the answer broke off ({message or code}): see the server's logs", phase=Phase.DRAIN)
        if code in _FAILURES:
            phase, kind, advice = _FAILURES[code]
            return DialFailed(f"cannot ask {self._host} by HTTP/3: {advice}", phase=phase, kind=kind)
        why = f"HTTP/3 with {self._host} failed ({message or code}): try --http auto"
        return ExchangeFailed(why, phase=Phase.WAIT, kind="http3_failed")


def _trust() -> str:
    """A file of trusted issuers: the system's, else certifi's."""
    import certifi

    return ssl.get_default_verify_paths().cafile or certifi.where()
