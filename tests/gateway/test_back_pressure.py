"""Who reads slowly holds up its own source and nobody else; at most a write buffer and the kernel's hold its bytes."""

from __future__ import annotations

import asyncio
import hashlib
import time

import pytest
from tests.support.gateway import ask, becomes, connected, read_reply, relay, request, say
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
)

from unslow.core.timeline import End

pytestmark = pytest.mark.anyio

BLOCK = bytes(range(256)) * 256
BLOCKS = 256
"""16 MB, far more than all buffers on the way."""


class Torrent:
    """An upstream that sends as fast as it may, and counts what it got rid of."""

    def __init__(self, *, stream: bool) -> None:
        self.stream, self.sent_bytes = stream, 0
        self.whole = hashlib.sha256()

    async def __call__(self, call: Call) -> None:
        if call.target.endswith("/models"):
            await call.send(json_answer({"data": []}))
            return
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(BLOCK) * BLOCKS)
        call.writer.transport.set_write_buffer_limits(high=len(BLOCK))
        await call.send(SSE_HEAD if self.stream else head)
        event = b"data: " + BLOCK.replace(b"\n", b"x").replace(b"\r", b"x") + b"\n\n"
        piece = chunk(event) if self.stream else BLOCK
        for _ in range(BLOCKS):
            await call.send(piece)
            self.sent_bytes += len(piece)
            self.whole.update(piece)
        if self.stream:
            await call.send(chunk(DONE) + LAST_CHUNK)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_does_not_read_holds_up_its_upstream_and_nobody_else(stream: bool) -> None:
    torrent = Torrent(stream=stream)
    async with Upstream(torrent) as upstream, relay(upstream.url) as gateway:
        assert (await say(gateway.port, request("GET", "/v1/models", None))).status == 200
        before = gateway.rss_bytes()
        async with connected(gateway.port, receive_bytes=4096) as (reader, writer):
            writer.write(ask(stream=stream))
            await becomes(lambda: torrent.sent_bytes > 0)
            seen = -1
            while seen != torrent.sent_bytes:
                seen = torrent.sent_bytes
                await asyncio.sleep(0.2)
            assert seen < 8 << 20, "the upstream went on sending"
            assert gateway.rss_bytes() - before < 4 << 20
            for _ in range(10):
                began = time.monotonic()
                assert (await say(gateway.port, request("GET", "/v1/models", None))).status == 200
                assert time.monotonic() - began < 1, "another client waited"
            await reader.readuntil(b"\r\n\r\n")
            got, size = hashlib.sha256(), 0
            total = BLOCKS * len(chunk(b"data: " + BLOCK + b"\n\n") if stream else BLOCK)
            while size < total:
                piece = await reader.readexactly(min(1 << 16, total - size))
                got.update(piece)
                size += len(piece)
        assert got.digest() == torrent.whole.digest()


async def test_a_client_that_reads_little_by_little_gets_it_all(records: Records) -> None:
    """A stream to a reader that is always behind: nothing is lost, nothing times out, the record is whole."""
    events = [delta("x" * 1000) for _ in range(400)]

    async def script(call: Call) -> None:
        await call.send(SSE_HEAD)
        for event in events:
            await call.send(chunk(event))
        await call.send(chunk(DONE) + LAST_CHUNK)

    settings = {
        "write_buffer_bytes": 4096,
        "client_send_buffer_bytes": 4096,
        "gap_timeout_s": 1.0,
        "slow_client_timeout_s": 1.0,
        "recorder_socket": records.path,
    }
    async with Upstream(script) as upstream, relay(upstream.url, **settings) as gateway:
        async with connected(gateway.port, receive_bytes=4096) as (reader, writer):
            writer.write(ask(stream=True))
            await reader.readuntil(b"\r\n\r\n")
            expected = b"".join(chunk(event) for event in events) + chunk(DONE) + LAST_CHUNK
            got = b""
            began = time.monotonic()
            while len(got) < len(expected):
                got += await reader.readexactly(min(6000, len(expected) - len(got)))
                await asyncio.sleep(0.02)
            assert time.monotonic() - began > 1.2, "it took longer than the limits"
            assert got == expected
        timeline = (await records.wait())[0].timeline
    assert timeline.outcome.end is End.COMPLETED
    assert len(timeline.chunks.kind) + (timeline.chunks.beyond.count if timeline.chunks.beyond else 0) == 401


async def test_a_client_that_stopped_reading_has_a_limit(records: Records) -> None:
    settings = {"slow_client_timeout_s": 0.5, "gap_timeout_s": 0.2, "pool_idle_s": 0.2, "recorder_socket": records.path}
    async with (
        Upstream(Torrent(stream=True)) as upstream,
        relay(upstream.url, **settings) as gateway,
        connected(gateway.port, receive_bytes=4096) as (_, writer),
    ):
        writer.write(ask(stream=True))
        outcome = (await records.wait())[0].timeline.outcome
        await becomes(lambda: not upstream.open)
    assert (outcome.end, outcome.kind) == (End.ABORTED, "slow_client_timeout")


