"""A session: requests to measure, one after another, over connections that are reused when they can be."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from unslow.core.timeline import Hop, Phase
from unslow.errors import LocalProtocolError, UpstreamError
from unslow.measure.transport.arrival import Arrival, Channel
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.dial import dial
from unslow.measure.transport.failures import DialFailed, ExchangeFailed
from unslow.measure.transport.http1 import Http1
from unslow.measure.transport.link import Link
from unslow.measure.transport.message import Conversation, Head, Origin, Request, check_headers
from unslow.measure.transport.resolve import Resolution, resolve, warm_up
from unslow.measure.transport.settings import TransportSettings
from unslow.measure.transport.tls import TlsChannel, context_for, read_failed, secure
from unslow.measure.transport.trail import Deadline, Trail
from unslow.measure.transport.tunnel import Proxy, connect_through, proxy_of

_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Connection(NamedTuple):
    """What stands between us and an origin."""

    origin: Origin
    link: Link
    channel: Channel
    http: Conversation


class Answer:
    """An answer that is coming in. Read `body` until `complete`; then `close`."""

    def __init__(self, head: Head, conversation: Conversation, sent_ns: int) -> None:
        self.head, self.sent_ns = head, sent_ns
        self._conversation = conversation

    @property
    def complete(self) -> bool:
        """Whether all of it came."""
        return self._conversation.complete

    @property
    def last_ns(self) -> int | None:
        """When the last bytes came."""
        return self._conversation.last_ns

    def body(self, until_ns: int) -> list[Arrival]:
        """Wait for bytes of the body; empty when complete and when the time is up. Raises UpstreamError."""
        try:
            return self._conversation.body(until_ns)
        except ssl.SSLError as error:
            raise read_failed(error, Phase.DRAIN) from error
        except OSError as error:
            raise _broken(error, Phase.DRAIN) from error


class Session:
    """Asks and reuses. Not safe for several threads; one exchange at a time."""

    def __init__(self, settings: TransportSettings) -> None:
        self.settings = settings
        self._proxy: Proxy | None = proxy_of(settings.proxy) if settings.proxy else None
        self._context: ssl.SSLContext | None = None
        self._ticket: ssl.SSLSession | None = None
        self._held: Connection | None = None
        self._send_start_ns = 0

    def prepare(self, request: Request) -> None:
        """Do what costs our own time before the clock starts. Raises LocalProtocolError for a bad request."""
        check_headers((*request.headers, *request.private))
        if request.origin.scheme == "https" and self._context is None:
            try:
                self._context = context_for(self.settings)
            except (OSError, ssl.SSLError) as error:
                raise LocalProtocolError(f"cannot read the CA file {self.settings.ca_file}: {error}") from error
        warm_up(self._proxy.host if self._proxy else request.origin.host)
        if self.settings.http != "1.1":
            import unslow.measure.transport.http2  # noqa: F401

    def ask(self, request: Request, trail: Trail) -> Answer:
        """Send a request, follow its redirects, and give the answer whose head came. Raises UpstreamError."""
        hops: list[str] = []
        while True:
            answer = self._ask_or_again(request, trail)
            location = answer.head.header("location")
            if answer.head.status not in _REDIRECTS or not location:
                return answer
            if len(hops) >= self.settings.max_redirects:
                why = f"more than {self.settings.max_redirects} redirects: the URL runs in circles"
                raise ExchangeFailed(why, phase=Phase.WAIT, kind="too_many_redirects")
            request = self._follow(request, location, answer, trail)
            hops.append(request.url)
            trail.facts["redirects"] = tuple(hops)

    def finish(self, trail: Trail) -> None:
        """Note what the connection knows at the end of an exchange, and drop it unless it can be used again."""
        held = self._held
        if held is None:
            return
        trail.facts["tcp"] = held.link.tcp()
        trail.facts["stamps"] = "kernel" if held.link.kernel_stamps and not held.link.user_stamped else "user"
        if isinstance(held.channel, TlsChannel):
            self._ticket = held.channel.session
        if not (held.http.complete and held.http.reusable):
            self.close()

    def close(self) -> None:
        """Close the held connection."""
        if self._held is not None:
            self._held.link.close()
            self._held = None

    def _follow(self, request: Request, location: str, answer: Answer, trail: Trail) -> Request:
        try:
            target = request.redirected(location, answer.head.status)
            target.origin  # noqa: B018
        except LocalProtocolError as error:
            raise ExchangeFailed(f"redirected to nowhere: {error}", phase=Phase.WAIT, kind="bad_redirect") from error
        if target.origin != request.origin:
            trail.note(f"redirected to {target.origin.authority}: the key and your headers were not sent there")
        trail.span(Phase.WAIT, Hop.CLIENT, answer.sent_ns, answer.head.first.at_ns)
        drained_until = min(trail.until_ns, now_ns() + 1_000_000_000)
        while answer.body(drained_until):
            pass
        self.finish(trail)
        if target.origin != request.origin:
            self.close()
        trail.new_leg()
        if target.origin.scheme == "https":
            self.prepare(target)
        return target

    def _ask_or_again(self, request: Request, trail: Trail) -> Answer:
        """Ask; where a reused connection turns out to be dead before any answer, once more on a fresh one."""
        reused = self._held is not None and self._held.origin == request.origin
        try:
            return self._ask_once(request, trail)
        except ExchangeFailed as error:
            if not (reused and error.unanswered):
                raise
        self.close()
        trail.note("the kept connection was closed by the server: asked again on a new one")
        trail.facts["retries"] = trail.facts.get("retries", 0) + 1
        trail.new_leg()
        return self._ask_once(request, trail)

    def _ask_once(self, request: Request, trail: Trail) -> Answer:
        connection = self._connection(request.origin, trail)
        self._send(connection, request, trail)
        limit_s = self.settings.first_byte_timeout_s
        deadline = Deadline(Phase.WAIT, limit_s, trail, what="no answer")
        try:
            head = connection.http.head(deadline.until_ns)
        except ssl.SSLError as error:
            self._lost(connection, trail)
            raise read_failed(error, Phase.WAIT) from error
        except OSError as error:
            self._lost(connection, trail)
            raise _broken(error, Phase.WAIT) from error
        except UpstreamError:
            self._lost(connection, trail)
            raise
        if head is None:
            self._lost(connection, trail)
            raise deadline.error()
        return Answer(head, connection.http, self._sent(connection, trail, head.first.at_ns))

    def _lost(self, connection: Connection, trail: Trail) -> None:
        end = now_ns()
        trail.span(Phase.WAIT, Hop.CLIENT, self._sent(connection, trail, end), end)
        self.finish(trail)
        self.close()

    def _send(self, connection: Connection, request: Request, trail: Trail) -> None:
        deadline = Deadline(Phase.SEND, self.settings.send_timeout_s, trail, what="the request was not taken")
        self._send_start_ns = now_ns()
        connection.link.begin_send()
        try:
            done = connection.http.begin(request, deadline.until_ns)
        except OSError as error:
            raise _broken(error, Phase.SEND) from error
        self._send_start_ns = connection.link.send_start_ns or self._send_start_ns
        if not done:
            trail.span(Phase.SEND, Hop.CLIENT, self._send_start_ns, now_ns())
            self.close()
            raise deadline.error()
        trail.facts["request_bytes"] = len(request.body)

    def _sent(self, connection: Connection, trail: Trail, latest_ns: int) -> int:
        """Note the send, whose end the kernel tells only once the request has left; an answer may come before it."""
        sent = min(max(self._send_start_ns, connection.link.sent().at_ns), latest_ns)
        trail.span(Phase.SEND, Hop.CLIENT, self._send_start_ns, sent)
        return sent

    def _connection(self, origin: Origin, trail: Trail) -> Connection:
        held = self._held
        if held is not None and held.origin == origin and held.http.reusable and held.http.complete:
            held.link.begin_exchange(trail.wall)
            trail.facts["reused"] = True
            self._describe(held, trail)
            return held
        self.close()
        self._held = self._connect(origin, trail)
        trail.facts["reused"] = False
        return self._held

    def _connect(self, origin: Origin, trail: Trail) -> Connection:
        link = self._dial(origin, trail)
        channel: Channel = link
        try:
            if self._proxy is not None and origin.scheme == "https":
                self._tunnel(link, self._proxy, origin, trail)
            if origin.scheme == "https":
                channel = self._secure(link, origin, trail)
            connection = Connection(origin, link, channel, self._speak(channel, origin))
        except BaseException:
            link.close()
            raise
        self._describe(connection, trail)
        return connection

    def _dial(self, origin: Origin, trail: Trail) -> Link:
        s = self.settings
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (origin.host, origin.port)
        started = now_ns()
        deadline = Deadline(Phase.DNS, s.dns_timeout_s, trail, what=f"no name server told the address of {host}")
        try:
            found = resolve(host, s.nameservers, trail, deadline)
        except BaseException:
            trail.span(Phase.DNS, Hop.RESOLVER, started, now_ns())
            raise
        trail.facts |= {"addresses": found.addresses, "resolver": found.resolver}
        if self._proxy:
            trail.facts["proxy"] = self._proxy.shown
        deadline = Deadline(Phase.CONNECT, s.connect_timeout_s, trail, what=f"{host}:{port} did not answer")
        try:
            link = dial(found.addresses, port, trail, deadline, kernel_stamps=s.kernel_stamps)
        except BaseException:
            _note_questions(found, None, trail)
            raise
        _note_questions(found, link.addresses()[1], trail)
        return link

    def _tunnel(self, link: Link, proxy: Proxy, origin: Origin, trail: Trail) -> None:
        deadline = Deadline(Phase.PROXY, self.settings.proxy_timeout_s, trail, what="the proxy opened no tunnel")
        started = now_ns()
        try:
            connect_through(link, proxy, origin, deadline, self.settings.max_header_bytes)
        except OSError as error:
            why = f"the proxy {proxy.shown} closed the connection ({error.strerror or error})"
            raise DialFailed(why, phase=Phase.PROXY, kind="proxy_reset") from error
        finally:
            trail.span(Phase.PROXY, Hop.CLIENT, started, now_ns())

    def _secure(self, link: Link, origin: Origin, trail: Trail) -> TlsChannel:
        assert self._context is not None
        deadline = Deadline(Phase.TLS, self.settings.tls_timeout_s, trail, what="no TLS handshake")
        ticket = self._ticket if self.settings.tls_resume else None
        started = now_ns()
        try:
            return secure(link, self._context, origin.host, trail, deadline, ticket)
        finally:
            trail.span(Phase.TLS, Hop.CLIENT, started, now_ns())

    def _speak(self, channel: Channel, origin: Origin) -> Conversation:
        mode, limit = self.settings.http, self.settings.max_header_bytes
        alpn = channel.facts()["alpn"] if isinstance(channel, TlsChannel) else None
        if mode == "2" and isinstance(channel, TlsChannel) and alpn != "h2":
            why = f"{origin.authority} does not offer HTTP/2: use --http auto"
            raise DialFailed(why, phase=Phase.TLS, kind="no_http2")
        if alpn == "h2" or (mode == "2" and origin.scheme == "http"):
            from unslow.measure.transport.http2 import Http2

            return Http2(channel, max_header_bytes=limit)
        return Http1(channel, max_header_bytes=limit, absolute=self._proxy is not None and origin.scheme == "http")

    def _describe(self, connection: Connection, trail: Trail) -> None:
        local, remote = connection.link.addresses()
        trail.facts |= {"local_address": local, "remote_address": remote}
        if isinstance(connection.channel, TlsChannel):
            trail.facts |= connection.channel.facts()


def _note_questions(found: Resolution, remote: str | None, trail: Trail) -> None:
    """Questions as spans; the one whose family was used won, where both were asked at once."""
    family = None if remote is None else ("AAAA" if remote.startswith("[") else "A")
    useful = [q for q in found.questions if q.addresses and q.family == family]
    for question in found.questions:
        number = trail.new_attempt()
        won = question in useful[-1:]
        trail.span(Phase.DNS, Hop.RESOLVER, question.start_ns, question.end_ns, attempt=number, won=won)


def _broken(error: OSError, phase: Phase) -> ExchangeFailed:
    reason = (error.strerror or str(error)).lower()
    why = f"the connection broke ({reason}): see the server's logs, and what lies between"
    return ExchangeFailed(why, phase=phase, kind="connection_reset", unanswered=phase is not Phase.DRAIN)
