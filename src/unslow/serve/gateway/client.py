"""A client's connection: requests are read strictly, one is served at a time, the rest of the bytes wait their turn.

    HEAD ──> BODY ──> ANSWER ──> HEAD …        (BODY is skipped where the body came with the head)
      │        │         └──> TUNNEL           (101)
      └────────┴──> LINGER ──> closed          (refused with bytes of it still coming)

While an answer is on its way the connection is still read, so that the client's leaving is seen at once; pipelined
bytes are held up to a bound. LINGER reads on for a moment after a refusal: closing a socket with unread bytes would
reset it, and the client might never see why.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from enum import Enum
from time import perf_counter_ns
from typing import cast

from unslow.core.policy.timeouts import Wait
from unslow.core.wire.http1 import Body, Field, stray_line_end, upload_body
from unslow.errors import RemoteProtocolError
from unslow.serve.gateway.context import Gateway
from unslow.serve.gateway.door import open_door
from unslow.serve.gateway.errors import Refusal, by_hint, write_answer
from unslow.serve.gateway.exchange import Exchange
from unslow.serve.gateway.headers import cors_fields
from unslow.serve.gateway.known import Known
from unslow.serve.gateway.waiting import waiting
from unslow.serve.gateway.wheel import Timed

MAX_HELD_BYTES = 256 << 10
"""Pipelined bytes held while an answer is on its way; past it the connection is not read."""
_empty_lines = re.compile(rb"(?:\r\n)+")
_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8
"""States of Linux' TCP_INFO: a reset, or an orderly end."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER for 0 s: closing resets the connection, where an orderly end would look like the end of the answer."""


class State(Enum):
    """Where a connection is."""

    HEAD = 0
    BODY = 1
    ANSWER = 2
    TUNNEL = 3
    LINGER = 4
    CLOSED = 5


