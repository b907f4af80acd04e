"""Upstreams that fail in every way: one clear error before the head is out, an unclean end after it, never a hang."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.gateway import Reply, ask, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import DONE, LAST_CHUNK, SSE_HEAD, Call, Upstream, chat, chunk, delta, json_answer

from unslow.core.timeline import End, Phase

pytestmark = pytest.mark.anyio

Script = Callable[[Call], Awaitable[None]]
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def sends(*pieces: bytes, then: str = "close") -> Script:
    """A script that sends bytes and then closes, resets or goes silent."""

    async def script(call: Call) -> None:
        for piece in pieces:
            await call.send(piece)
            await asyncio.sleep(0.02)
        if then == "close":
            call.close()
        elif then == "reset":
            call.reset()
        elif then == "silence":
            await call.until_closed()

    return script


async def ends(port: int, data: bytes) -> bytes:
    """Everything that comes until the connection ends, by whatever end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    got = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(15):
            while piece := await reader.read(65536):
                got += piece
    writer.close()
    return got


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (sends(), "upstream_lost"),
        (sends(then="reset"), "upstream_lost"),
        (sends(b"HTTP/1.1 200 OK\r\nconte"), "upstream_lost"),
        (sends(b"SSH-2.0-OpenSSH_9.6\r\n"), "upstream_protocol"),
        (sends(b"<html>"), "upstream_protocol"),
        (sends(b"\x16\x03\x01\x02\x00"), "upstream_protocol"),
        (sends(b"HTTP/2 200\r\n\r\n"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\na: b\r\n c\r\ncontent-length: 0\r\n\r\n"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"), "upstream_protocol"),
        (sends(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"), "upstream_protocol"),
        (sends(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000), "upstream_protocol"),
        (sends(SSE_HEAD + b"xyz\r\n"), "upstream_protocol"),
    ],
)
async def test_a_failure_before_the_head_is_out_is_one_clear_error(script: Script, code: str) -> None:
    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        async with asyncio.timeout(10):
            reply = await say(gateway.port, ask())
        assert (reply.status, reply.code) == (502, code)
        assert "up0" in reply.json()["error"]["message"]


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_half_a_chunk_ends_uncleanly(then: str) -> None:
    first = chunk(delta("a"))
    script = sends(SSE_HEAD + first, chunk(delta("b"))[:-20], then=then)
    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        got = await ends(gateway.port, ask(stream=True))
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body.startswith(first)
    assert not body.endswith(LAST_CHUNK), "a cut stream must not look like a whole one"


@pytest.mark.parametrize("junk", [b"zz\r\n", b"-5\r\n", b"5\r\nabcdefgh\r\n", b"fffffffffffffffff\r\n"])
async def test_garbage_inside_a_stream_goes_no_further(junk: bytes) -> None:
    first = chunk(delta("a"))
    async with Upstream(sends(SSE_HEAD + first, junk, then="silence")) as upstream, relay(upstream.url) as gateway:
        body = (await ends(gateway.port, ask(stream=True))).partition(b"\r\n\r\n")[2]
    assert body == first


async def test_a_body_shorter_than_stated_ends_uncleanly() -> None:
    async with (
        Upstream(sends(JSON_HEAD + b"content-length: 10\r\n\r\n12345")) as upstream,
        relay(upstream.url) as gateway,
    ):
        got = await ends(gateway.port, ask())
    assert b"content-length: 10\r\n" in got
    assert got.endswith(b"\r\n\r\n12345")


