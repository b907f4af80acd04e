"""SIGTERM and the lifeline: what is in flight ends well, nothing new begins, and the process goes with exit code 0."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator

import pytest
from tests.support.gateway import Relay, ask, becomes, connected, read_reply, relay, request, say
from tests.support.nursery import forked
from tests.support.records import Records
from tests.support.upstream import DONE, LAST_CHUNK, SSE_HEAD, Call, Upstream, chat, chunk, delta, sends

from unslow.core.timeline import End
from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio


class Gated:
    """A stream that goes on when it is told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")))
        await self.gate.wait()
        await call.send(chunk(delta("b")) + chunk(DONE) + LAST_CHUNK)


@contextlib.asynccontextmanager
async def streaming(gateway: Relay) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client in the middle of a stream."""
    async with connected(gateway.port) as (reader, writer):
        writer.write(ask(stream=True))
        await reader.readuntil(b"\r\n\r\n")
        yield reader, writer


async def gone(gateway: Relay) -> int:
    """Its exit code."""
    async with asyncio.timeout(10):
        return await gateway.process.wait()


async def refuses(port: int) -> bool:
    try:
        async with connected(port):
            return False
    except ConnectionError:
        return True


async def test_streams_in_flight_are_finished_and_nothing_new_begins() -> None:
    script = Gated()
    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (idle, _), streaming(gateway) as (reader, writer):
            gateway.terminate()
            assert await idle.read() == b"", "idle connections are closed at once"
            async with asyncio.timeout(5):
                while not await refuses(gateway.port):
                    await asyncio.sleep(0.02)
            writer.write(ask())  # pipelined behind the stream
            await asyncio.sleep(0.1)
            assert gateway.alive
            script.gate.set()
            assert (await reader.readuntil(LAST_CHUNK)).endswith(chunk(delta("b")) + chunk(DONE) + LAST_CHUNK)
            assert await reader.read() == b"", "and the connection ends"
        assert await gone(gateway) == 0
        assert len(upstream.calls) == 1


async def test_an_answer_that_begins_while_draining_says_close() -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await gate.wait()
        await chat(call)

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (reader, writer):
            writer.write(ask())
            await becomes(lambda: len(upstream.calls) == 1)
            gateway.terminate()
            await asyncio.sleep(0.1)
            gate.set()
            reply = await read_reply(reader)
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert await reader.read() == b""
        assert await gone(gateway) == 0


async def test_a_request_that_is_still_coming_is_refused_with_a_reason() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (reader, writer):
            sent = ask()
            writer.write(sent[:30])
            await asyncio.sleep(0.1)
            gateway.terminate()
            await asyncio.sleep(0.1)
            writer.write(sent[30:])
            reply = await read_reply(reader)
            assert (reply.status, reply.code) == (503, "draining")
            assert reply.headers["connection"] == "close"
            assert "retry-after" in reply.headers
        assert await gone(gateway) == 0
        assert not upstream.calls


async def test_who_waits_for_a_place_gets_it() -> None:
    script = Gated()
    async with Upstream(script) as upstream:
        one = UpstreamSettings(name="one", url=upstream.url, max_active=1)
        async with relay(one) as gateway:
            async with streaming(gateway) as (first, _), connected(gateway.port) as (second, writer):
                writer.write(ask(stream=True))
                await asyncio.sleep(0.1)
                gateway.terminate()
                await asyncio.sleep(0.1)
                script.gate.set()
                assert (await first.readuntil(LAST_CHUNK)).endswith(LAST_CHUNK)
                assert (await read_reply(second)).status == 200
            assert await gone(gateway) == 0


async def test_what_never_ends_is_ended_at_the_deadline(records: Records) -> None:
    async with (
        Upstream(sends(SSE_HEAD + chunk(delta("a")), then="silence")) as upstream,
        relay(upstream.url, drain_timeout_s=0.5, recorder_socket=records.path) as gateway,
    ):
        async with streaming(gateway) as (reader, _), connected(gateway.port) as (waiting, writer):
            upstream.script = sends(then="silence")
            writer.write(ask())
            await becomes(lambda: len(upstream.calls) == 2)
            began = time.monotonic()
            gateway.terminate()
            got = await reader.read()
            assert time.monotonic() - began >= 0.5
            assert not got.endswith(LAST_CHUNK), "a cut stream must not look like a whole one"
            reply = await read_reply(waiting)
            assert (reply.status, reply.code) == (503, "draining"), "who had no answer yet is told"
        assert await gone(gateway) == 0
        outcomes = [one.timeline.outcome for one in await records.wait(2)]
    assert [(one.end, one.kind) for one in outcomes] == [(End.FAILED, "draining")] * 2


async def test_a_client_that_reads_nothing_does_not_hold_the_end_up() -> None:
    big = b"HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n" + b"a" * 9_000_000
    async with (
        Upstream(sends(big)) as upstream,
        relay(upstream.url, drain_timeout_s=0.5) as gateway,
        connected(gateway.port, receive_bytes=4096) as (_, writer),
    ):
        writer.write(ask())
        await becomes(lambda: len(upstream.calls) == 1)
        await asyncio.sleep(0.2)
        gateway.terminate()
        assert await gone(gateway) == 0


async def test_readiness_ends_first() -> None:
    script = Gated()
    async with (
        Upstream(script) as upstream,
        relay(upstream.url) as gateway,
        streaming(gateway),
        connected(gateway.port) as (reader, writer),
    ):
        assert (await say(gateway.port, request("GET", "/readyz", None))).status == 200
        writer.write(b"GET /readyz HTTP/1.1\r\n")
        await asyncio.sleep(0.1)
        gateway.terminate()
        await asyncio.sleep(0.1)
        writer.write(b"host: localhost\r\n\r\n")
        assert (await read_reply(reader)).json()["status"] == "not ready"
        script.gate.set()


@pytest.mark.parametrize("seconds", [0.3, 30.0])
async def test_the_end_of_stdin_is_the_end(seconds: float) -> None:
    """The parent is gone: drain, for 5 s at most, and go."""
    script = Gated()
    async with Upstream(script) as upstream, relay(upstream.url, drain_timeout_s=seconds) as gateway:
        async with streaming(gateway) as (reader, _):
            gateway.process.hang_up()
            async with asyncio.timeout(5):
                while not await refuses(gateway.port):
                    await asyncio.sleep(0.02)
            if seconds > 1:
                script.gate.set()
                assert (await reader.readuntil(LAST_CHUNK)).endswith(LAST_CHUNK)
        assert await gone(gateway) == 0


async def test_interrupts_are_the_supervisor_s_affair() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        gateway.process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.1)
        assert (await say(gateway.port, ask())).status == 200
        assert gateway.alive


async def test_terminated_twice_it_still_drains() -> None:
    script = Gated()
    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        async with streaming(gateway) as (reader, _):
            gateway.terminate()
            await asyncio.sleep(0.1)
            gateway.terminate()
            await asyncio.sleep(0.1)
            script.gate.set()
            assert (await reader.readuntil(LAST_CHUNK)).endswith(LAST_CHUNK)
        assert await gone(gateway) == 0


async def test_signals_do_not_kill_what_is_ending_anyway() -> None:
    """A supervisor may hang up and signal at once, and its terminal may signal too."""
    line = b'{"port": 0, "upstreams": [{"name": "a", "url": "http://127.0.0.1:1/v1"}]}\n'
    for _ in range(10):
        process = await forked()
        process.write(line)
        assert (await process.readline()).startswith(b"ready ")
        process.hang_up()
        ending = asyncio.ensure_future(process.wait())
        while not ending.done():
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.0005)
        process.errors()
        assert await ending == 0


async def test_records_of_the_last_requests_arrive(records: Records) -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        for _ in range(20):
            await say(gateway.port, ask())
        gateway.terminate()
        assert await gone(gateway) == 0
        assert len(await records.wait(20)) == 20


async def test_nothing_is_left_behind() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        await say(gateway.port, ask())
        pid = gateway.process.pid
        gateway.terminate()
        assert await gone(gateway) == 0
        await becomes(lambda: not upstream.open)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
