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
import re
import time
from enum import Enum
from time import perf_counter_ns
from typing import TYPE_CHECKING

from unslow.core.policy.model_scan import ModelScan
from unslow.core.policy.retry import may_resend
from unslow.core.policy.timeouts import Wait
from unslow.core.timeline import End, Outcome, Phase
from unslow.core.wire.http1 import Field, RequestHead, chunk, write_fields
from unslow.errors import AdmissionRejected, PhaseTimeout, UpstreamError
from unslow.serve.gateway.answer import Answer
from unslow.serve.gateway.connect import Step
from unslow.serve.gateway.context import Gateway
from unslow.serve.gateway.errors import Refusal
from unslow.serve.gateway.headers import cors_fields, request_line, upstream_fields
from unslow.serve.gateway.record import comment_of, finished

if TYPE_CHECKING:
    from unslow.serve.gateway.client import ClientConnection
    from unslow.serve.gateway.pool import Pool
    from unslow.serve.gateway.upstream import UpstreamConnection

SCANNED_BYTES = 64 << 10
"""How far a body is searched for its model where only the record wants to know it."""
DETACHED_S = 2.0
"""How long the rest of an answer may take after its client left at the stream's end mark."""
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


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
    """One request and its answer."""

    __slots__ = (
        "_kept", "_kept_bytes", "_scan", "_task", "admitted_ns", "answer", "attempt", "choked_since_ns", "client",
        "connected_ns", "connection", "gateway", "head", "head_is_out", "id", "keep_client", "key_name", "lost",
        "method", "model", "origin", "outcome", "path", "pool", "queued", "reused", "routed_ns", "sends", "sent_ns",
        "stage", "started_at", "started_ns", "status", "steps", "trace_id", "traceparent", "upload_bytes",
        "upload_done", "uploaded_ns", "wants_ledger",
    )  # fmt: skip

    def __init__(self, gateway: Gateway, client: ClientConnection, head: RequestHead, started_ns: int) -> None:
        self.gateway, self.client, self.head = gateway, client, head
        self.id = gateway.next_id()
        gateway.active += 1
        self.path = head.path.decode("latin-1")
        self.method = head.method.decode("latin-1")
        self.started_ns = started_ns
        self.started_at = time.time() - (perf_counter_ns() - started_ns) / 1e9
        self.routed_ns = self.admitted_ns = self.connected_ns = self.sent_ns = 0
        self.uploaded_ns = started_ns
        self.stage = Stage.ROUTING
        self.pool: Pool | None = None
        self.connection: UpstreamConnection | None = None
        self.answer: Answer | None = None
        self.model: str | None = None
        self.origin: bytes | None = None
        self.key_name: str | None = None
        self.keep_client = not head.close
        self.head_is_out = self.upload_done = self.queued = self.reused = False
        self.status: int | None = None
        self.sends = self.attempt = self.upload_bytes = self.choked_since_ns = 0
        self.steps: list[Step] = []
        self.lost: list[Step] = []
        self.outcome = Outcome()
        self.wants_ledger = gateway.settings.ledger_comment
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._scan: ModelScan | None = None
        self._task: asyncio.Task[None] | None = None
        self._read_fields(head)

    def _read_fields(self, head: RequestHead) -> None:
        given = None
        for name, value in head.fields:
            if name == b"traceparent":
                given = _TRACEPARENT.fullmatch(value)
            elif name == b"x-unslow-ledger":
                self.wants_ledger = value == b"1"
            elif name == b"content-type" and head.method != b"GET":
                self._scan = ModelScan(value)
        self.traceparent: bytes | None = None
        if given is not None:
            self.trace_id = given[1].decode()
            return
        number = self.gateway.random.getrandbits(192)
        self.trace_id = f"{number >> 64:032x}"
        self.traceparent = b"00-%032x-%016x-01" % (number >> 64, (number & 0xFFFFFFFFFFFFFFFF) | 1)

    # -- what the answer asks

    @property
    def host(self) -> str:
        """The upstream's host name, which some dialects go by."""
        return self.pool.target.host if self.pool is not None else ""

    @property
    def keyed(self) -> bool:
        """Whether a key of ours went along."""
        return self.pool is not None and self.pool.injects(self.path)

    @property
    def kept_chunks(self) -> int:
        """How many stream events the record keeps."""
        return self.gateway.settings.kept_chunks

    def may_keep_client(self) -> bool:
        """Whether the client's connection can serve another request after this one."""
        self.keep_client = self.keep_client and self.upload_done and not self.gateway.draining
        return self.keep_client

    def answer_fields(self, now_ns: int) -> list[Field]:
        """Our fields in the head of the answer, with what is known by now."""
        assert self.pool is not None
        timing = b"gw;dur=%.3f, connect;dur=%.3f, up;dur=%.3f" % (
            (self.admitted_ns - self.started_ns) / 1e6,
            (self.connected_ns - self.admitted_ns) / 1e6,
            (now_ns - (self.sent_ns or now_ns)) / 1e6,
        )
        fields = [
            (b"x-unslow-id", self.id.encode()),
            (b"x-unslow-upstream", self.pool.name_bytes),
            (b"server-timing", timing),
        ]
        return fields + cors_fields(self.origin) if self.origin is not None else fields

    def ledger_comment(self, now_ns: int) -> bytes:
        """The ledger so far, as an SSE comment."""
        return comment_of(self, now_ns)

    # -- the request's body

    def upload(self, pieces: list[bytes], now_ns: int, *, done: bool) -> None:
        """More of the request's body, and whether that was all. Raises Refusal."""
        self.uploaded_ns = now_ns
        self.upload_done = done
        self.upload_bytes += sum(map(len, pieces))
        if self._scan is not None and not self._scan.over:
            for piece in pieces:
                self._scan.feed(piece)
            self.model = self._scan.model
        if self.stage is Stage.SENT:
            self._forward(pieces, now_ns)
            return
        if self._kept is not None:
            self._kept += pieces
            self._kept_bytes += sum(map(len, pieces))
        if self.stage is Stage.ROUTING:
            self._route(now_ns)
        if self._kept_bytes > self.gateway.settings.routing_body_bytes and self.connection is None:
            self.client.read(False)

    def _route(self, now_ns: int) -> None:
        name = self._destination()
        if name is None:
            return
        self.pool = self.gateway.pools[name]
        self.routed_ns = now_ns
        self.stage = Stage.QUEUED
        try:
            placed = self.pool.admission.offer(self)
        except AdmissionRejected as error:
            self.stage = Stage.ROUTING
            raise Refusal("queue_full", name, retry_after_s=error.retry_after_s) from error
        if placed:
            self.admitted(now_ns)
        else:
            self.queued = True

    def _destination(self) -> str | None:
        """The upstream's name; None while its model may still come. Raises Refusal."""
        gateway, routes = self.gateway, self.gateway.routes
        named = self.head.get(b"x-unslow-upstream")
        if named is not None:
            name = named.decode("latin-1")
            if name not in gateway.pools:
                raise Refusal("upstream_not_found", repr(name))
            return name
        if routes.single:
            return routes.without_model()
        if self.path.startswith("/v1/models/"):
            self.model = self.path[len("/v1/models/") :]
        if self.model is not None:
            return self._by_model(self.model)
        if self.upload_done or (self._scan is not None and self._scan.over):
            if self.upload_bytes and routes.rest is None:
                raise Refusal("model_required")
            return routes.without_model()
        if self.upload_bytes >= gateway.settings.routing_body_bytes:
            if routes.rest is None:
                raise Refusal("model_beyond_bound", str(gateway.settings.routing_body_bytes))
            return routes.rest
        return None

    def _by_model(self, model: str) -> str:
        name = self.gateway.routes.by_model(model)
        if name is None:
            known = ", ".join(self.gateway.routes.known()[:20])
            raise Refusal("model_not_found", f"{model[:100]!r}; known: {known}")
        return name

    # -- a place and a connection

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
        client = self.client
        self.connection, self.stage, self.connected_ns = connection, Stage.SENT, now_ns
        self.sends += 1
        connection.served += 1
        self.answer = connection.carried = Answer(self, connection, client.transport.write)
        body = b"".join(self._kept or ())
        if not self.upload_done and self.head.chunked:
            body = chunk(body)
        connection.transport.write(self._request_head(len(body)) + body)
        if self.upload_done:
            self.sent_ns = perf_counter_ns()
        elif self._kept_bytes > self.gateway.settings.routing_body_bytes:
            self._kept = None
        connection.read(not client.choked)
        client.read(not self.choked_since_ns)

    def _request_head(self, held_bytes: int) -> bytes:
        pool, head = self.pool, self.head
        assert pool is not None
        fields = upstream_fields(
            head,
            pool,
            self.path,
            via=self.gateway.via,
            traceparent=self.traceparent,
            gateway_key=self.gateway.keys.required,
        )
        if head.upgrade is not None:
            fields += [(b"connection", b"upgrade"), (b"upgrade", head.upgrade)]
        if head.chunked and not self.upload_done:
            fields.append((b"transfer-encoding", b"chunked"))
        elif head.chunked:
            fields.append((b"content-length", b"%d" % held_bytes))
        elif head.length is not None:
            fields.append((b"content-length", b"%d" % head.length))
        return request_line(head, pool) + write_fields(fields) + b"\r\n"

    def _forward(self, pieces: list[bytes], now_ns: int) -> None:
        """Body bytes straight on; kept as well while the request may have to be sent again."""
        connection, answer = self.connection, self.answer
        if connection is None or answer is None:
            return
        write = connection.transport.write
        for piece in pieces:
            write(chunk(piece) if self.head.chunked else piece)
        if self.upload_done:
            if self.head.chunked:
                write(b"0\r\n\r\n")
            self.sent_ns = now_ns
        if self._kept is not None:
            self._kept_bytes += sum(map(len, pieces))
            if self._kept_bytes > self.gateway.settings.routing_body_bytes or answer.first_byte_ns:
                self._kept = None
            else:
                self._kept += pieces

    def upload_choked(self, choked: bool) -> None:
        """The upstream reads slowly: so do we."""
        self.choked_since_ns = perf_counter_ns() if choked else 0
        self.client.read(not choked)

    # -- the protocol switched

    def tunnel_open(self) -> None:
        """Bytes go both ways as they are from now on."""
        self.stage = Stage.TUNNEL
        self.keep_client = False
        self.client.tunnel()

    def tunnelled(self, data: bytes) -> None:
        """Bytes from the client."""
        if self.connection is not None:
            self.upload_bytes += len(data)
            self.connection.transport.write(data)

    # -- ends

    def answered(self, now_ns: int) -> None:
        """The answer is complete."""
        answer, connection, pool = self.answer, self.connection, self.pool
        assert answer is not None
        assert connection is not None
        assert pool is not None
        connection.carried = self.connection = None
        if answer.reusable and self.upload_done and self.stage is Stage.SENT:
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
        self._drop_connection()
        name = self.pool.name if self.pool is not None else ""
        self.refuse(Refusal("upstream_protocol", f"{name} {why}"), self._phase())

    def answer_lost(self, now_ns: int) -> None:
        """The upstream's connection ended before the answer did."""
        answer, self.connection = self.answer, None
        if self.stage is Stage.ENDED:
            return
        assert answer is not None
        assert self.pool is not None
        held = self._kept is not None
        if may_resend(reused=self.reused, answer_bytes=answer.first_byte_ns, sends=self.sends, body_held=held):
            sent_ns = self.sent_ns or now_ns
            self.lost.append(Step(Phase.SEND, self.connected_ns, sent_ns, self.attempt, won=False))
            self.lost.append(Step(Phase.WAIT, sent_ns, now_ns, self.attempt, won=False))
            self.attempt += 1
            self.answer = None
            self.sent_ns = 0
            self._connect()
            return
        self.refuse(Refusal("upstream_lost", self.pool.name), self._phase())

    def refuse(self, refusal: Refusal, phase: Phase | None = None) -> None:
        """It failed: say so if nothing is out yet, else cut the answer short."""
        if self.stage is Stage.ENDED:
            return
        now_ns = perf_counter_ns()
        self.outcome = Outcome(End.FAILED, phase or self._phase(), refusal.code, refusal.message)
        self._drop_connection()
        if self.head_is_out:
            self._end(now_ns)
            self.client.cut(framed=self._framed())
        else:
            self.status = refusal.status
            self._end(now_ns)
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

    def client_lost(self, now_ns: int) -> None:
        """The client is gone. After a stream's end mark that is no loss; before it the upstream is told at once."""
        if self.stage is Stage.ENDED:
            return
        answer = self.answer
        if answer is not None and answer.observer is not None and answer.observer.done and self.connection is not None:
            answer.detach()
            self.connection.read(True)
            self.gateway.loop.call_later(DETACHED_S, self._drop_connection)
            self._end(now_ns)
        else:
            if self.stage is not Stage.TUNNEL:
                self.outcome = Outcome(End.ABORTED, self._phase(), "client_gone")
            self._drop_connection()
            self._end(now_ns)
        self.delivered(now_ns)

    def delivered(self, now_ns: int) -> None:
        """All of the answer is with the kernel, or lost: the record is complete."""
        if self.gateway.feed.on:
            self.gateway.feed.put(finished(self, now_ns))
        if self.connection is None:
            self.answer = None

    def waiting(self, now_ns: int) -> tuple[Wait, int]:
        """What it waits for, and since when."""
        answer, stage = self.answer, self.stage
        if stage is Stage.QUEUED:
            return Wait.QUEUE, self.routed_ns
        if self.choked_since_ns:
            return Wait.GAP, self.choked_since_ns
        if stage is Stage.ROUTING or (stage is Stage.SENT and not self.upload_done and not self.head_is_out):
            return Wait.BODY, self.uploaded_ns
        if stage is not Stage.SENT or answer is None:
            return Wait.NOTHING, now_ns
        if self.client.choked:
            return Wait.SLOW_CLIENT, self.client.choked_since_ns
        if not self.head_is_out:
            return Wait.FIRST_BYTE, self.sent_ns
        if answer.observer is not None and answer.observer.first_token_ns is None:
            return Wait.FIRST_TOKEN, self.sent_ns
        return Wait.GAP, answer.last_ns

    def _end(self, now_ns: int) -> None:
        """Give back what it holds."""
        stage, self.stage = self.stage, Stage.ENDED
        self.gateway.active -= 1
        self._kept = None
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            self._task = None
        if self.pool is None or not self.routed_ns:
            return
        if stage is Stage.QUEUED and not self.admitted_ns:
            self.pool.admission.withdraw(self)
        elif self.admitted_ns:
            following = self.pool.admission.release(now_ns - self.admitted_ns)
            if following is not None:
                self.gateway.loop.call_soon(_admit, following)

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()

    def _framed(self) -> bool:
        """Whether the client can tell a whole answer from a cut one by its framing."""
        head = self.answer.head if self.answer is not None else None
        return head is not None and (head.length is not None or (head.chunked and self.head.minor > 0))

    def _phase(self) -> Phase:
        """Where it is now, in the record's words."""
        answer = self.answer
        if self.stage is Stage.QUEUED:
            return Phase.QUEUE
        if self.stage is Stage.CONNECTING:
            return Phase.CONNECT
        if answer is None or not self.sent_ns:
            return Phase.SEND
        if not answer.first_byte_ns:
            return Phase.WAIT
        if answer.observer is None:
            return Phase.DRAIN
        return Phase.DECODE if answer.observer.first_token_ns is not None else Phase.WAIT


def _admit(exchange: Exchange) -> None:
    """Start the next one in the queue, or pass its place on if it left meanwhile."""
    if exchange.stage is Stage.QUEUED:
        exchange.admitted(perf_counter_ns())
    elif exchange.pool is not None:
        following = exchange.pool.admission.release(0)
        if following is not None:
            exchange.gateway.loop.call_soon(_admit, following)
