"""Getting to an upstream: what cannot be reached says why, and a connection that went stale costs no request."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from tests.support.gateway import Reply, ask, becomes, connected, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import Call, Script, Upstream, chat, json_answer

from unslow.core.timeline import End, Phase

pytestmark = pytest.mark.anyio


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_nobody_listens(records: Records) -> None:
    port = free_port()
    async with relay(f"http://127.0.0.1:{port}/v1", recorder_socket=records.path) as gateway:
        reply = await say(gateway.port, ask())
        outcome = (await records.wait())[0].timeline.outcome
    assert (reply.status, reply.code) == (502, "connect_failed")
    assert f"127.0.0.1:{port}" in reply.json()["error"]["message"]
    assert (outcome.end, outcome.phase, outcome.kind) == (End.FAILED, Phase.CONNECT, "connect_failed")


async def test_a_name_that_does_not_resolve(records: Records) -> None:
    settings = {"connect_timeout_s": 8.0, "recorder_socket": records.path}
    async with relay("http://no-such-host.invalid/v1", **settings) as gateway:
        reply = await say(gateway.port, ask())
        outcome = (await records.wait())[0].timeline.outcome
    assert reply.code in ("connect_failed", "connect_timeout")
    assert "no-such-host.invalid" in reply.json()["error"]["message"]
    assert outcome.phase is Phase.DNS


@pytest.mark.parametrize(
    ("says", "closes", "code"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "connect_failed"),
        (b"", True, "connect_failed"),
        (b"", False, "connect_timeout"),
    ],
)
async def test_a_server_that_speaks_no_tls(says: bytes, closes: bool, code: str, records: Records) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(says)
        if not closes:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
    async with server, relay(url, connect_timeout_s=0.5, recorder_socket=records.path) as gateway:
        reply = await say(gateway.port, ask())
        outcome = (await records.wait())[0].timeline.outcome
    assert (reply.status, reply.code) == (504 if code == "connect_timeout" else 502, code)
    assert (outcome.phase, outcome.kind) == (Phase.TLS, code)


async def test_an_upstream_that_never_accepts() -> None:
    with socket.socket() as sock:  # a full backlog drops what comes
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        port = sock.getsockname()[1]
        async with connected(port), relay(f"http://127.0.0.1:{port}/v1", connect_timeout_s=0.5) as gateway:
            replies = await asyncio.gather(*(_bounded(gateway.port) for _ in range(4)))
    assert "connect_timeout" in [reply.code for reply in replies if reply is not None]


async def _bounded(port: int) -> Reply | None:
    """An answer within 3 s; None for a request that the kernel took and nobody answers."""
    try:
        async with asyncio.timeout(3):
            return await say(port, ask())
    except TimeoutError:
        return None


async def test_an_upstream_that_comes_back_is_used_again() -> None:
    upstream = Upstream(chat)
    await upstream.start()
    async with relay(upstream.url) as gateway:
        assert (await say(gateway.port, ask())).status == 200
        await upstream.stop()
        assert (await say(gateway.port, ask())).code == "connect_failed"
        assert (await say(gateway.port, request("GET", "/readyz"))).status == 503
        await upstream.start(upstream.port)
        assert (await say(gateway.port, ask())).status == 200
        assert (await say(gateway.port, request("GET", "/readyz"))).status == 200
        await upstream.stop()


async def test_a_unix_socket_is_an_upstream_too(tmp_path: object) -> None:
    path = f"{tmp_path}/engine.sock"
    upstream = Upstream(chat)
    server = await asyncio.start_unix_server(upstream.serve, path)
    async with server, relay(f"http+unix://{path.replace('/', '%2F')}/v1") as gateway:
        assert (await say(gateway.port, ask())).status == 200
    assert upstream.calls[0].headers["host"] == "localhost"
    await upstream.end()


# -- connections that went stale


def second_time(then: Script) -> Script:
    """The first request of a connection is answered; what happens to the second one is up to `then`."""
    seen: set[int] = set()

    async def script(call: Call) -> None:
        if call.connection in seen:
            await then(call)
            return
        seen.add(call.connection)
        await call.send(json_answer(json.loads(call.body or b"{}")))

    return script


async def reset(call: Call) -> None:
    call.reset()


async def close(call: Call) -> None:
    call.close()


async def half(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\ncontent-le")
    call.close()


async def test_a_pooled_connection_that_was_closed_is_not_used() -> None:
    async def script(call: Call) -> None:
        await chat(call)
        call.close()

    async with Upstream(script) as upstream, relay(upstream.url) as gateway:
        async with connected(gateway.port) as (reader, writer):
            for _ in range(20):
                writer.write(ask())
                assert (await read_reply(reader)).status == 200
                await asyncio.sleep(0.01)
        assert len(upstream.calls) == 20


@pytest.mark.parametrize("then", [reset, close])
async def test_a_stale_connection_costs_no_request(then: Script, records: Records) -> None:
    """The server closed the idle connection as it was used again: nothing came, so it is sent once more."""
    async with (
        Upstream(second_time(then)) as upstream,
        relay(upstream.url, recorder_socket=records.path) as gateway,
    ):
        for n in range(4):
            reply = await say(gateway.port, ask(model=f"m{n}"))
            assert (reply.status, reply.json()["model"]) == (200, f"m{n}")
        second = (await records.wait(4))[1].timeline
    assert second.facts.retries == 1
    assert second.outcome.end is End.COMPLETED
    lost = [span.attempt for span in second.spans if not span.won]
    assert lost, "the lost attempt is in the record"
    assert {span.attempt for span in second.spans if span.won and span.phase is Phase.WAIT}.isdisjoint(lost)


async def test_after_a_byte_of_an_answer_nothing_is_sent_again() -> None:
    async with Upstream(second_time(half)) as upstream, relay(upstream.url) as gateway:
        assert (await say(gateway.port, ask())).status == 200
        assert (await say(gateway.port, ask())).code == "upstream_lost"
        assert len(upstream.calls) == 2


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


async def test_a_fresh_connection_that_fails_is_not_tried_again() -> None:
    async with Upstream(close) as upstream, relay(upstream.url, pool_idle_s=0.0) as gateway:
        assert (await say(gateway.port, ask())).code == "upstream_lost"
        assert len(upstream.calls) == 1


async def test_a_body_that_came_in_pieces_is_sent_again_whole() -> None:
    """The first piece went to a connection that is gone; the second one comes while a fresh one is made."""
    async with Upstream(second_time(reset), read_body=False) as upstream, relay(upstream.url) as gateway:
        assert (await say(gateway.port, request("POST", "/v1/x", b""))).status == 200
        upstream.script = answers_body
        async with connected(gateway.port) as (reader, writer):
            writer.write(request("POST", "/v1/x", None, content_length="8") + b'{"a"')
            await becomes(lambda: len(upstream.calls) == 2)
            upstream.calls[1].reset()
            await becomes(lambda: len(upstream.calls) == 3)
            writer.write(b": 1}")
            assert (await read_reply(reader)).json() == {"got": '{"a": 1}'}


async def answers_body(call: Call) -> None:
    body = await call.read_body()
    await call.send(json_answer({"got": body.decode()}))


async def test_a_body_too_long_to_hold_is_not_sent_again() -> None:
    async with Upstream(second_time(reset)) as upstream, relay(upstream.url, routing_body_bytes=1000) as gateway:
        await say(gateway.port, ask())
        reply = await say(gateway.port, request("POST", "/v1/x", b"a" * 400_000))
        assert (reply.status, reply.code) == (502, "upstream_lost")
        assert sum(len(call.body) == 400_000 for call in upstream.calls) == 1