class ClientConnection(asyncio.Protocol):
    """One accepted socket."""

    __slots__ = (
        "_body", "_bucket", "_busy", "_held", "_since_ns", "_started_ns", "_undelivered", "choked", "choked_since_ns",
        "exchange", "gateway", "reading", "state", "transport",
    )  # fmt: skip

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.state = State.HEAD
        self.exchange: Exchange | None = None
        self.choked, self.choked_since_ns = False, 0
        self.reading = True
        self._body: Body | None = None
        self._held = b""
        self._busy = False
        self._undelivered: list[Exchange] = []
        self._since_ns = perf_counter_ns()
        self._started_ns = 0
        self._bucket: set[Timed] = set()

    # -- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted. Over the limit of connections it is told so and closed."""
        self.transport = cast(asyncio.Transport, transport)
        gateway = self.gateway
        gateway.clients.add(self)
        self._bucket = gateway.wheel.add(self)
        self.transport.set_write_buffer_limits(high=gateway.settings.write_buffer_bytes)
        if len(gateway.clients) > gateway.max_clients:
            self._refuse(Refusal("too_many_connections", retry_after_s=1))

    def data_received(self, data: bytes) -> None:
        """Bytes, by state."""
        state = self.state
        if state is State.HEAD:
            self._held = self._held + data if self._held else data
            self._requests()
        elif state is State.BODY:
            self._upload(data)
        elif state is State.TUNNEL:
            if self.exchange is not None:
                self.exchange.tunnelled(data)
        elif state is State.ANSWER:
            self._held += data
            if len(self._held) > MAX_HELD_BYTES:
                self.read(False)

    def eof_received(self) -> None:
        """A client that will send no more has left: that is how most of them cancel."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone: the upstream is told through the exchange."""
        self.gateway.clients.discard(self)
        if self.gateway.draining and not self.gateway.clients:
            self.gateway.empty.set()
        self._bucket.discard(self)
        self.state, self._held = State.CLOSED, b""
        now_ns = perf_counter_ns()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_lost(now_ns)
        self._deliver(now_ns)

    def pause_writing(self) -> None:
        """The client reads slowly: leave the answer with the upstream."""
        self.choked, self.choked_since_ns = True, perf_counter_ns()
        if self.exchange is not None and self.exchange.connection is not None:
            self.exchange.connection.read(False)

    def resume_writing(self) -> None:
        """It caught up."""
        self.choked = False
        if self.exchange is not None and self.exchange.connection is not None:
            self.exchange.connection.read(True)
        self._deliver(perf_counter_ns())
        if self.state is State.HEAD and self._held:
            self.read(True)
            self._requests()

    def read(self, wanted: bool) -> None:
        """Read from the client or leave the bytes in its kernel."""
        if wanted != self.reading and not self.transport.is_closing():
            self.reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # -- requests

    def _requests(self) -> None:
        """Serve what is held, one request after another; answers of our own end before this returns to the next."""
        if self._busy:
            return
        if self.choked:  # it takes none of the answers that it has
            self.read(len(self._held) <= MAX_HELD_BYTES)
            return
        self._busy = True
        try:
            while self.state is State.HEAD and self._held and not self.choked:
                try:
                    if not self._request():
                        return
                except RemoteProtocolError as error:
                    self._refuse(by_hint(error.status_hint, str(error)))
                except Refusal as refusal:
                    self._refuse(refusal)
        finally:
            self._busy = False

    def _request(self) -> bool:
        """Read a head, if it is whole, and start its exchange."""
        now_ns = perf_counter_ns()
        self._started_ns = self._started_ns or now_ns
        held = self._held
        if held[:2] == b"\r\n":  # RFC 9112, section 2.2
            held = _empty_lines.sub(b"", held, 1)
            if not held:
                self._held, self._started_ns = b"", 0
                return False
        end = held.find(b"\r\n\r\n")
        limit = self.gateway.settings.max_header_bytes
        if end > limit or (end < 0 and len(held) > limit):
            raise Refusal("header_too_large", f"{limit} bytes")
        if end < 0:
            self._held = held
            if stray_line_end(held):
                raise RemoteProtocolError("a line of the head does not end in CRLF")
            return False
        known, length = self.gateway.heads.read(held[: end + 2])
        self._held = b""
        self._start(known, length, held[end + 4 :])
        return True

    def _start(self, known: Known, length: int | None, rest: bytes) -> None:
        exchange = self.exchange = Exchange(self.gateway, self, known, length, self._started_ns)
        body = self._body = upload_body(chunked=known.head.chunked, length=length)
        try:
            pieces = body.feed(rest) if rest or body.done else []
            if body.done:
                self.state, self._held = State.ANSWER, body.surplus
            else:
                self.state = State.BODY
            if open_door(self.gateway, exchange):
                self._check_size(exchange, pieces)
                if known.head.expects and not body.done:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                exchange.upload(pieces, perf_counter_ns(), done=body.done)
        except RemoteProtocolError as error:
            exchange.refuse(by_hint(error.status_hint, str(error)))
        except Refusal as refusal:
            exchange.refuse(refusal)

    def _upload(self, data: bytes) -> None:
        body, exchange = self._body, self.exchange
        if body is None or exchange is None:
            return
        try:
            pieces = body.feed(data)
            self._check_size(exchange, pieces)
            if body.done:
                self.state, self._held = State.ANSWER, body.surplus
            exchange.upload(pieces, perf_counter_ns(), done=body.done)
        except RemoteProtocolError as error:
            exchange.refuse(by_hint(error.status_hint, str(error)))
        except Refusal as refusal:
            exchange.refuse(refusal)

    def _check_size(self, exchange: Exchange, pieces: list[bytes]) -> None:
        limit = self.gateway.settings.max_body_bytes
        if (exchange.length or 0) > limit or exchange.body.size_bytes + sum(map(len, pieces)) > limit:
            raise Refusal("body_too_large", str(limit))

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse what never became an exchange; then the connection ends, since its bytes mean nothing certain."""
        self.transport.write(write_answer(refusal.status, refusal.fields(), refusal.body(), keep=False))
        self._linger()

    # -- what exchanges call

    def answer(self, exchange: Exchange, status: int, fields: list[Field], body: bytes) -> None:
        """A whole answer of our own."""
        whole = self.state is State.ANSWER
        keep = whole and not exchange.head.close and not self.gateway.draining and status != 400
        ours = [(b"x-unslow-id", exchange.id.encode()), *cors_fields(exchange.origin)]
        head_only = exchange.head.method == b"HEAD"
        self.transport.write(write_answer(status, [*fields, *ours], body, keep=keep, head_only=head_only))
        exchange.keep_client = keep
        self.exchange_ended(exchange, perf_counter_ns())

    def exchange_ended(self, exchange: Exchange, now_ns: int) -> None:
        """The answer is out: on to the next request, or close."""
        self.exchange = self._body = None
        if self.choked:
            self._undelivered.append(exchange)
        else:
            exchange.delivered(now_ns)
        if self.state is State.CLOSED:
            return
        if not exchange.keep_client:
            if self.state is State.BODY:
                self._linger()
            else:
                self._close()
            return
        self.state, self._since_ns, self._started_ns = State.HEAD, now_ns, 0
        self.read(True)
        if self.gateway.draining:
            self._close()
        elif self._held:
            self._requests()

    def cut(self, *, framed: bool) -> None:
        """End an answer that cannot be finished, so that it shows: by its missing end, or else by a reset."""
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.delivered(perf_counter_ns())
        if framed:
            self._close()
        else:
            self.state = State.CLOSED
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()

    def tunnel(self) -> None:
        """The protocol switched: what came early goes on now."""
        self.state = State.TUNNEL
        held, self._held = self._held, b""
        if held and self.exchange is not None:
            self.exchange.tunnelled(held)

    def drain(self) -> None:
        """The worker is going: close if idle; an exchange in flight closes when it ends."""
        if self.state is State.HEAD and (self.choked or not self._started_ns):
            self._close()

    def _close(self) -> None:
        self.state, self._held, self._since_ns = State.CLOSED, b"", perf_counter_ns()
        self.read(True)
        self.transport.close()

    def _linger(self) -> None:
        self.state, self._held, self._since_ns = State.LINGER, b"", perf_counter_ns()
        self._body = None
        self.read(True)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _deliver(self, now_ns: int) -> None:
        for exchange in self._undelivered:
            exchange.delivered(now_ns)
        self._undelivered.clear()

    # -- time

    def expire(self, now_ns: int) -> None:
        """Called by the wheel about twice a second."""
        if not self.reading and _has_left(self.transport):
            self.transport.abort()
            return
        wait, since_ns = self._waiting(now_ns)
        if not self.gateway.limits.overdue(wait, since_ns, now_ns):
            return
        exchange = self.exchange
        limit = f"{self.gateway.limits.by_wait[wait] / 1e9:g} s"
        if exchange is not None:
            if wait is Wait.SLOW_CLIENT:
                self.exchange = None
                exchange.client_lost(now_ns, wait.value)
                self.transport.abort()
            else:
                exchange.refuse(Refusal(wait.value, limit, retry_after_s=1 if wait is Wait.QUEUE else None))
        elif wait is Wait.HEADER:
            self._refuse(Refusal(wait.value, limit))
        else:
            self.transport.abort() if self.choked or self.state is State.CLOSED else self._close()

    def _waiting(self, now_ns: int) -> tuple[Wait, int]:
        if self.exchange is not None:
            return waiting(self.exchange, now_ns)
        if self.state is State.LINGER:
            return Wait.LINGER, self._since_ns
        if self.choked:
            return Wait.SLOW_CLIENT, self.choked_since_ns
        if self.state is State.CLOSED:  # with bytes that it has not taken yet
            return Wait.SLOW_CLIENT, self._since_ns
        if self._started_ns:
            return Wait.HEADER, self._started_ns
        return Wait.IDLE, self._since_ns


def _has_left(transport: asyncio.Transport) -> bool:
    """Whether the other side ended a connection that is not read, and whose end is therefore not seen."""
    if not hasattr(socket, "TCP_INFO"):  # not Linux
        return False
    state: int = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state in (_TCP_CLOSE, _TCP_CLOSE_WAIT)
