"""Upgrades to WebSocket pass: frames both ways as they are, either side's end, and a refusal."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from tests.support.gateway import ask, becomes, connected, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import Call, Upstream, chat, json_answer
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus

from unslow.core.timeline import End
from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio

SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: x\r\n\r\n"
)
UPGRADE = request("GET", "/v1/realtime", None, connection="Upgrade", upgrade="WebSocket", sec_websocket_key="x")


async def echo(socket: ServerConnection) -> None:
    """Say back what is said; `bye` closes."""
    with contextlib.suppress(ConnectionClosedOK, ConnectionClosedError):
        async for message in socket:
            if message == "bye":
                await socket.close(4001, "as asked")
            await socket.send(message)


async def test_messages_pass_both_ways_and_closes_too(records: Records) -> None:
    async with serve(echo, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        keyed = UpstreamSettings(name="a", url=url, api_key="sk-ours")
        async with relay(keyed, recorder_socket=records.path) as gateway:
            address = f"ws://127.0.0.1:{gateway.port}/v1/realtime?model=gpt-realtime"
            big = os.urandom(300_000)
            async with connect(address, proxy=None, compression=None) as client:
                for message in ("hi", "", "ü" * 1000, b"\0\xff", big):
                    await client.send(message)
                    assert await client.recv() == message
                await asyncio.wait_for(await client.ping(), 5)
                assert client.response is not None
                assert client.response.headers["x-unslow-upstream"] == "a"
                await client.close(4000, "enough")
            async with connect(address, proxy=None) as client:
                await client.send("bye")
                with pytest.raises(ConnectionClosedError):
                    await client.recv()
                assert (client.close_code, client.close_reason) == (4001, "as asked")
            first, second = [one.timeline for one in await records.wait(2)]
    assert (first.outcome.end, first.facts.status) == (End.COMPLETED, 101)
    assert second.outcome.end is End.COMPLETED
    assert first.facts.request_bytes is not None
    assert first.facts.request_bytes > 300_000


async def test_a_refused_upgrade_passes() -> None:
    async def refuse(connection: ServerConnection, _request: object) -> object:
        return connection.respond(401, "no key")

    async with serve(echo, "127.0.0.1", 0, process_request=refuse) as server:  # type: ignore[arg-type]
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with relay(url) as gateway:
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://127.0.0.1:{gateway.port}/v1/realtime", proxy=None)
    assert refused.value.response.status_code == 401
    assert refused.value.response.body == b"no key"


async def test_the_upgrade_arrives_as_one() -> None:
    async def script(call: Call) -> None:
        await call.send(SWITCH + b"early")
        await call.until_closed()

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (reader, writer):
            writer.write(UPGRADE)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 ")
            assert b"\r\nupgrade: websocket\r\n" in head
            assert b"\r\nsec-websocket-accept: x\r\n" in head
            assert head.lower().count(b"connection:") == 1
            assert await reader.readexactly(5) == b"early", "what came with the head is not lost"
        sent = upstream.calls[0].headers
        assert (sent["upgrade"], sent["connection"], sent["sec-websocket-key"]) == ("websocket", "upgrade", "x")


async def test_bytes_sent_before_the_switch_go_on_after_it() -> None:
    got = bytearray()

    async def script(call: Call) -> None:
        await asyncio.sleep(0.05)
        await call.send(SWITCH)
        while data := await call.reader.read(65536):
            got.extend(data)
        call.close()

    async with (
        Upstream(script) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(UPGRADE + b"eager")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"later")
        await becomes(lambda: bytes(got) == b"eagerlater")


async def test_the_last_words_of_a_client_arrive() -> None:
    """It sends its close frame and is gone, while the upstream is behind."""
    got, behind = bytearray(), asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(SWITCH)
        await behind.wait()
        with contextlib.suppress(ConnectionError):
            while data := await call.reader.read(65536):
                got.extend(data)
        call.close()

    size = 12_000_000
    async with (
        Upstream(script, receive_bytes=4096) as upstream,
        relay(upstream.url, write_buffer_bytes=size) as gateway,
    ):
        async with connected(gateway.port) as (reader, writer):
            writer.write(UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"x" * size + b"the end")
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.3)
        behind.set()
        await becomes(lambda: len(got) == size + 7)
    assert got.endswith(b"xthe end")


async def test_the_last_words_of_an_upstream_arrive() -> None:
    async def script(call: Call) -> None:
        await call.send(SWITCH + b"y" * 500_000 + b"the end")
        call.close()

    async with (
        Upstream(script) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        assert (await reader.read()).endswith(b"y" + b"the end")


@pytest.mark.parametrize("by_client", [True, False])
async def test_either_end_ends_the_other(by_client: bool, records: Records) -> None:
    async def script(call: Call) -> None:
        await call.send(SWITCH)
        await call.until_closed() if by_client else call.reset()

    async with Upstream(script) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        async with connected(gateway.port) as (reader, writer):
            writer.write(UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            if not by_client:
                with pytest.raises(ConnectionResetError):
                    await reader.readexactly(1)
        if by_client:
            await becomes(lambda: upstream.calls[0].closed)
        outcome = (await records.wait())[0].timeline.outcome
    assert outcome.kind == (None if by_client else "upstream_lost")


async def test_a_tunnel_may_be_silent() -> None:
    """No time-out of answers or bodies applies to it."""

    async def script(call: Call) -> None:
        await call.send(SWITCH)
        await call.send(await call.reader.readexactly(2))
        await call.until_closed()

    limits = {f"{name}_timeout_s": 0.2 for name in ("gap", "first_byte", "first_token", "body", "idle", "header")}
    async with (
        Upstream(script) as upstream,
        relay(upstream.url, **limits) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.8)
        writer.write(b"hi")
        assert await reader.readexactly(2) == b"hi"


async def test_a_tunnel_has_back_pressure_both_ways() -> None:
    sent = 0
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        nonlocal sent
        await call.send(SWITCH)
        call.writer.transport.set_write_buffer_limits(high=65536)
        while sent < 40_000_000 and not gate.is_set():
            call.writer.write(b"z" * 65536)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.4):
                    await call.writer.drain()
            if call.writer.transport.get_write_buffer_size() > 65536:
                break
            sent += 65536
        await gate.wait()
        call.close()

    async with (
        Upstream(script, receive_bytes=4096) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port, receive_bytes=4096) as (reader, writer),
    ):
        before = gateway.rss_bytes()
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"w" * 20_000_000)
        await asyncio.sleep(0.8)
        assert 0 < sent < 40_000_000
        assert gateway.rss_bytes() - before < 4 << 20
        assert writer.transport.get_write_buffer_size() > 0
        gate.set()
        writer.transport.abort()


async def test_a_connection_that_was_a_tunnel_serves_nothing_else() -> None:
    async def script(call: Call) -> None:
        if call.target.endswith("/realtime"):
            await call.send(SWITCH)
            call.close()
        else:
            await chat(call)

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (reader, writer):
            writer.write(UPGRADE + ask())
            await reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b"", "bytes in a tunnel are no request"
        assert (await say(gateway.port, ask())).status == 200


async def test_an_upgrade_that_is_ignored_is_an_answer_as_any_other() -> None:
    async def script(call: Call) -> None:
        await call.send(json_answer({"plain": True}))

    async with (
        Upstream(script) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(UPGRADE)
            assert (await read_reply(reader)).json() == {"plain": True}
