"""Clients that break HTTP: refused with the right status, never passed on, never a hang, and nobody else notices."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from tests.support.gateway import Plain, ask, connected, everything, read_reply, relay, request, say
from tests.support.upstream import Call, Upstream, chat, json_answer

pytestmark = pytest.mark.anyio

GET = b"GET /v1/x HTTP/1.1\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"host: 127.0.0.1\r\n"
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


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
    ("two authorizations", GET + HOST + b"authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n", 400),
    ("two x-api-keys", GET + HOST + b"x-api-key: a\r\nx-api-key: b\r\n\r\n", 400),
    ("two api-keys", GET + HOST + b"api-key: a\r\napi-key: b\r\n\r\n", 400),
    ("two x-goog-api-keys", GET + HOST + b"x-goog-api-key: a\r\nx-goog-api-key: b\r\n\r\n", 400),
    ("two upstreams", GET + HOST + b"x-unslow-upstream: up0\r\nx-unslow-upstream: up1\r\n\r\n", 400),
    ("two traces", GET + HOST + b"traceparent: a\r\ntraceparent: b\r\n\r\n", 400),
    ("two origins", GET + HOST + b"origin: http://127.0.0.1\r\norigin: http://evil\r\n\r\n", 400),
    ("no name", GET + HOST + b": x\r\n\r\n", 400),
    ("no colon", GET + HOST + b"abc\r\n\r\n", 400),
    ("first header folded", GET + b" " + HOST + b"\r\n", 400),
    ("DEL in a header", GET + HOST + b"a: \x7f\r\n\r\n", 400),
    ("space in a name", GET + HOST + b"a b: c\r\n\r\n", 400),
    ("NUL in the target", b"GET /v1/\0 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("8-bit target", b"GET /v1/\xe4 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("two spaces", b"GET  /v1/x HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("no method", b" /v1/x HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("small version", b"GET /v1/x http/1.1\r\n" + HOST + b"\r\n", 400),
    ("HTTP/1.2", b"GET /v1/x HTTP/1.2\r\n" + HOST + b"\r\n", 505),
    ("CONNECT", b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("target with a user", b"GET http://u@127.0.0.1/v1/x HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("host empty", GET + b"host: \r\n\r\n", 400),
    ("host list", GET + b"host: 127.0.0.1, evil\r\n\r\n", 400),
    ("host with a user", GET + b"host: evil@127.0.0.1\r\n\r\n", 400),
    ("odd expectation", POST + HOST + b"expect: wonders\r\ncontent-length: 2\r\n\r\n{}", 417),
    ("chunk size", POST + HOST + b"transfer-encoding: chunked\r\n\r\nxyz\r\n", 400),
    ("chunk size sign", POST + HOST + b"transfer-encoding: chunked\r\n\r\n+2\r\nab\r\n0\r\n\r\n", 400),
    ("chunk size 0x", POST + HOST + b"transfer-encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n", 400),
    ("chunk size huge", POST + HOST + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n", 400),
    ("chunk longer than said", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n", 400),
    ("chunk line bare LF", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2\nab\n0\n\n", 400),
    ("endless chunk extension", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2;" + b"a" * 9000, 400),
    ("long chunk extension", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2;" + b"a" * 9000 + b"\r\nab\r\n", 400),
    ("NUL in a chunk extension", POST + HOST + b"transfer-encoding: chunked\r\n\r\n2;\0\r\nab\r\n0\r\n\r\n", 400),
    ("chunk size missing", POST + HOST + b"transfer-encoding: chunked\r\n\r\n\r\nab\r\n0\r\n\r\n", 400),
    ("chunk size minus", POST + HOST + b"transfer-encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n", 400),
    ("chunk size spaced", POST + HOST + b"transfer-encoding: chunked\r\n\r\n 2\r\nab\r\n0\r\n\r\n", 400),
    ("TE and identity", POST + HOST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501),
    ("bare LF in a trailer", POST + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\na: b\nc: d\r\n\r\n", 400),
    ("endless trailer", POST + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\na: " + b"a" * 20_000, 431),
    ("trailer garbage", POST + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n", 400),
]


@pytest.mark.parametrize(("name", "data", "status"), REFUSED, ids=[name for name, _, _ in REFUSED])
async def test_what_two_parsers_might_read_differently_is_refused(
    name: str, data: bytes, status: int, plain: Plain
) -> None:
    got = await everything(plain.port, data + SMUGGLED)
    assert got.startswith(b"HTTP/1.1 %d " % status), got[:200]
    assert b'"error"' in got
    assert len(re.findall(rb"HTTP/1\.1 \d{3} ", got)) == 1, "bytes after a broken request mean nothing"
    assert not plain.upstream.calls


@pytest.mark.parametrize(
    "sent", [b"transfer-encoding: chunked\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n"]
)
@pytest.mark.parametrize("junk", [b"xyz", b"2\r\nabcd", b"2\nab\n", b"f" * 16, b"0\r\nbad trailer\r\n"])
async def test_a_body_that_breaks_on_the_way_is_no_request(sent: bytes, junk: bytes, plain: Plain) -> None:
    plain.upstream.script = answers_target
    got = await everything(plain.port, POST + HOST + sent, junk + b"\r\n" + SMUGGLED, pause_s=0.03)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1 ") == 1
    await asyncio.sleep(0.02)
    assert not any(call.answered for call in plain.upstream.calls), "the upstream never saw a whole request"


async def answers_target(call: Call) -> None:
    """Say what was asked for, which a test can tell from the answer."""
    call.answered = True
    await call.send(json_answer({"target": call.target, "body": call.body.decode()}))


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_what_follows_a_whole_request_is_the_next_one(connection: str, plain: Plain) -> None:
    plain.upstream.script = answers_target
    await everything(plain.port, ask(connection=connection) + SMUGGLED)
    seen = ["/v1/chat/completions", "/v1/smuggled"]
    assert [call.target for call in plain.upstream.calls] == (seen if connection == "keep-alive" else seen[:1])


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "OPTIONS"])
async def test_a_body_is_a_body_whatever_the_method(method: str, plain: Plain) -> None:
    """CL.0: an upstream that took a GET's body for the next request would be led astray."""
    plain.upstream.script = answers_target
    fixed = request(method, "/v1/x", SMUGGLED)
    size = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
    chunked = request(method, "/v1/x", None, transfer_encoding="chunked", connection="close") + size
    await everything(plain.port, fixed + chunked)
    assert [(call.target, call.body) for call in plain.upstream.calls] == [("/v1/x", SMUGGLED)] * 2


