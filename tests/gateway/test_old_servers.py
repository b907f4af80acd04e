"""HTTP/1.0 and other upstreams of few words, and uploads without a stated length."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.support.gateway import Plain, ask, connected, everything, read_reply, relay, request, say
from tests.support.upstream import DONE, Call, Upstream, chunk, delta, sends

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("answer", "keep"),
    [
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}", True),
        (b"HTTP/1.0 200 OK\r\n\r\n{}", False),
        (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}", False),
        (b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH:2\r\n\r\n{}", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", False),
        (b"HTTP/1.1 299 Odd \xff Phrase\r\ncontent-length: 2\r\nx: \xfc\r\n\r\n{}", True),
    ],
)
async def test_answers_in_odd_but_plain_forms(answer: bytes, keep: bool, plain: Plain) -> None:
    plain.upstream.script = sends(answer, then="keep" if keep else "close", pause_s=0.0)
    await say(plain.port, ask())  # whatever connection is kept from before is used up
    before = plain.upstream.connections
    for _ in range(3):
        assert (await say(plain.port, ask())).body == b"{}"
    assert (plain.upstream.connections == before) == keep


async def test_an_http_1_0_stream_passes(plain: Plain) -> None:
    events = delta("a") + DONE
    plain.upstream.script = sends(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + delta("a"), DONE)
    reply = await say(plain.port, ask(stream=True))
    assert (reply.body, reply.headers["connection"]) == (events, "close")


async def test_chunks_under_http_1_0_end_their_connection(plain: Plain) -> None:
    """RFC 9112, section 6.1: its framing is to be taken as faulty, and the connection closed."""
    answer = (
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"{}") + b"0\r\n\r\n"
    )
    plain.upstream.script = sends(answer, then="keep", pause_s=0.0)
    await say(plain.port, ask())
    before = plain.upstream.connections
    for _ in range(2):
        reply = await say(plain.port, ask())
        assert reply.status == 502 or reply.body == b"{}"
    assert plain.upstream.connections > before


async def test_interim_answers_without_end_have_a_limit() -> None:
    async def script(call: Call) -> None:
        while not call.writer.transport.is_closing():
            await call.send(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
            await asyncio.sleep(0.01)

    async with Upstream(script) as upstream, relay(upstream.url, first_byte_timeout_s=0.1) as gateway:
        assert (await say(gateway.port, ask())).code == "first_byte_timeout"


async def test_a_chunked_upload_of_64_mb_streams_in_little_memory() -> None:
    block, count = bytes(range(256)) * 256, 1023

    async def script(call: Call) -> None:
        digest, size = hashlib.sha256(), 0
        while length := int(await call.reader.readuntil(b"\r\n"), 16):
            data = await call.reader.readexactly(length)
            await call.reader.readexactly(2)
            digest.update(data)
            size += length
        await call.reader.readexactly(2)
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\n\r\n" + digest.hexdigest().encode())

    async with (
        Upstream(script, read_body=False) as upstream,
        relay(upstream.url) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        before, grown = gateway.rss_bytes(), 0
        writer.write(request("POST", "/v1/x", None, transfer_encoding="chunked"))
        for n in range(count):
            writer.write(chunk(block))
            await writer.drain()
            if n % 64 == 0:
                grown = max(grown, gateway.rss_bytes() - before)
        writer.write(b"0\r\n\r\n")
        assert (await read_reply(reader)).body.decode() == hashlib.sha256(block * count).hexdigest()
        assert grown < 12 << 20


async def test_a_chunked_upload_over_the_limit_is_cut_off(plain: Plain) -> None:
    sent = request("POST", "/v1/x", None, transfer_encoding="chunked")
    block = chunk(b"a" * (1 << 20))
    got = await everything(plain.port, sent, *(block for _ in range(66)))
    assert got.startswith(b"HTTP/1.1 413 ")
    assert not any(call.body for call in plain.upstream.calls)
