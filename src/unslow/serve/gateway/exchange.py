"""One request from its head to its record.

Theory of operation. An exchange walks through stages:

    ROUTING ──> QUEUED ──> CONNECTING ──> SENT ──> ENDED
       │                       ^            │
       │                       └── resent once, if a pooled connection failed before a byte came
       └──> OWN (answered here) ──> ENDED   └──> TUNNEL (101) ──> ENDED

Pieces of the request's body are held until a connection is there, and then as long as the request may have to be
sent again, but never more than `routing_body_bytes` of them. Whatever fails before the head of an answer is out
becomes an error of ours; after that the client's connection is cut, so that a truncated answer shows as one.
"""

from __future__ import annotations

import asyncio
import functools
from enum import Enum
from time import perf_counter_ns
from typing import TYPE_CHECKING

from unslow.core.policy.retry import may_resend
from unslow.core.timeline import End, Outcome, Phase
from unslow.core.wire.http1 import Field, write_fields
from unslow.errors import AdmissionRejected, PhaseTimeout, UpstreamError
from unslow.serve.gateway.answer import Answer
from unslow.serve.gateway.connect import Step
from unslow.serve.gateway.context import Gateway
from unslow.serve.gateway.destination import destination
from unslow.serve.gateway.errors import Refusal
from unslow.serve.gateway.headers import cors_fields, request_head
from unslow.serve.gateway.record import finished
from unslow.serve.gateway.upload import Upload
from unslow.serve.gateway.way import Way

if TYPE_CHECKING:
    from unslow.serve.gateway.client import ClientConnection
    from unslow.serve.gateway.known import Known
    from unslow.serve.gateway.pool import Pool
    from unslow.serve.gateway.upstream import UpstreamConnection

DETACHED_S = 2.0
"""How long the rest of an answer may take after its client left at the stream's end mark."""
LAST_WORDS_S = 10.0
"""How long an upstream may take to read what the client of a tunnel said before it left."""
_WELL = Outcome()


class Stage(Enum):
    """Where an exchange is."""

    ROUTING = 0
    QUEUED = 1
    CONNECTING = 2
    SENT = 3
    TUNNEL = 4
    OWN = 5
    ENDED = 6