async def test_an_upstream_that_does_not_read_holds_up_its_client() -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await gate.wait()
        digest, left = hashlib.sha256(), int(call.headers["content-length"])
        while left:
            data = await call.reader.read(1 << 16)
            digest.update(data)
            left -= len(data)
        await call.send(json_answer({"sha256": digest.hexdigest()}))

    size = len(BLOCK) * BLOCKS
    async with (
        Upstream(script, read_body=False, receive_bytes=4096) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        before = gateway.rss_bytes()
        writer.transport.set_write_buffer_limits(high=len(BLOCK))
        writer.write(request("POST", "/v1/x", None, content_length=str(size)))
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(BLOCKS):
                writer.write(BLOCK)
                await writer.drain()
                sent += len(BLOCK)

        sending = asyncio.ensure_future(send())
        seen = -1
        while seen != sent:
            seen = sent
            await asyncio.sleep(0.2)
        assert seen < size, "the gateway went on reading"
        assert gateway.rss_bytes() - before < 4 << 20
        async with connected(gateway.port) as (other_reader, other):
            other.write(request("GET", "/healthz", None))
            assert (await read_reply(other_reader)).status == 200
        gate.set()
        await sending
        assert (await read_reply(reader)).json()["sha256"] == hashlib.sha256(BLOCK * BLOCKS).hexdigest()


async def test_an_upstream_that_takes_nothing_has_a_limit(records: Records) -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await gate.wait()
        call.close()

    settings = {"gap_timeout_s": 0.2, "recorder_socket": records.path}
    async with (
        Upstream(script, read_body=False, receive_bytes=4096) as upstream,
        relay(upstream.url, **settings) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(request("POST", "/v1/x", None, content_length="50000000") + b"a" * 20_000_000)
        reply = await read_reply(reader)
        gate.set()
    assert (reply.status, reply.code) == (504, "gap_timeout")


async def test_a_body_is_read_on_when_it_has_to_be_sent_again() -> None:
    """The lost connection was choked; the fresh one is not."""
    taken: list[int] = []

    async def script(call: Call) -> None:
        if len(upstream.calls) == 2:
            await asyncio.sleep(0.5)  # meanwhile it chokes
            call.reset()
            return
        taken.append(len(await call.read_body()))
        await call.send(json_answer({}))

    size = 12_000_000
    async with (
        Upstream(script, read_body=False, receive_bytes=4096) as upstream,
        relay(upstream.url, routing_body_bytes=16 << 20) as gateway,
    ):
        assert (await say(gateway.port, request("POST", "/v1/x", b""))).status == 200
        async with connected(gateway.port) as (reader, writer):
            writer.write(request("POST", "/v1/x", None, content_length=str(size)) + b"a" * size)
            async with asyncio.timeout(15):
                assert (await read_reply(reader)).status == 200
            writer.transport.abort()
        assert (len(upstream.calls), taken) == (3, [0, size])


async def test_answers_of_our_own_pile_up_for_nobody() -> None:
    """A client that asks on and on and reads nothing is not read either."""
    sent = request("GET", "/healthz", None) * 500
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        before = gateway.rss_bytes()
        async with connected(gateway.port, receive_bytes=4096) as (reader, writer):
            writer.transport.set_write_buffer_limits(high=1 << 16)
            asked = 0
            try:
                while asked < 400_000:
                    writer.write(sent)
                    async with asyncio.timeout(0.5):
                        await writer.drain()
                    asked += 500
            except TimeoutError:
                pass
            assert gateway.rss_bytes() - before < 8 << 20
            assert asked < 400_000
            assert (await say(gateway.port, ask())).status == 200
            for _ in range(100):
                assert (await read_reply(reader)).json() == {"status": "ok"}, "it goes on when it is read"
            writer.transport.abort()  # or it would first get rid of what it still has to ask


async def test_pipelined_requests_are_held_up_to_a_bound() -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await gate.wait()
        await chat(call)

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        before = gateway.rss_bytes()
        async with connected(gateway.port) as (reader, writer):
            writer.transport.set_write_buffer_limits(high=1 << 16)
            asked = 0
            try:
                while True:
                    writer.write(ask() * 100)
                    async with asyncio.timeout(0.5):
                        await writer.drain()
                    asked += 100
            except TimeoutError:
                pass
            assert gateway.rss_bytes() - before < 4 << 20
            assert len(upstream.calls) == 1, "one at a time"
            gate.set()
            for _ in range(200):
                assert (await read_reply(reader)).status == 200
            writer.transport.abort()
