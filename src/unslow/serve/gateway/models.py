"""`/v1/models` over several upstreams: each asked at once, with little time, and left out where it does not answer."""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec

from unslow.core.wire.http1 import Body, ResponseHead, UntilClose, answer_body, read_response_head, stray_line_end
from unslow.errors import RemoteProtocolError, UpstreamError
from unslow.serve.gateway.context import Gateway
from unslow.serve.gateway.errors import Refusal
from unslow.serve.gateway.headers import request_head
from unslow.serve.gateway.pool import Pool

if TYPE_CHECKING:
    from unslow.serve.gateway.exchange import Exchange
    from unslow.serve.gateway.upstream import UpstreamConnection

MAX_LIST_BYTES = 4 << 20


class _Listing(msgspec.Struct):
    data: list[dict[str, Any]] = []


class _Stale(UpstreamError):
    """The connection ended before a byte came: if it was a kept one, another may do."""


class Fetch:
    """One small answer, collected whole."""

    def __init__(self, pool: Pool, connection: UpstreamConnection, result: asyncio.Future[bytes]) -> None:
        self._pool, self._connection, self._result = pool, connection, result
        self._held = b""
        self._size_bytes = 0
        self._head: ResponseHead | None = None
        self._body: Body | None = None
        self._pieces: list[bytes] = []

    def received(self, data: bytes, now_ns: int) -> None:
        """Bytes of the answer."""
        try:
            self._read(data, now_ns)
        except RemoteProtocolError as error:
            self._fail(UpstreamError(str(error), phase="drain"))
            self._connection.drop()

    def _read(self, data: bytes, now_ns: int) -> None:
        self._size_bytes += len(data)
        if self._size_bytes > MAX_LIST_BYTES:
            raise RemoteProtocolError("its list of models is too long")
        rest = self._start(self._held + data) if self._body is None else data
        if self._body is None or self._head is None:
            return
        self._pieces += self._body.feed(rest) if rest else []
        if self._body.done:
            if self._head.keep and not self._body.surplus:
                self._pool.put(self._connection, now_ns)
            else:
                self._connection.drop()
            self._succeed()

    def _start(self, data: bytes) -> bytes:
        """Read the head, past interim ones, and give what follows it."""
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = read_response_head(data[: end + 2])
            data = data[end + 4 :]
            if head.status >= 200:
                self._head, self._body, self._held = head, answer_body(head, b"GET"), b""
                return data
        if data[:7] != b"HTTP/1."[: len(data)] or stray_line_end(data):
            raise RemoteProtocolError("sent something that is no HTTP answer")
        self._held = data
        return b""

    def upstream_lost(self, exc: Exception | None, now_ns: int) -> None:
        """The connection ended."""
        if exc is None and isinstance(self._body, UntilClose) and self._connection.ended_well:
            self._succeed()
        else:
            kind = UpstreamError if self._size_bytes else _Stale
            self._fail(kind("closed the connection", phase="wait"))

    def upstream_choked(self, choked: bool) -> None:
        """A request without a body does not choke anybody."""

    def _succeed(self) -> None:
        if self._head is None or self._head.status != 200:
            self._fail(UpstreamError(f"answered {self._head.status if self._head else 0}", phase="wait"))
        elif not self._result.done():
            self._result.set_result(b"".join(self._pieces))

    def _fail(self, error: UpstreamError) -> None:
        if not self._result.done():
            self._result.set_exception(error)


async def fetch_models(gateway: Gateway, exchange: Exchange, pool: Pool) -> list[dict[str, Any]]:
    """The models of one upstream. Raises UpstreamError."""
    kept = pool.take(perf_counter_ns())
    if kept is not None:
        with contextlib.suppress(_Stale):
            return await _fetch(gateway, exchange, pool, kept)
    return await _fetch(gateway, exchange, pool, await pool.connect([]))


async def _fetch(
    gateway: Gateway, exchange: Exchange, pool: Pool, connection: UpstreamConnection
) -> list[dict[str, Any]]:
    result: asyncio.Future[bytes] = gateway.loop.create_future()
    connection.served += 1
    connection.carried = Fetch(pool, connection, result)
    head = request_head(exchange.known, pool.way(exchange.path), gateway_key=gateway.keys.required)
    connection.transport.write(head + gateway.via_line + exchange.trace_line + b"\r\n")
    try:
        body = await result
        return msgspec.json.decode(body, type=_Listing).data
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UpstreamError(f"its list of models cannot be read: {error}", phase="drain") from error
    finally:
        if not result.done() or result.cancelled():
            connection.drop()


async def _models(gateway: Gateway, exchange: Exchange, pool: Pool) -> list[dict[str, Any]] | None:
    try:
        async with asyncio.timeout(gateway.settings.models_timeout_s):
            return await fetch_models(gateway, exchange, pool)
    except (UpstreamError, TimeoutError):
        return None


async def merge_models(gateway: Gateway, exchange: Exchange) -> None:
    """Answer with every model that a request would be routed to; upstreams that are down are named in a header."""
    pools = list(gateway.pools.values())
    lists = await asyncio.gather(*(_models(gateway, exchange, pool) for pool in pools))
    merged: dict[str, dict[str, Any]] = {}
    for pool, listed in zip(pools, lists, strict=True):
        named = [{"id": model, "object": "model", "owned_by": pool.name} for model in pool.settings.models]
        for model in [*(listed or ()), *(entry for entry in named if not entry["id"].endswith("*"))]:
            name = str(model.get("id", ""))
            if name and gateway.routes.by_model(name) == pool.name:
                merged.setdefault(name, model)
    silent = [pool.name for pool, listed in zip(pools, lists, strict=True) if listed is None]
    if len(silent) == len(pools) and not merged:
        exchange.refuse(Refusal("connect_failed", f"{', '.join(silent)}: no list of models"))
        return
    fields = [(b"content-type", b"application/json")]
    if silent:
        fields.append((b"x-unslow-silent", ", ".join(silent).encode()))
    exchange.respond(200, fields, msgspec.json.encode({"object": "list", "data": list(merged.values())}))
