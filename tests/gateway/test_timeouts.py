"""Each phase has a limit of its own: what runs out of time is told so, or cut, and what it held is let go."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import ask, becomes, connected, everything, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import DONE, LAST_CHUNK, SSE_HEAD, Call, Upstream, chat, chunk, delta, sends

from unslow.core.timeline import End, Phase
from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio

JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
POST_HEAD = b"POST /v1/x HTTP/1.1\r\nhost: localhost\r\n"


async def test_silence_before_the_head(tmp_path: Path) -> None:
    async def silent(number: int, said: bytes) -> None:
        async with Records(f"{tmp_path}/{number}") as records, Upstream(sends(said, then="silence")) as upstream:
            settings = {"first_byte_timeout_s": 0.1, "recorder_socket": records.path}
            async with relay(upstream.url, **settings) as gateway:
                reply = await say(gateway.port, ask())
                assert (reply.status, reply.code) == (504, "first_byte_timeout")
                assert "0.1 s" in reply.json()["error"]["message"]
                await becomes(lambda: upstream.calls[-1].closed)
                timeline = (await records.wait())[0].timeline
        records.check()
        assert timeline.end_ns >= 100_000_000
        assert (timeline.outcome.phase, timeline.facts.status) == (Phase.WAIT, 504)

    await asyncio.gather(*itertools.starmap(silent, enumerate([b"", b"HTTP/1.1 200"])))


INSIDE: list[tuple[bytes, str, Phase]] = [
    (SSE_HEAD + chunk(delta(role="assistant")), "first_token_timeout", Phase.WAIT),
    (SSE_HEAD + chunk(delta("a")), "gap_timeout", Phase.DECODE),
    (JSON_HEAD + b"content-length: 9\r\n\r\n1234", "gap_timeout", Phase.DRAIN),
]


async def test_silence_inside_an_answer(tmp_path: Path) -> None:
    async def silent(number: int, case: tuple[bytes, str, Phase]) -> None:
        said, code, phase = case
        async with Records(f"{tmp_path}/{number}") as records, Upstream(sends(said, then="silence")) as upstream:
            settings = {f"{code}_s": 0.1, "recorder_socket": records.path}
            async with relay(upstream.url, **settings) as gateway:
                got = await everything(gateway.port, ask(stream=True))
                assert got.startswith(b"HTTP/1.1 200")
                assert not got.endswith(LAST_CHUNK)
                await becomes(lambda: upstream.calls[-1].closed)
                outcome = (await records.wait())[0].timeline.outcome
        records.check()
        assert (outcome.end, outcome.phase, outcome.kind) == (End.FAILED, phase, code)

    await asyncio.gather(*itertools.starmap(silent, enumerate(INSIDE)))


async def test_keepalive_comments_keep_a_stream_alive() -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD)
        for _ in range(7):
            await call.send(chunk(b": ping\n\n"))
            await asyncio.sleep(0.25)
        await call.send(chunk(delta("a")) + chunk(DONE) + LAST_CHUNK)

    async with Upstream(script) as upstream, relay(upstream.url, gap_timeout_s=1.0) as gateway:
        reply = await say(gateway.port, ask(stream=True))
    assert reply.body.endswith(DONE)


async def test_a_stream_that_begins_before_the_request_is_whole_waits_for_its_first_token() -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(b": here\n\n"))
        await call.read_body()
        await call.send(chunk(delta("a")) + chunk(DONE) + LAST_CHUNK)

    async with (
        Upstream(script, read_body=False) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(request("POST", "/v1/chat/completions", None, content_length="2") + b"{")
        await reader.readuntil(b": here\n\n")
        await asyncio.sleep(0.7)  # the wheel has come by
        writer.write(b"}")
        assert (await reader.readuntil(LAST_CHUNK)).endswith(chunk(DONE) + LAST_CHUNK)


# -- clients that take their time


async def test_a_head_that_dribbles(records: Records) -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, header_timeout_s=0.2) as gateway:
        async with connected(gateway.port) as (reader, writer):
            told = asyncio.ensure_future(read_reply(reader))
            writer.write(b"GET /v1/models HTTP/1.1\r\n")
            for n in range(100):
                if told.done():
                    break
                writer.write(b"x-%d: slow\r\n" % n)
                await asyncio.sleep(0.05)
            reply = await told
        assert not upstream.calls
    assert (reply.status, reply.code) == (408, "header_timeout")
    assert reply.headers["connection"] == "close"


STOPPED = [
    POST_HEAD + b"content-length: 50\r\n\r\n{",
    POST_HEAD + b"content-length: 50\r\n\r\n",
    POST_HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nab",
    POST_HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
]


async def test_a_body_that_stops(records: Records) -> None:
    settings = {"body_timeout_s": 0.1, "recorder_socket": records.path}
    async with Upstream(chat) as upstream, relay(upstream.url, **settings) as gateway:
        for reply in await asyncio.gather(*(say(gateway.port, sent) for sent in STOPPED)):
            assert (reply.status, reply.code) == (408, "body_timeout")
        for one in await records.wait(len(STOPPED)):
            outcome = one.timeline.outcome
            assert (outcome.end, outcome.phase, outcome.kind) == (End.FAILED, Phase.SEND, "body_timeout")
    assert not [call for call in upstream.calls if call.body], "half a body is no request"


async def test_a_body_that_dribbles_is_no_pause() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, body_timeout_s=0.6) as gateway:
        async with connected(gateway.port) as (reader, writer):
            writer.write(request("POST", "/v1/chat/completions", None, content_length="13"))
            for byte in b'{"model":"m"}':
                writer.write(bytes([byte]))
                await asyncio.sleep(0.07)
            assert (await read_reply(reader)).status == 200
        assert len(upstream.calls) == 1


async def test_idle_connections_are_closed_in_silence() -> None:
    async with (
        Upstream(chat) as upstream,
        relay(upstream.url, idle_timeout_s=0.1) as gateway,
        connected(gateway.port) as (reader, writer),
        connected(gateway.port) as (fresh, _),
    ):
        writer.write(ask())
        assert (await read_reply(reader)).status == 200
        assert await reader.read() == b""
        assert await fresh.read() == b"", "one that never asked is idle too"


async def test_idle_connections_past_their_number_are_closed() -> None:
    async with (
        Upstream(chat) as upstream,
        relay(upstream.url, max_idle_connections=2) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(connected(gateway.port)) for _ in range(6)]
        ended = [asyncio.ensure_future(reader.read()) for reader, _ in clients]
        await becomes(lambda: sum(one.done() for one in ended) == 4)
        await asyncio.sleep(0.6)  # the wheel comes by once more
        assert sum(one.done() for one in ended) == 4
        assert (await say(gateway.port, ask())).status == 200


async def test_no_more_upstream_connections_are_kept_than_may_be() -> None:
    async def script(call: Call) -> None:
        await asyncio.sleep(0.05)
        await chat(call)

    async with Upstream(script) as upstream, relay(upstream.url, max_idle_upstream=2) as gateway:
        replies = await asyncio.gather(*(say(gateway.port, ask()) for _ in range(8)))
        assert {reply.status for reply in replies} == {200}
        await becomes(lambda: upstream.open == 2)


async def test_idle_upstream_connections_are_closed_before_their_server_would(records: Records) -> None:
    settings = {"pool_idle_s": 0.3, "recorder_socket": records.path}
    async with Upstream(chat) as upstream, relay(upstream.url, **settings) as gateway:
        await say(gateway.port, ask())
        await say(gateway.port, ask())
        assert [one.timeline.facts.reused for one in await records.wait(2)][1], "kept for a while"
        await becomes(lambda: not upstream.open)


async def test_a_client_that_reads_nothing_of_a_finished_answer_is_let_go(records: Records) -> None:
    """Its connection is closing, with unsent bytes that it will never take."""
    big = JSON_HEAD + b"content-length: 900000\r\n\r\n" + b"a" * 900_000
    settings = {"slow_client_timeout_s": 0.6, "pool_idle_s": 0.0, "write_buffer_bytes": 1 << 20}
    async with (
        Upstream(sends(big)) as upstream,
        relay(upstream.url, recorder_socket=records.path, **settings) as gateway,
        connected(gateway.port, receive_bytes=4096) as (_, writer),
    ):
        await becomes(lambda: upstream.connections > 0 and not upstream.open)  # the probe's
        before = gateway.open_files()
        writer.write(ask(connection="close"))
        await records.wait()
        assert gateway.open_files() == before, "it is still there"
        await becomes(lambda: gateway.open_files() < before)


# -- places


@contextlib.asynccontextmanager
async def one_place(**settings: Any) -> Any:
    """A worker whose upstream takes one request at a time; `gate` opens it."""
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await gate.wait()
        await chat(call)

    async with Upstream(script) as upstream:
        one = UpstreamSettings(name="one", url=upstream.url, max_active=1, max_waiting=1)
        async with relay(one, **settings) as gateway:
            yield gateway, upstream, gate


async def test_who_waits_too_long_for_a_place_is_told(records: Records) -> None:
    async with one_place(queue_timeout_s=0.1, recorder_socket=records.path) as (gateway, upstream, gate):
        first = asyncio.ensure_future(say(gateway.port, ask()))
        await becomes(lambda: len(upstream.calls) == 1)
        reply = await say(gateway.port, ask())
        assert (reply.status, reply.code) == (503, "queue_timeout")
        assert int(reply.headers["retry-after"]) >= 1
        gate.set()
        assert (await first).status == 200
        outcome = (await records.wait(2))[0].timeline.outcome
    assert (outcome.phase, outcome.kind) == (Phase.QUEUE, "queue_timeout")


async def test_a_full_queue_refuses_at_once_and_its_places_come_back(records: Records) -> None:
    async with one_place(recorder_socket=records.path) as (gateway, upstream, gate):
        first = asyncio.ensure_future(say(gateway.port, ask()))
        await becomes(lambda: len(upstream.calls) == 1)
        second = asyncio.ensure_future(say(gateway.port, ask()))
        await asyncio.sleep(0.1)
        reply = await say(gateway.port, ask())
        assert (reply.status, reply.code) == (429, "queue_full")
        assert int(reply.headers["retry-after"]) >= 1
        gate.set()
        assert [(await first).status, (await second).status] == [200, 200]
        assert (await say(gateway.port, ask())).status == 200
        spans = [span for one in await records.wait(4) for span in one.timeline.spans if span.phase is Phase.QUEUE]
    assert [span.duration_ns > 50_000_000 for span in spans] == [True]


async def test_who_leaves_the_queue_leaves_no_gap() -> None:
    async with one_place() as (gateway, upstream, gate):
        first = asyncio.ensure_future(say(gateway.port, ask()))
        await becomes(lambda: len(upstream.calls) == 1)
        async with connected(gateway.port) as (_, writer):
            writer.write(ask())
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        third = asyncio.ensure_future(say(gateway.port, ask(model="third")))
        await asyncio.sleep(0.1)
        gate.set()
        assert [(await first).status, (await third).status] == [200, 200]
        assert len(upstream.calls) == 2, "the one that left was never sent"