async def test_bytes_after_a_body_go_nowhere_and_end_the_connection() -> None:
    async def script(call: Call) -> None:
        await call.send(JSON_HEAD + b"content-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        for _ in range(3):
            assert (await say(gateway.port, ask())).body == b"{}"
        assert upstream.connections >= 3, "a connection with stray bytes is not used again"


async def test_bytes_on_an_idle_connection_end_it() -> None:
    async def script(call: Call) -> None:
        await call.send(json_answer({"n": call.connection}))
        await asyncio.sleep(0.05)
        await call.send(json_answer({"n": "someone else's"}))

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        for _ in range(3):
            assert isinstance((await say(gateway.port, ask())).json()["n"], int)
            await asyncio.sleep(0.15)


async def test_a_stale_connection_costs_no_request() -> None:
    """The server closed the idle connection at the moment of reuse: nothing came, so it is sent once more."""

    async def script(call: Call) -> None:
        if len(calls_on[call.connection]) == 1:
            call.reset()
            return
        calls_on[call.connection].append(1)
        await call.send(json_answer({"body": json.loads(call.body)["model"]}))

    calls_on: dict[int, list[int]] = {n: [] for n in range(20)}
    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        for n in range(5):
            reply = await say(gateway.port, ask(model=f"m{n}"))
            assert (reply.status, reply.json()) == (200, {"body": f"m{n}"})


async def test_a_request_is_not_sent_a_third_time() -> None:
    seen: list[int] = []

    async def script(call: Call) -> None:
        seen.append(call.connection)
        if len(seen) == 1:
            await call.send(json_answer({}))
        else:
            call.close()

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        await say(gateway.port, ask())
        reply = await say(gateway.port, ask())
        assert (reply.status, reply.code) == (502, "upstream_lost")
        await asyncio.sleep(0.1)
    assert len(seen) == 3


async def test_a_body_too_long_to_hold_is_not_sent_again() -> None:
    async def script(call: Call) -> None:
        if call.connection == 1 and len(upstream.calls) > 1:
            call.reset()
        else:
            await call.send(json_answer({}))

    async with Upstream(script) as upstream, relay(upstream.url, routing_body_bytes=1000) as gateway:
        await say(gateway.port, ask())
        reply = await say(gateway.port, request("POST", "/v1/x", b"a" * 400_000))
        assert reply.status in (200, 502)
        assert sum(len(call.body) == 400_000 for call in upstream.calls) <= 1


async def test_nobody_listens() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    async with relay(f"http://127.0.0.1:{port}/v1") as gateway:
        reply = await say(gateway.port, ask())
    assert (reply.status, reply.code) == (502, "connect_failed")
    assert str(port) in reply.json()["error"]["message"]


async def test_a_name_that_does_not_resolve() -> None:
    async with relay("http://no-such-host.invalid/v1", connect_timeout_s=8.0) as gateway:
        async with asyncio.timeout(12):
            reply = await say(gateway.port, ask())
    assert reply.code in ("connect_failed", "connect_timeout")
    assert "no-such-host.invalid" in reply.json()["error"]["message"]


async def test_an_upstream_that_never_accepts() -> None:
    with socket.socket() as sock:  # a full backlog drops what comes
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        port = sock.getsockname()[1]
        fillers = [await asyncio.open_connection("127.0.0.1", port)]
        async with relay(f"http://127.0.0.1:{port}/v1", connect_timeout_s=1.0) as gateway:
            replies = await asyncio.gather(*(bounded(gateway.port) for _ in range(4)))
        fillers[0][1].close()
    assert "connect_timeout" in [reply.code for reply in replies if reply is not None]


async def bounded(port: int) -> Reply | None:
    """An answer within 5 s; None for a request that the kernel took and nobody answers."""
    try:
        async with asyncio.timeout(5):
            return await say(port, ask())
    except TimeoutError:
        return None


TIMEOUTS: list[tuple[Script, dict[str, float], str]] = [
    (sends(then="silence"), {"first_byte_timeout_s": 1.0}, "first_byte_timeout"),
    (sends(b"HTTP/1.1 200", then="silence"), {"first_byte_timeout_s": 1.0}, "first_byte_timeout"),
]


@pytest.mark.parametrize(("script", "limits", "code"), TIMEOUTS)
async def test_silence_before_the_head_has_a_limit(script: Script, limits: dict[str, float], code: str) -> None:
    async with Upstream(script) as upstream, relay(upstream.url, **limits) as gateway:
        async with asyncio.timeout(10):
            reply = await say(gateway.port, ask())
        assert (reply.status, reply.code) == (504, code)
        async with asyncio.timeout(5):
            while not upstream.calls[-1].closed:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("pieces", "limits", "code"),
    [
        ((SSE_HEAD + chunk(delta(role="assistant")),), {"first_token_timeout_s": 1.0}, "first_token_timeout"),
        ((SSE_HEAD + chunk(delta("a")),), {"gap_timeout_s": 1.0}, "gap_timeout"),
        ((JSON_HEAD + b"content-length: 9\r\n\r\n1234",), {"gap_timeout_s": 1.0}, "gap_timeout"),
    ],
)
async def test_silence_inside_an_answer_has_a_limit(
    pieces: tuple[bytes, ...], limits: dict[str, float], code: str, tmp_path: Path
) -> None:
    async with (
        Records(str(tmp_path / "r")) as records,
        Upstream(sends(*pieces, then="silence")) as upstream,
        relay(upstream.url, recorder_socket=records.path, **limits) as gateway,
    ):
        got = await ends(gateway.port, ask(stream=True))
        assert got.startswith(b"HTTP/1.1 200")
        assert not got.endswith(LAST_CHUNK)
        outcome = (await records.wait())[0].timeline.outcome
    assert (outcome.end, outcome.kind) == (End.FAILED, code)