async def test_trailers_of_a_request_stay_here(plain: Plain) -> None:
    plain.upstream.script = answers_target
    head = request("POST", "/v1/x", None, transfer_encoding="Chunked")
    for split in (True, False):
        last = b"0\r\ncontent-length: 50\r\nauthorization: x\r\n\r\n"
        async with connected(plain.port) as (reader, writer):
            writer.write(head + b"2\r\nab\r\n")
            await asyncio.sleep(0.05 * split)
            writer.write(last)
            assert (await read_reply(reader)).json()["body"] == "ab"
        assert "authorization" not in plain.upstream.calls[-1].headers


@pytest.mark.parametrize("mark", [b"content-length", b"Content-Length", b"CONTENT-LENGTH", b"Content-length"])
async def test_a_length_is_one_however_it_is_spelled(mark: bytes, plain: Plain) -> None:
    plain.upstream.script = answers_target
    for space in (b"", b" ", b"\t ", b"   "):
        reply = await say(plain.port, POST + HOST + mark + b":" + space + b"2" + space + b"\r\n\r\n{}")
        assert reply.json()["body"] == "{}"
        assert plain.upstream.calls[-1].headers["content-length"] == "2"


async def test_a_head_that_is_known_still_has_to_state_one_length(plain: Plain) -> None:
    """Heads are remembered without their length: what was good before must not hide what is bad now."""
    plain.upstream.script = answers_target
    good = POST + HOST + b"x-a: 1\r\ncontent-length: 2\r\n\r\n{}"
    assert (await say(plain.port, good)).status == 200
    for bad in (
        POST + HOST + b"x-a: 1\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        POST + HOST + b"x-a: 1\r\ncontent-length: 2\r\n 2\r\n\r\n{}",
        POST + HOST + b"x-a: 1\r\ncontent-length: 2\n\r\n\r\n{}",
    ):
        assert (await everything(plain.port, bad + SMUGGLED)).startswith(b"HTTP/1.1 400 ")
    async with connected(plain.port) as (reader, writer):
        writer.write(POST + HOST + b"x-a: 1\r\n\r\n{}" + SMUGGLED)
        assert (await read_reply(reader)).json()["body"] == "", "no length, no body"
    assert len(plain.upstream.calls) == 2


async def test_empty_lines_before_a_request_are_skipped(plain: Plain) -> None:
    async with connected(plain.port) as (reader, writer):
        for _ in range(2):
            writer.write(b"\r\n\r\n" + ask())
            assert (await read_reply(reader)).status == 200


async def test_a_flood_of_empty_lines_holds_nobody_up(plain: Plain) -> None:
    async with connected(plain.port) as (_, writer):
        for _ in range(8):
            writer.write(b"\r\n" * (128 << 10))
        await writer.drain()
        began = time.monotonic()
        assert (await say(plain.port, request("GET", "/healthz"))).status == 200
        assert time.monotonic() - began < 2, "2 MB of nothing kept the worker busy"


async def test_the_number_of_headers_has_a_limit() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, max_headers=10) as gateway:
        for count, status in ((10, 200), (11, 431)):
            more = {f"x_{n}": "1" for n in range(count - 1)}
            assert (await say(gateway.port, request("GET", "/v1/models", None, **more))).status == status


async def test_the_size_of_a_head_has_a_limit_however_it_comes() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, max_header_bytes=1000) as gateway:
        for size, status in ((800, 200), (1000, 431), (100_000, 431)):
            sent = request("GET", "/v1/models", None, x="a" * size, connection="close")
            assert (await say(gateway.port, sent)).status == status
            got = await everything(gateway.port, sent[:700], sent[700:], pause_s=0.02)
            assert got.startswith(b"HTTP/1.1 %d " % status)


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
