"""Clients that break HTTP: refused with the right status, never passed on, never a hang, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.gateway import ask, read_reply, relay, request, say
from tests.support.upstream import Call, Upstream, chat, json_answer

pytestmark = pytest.mark.anyio

POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"host: 127.0.0.1\r\n"
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


async def all_of(port: int, data: bytes) -> bytes:
    """Everything that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        async with asyncio.timeout(8):
            while piece := await reader.read(65536):
                got += piece
    writer.close()
    return got


REFUSED = [
    ("CL and TE", POST + HOST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("TE and CL", POST + HOST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", 400),
    ("two equal CLs", POST + HOST + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}", 400),
    ("two CLs", POST + HOST + b"content-length: 2\r\nContent-Length: 50\r\n\r\n{}", 400),
    ("two CLs in odd spelling", POST + HOST + b"CONTENT-LENGTH: 2\r\ncontent-length: 50\r\n\r\n{}", 400),
    ("CL list", POST + HOST + b"content-length: 2, 2\r\n\r\n{}", 400),
    ("CL sign", POST + HOST + b"content-length: +2\r\n\r\n{}", 400),
    ("CL minus", POST + HOST + b"content-length: -1\r\n\r\n{}", 400),
    ("CL hex", POST + HOST + b"content-length: 0x2\r\n\r\n{}", 400),
    ("CL empty", POST + HOST + b"content-length: \r\n\r\n{}", 400),
    ("CL inner space", POST + HOST + b"content-length: 1 2\r\n\r\n{}", 400),
    ("CL huge", POST + HOST + b"content-length: 99999999999999999999999\r\n\r\n{}", 400),
    ("CL over the limit", POST + HOST + b"content-length: 999999999999\r\n\r\n{}", 413),
    ("TE twice", POST + HOST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("TE other", POST + HOST + b"transfer-encoding: gzip\r\n\r\n", 501),
    ("TE list", POST + HOST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    ("TE obfuscated", POST + HOST + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    ("TE spaced name", POST + HOST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    ("TE with HTTP/1.0", POST.replace(b"1.1", b"1.0") + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("bare LF", b"GET /v1/x HTTP/1.1\nhost: 127.0.0.1\n\n", 400),
    ("bare LF in a header", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\na: b\nc: d\r\n\r\n", 400),
    ("bare CR in a header", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\na: b\rc: d\r\n\r\n", 400),
    ("obs-fold", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\na: b\r\n c\r\n\r\n", 400),
    ("NUL", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\na: b\0c\r\n\r\n", 400),
    ("no host", b"GET /v1/x HTTP/1.1\r\na: b\r\n\r\n", 400),
    ("two hosts", b"GET /v1/x HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    ("host with a path", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1/x\r\n\r\n", 400),
    ("target of another host", b"GET http://other/v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
    ("target with a space", b"GET /v1/a b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
    ("target with a fragment", b"GET /v1/a#b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
    ("bad method", b"GE(T /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
    ("HTTP/2.0", b"GET /v1/x HTTP/2.0\r\nhost: 127.0.0.1\r\n\r\n", 505),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("HTTP/0.9", b"GET /v1/x\r\n\r\n", 400),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ("huge header", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\na: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    ("endless header", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\na: " + b"a" * 70_000, 431),
    ("many headers", b"GET /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
    ("odd expectation", POST + HOST + b"expect: wonders\r\ncontent-length: 2\r\n\r\n{}", 417),
    ("chunk size", POST + HOST + b"transfer-encoding: chunked\r\n\r\nxyz\r\n", 400),
    ("chunk size sign", POST + HOST + b"transfer-encoding: chunked\r\n\r\n+2\r\nab\r\n0\r\n\r\n", 400),
    ("chunk size 0x", POST + HOST + b"transfer-encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n", 400),
    ("chunk size huge", POST + HOST + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n", 400),
    ("chunk longer than said", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n", 400),
    ("chunk line bare LF", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2\nab\n0\n\n", 400),
    ("endless chunk extension", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2;" + b"a" * 9000, 400),
    ("trailer garbage", POST + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n", 400),
]


@pytest.mark.parametrize(("name", "data", "status"), REFUSED, ids=[name for name, _, _ in REFUSED])
async def test_what_two_parsers_might_read_differently_is_refused(name: str, data: bytes, status: int) -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        got = await all_of(gateway.port, data + SMUGGLED)
        assert got.startswith(b"HTTP/1.1 %d " % status), got[:200]
        assert b'"error"' in got
        assert len(re.findall(rb"HTTP/1\.1 \d{3} ", got)) == 1, "bytes after a broken request mean nothing"
        assert not [call for call in upstream.calls if call.target != "/v1/chat/completions"], "smuggled"
        assert not upstream.calls or name.startswith(("chunk", "endless chunk", "trailer"))
        assert (await say(gateway.port, ask())).status == 200


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_what_follows_a_whole_request_is_the_next_one(connection: str) -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        got = await all_of(gateway.port, ask(connection=connection) + SMUGGLED)
        assert got.count(b"HTTP/1.1 200") == (2 if connection == "keep-alive" else 1)


async def test_a_head_that_dribbles_has_a_limit() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, header_timeout_s=1.0) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\n")
        for n in range(40):
            if reader.at_eof() or reader._buffer:  # type: ignore[attr-defined]
                break
            writer.write(b"x-%d: slow\r\n" % n)
            await asyncio.sleep(0.1)
        reply = await read_reply(reader)
        writer.close()
    assert (reply.status, reply.code) == (408, "header_timeout")


async def test_a_body_that_pauses_has_a_limit() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, body_timeout_s=1.0) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request("POST", "/v1/chat/completions", None, content_length="50") + b'{"model": "m"')
        async with asyncio.timeout(8):
            reply = await read_reply(reader)
        writer.close()
    assert (reply.status, reply.code) == (408, "body_timeout")


async def test_idle_connections_are_closed_in_silence() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, idle_timeout_s=1.0) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(ask())
        assert (await read_reply(reader)).status == 200
        async with asyncio.timeout(8):
            assert await reader.read() == b""
        writer.close()


async def test_connections_over_the_limit_are_told() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, max_connections=3) as gateway:
        held = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(3)]
        await asyncio.sleep(0.2)
        reply = await say(gateway.port, b"")
        assert (reply.status, reply.code) == (503, "too_many_connections")
        held[0][1].close()
        await asyncio.sleep(0.2)
        assert (await say(gateway.port, ask())).status == 200
        for _, writer in held:
            writer.close()


async def test_a_body_over_the_limit_is_refused_as_it_comes() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, max_body_bytes=10_000) as gateway:
        stated = await say(gateway.port, request("POST", "/v1/x", b"a" * 10_001))
        head = request("POST", "/v1/x", None, transfer_encoding="chunked")
        chunked = await say(gateway.port, head + b"1000\r\n" + b"a" * 0x1000 + b"\r\n" + b"2000\r\n" + b"a" * 0x2000)
        assert [(r.status, r.code) for r in (stated, chunked)] == [(413, "body_too_large")] * 2
        within = request("POST", "/v1/chat/completions", b"{" + b" " * 9_000 + b"}")
        assert (await say(gateway.port, within)).status == 200


VALID = ask() + ask(stream=True)
MUTATIONS = st.lists(
    st.tuples(st.integers(0, len(VALID)), st.integers(0, 6), st.binary(max_size=6)), min_size=1, max_size=6
)


def mutated(changes: list[tuple[int, int, bytes]]) -> bytes:
    """Two valid requests with some bytes replaced."""
    data = VALID
    for at, gone, put in changes:
        data = data[:at] + put + data[at + gone :]
    return data


async def forgiving(call: Call) -> None:
    try:
        await chat(call)
    except (ValueError, AttributeError):
        await call.send(json_answer({"error": "no JSON object"}, "400 Bad Request"))


async def test_no_bytes_hang_or_kill_a_worker() -> None:
    loop = asyncio.get_running_loop()
    async with Upstream(forgiving) as upstream, relay(upstream.url, header_timeout_s=2, body_timeout_s=2) as gateway:

        async def fuzzed(data: bytes, cut: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            got = b""
            with contextlib.suppress(ConnectionError):
                writer.write(data[:cut])
                await asyncio.sleep(0)
                writer.write(data[cut:])
                await asyncio.sleep(0.02)  # a client that ends its side has left, so let it hear first
                writer.write_eof()
                async with asyncio.timeout(10):
                    while piece := await reader.read(65536):
                        got += piece
            writer.close()
            return got

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(data=st.one_of(st.binary(max_size=300), MUTATIONS.map(mutated)), cut=st.integers(0, 400))
        def fuzz(data: bytes, cut: int) -> None:
            got = asyncio.run_coroutine_threadsafe(fuzzed(data, cut), loop).result(15)
            assert not got or got.startswith(b"HTTP/1.1 "), got

        await asyncio.to_thread(fuzz)
        assert (await say(gateway.port, ask())).status == 200
    for call in upstream.calls:
        assert call.target.startswith("/v1/"), call.target