class Exchange:
    """One request and its answer. Stamps are 0 until they are taken."""

    stage = Stage.ROUTING
    pool: Pool | None = None
    way: Way | None = None
    connection: UpstreamConnection | None = None
    answer: Answer | None = None
    model: str | None = None
    origin: bytes | None = None
    key_name: str | None = None
    status: int | None = None
    outcome = _WELL
    head_is_out = queued = reused = is_preflight = False
    routed_ns = admitted_ns = connected_ns = sent_ns = choked_since_ns = sends = attempt = 0
    lost: tuple[Step, ...] = ()
    _task: asyncio.Task[None] | None = None

    def __init__(
        self, gateway: Gateway, client: ClientConnection, known: Known, length: int | None, started_ns: int
    ) -> None:
        head = known.head
        self.gateway, self.client, self.known, self.head, self.length = gateway, client, known, head, length
        gateway.requests_total += 1
        gateway.active += 1
        self.id = f"{gateway.instance}-{gateway.requests_total:x}"
        self.path = known.path
        self.started_ns = self.uploaded_ns = started_ns
        self.keep_client = not head.close
        self.steps: list[Step] = []
        bound = gateway.settings.routing_body_bytes
        self.body = Upload(chunked=head.chunked, content_type=known.content_type, bound_bytes=bound)
        self.trace_line = b"" if known.trace_id is not None else gateway.trace_line()

    # -- what others ask

    @property
    def trace_id(self) -> str:
        """The trace that it belongs to: the client's, or one begun here."""
        return self.known.trace_id or self.trace_line[16:48].decode()

    @property
    def wants_ledger(self) -> bool:
        """Whether its stream shall end with the ledger."""
        return self.known.wants_ledger or self.gateway.settings.ledger_comment

    @property
    def host(self) -> str:
        """The upstream's host name, which some dialects go by."""
        return self.pool.target.host if self.pool is not None else ""

    @property
    def keyed(self) -> bool:
        """Whether a key of ours went along."""
        return self.way is not None and self.way.keyed

    def may_keep_client(self) -> bool:
        """Whether the client's connection can serve another request after this one."""
        self.keep_client = self.keep_client and self.body.done and not self.gateway.draining
        return self.keep_client

    def answer_lines(self, now_ns: int) -> bytes:
        """Our field lines in the head of the answer, with what is known by now."""
        lines = b"x-unslow-id: %b\r\nx-unslow-upstream: %b\r\n%b" % (
            self.id.encode(),
            self.pool.name_bytes if self.pool is not None else b"",
            b"server-timing: gw;dur=%d.%03d, connect;dur=%d.%03d, up;dur=%d.%03d\r\n"
            % (
                *divmod((self.admitted_ns - self.started_ns) // 1000, 1000),
                *divmod((self.connected_ns - self.admitted_ns) // 1000, 1000),
                *divmod((now_ns - (self.sent_ns or now_ns)) // 1000, 1000),
            ),
        )
        return lines if self.origin is None else lines + write_fields(cors_fields(self.origin))

    # -- the request's body, a destination, a place

    def upload(self, pieces: list[bytes], now_ns: int, *, done: bool) -> None:
        """More of the request's body, and whether that was all. Raises Refusal."""
        self.uploaded_ns = now_ns
        body = self.body
        body.add(pieces, done=done)
        if self.stage is Stage.SENT:
            self._forward(pieces, now_ns)
            return
        body.hold(pieces)
        if self.stage is Stage.ROUTING:
            name = destination(self.gateway, self)
            if name is not None:
                self._enter(self.gateway.pools[name], now_ns)
        if body.full and not done and self.connection is None:
            self.client.read(False)

    def _enter(self, pool: Pool, now_ns: int) -> None:
        self.pool, self.routed_ns = pool, now_ns
        self.way = pool.way(self.path)
        try:
            placed = pool.admission.offer(self)
        except AdmissionRejected as error:
            raise Refusal("queue_full", pool.name, retry_after_s=error.retry_after_s) from error
        self.stage = Stage.QUEUED
        if placed:
            self.admitted(now_ns)
        else:
            self.queued = True

    def admitted(self, now_ns: int) -> None:
        """There is a place: take a pooled connection, or make one."""
        assert self.pool is not None
        self.admitted_ns = now_ns
        connection = self.pool.take(now_ns)
        if connection is None:
            self._connect()
        else:
            self.reused = True
            self._send(connection, now_ns)

    # -- a connection

    def _connect(self) -> None:
        self.stage = Stage.CONNECTING
        self._task = self.gateway.loop.create_task(self._connected())

    async def _connected(self) -> None:
        assert self.pool is not None
        try:
            connection = await self.pool.connect(self.steps, self.attempt)
        except PhaseTimeout as error:
            self.refuse(Refusal("connect_timeout", str(error)), Phase(error.phase))
            return
        except UpstreamError as error:
            self.refuse(Refusal("connect_failed", str(error)), Phase(error.phase))
            return
        finally:
            self._task = None
        self.attempt = self.steps[-1].attempt if self.steps else self.attempt
        self.reused = False
        self._send(connection, perf_counter_ns())

    def _send(self, connection: UpstreamConnection, now_ns: int) -> None:
        """The head, and as much of the body as is there, in one write."""
        client, head, body, way = self.client, self.head, self.body, self.way
        assert way is not None
        self.connection, self.stage, self.connected_ns = connection, Stage.SENT, now_ns
        self.sends += 1
        connection.served += 1
        self.answer = connection.carried = Answer(self, connection, client.transport.write)
        lines = self.gateway.via_line + self.trace_line + body.framing(self.length)
        if head.upgrade is not None:
            lines += b"connection: upgrade\r\nupgrade: %b\r\n" % head.upgrade
        out = request_head(self.known, way, gateway_key=self.gateway.keys.required)
        connection.transport.write(b"%b%b\r\n%b" % (out, lines, body.start()))
        if body.done:
            self.sent_ns = perf_counter_ns()
        else:
            client.read(not self.choked_since_ns)
        if client.choked or not connection.reading:
            connection.read(not client.choked)

    def _forward(self, pieces: list[bytes], now_ns: int) -> None:
        connection, answer = self.connection, self.answer
        if connection is None or answer is None:
            return
        self.body.forward(pieces, connection.transport.write, answering=bool(answer.first_byte_ns))
        if self.body.done:
            self.sent_ns = now_ns

    def upload_choked(self, choked: bool) -> None:
        """The upstream reads slowly: so do we."""
        self.choked_since_ns = perf_counter_ns() if choked else 0
        self.client.read(not choked)

    def tunnel_open(self) -> None:
        """The protocol switched: bytes go both ways as they are from now on."""
        self.stage = Stage.TUNNEL
        self.keep_client = False
        self.client.tunnel()

    def tunnelled(self, data: bytes) -> None:
        """Bytes from the client of a tunnel."""
        if self.connection is not None:
            self.body.size_bytes += len(data)
            self.connection.transport.write(data)

    # -- ends

    def answered(self, now_ns: int) -> None:
        """The answer is complete."""
        answer, connection, pool = self.answer, self.connection, self.pool
        assert answer is not None
        assert connection is not None
        assert pool is not None
        connection.carried = self.connection = None
        if answer.reusable and self.body.done and self.stage is not Stage.TUNNEL:
            pool.put(connection, now_ns)
        else:
            connection.transport.close()
        if self.stage is Stage.ENDED:
            return  # its client left after the end mark, and the record is written
        if answer.head is not None and answer.head.status >= 400:
            self.outcome = Outcome(End.FAILED, Phase.WAIT, f"http_{answer.head.status}")
        self._end(now_ns)
        self.client.exchange_ended(self, now_ns)

    def answer_broken(self, why: str) -> None:
        """The upstream broke the protocol."""
        name = self.pool.name if self.pool is not None else ""
        self.refuse(Refusal("upstream_protocol", f"{name}: {why}"))

    def answer_lost(self, now_ns: int) -> None:
        """The upstream's connection ended before the answer did."""
        answer, self.connection = self.answer, None
        if self.stage is Stage.ENDED:
            return
        assert answer is not None
        assert self.pool is not None
        held = self.body.held is not None
        if may_resend(reused=self.reused, answer_bytes=answer.first_byte_ns, sends=self.sends, body_held=held):
            self._resend(now_ns)
        else:
            self.refuse(Refusal("upstream_lost", self.pool.name))

    def _resend(self, now_ns: int) -> None:
        sent_ns = self.sent_ns or now_ns
        self.lost = (
            Step(Phase.SEND, self.connected_ns, sent_ns, self.attempt, won=False),
            Step(Phase.WAIT, sent_ns, now_ns, self.attempt, won=False),
        )
        self.attempt += 1
        self.answer = None
        self.sent_ns = self.choked_since_ns = 0
        self._connect()

    def refuse(self, refusal: Refusal, phase: Phase | None = None) -> None:
        """It failed: say so if nothing is out yet, else cut the answer short."""
        if self.stage is Stage.ENDED:
            return
        self.outcome = Outcome(End.FAILED, phase or self.phase(), refusal.code, refusal.message)
        self._drop_connection()
        self._end(perf_counter_ns())
        if self.head_is_out:
            self.client.cut(framed=self.answer is not None and self.answer.framed)
        else:
            self.status = refusal.status
            self.client.answer(self, refusal.status, refusal.fields(), refusal.body())

    def respond(self, status: int, fields: list[Field], body: bytes) -> None:
        """An answer of our own that is no failure."""
        if self.stage is Stage.ENDED:
            return
        self.status = status
        self._end(perf_counter_ns())
        self.client.answer(self, status, fields, body)

    def run(self, task: asyncio.Task[None]) -> None:
        """A task of ours makes the answer; it ends with the exchange."""
        self.stage, self._task = Stage.OWN, task

    def client_lost(self, now_ns: int, why: str = "client_gone") -> None:
        """The client is gone. After a stream's end mark that is no loss; before it the upstream is told at once."""
        if self.stage is Stage.ENDED:
            return
        answer, connection = self.answer, self.connection
        if answer is not None and answer.end_mark_seen and connection is not None:
            answer.detach()
            connection.read(True)
            self.gateway.loop.call_later(DETACHED_S, self._drop_connection)
        elif self.stage is Stage.TUNNEL and connection is not None:
            self.connection = connection.carried = None
            connection.transport.close()  # after the client's last words
            self.gateway.loop.call_later(LAST_WORDS_S, connection.transport.abort)
        else:
            self.outcome = Outcome(End.ABORTED, self.phase(), why)
            self._drop_connection()
        self._end(now_ns)
        self.delivered(now_ns)

    def delivered(self, now_ns: int) -> None:
        """All of the answer is with the kernel, or lost: the record is complete. A preflight gets none."""
        taken = not self.is_preflight and self.gateway.feed.put(functools.partial(finished, self, now_ns))
        if not taken and self.connection is None:
            self.answer = None  # or they keep each other alive

    def _end(self, now_ns: int) -> None:
        """Give back what it holds."""
        self.stage = Stage.ENDED
        self.gateway.active -= 1
        self.body.held = None
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            self._task = None
        if self.pool is None:
            return
        if not self.admitted_ns:
            self.pool.admission.withdraw(self)
            return
        following = self.pool.admission.release(now_ns - self.admitted_ns)
        if following is not None:
            self.gateway.loop.call_soon(_admit, following)

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()

    def phase(self) -> Phase:
        """Where it is now, in the record's words."""
        if self.stage is Stage.QUEUED:
            return Phase.QUEUE
        if self.stage is Stage.CONNECTING:
            return Phase.CONNECT
        if self.answer is None or not self.sent_ns:
            return Phase.SEND
        return self.answer.phase()


def _admit(exchange: Exchange) -> None:
    """Start the next one in the queue, or pass its place on if it left meanwhile."""
    if exchange.stage is Stage.QUEUED:
        exchange.admitted(perf_counter_ns())
    elif exchange.pool is not None:
        following = exchange.pool.admission.release(0)
        if following is not None:
            exchange.gateway.loop.call_soon(_admit, following)
