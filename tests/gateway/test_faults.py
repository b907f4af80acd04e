"""Upstreams that fail in every way: one clear error before the head is out, an unclean end after it, never a hang."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.support.gateway import Plain, ask, connected, everything, relay, request, say
from tests.support.records import Records
from tests.support.upstream import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Call,
    Script,
    Then,
    Upstream,
    chat,
    chunk,
    delta,
    json_answer,
    sends,
)

from unslow.core.timeline import ChunkKind, End, Phase

pytestmark = pytest.mark.anyio

JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (sends(), "upstream_lost"),
        (sends(then="reset"), "upstream_lost"),
        (sends(b"HTTP/1.1 200 OK\r\nconte"), "upstream_lost"),
        (sends(b"SSH-2.0-OpenSSH_9.6\r\n", then="silence"), "upstream_protocol"),
        (sends(b"<html>", then="silence"), "upstream_protocol"),
        (sends(b"\x16\x03\x01\x02\x00", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/2 200\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\ncontent-length: 0\n\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 2", b"00 OK\na: b\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 99 No\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\nbad : 1\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\nbad: a\0b\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\na: b\r\n c\r\ncontent-length: 0\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(JSON_HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", then="silence"), "upstream_protocol"),
        (sends(JSON_HEAD + b"content-length: -1\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(JSON_HEAD + b"content-length: 0x10\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(JSON_HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", then="silence"), "upstream_protocol"),
        (
            sends(JSON_HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", then="silence"),
            "upstream_protocol",
        ),
        (sends(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000, then="silence"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n", then="silence"), "upstream_protocol"),
        (sends(SSE_HEAD + b"xyz\r\n", then="silence"), "upstream_protocol"),
    ],
)
async def test_a_failure_before_the_head_is_out_is_one_clear_error(script: Script, code: str, plain: Plain) -> None:
    plain.upstream.script = script
    async with asyncio.timeout(10):
        reply = await say(plain.port, ask())
    assert (reply.status, reply.code) == (502, code)
    assert "up0" in reply.json()["error"]["message"]


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_half_a_chunk_ends_uncleanly(then: Then, plain: Plain) -> None:
    first = chunk(delta("a"))
    plain.upstream.script = sends(SSE_HEAD + first, chunk(delta("b"))[:-20], then=then)
    head, _, body = (await everything(plain.port, ask(stream=True))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body.startswith(first)
    assert not body.endswith(LAST_CHUNK), "a cut stream must not look like a whole one"


@pytest.mark.parametrize(
    "junk", [b"zz\r\n", b"-5\r\n", b"5\r\nabcdefgh\r\n", b"fffffffffffffffff\r\n", b" 5\r\nabcde\r\n"]
)
async def test_garbage_inside_a_stream_goes_no_further(junk: bytes, plain: Plain) -> None:
    first = chunk(delta("a"))
    plain.upstream.script = sends(SSE_HEAD + first, junk + b"\r\n", then="silence")
    assert (await everything(plain.port, ask(stream=True))).partition(b"\r\n\r\n")[2] == first


async def test_bytes_after_the_last_chunk_go_no_further(plain: Plain) -> None:
    first, evil = chunk(delta("a")), b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
    plain.upstream.script = sends(SSE_HEAD + first, LAST_CHUNK + evil, then="silence")
    assert b"evil" not in await everything(plain.port, ask(stream=True, connection="close"))


async def test_a_body_shorter_than_stated_ends_uncleanly(plain: Plain) -> None:
    plain.upstream.script = sends(JSON_HEAD + b"content-length: 10\r\n\r\n12345")
    got = await everything(plain.port, ask())
    assert b"content-length: 10\r\n" in got
    assert got.endswith(b"\r\n\r\n12345")


async def test_a_client_that_cannot_see_the_framing_is_reset(plain: Plain) -> None:
    """HTTP/1.0 has no chunks: an orderly end would make half an answer look whole."""
    plain.upstream.script = sends(SSE_HEAD + chunk(delta("a")), then="close")
    body = b'{"stream": true}'
    head = b"POST /v1/chat/completions HTTP/1.0\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with connected(plain.port) as (reader, writer):
        writer.write(head + body)
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_bytes_after_a_body_go_nowhere_and_end_the_connection(plain: Plain) -> None:
    async def script(call: Call) -> None:
        await call.send(JSON_HEAD + b"content-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    plain.upstream.script = script
    before = plain.upstream.connections
    for _ in range(3):
        assert (await say(plain.port, ask())).body == b"{}"
    assert plain.upstream.connections >= before + 2, "a connection with stray bytes is not used again"


async def test_bytes_on_an_idle_connection_end_it(plain: Plain) -> None:
    async def script(call: Call) -> None:
        await call.send(json_answer({"n": call.connection}))
        await asyncio.sleep(0.05)
        await call.send(json_answer({"n": "someone else's"}))

    plain.upstream.script = script
    for _ in range(3):
        assert isinstance((await say(plain.port, ask())).json()["n"], int)
        await asyncio.sleep(0.15)


async def test_a_line_of_a_hundred_megabytes_passes_in_little_memory() -> None:
    block, count = b"a" * (1 << 20), 100

    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(b"data: "))
        for _ in range(count):
            await call.send(chunk(block))
        await call.send(chunk(b"\n\n" + DONE) + LAST_CHUNK)

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        before = gateway.rss_bytes()
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(ask(stream=True))
        await reader.readuntil(b"\r\n\r\n")
        digest, size, grown = hashlib.sha256(), 0, 0
        while length := int(await reader.readuntil(b"\r\n"), 16):
            piece = await reader.readexactly(length)
            await reader.readexactly(2)
            digest.update(piece)
            size += length
            grown = max(grown, gateway.rss_bytes() - before)
        writer.close()
    expected = hashlib.sha256(b"data: " + block * count + b"\n\n" + DONE)
    assert (size, digest.digest()) == (6 + count * len(block) + 2 + len(DONE), expected.digest())
    assert grown < 24 << 20


@pytest.mark.parametrize(
    ("script", "phase", "code"),
    [
        (sends(then="reset"), Phase.WAIT, "upstream_lost"),
        (sends(SSE_HEAD, then="reset"), Phase.WAIT, "upstream_lost"),
        (sends(SSE_HEAD + chunk(delta("a")), then="reset"), Phase.DECODE, "upstream_lost"),
        (sends(SSE_HEAD + chunk(delta("a")), then="close"), Phase.DECODE, "upstream_lost"),
        (sends(SSE_HEAD + chunk(delta("a")), b"zz\r\n", then="silence"), Phase.DECODE, "upstream_protocol"),
        (sends(JSON_HEAD + b"content-length: 10\r\n\r\n12345"), Phase.DRAIN, "upstream_lost"),
    ],
)
async def test_a_failure_is_recorded_with_its_phase(script: Script, phase: Phase, code: str, records: Records) -> None:
    async with Upstream(script) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        await everything(gateway.port, ask(stream=True, connection="close"))
        outcome = (await records.wait())[0].timeline.outcome
    assert (outcome.end, outcome.phase, outcome.kind) == (End.FAILED, phase, code)


async def test_an_upstream_s_own_error_is_passed_on_and_recorded(records: Records) -> None:
    async def script(call: Call) -> None:
        await call.send(json_answer({"error": {"message": "slow down"}}, "429 Too Many Requests", "retry-after: 3\r\n"))

    async with Upstream(script) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        reply = await say(gateway.port, ask())
        assert (reply.status, reply.json()["error"]["message"]) == (429, "slow down")
        timeline = (await records.wait())[0].timeline
    assert (timeline.outcome.end, timeline.outcome.kind, timeline.facts.status) == (End.FAILED, "http_429", 429)
    assert timeline.facts.headers == {"retry-after": "3"}


@pytest.mark.parametrize("close", [False, True])
async def test_an_end_mark_without_its_blank_line_is_one(close: bool, records: Records) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    closed = sends(head + delta("a") + b"data: [DONE]", then="close")
    chunked = sends(SSE_HEAD + chunk(delta("a")) + chunk(b"data: [DONE]") + LAST_CHUNK, then="keep")
    async with (
        Upstream(closed if close else chunked) as upstream,
        relay(upstream.url, recorder_socket=records.path) as gateway,
    ):
        assert (await say(gateway.port, ask(stream=True))).body.endswith(b"data: [DONE]")
        timeline = (await records.wait())[0].timeline
    assert timeline.outcome.end is End.COMPLETED
    assert timeline.chunks.kind == (ChunkKind.CONTENT, ChunkKind.DONE)


async def test_an_odd_path_s_answer_is_no_trouble(plain: Plain) -> None:
    """A GET with a body, a method nobody knows, an empty path under /v1."""
    for sent in (request("GET", "/v1/x", b"{}"), request("BREW", "/v1/", b""), request("DELETE", "/v1")):
        assert (await say(plain.port, sent)).status == 200


async def test_a_worker_that_saw_all_this_still_answers(plain: Plain) -> None:
    plain.upstream.script = chat
    assert (await say(plain.port, ask(stream=True))).body.endswith(DONE)
