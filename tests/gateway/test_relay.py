"""What a relay is for: requests and answers pass, whole, in order, and on connections that are kept."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from tests.support.gateway import ask, read_reply, relay, request, say
from tests.support.upstream import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Call,
    Upstream,
    chat,
    chunk,
    completion,
    delta,
    json_answer,
)

pytestmark = pytest.mark.anyio


async def test_an_answer_passes_with_our_headers_beside_it() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        reply = await say(gateway.port, ask())
    assert reply.status == 200
    assert reply.json() == completion()
    assert reply.headers["x-unslow-upstream"] == "up0"
    assert reply.headers["x-unslow-id"]
    assert [part.split(";")[0] for part in reply.headers["server-timing"].split(", ")] == ["gw", "connect", "up"]


async def test_a_stream_passes_byte_for_byte() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        direct = await say(upstream.port, ask(stream=True))
        relayed = await say(gateway.port, ask(stream=True))
    assert relayed.body == direct.body
    assert relayed.headers["content-type"] == "text/event-stream"


async def test_each_event_passes_when_it_comes() -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")))
        await gate.wait()
        await call.send(chunk(delta("b")) + LAST_CHUNK)

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(ask(stream=True))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(chunk(delta("a")))) == chunk(delta("a"))
        gate.set()
        assert await reader.readuntil(LAST_CHUNK) == chunk(delta("b")) + LAST_CHUNK
        writer.close()


async def test_the_request_arrives_rebuilt() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        await say(
            gateway.port,
            ask(
                authorization="Bearer mine",
                cookie="a=b",
                connection="keep-alive, x-private",
                x_private="hop",
                x_forwarded_for="1.2.3.4",
                forwarded="for=1.2.3.4",
                te="trailers",
                proxy_authorization="Basic x",
                accept_encoding="gzip",
                upgrade="h2c",
                x_custom="kept",
                origin="http://127.0.0.1",
            ),
        )
        got = upstream.calls[-1]
    assert got.target == "/v1/chat/completions"
    assert got.headers["host"] == f"127.0.0.1:{upstream.port}"
    assert got.headers["authorization"] == "Bearer mine"
    assert got.headers["cookie"] == "a=b"
    assert got.headers["x-custom"] == "kept"
    assert got.headers["accept-encoding"] == "identity"
    assert got.headers["via"].startswith("1.1 unslow-")
    assert got.headers["traceparent"].startswith("00-")
    gone = {"connection", "x-private", "x-forwarded-for", "forwarded", "te", "proxy-authorization", "upgrade", "origin"}
    assert not gone & set(got.headers)


async def test_a_trace_of_the_client_goes_on() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        await say(gateway.port, ask(traceparent=trace))
        assert upstream.calls[-1].headers["traceparent"] == trace


@pytest.mark.parametrize(
    ("base", "arrives"),
    [
        ("/v1", "/v1/chat/completions?a=1"),
        ("/openai/v1/", "/openai/v1/chat/completions?a=1"),
        ("/api", "/api/chat/completions?a=1"),
    ],
)
async def test_paths_are_joined_to_the_base(base: str, arrives: str) -> None:
    async with Upstream(chat) as upstream, relay(f"http://127.0.0.1:{upstream.port}{base}") as gateway:
        await say(gateway.port, request("POST", "/v1/chat/completions?a=1", b"{}"))
        assert upstream.calls[-1].target == arrives


async def test_upstream_connections_are_kept() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        for _ in range(20):
            assert (await say(gateway.port, ask())).status == 200
            assert (await say(gateway.port, ask(stream=True))).status == 200
        assert upstream.connections <= 2  # one more may come from the probe at the start
        assert len(upstream.calls) == 40


async def test_a_client_s_connection_is_kept() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for stream in (False, True, False, True):
            writer.write(ask(stream=stream))
            assert (await read_reply(reader)).status == 200
        writer.close()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def script(call: Call) -> None:
        asked = json.loads(call.body)
        await asyncio.sleep(0.05 if asked["n"] == 0 else 0)
        await call.send(json_answer(asked))

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        bodies = [json.dumps({"n": n}).encode() for n in range(30)]
        writer.write(b"".join(request("POST", "/v1/x", body) for body in bodies))
        assert [(await read_reply(reader)).json()["n"] for _ in range(30)] == list(range(30))
        writer.close()


async def test_a_thousand_pipelined_refusals_do_not_exhaust_the_stack() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request("GET", "/nothing") * 1000)
        for _ in range(1000):
            assert (await read_reply(reader)).code == "not_found"
        writer.close()


async def test_head_has_no_body_and_the_connection_goes_on() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n" + (b"" if call.method == "HEAD" else b"hello"))

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request("HEAD", "/v1/x"))
        reply = await read_reply(reader, "HEAD")
        assert (reply.status, reply.headers["content-length"]) == (200, "5")
        writer.write(request("GET", "/v1/x"))
        assert (await read_reply(reader)).body == b"hello"
        writer.close()


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_answers_without_a_body(status: str) -> None:
    async def script(call: Call) -> None:
        await call.send(f"HTTP/1.1 {status}\r\netag: x\r\n\r\n".encode())

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for _ in range(2):
            writer.write(request("GET", "/v1/x"))
            assert (await read_reply(reader)).status == int(status[:3])
        writer.close()


async def test_interim_answers_are_swallowed() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        await call.send(json_answer({"ok": True}))

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        assert (await say(gateway.port, request("GET", "/v1/x"))).json() == {"ok": True}


async def test_expect_is_answered_here_and_goes_no_further() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        body = b'{"model": "mock"}'
        head = request("POST", "/v1/chat/completions", None, expect="100-continue", content_length=str(len(body)))
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_reply(reader)).status == 200
        writer.close()
        assert "expect" not in upstream.calls[-1].headers


async def test_a_client_of_http_1_0_gets_a_plain_body_and_a_close() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        body = b'{"stream": true}'
        head = f"POST /v1/chat/completions HTTP/1.0\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        reply = await say(gateway.port, head + body)
    assert "transfer-encoding" not in reply.headers
    assert reply.headers["connection"] == "close"
    assert reply.body.startswith(b"data: ")
    assert reply.body.endswith(DONE)


async def test_a_body_that_ends_with_its_connection() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nuntil the end")
        call.close()

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reply = await say(gateway.port, request("GET", "/v1/x"))
    assert reply.body == b"until the end"
    assert reply.headers["connection"] == "close"


async def test_a_chunked_request_arrives_whole() -> None:
    async def script(call: Call) -> None:
        await call.send(json_answer({"got": call.body.decode()}))

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        head = request("POST", "/v1/x", None, transfer_encoding="chunked")
        at_once = await say(gateway.port, head + b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nx-trailer: 1\r\n\r\n")
        assert at_once.json() == {"got": "abcdefg"}
        assert upstream.calls[-1].headers["content-length"] == "7"
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for byte in head + b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.0005)
        assert (await read_reply(reader)).json() == {"got": "abcdefg"}
        assert upstream.calls[-1].headers["transfer-encoding"] == "chunked"
        writer.close()


async def test_trailers_of_an_answer_pass() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n")

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request("GET", "/v1/x"))
        assert (await reader.readuntil(b"x-sum: 1\r\n\r\n")).endswith(b"3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n")
        writer.close()


async def test_redirects_and_errors_pass_untouched() -> None:
    async def script(call: Call) -> None:
        if call.target.endswith("/moved"):
            await call.send(
                b"HTTP/1.1 307 Elsewhere\r\nlocation: https://other.example/v1/x\r\ncontent-length: 0\r\n\r\n"
            )
        else:
            await call.send(json_answer({"error": {"message": "theirs"}}, "429 Slow Down", "retry-after: 7\r\n"))

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        moved = await say(gateway.port, request("GET", "/v1/moved"))
        assert (moved.status, moved.headers["location"]) == (307, "https://other.example/v1/x")
        busy = await say(gateway.port, request("GET", "/v1/x"))
        assert (busy.status, busy.headers["retry-after"]) == (429, "7")
        assert busy.json() == {"error": {"message": "theirs"}}


async def test_a_compressed_answer_passes_where_it_is_allowed() -> None:
    async def script(call: Call) -> None:
        body = call.headers["accept-encoding"].encode()
        await call.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )

    from unslow.serve.gateway.settings import UpstreamSettings

    async with Upstream(script) as upstream:
        settings = UpstreamSettings(name="z", url=upstream.url, pass_accept_encoding=True)
        async with relay(settings) as gateway:
            reply = await say(gateway.port, request("GET", "/v1/x", accept_encoding="gzip"))
    assert (reply.body, reply.headers["content-encoding"]) == (b"gzip", "gzip")


async def test_a_body_of_64_mb_streams_up_in_little_memory() -> None:
    size = 64 << 20

    async def script(call: Call) -> None:
        digest, left = hashlib.sha256(), int(call.headers["content-length"])
        while left:
            data = await call.reader.read(1 << 16)
            digest.update(data)
            left -= len(data)
            if left % (1 << 20) < 1 << 16:
                await asyncio.sleep(0.002)  # slower than the client
        await call.send(json_answer({"sha256": digest.hexdigest()}))

    async with Upstream(script, read_body=False) as upstream, relay(upstream.url) as gateway:
        before = gateway.rss_bytes()
        block = bytes(range(256)) * 4096
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request("POST", "/v1/x", None, content_length=str(size)))
        grown = 0
        for _ in range(size // len(block)):
            writer.write(block)
            await writer.drain()
            grown = max(grown, gateway.rss_bytes() - before)
        reply = await read_reply(reader)
        writer.close()
    assert reply.json()["sha256"] == hashlib.sha256(block * (size // len(block))).hexdigest()
    assert grown < 12 << 20


async def test_a_body_of_64_mb_streams_down_in_little_memory() -> None:
    block = bytes(range(256)) * 4096

    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (64 * len(block)))
        for _ in range(64):
            await call.send(block)

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        before = gateway.rss_bytes()
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request("GET", "/v1/x"))
        await reader.readuntil(b"\r\n\r\n")
        digest, grown = hashlib.sha256(), 0
        for _ in range(64):
            digest.update(await reader.readexactly(len(block)))
            grown = max(grown, gateway.rss_bytes() - before)
        writer.close()
    assert digest.digest() == hashlib.sha256(block * 64).digest()
    assert grown < 12 << 20


async def test_the_ledger_comes_before_the_end_mark_if_it_is_asked_for() -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")))
        await asyncio.sleep(0.02)
        whole = delta("b") + DONE
        for n in range(0, len(whole), 7):  # split anywhere
            await call.send(chunk(whole[n : n + 7]))
            await asyncio.sleep(0.001)
        await call.send(LAST_CHUNK)

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        reply = await say(gateway.port, ask(stream=True, x_unslow_ledger="1"))
        plain = await say(gateway.port, ask(stream=True))
    *events, comment, done, rest = reply.body.split(b"\n\n")
    assert (done + b"\n\n", rest) == (DONE, b"")
    assert comment.startswith(b": unslow ")
    ledger = json.loads(comment.removeprefix(b": unslow "))
    assert ledger["id"] == reply.headers["x-unslow-id"]
    assert sum(row["duration_ns"] for row in ledger["rows"]) == ledger["end_ns"]
    assert {row["phase"] for row in ledger["rows"]} >= {"send", "wait", "decode"}
    assert b"".join(event + b"\n\n" for event in [*events, done]) == plain.body