async def test_keepalive_comments_are_no_token_but_keep_a_stream_alive() -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD)
        for _ in range(8):
            await call.send(chunk(b": ping\n\n"))
            await asyncio.sleep(0.3)
        await call.send(chunk(delta("a")) + chunk(DONE) + LAST_CHUNK)

    async with Upstream(script) as upstream, relay(upstream.url, gap_timeout_s=1.0) as gateway:
        reply = await say(gateway.port, ask(stream=True))
    assert reply.body.endswith(DONE)


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


async def test_a_failure_is_recorded_with_its_phase(tmp_path: Path) -> None:
    async with (
        Records(str(tmp_path / "r")) as records,
        Upstream(sends(SSE_HEAD + chunk(delta("a")), then="reset")) as upstream,
        relay(upstream.url, "http://127.0.0.1:1/v1", recorder_socket=records.path) as gateway,
    ):
        await ends(gateway.port, ask(stream=True, x_unslow_upstream="up0"))
        await say(gateway.port, ask(x_unslow_upstream="up1"))
        first, second = [one.timeline.outcome for one in await records.wait(2)]
    assert (first.end, first.phase, first.kind) == (End.FAILED, Phase.DECODE, "upstream_lost")
    assert (second.end, second.phase, second.kind) == (End.FAILED, Phase.CONNECT, "connect_failed")


async def test_an_upstream_s_own_error_is_passed_on_and_recorded(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        await call.send(json_answer({"error": {"message": "slow down"}}, "429 Too Many Requests", "retry-after: 3\r\n"))

    async with (
        Records(str(tmp_path / "r")) as records,
        Upstream(script) as upstream,
        relay(upstream.url, recorder_socket=records.path) as gateway,
    ):
        reply = await say(gateway.port, ask())
        assert (reply.status, reply.json()["error"]["message"]) == (429, "slow down")
        timeline = (await records.wait())[0].timeline
    assert (timeline.outcome.kind, timeline.facts.status, timeline.facts.headers) == (
        "http_429",
        429,
        {"retry-after": "3"},
    )


async def test_a_pooled_connection_that_was_closed_is_not_used() -> None:
    async def script(call: Call) -> None:
        await chat(call)
        call.close()

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for _ in range(20):
            writer.write(ask())
            assert (await read_reply(reader)).status == 200
            await asyncio.sleep(0.01)
        writer.close()
