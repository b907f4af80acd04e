"""The ledger inside a stream: one comment before its end mark, for who asked, and nothing else changed or held up."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from tests.support.gateway import Plain, Reply, ask, connected, read_reply, relay, request, say
from tests.support.upstream import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Call,
    Script,
    Upstream,
    chunk,
    completion,
    delta,
    json_answer,
    last_delta,
)

pytestmark = pytest.mark.anyio

STOP = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
ANTHROPIC = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 3}}}\n\n'
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": '
    b'{"type": "text_delta", "text": "hi"}}\n\n'
)


def streams(payload: bytes, size: int = 10_000, head: bytes = SSE_HEAD) -> Script:
    """A script that sends this payload in pieces of one size."""

    async def script(call: Call) -> None:
        await call.send(head)
        for at in range(0, len(payload), size):
            piece = payload[at : at + size]
            await call.send(chunk(piece) if head is SSE_HEAD else piece)
            await asyncio.sleep(0)
        if head is SSE_HEAD:
            await call.send(LAST_CHUNK)
        else:
            call.close()

    return script


def taken_apart(body: bytes) -> tuple[bytes, list[dict[str, object]], bytes]:
    """What stands before the comments, the ledgers in them, and what stands after."""
    before, _, rest = body.partition(b": unslow ")
    comments = []
    while rest:
        line, _, after = rest.partition(b"\n\n")
        comments.append(json.loads(line))
        again, mark, rest = after.partition(b": unslow ")
        if not mark:
            return before, comments, again
    return before, comments, b""


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_it_comes_before_the_end_mark(size: int, plain: Plain) -> None:
    payload = delta("a") + last_delta()
    plain.upstream.script = streams(payload + DONE, size)
    reply = await say(plain.port, ask(stream=True, x_unslow_ledger="1"))
    before, (ledger,), after = taken_apart(reply.body)
    assert (before, after) == (payload, DONE)
    assert ledger["id"] == reply.headers["x-unslow-id"]
    rows = ledger["rows"]
    assert isinstance(rows, list)
    assert sum(row["duration_ns"] for row in rows) == ledger["end_ns"]
    assert {"phase", "hop", "duration_ns", "source"} == set(rows[0])


async def test_so_it_does_for_anthropic(plain: Plain) -> None:
    plain.upstream.script = streams(ANTHROPIC + STOP, 11)
    reply = await say(plain.port, request("POST", "/v1/messages", b'{"stream": true}', x_unslow_ledger="1"))
    before, ledgers, after = taken_apart(reply.body)
    assert (before, len(ledgers), after) == (ANTHROPIC, 1, STOP)


async def test_for_a_client_of_http_1_0_and_an_upstream_that_closes(plain: Plain) -> None:
    body = b'{"stream": true}'
    old = (
        b"POST /v1/chat/completions HTTP/1.0\r\nhost: localhost\r\nx-unslow-ledger: 1\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    until_close = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    for head in (SSE_HEAD, until_close):
        for sent in (old, ask(stream=True, x_unslow_ledger="1")):
            plain.upstream.script = streams(delta("a") + DONE, 13, head)
            before, ledgers, after = taken_apart((await say(plain.port, sent)).body)
            assert (before, len(ledgers), after) == (delta("a"), 1, DONE)


@pytest.mark.parametrize(
    "payload",
    [
        delta("a"),
        b"",
        b"data: not json\n\ndata: [DON",
        b'data: {"error": {"message": "x"}}\n\n',
        b"data: a\r\rdata: b\r\n\r\ndata: c\n\r\ndata: d\r\n\n: e\n\n",
    ],
)
async def test_a_stream_without_an_end_mark_stays_as_it_is(payload: bytes, plain: Plain) -> None:
    plain.upstream.script = streams(payload, 3)
    assert (await say(plain.port, ask(stream=True, x_unslow_ledger="1"))).body == payload


async def test_what_is_no_stream_of_unknown_length_stays_as_it_is(plain: Plain) -> None:
    async def whole(call: Call) -> None:
        await call.send(json_answer(completion()))

    plain.upstream.script = whole
    assert (await say(plain.port, ask(x_unslow_ledger="1"))).json() == completion()
    body = delta("a") + DONE
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
    plain.upstream.script = streams(body, 100, head)
    assert (await say(plain.port, ask(stream=True, x_unslow_ledger="1"))).body == body


async def test_it_comes_only_if_it_is_asked_for() -> None:
    async with Upstream(streams(delta("a") + DONE)) as upstream:
        async with relay(upstream.url) as gateway:
            for asked in ({}, {"x_unslow_ledger": "0"}, {"x_unslow_ledger": "true"}):
                sent = request("POST", "/v1/chat/completions", b'{"stream": true}', **asked)
                assert (await say(gateway.port, sent)).body == delta("a") + DONE
        async with relay(upstream.url, ledger_comment=True) as gateway:
            reply: Reply = await say(gateway.port, ask(stream=True))
            assert reply.body.count(b": unslow ") == 1


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
async def test_a_whole_event_is_not_held(end: bytes, plain: Plain) -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(b"data: 1" + end + b"data: 2"))
        await gate.wait()
        await call.send(chunk(end + DONE) + LAST_CHUNK)

    plain.upstream.script = script
    async with connected(plain.port) as (reader, writer):
        writer.write(ask(stream=True, x_unslow_ledger="1"))
        async with asyncio.timeout(5):
            assert (await reader.readuntil(b"data: 1" + end)).endswith(end)
        gate.set()
        assert b": unslow " in await reader.readuntil(DONE)


async def test_an_event_without_end_passes_in_little_memory_and_time() -> None:
    piece, count = b"a" * 50, 60_000

    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(b"data: "))
        for _ in range(0, count, 500):
            await call.send(chunk(piece) * 500)
        await call.send(chunk(b"\n\n" + DONE) + LAST_CHUNK)

    async with (
        Upstream(script) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        before, began = gateway.rss_bytes(), time.monotonic()
        writer.write(ask(stream=True, x_unslow_ledger="1"))
        reply = await read_reply(reader)
        assert gateway.rss_bytes() - before < 16 << 20
        assert time.monotonic() - began < 10
    assert reply.body.count(b": unslow ") == 1
    assert len(taken_apart(reply.body)[0]) == 6 + count * len(piece) + 2


async def test_a_stream_that_is_cut_shows_as_one(plain: Plain) -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")) + chunk(delta("b"))[:-9])
        call.close()

    plain.upstream.script = script
    async with connected(plain.port) as (reader, writer):
        writer.write(ask(stream=True, x_unslow_ledger="1"))
        got = await reader.read()
    assert delta("a") in got
    assert not got.endswith(LAST_CHUNK)
    assert b": unslow " not in got
