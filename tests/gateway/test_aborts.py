"""A client that leaves ends its request in whatever phase it is: the upstream is told and the place is free."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import Relay, ask, becomes, connected, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Call,
    Upstream,
    chat,
    chunk,
    delta,
    json_answer,
    last_delta,
    sends,
)

from unslow.core.timeline import End, Phase
from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio

Leave = Callable[[asyncio.StreamWriter], None]


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def half_close(writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.asynccontextmanager
async def one_place(upstream: Upstream, **settings: Any) -> Any:
    """A worker with one place at this upstream: who keeps it keeps everybody out."""
    only = UpstreamSettings(name="only", url=upstream.url, max_active=1)
    async with relay(only, **settings) as gateway:
        yield gateway


async def place_is_free(gateway: Relay, upstream: Upstream) -> None:
    upstream.script = chat
    async with asyncio.timeout(5):
        assert (await say(gateway.port, ask())).status == 200


AWAITED: list[tuple[bytes, Phase]] = [
    (b"", Phase.WAIT),
    (b"HTTP/1.1 200", Phase.WAIT),
    (SSE_HEAD, Phase.WAIT),
    (SSE_HEAD + chunk(delta(role="assistant")), Phase.WAIT),
    (SSE_HEAD + chunk(delta("a")), Phase.DECODE),
    (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{", Phase.DRAIN),
]


async def test_leaving_while_an_answer_is_awaited(tmp_path: Path) -> None:
    async def left(leave: Leave) -> None:
        async with (
            Records(f"{tmp_path}/{leave.__name__}") as records,
            Upstream(chat) as upstream,
            one_place(upstream, recorder_socket=records.path) as gateway,
        ):
            for said, phase in AWAITED:
                upstream.calls.clear()
                upstream.script = sends(said, then="silence", pause_s=0)
                async with connected(gateway.port) as (reader, writer):
                    writer.write(ask(stream=True))
                    await becomes(lambda: len(upstream.calls) == 1)
                    if said.partition(b"\r\n\r\n")[1]:
                        await reader.readuntil(b"\r\n\r\n")
                    await asyncio.sleep(0.03)
                    leave(writer)
                    await becomes(lambda: upstream.calls[0].closed, 3)
                await place_is_free(gateway, upstream)
                outcome = (await records.wait(2))[0].timeline.outcome
                assert (outcome.end, outcome.phase, outcome.kind) == (End.ABORTED, phase, "client_gone"), said
                records.check()
                records.finished.clear()

    await asyncio.gather(*map(left, [close, half_close, reset]))


async def test_leaving_while_the_request_is_on_its_way(records: Records) -> None:
    async with (
        Upstream(chat) as upstream,
        one_place(upstream, recorder_socket=records.path, pool_idle_s=0.2) as gateway,
    ):
        async with connected(gateway.port) as (_, writer):
            writer.write(request("POST", "/v1/x", None, content_length="100") + b"abc")
            await becomes(lambda: len(upstream.calls) == 1)
        await becomes(lambda: not upstream.open, 3)
        await place_is_free(gateway, upstream)
        timeline = (await records.wait(2))[0].timeline
    assert (timeline.outcome.end, timeline.outcome.phase) == (End.ABORTED, Phase.SEND)
    assert timeline.facts.request_bytes == 3


async def test_leaving_while_the_upstream_takes_nothing(records: Records) -> None:
    """The client is not read then: that it left has to be noticed all the same."""
    gate = asyncio.Event()

    async def stuck(call: Call) -> None:
        await gate.wait()
        call.close()

    async with (
        Upstream(stuck, read_body=False, receive_bytes=4096) as upstream,
        one_place(upstream, recorder_socket=records.path) as gateway,
    ):
        async with connected(gateway.port) as (_, writer):
            writer.write(request("POST", "/v1/x", None, content_length="50000000") + b"a" * 20_000_000)
            await becomes(lambda: len(upstream.calls) == 1)
            await asyncio.sleep(0.1)
            reset(writer)
            outcome = (await records.wait(within_s=5))[0].timeline.outcome
        gate.set()
        assert (outcome.end, outcome.phase, outcome.kind) == (End.ABORTED, Phase.SEND, "client_gone")


async def test_leaving_with_a_body_that_had_to_wait_for_its_connection() -> None:
    """It was over the bound and whole when the connection came: the client is read on, or its leaving is not seen."""
    async with (
        Upstream(sends(then="silence")) as upstream,
        relay(upstream.url, pool_idle_s=0.0, routing_body_bytes=1000) as gateway,
    ):
        async with connected(gateway.port) as (_, writer):
            writer.write(request("POST", "/v1/x", b"a" * 2000))
            await becomes(lambda: len(upstream.calls) == 1)
        await becomes(lambda: upstream.calls[0].closed, 3)


async def test_leaving_while_connecting(records: Records) -> None:
    accepted: list[asyncio.StreamReader] = []
    ended = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(reader)
        await reader.read()
        if len(accepted) > 1:
            ended.set()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
    async with server, relay(url, connect_timeout_s=15.0, recorder_socket=records.path) as gateway:
        await becomes(lambda: len(accepted) == 1)  # the probe
        async with connected(gateway.port) as (_, writer):
            writer.write(ask())
            await becomes(lambda: len(accepted) == 2)
        async with asyncio.timeout(3):
            await ended.wait()
        outcome = (await records.wait())[0].timeline.outcome
    assert (outcome.end, outcome.phase, outcome.kind) == (End.ABORTED, Phase.CONNECT, "client_gone")


async def test_leaving_before_there_is_a_route(records: Records) -> None:
    async with Upstream(chat) as upstream:
        two = [UpstreamSettings(name=name, url=upstream.url, models=(name,)) for name in "ab"]
        async with relay(*two, recorder_socket=records.path) as gateway:
            async with connected(gateway.port) as (_, writer):
                writer.write(request("POST", "/v1/x", None, content_length="100") + b'{"a": 1')
                await asyncio.sleep(0.1)
            outcome = (await records.wait())[0].timeline.outcome
        assert (outcome.end, outcome.kind) == (End.ABORTED, "client_gone")
        assert not upstream.calls


@pytest.mark.parametrize("mark", [chunk(DONE), chunk(last_delta() + DONE), chunk(b"data: [DONE]\r\n\r\n")])
async def test_leaving_after_the_end_mark_is_no_loss(mark: bytes, records: Records) -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")) + mark)
        await gate.wait()
        await call.send(LAST_CHUNK)

    async with Upstream(script) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        async with connected(gateway.port) as (reader, writer):
            writer.write(ask(stream=True))
            await reader.readuntil(b"[DONE]")
        timeline = (await records.wait())[0].timeline
        assert timeline.outcome.end is End.COMPLETED
        gate.set()
        await asyncio.sleep(0.1)
        assert (await say(gateway.port, ask(stream=True))).status == 200
        assert upstream.connections <= 2, "it was drained and kept (the probe at the start may have made another)"


async def test_an_end_mark_that_nothing_follows_holds_its_connection_for_a_moment_only() -> None:
    async with (
        Upstream(sends(SSE_HEAD + chunk(delta("a")) + chunk(DONE), then="silence")) as upstream,
        relay(upstream.url) as gateway,
    ):
        async with connected(gateway.port) as (reader, writer):
            writer.write(ask(stream=True))
            await reader.readuntil(b"[DONE]")
        await becomes(lambda: upstream.calls[0].closed, 6)


async def test_pipelined_requests_of_a_client_that_left_are_not_sent() -> None:
    async with Upstream(sends(then="silence")) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (_, writer):
            writer.write(ask() * 3)
            await becomes(lambda: len(upstream.calls) == 1)
        await becomes(lambda: upstream.calls[0].closed)
        await asyncio.sleep(0.1)
        assert len(upstream.calls) == 1


@pytest.mark.slow
async def test_hundreds_of_aborts_leave_nothing_behind(records: Records) -> None:
    """At random moments, in every phase: no connection, no place and no request stays."""
    chance = random.Random(7)

    async def script(call: Call) -> None:
        await asyncio.sleep(chance.random() / 50)
        await call.send(SSE_HEAD)
        for _ in range(5):
            await call.send(chunk(delta("a")))
            await asyncio.sleep(chance.random() / 100)
        await call.send(chunk(DONE) + LAST_CHUNK)

    async def leaves(gateway: Relay) -> None:
        async with connected(gateway.port) as (_, writer):
            sent = ask(stream=True)
            at = chance.choice([len(sent), len(sent), chance.randrange(len(sent))])
            writer.write(sent[:at])
            await asyncio.sleep(chance.random() / 20)
            chance.choice([close, half_close, reset])(writer)

    async with Upstream(script) as upstream:
        few = UpstreamSettings(name="few", url=upstream.url, max_active=10)
        async with relay(few, recorder_socket=records.path, pool_idle_s=0.3) as gateway:
            await becomes(lambda: upstream.connections > 0 and not upstream.open)  # the probe's
            before = gateway.open_files()
            for _ in range(10):
                await asyncio.gather(*(leaves(gateway) for _ in range(40)))
            await becomes(lambda: not upstream.open)
            await becomes(lambda: gateway.open_files() <= before)
            upstream.script = chat
            replies = await asyncio.gather(*(say(gateway.port, ask()) for _ in range(20)))
            assert {reply.status for reply in replies} == {200}
    assert {one.timeline.outcome.kind for one in records.finished} <= {None, "client_gone"}


async def test_an_early_answer_to_a_long_upload_is_heard() -> None:
    """The upstream refuses before it has the body; the client is told, and what it still sends goes nowhere."""

    async def script(call: Call) -> None:
        await call.send(json_answer({"error": "too long"}, "413 Too Large"))
        call.close()

    async with Upstream(script, read_body=False) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (reader, writer):
            writer.write(request("POST", "/v1/x", None, content_length="40000000") + b"a" * 100_000)
            reply = await read_reply(reader)
            assert (reply.status, reply.headers["connection"]) == (413, "close")
            with contextlib.suppress(ConnectionError):
                for _ in range(20):
                    writer.write(b"a" * 100_000)
                    await writer.drain()
        assert (await say(gateway.port, ask())).status == 413
