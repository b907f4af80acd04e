"""Any bytes, cut anywhere: an answer or an end, never a hang, and the worker lives."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.gateway import Plain, ask, connected, everything, request, say
from tests.support.upstream import DONE, LAST_CHUNK, SSE_HEAD, Call, chat, chunk, delta, json_answer

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)]

quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None)
CHUNKED = request("POST", "/v1/x", None, transfer_encoding="chunked") + b"3\r\n{}\n\r\n1;a=b\r\n\n\r\n0\r\na: b\r\n\r\n"
VALID = (ask() + ask(stream=True), CHUNKED * 2, request("GET", "/v1/models") + request("HEAD", "/v1/x") + CHUNKED)
ANSWERS = (
    json_answer({"a": 1}),
    SSE_HEAD + chunk(delta("a")) + chunk(DONE) + LAST_CHUNK,
    b"HTTP/1.1 103 Hints\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + delta("a") + DONE,
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nabc",
)
CUTS = st.lists(st.integers(0, 500), max_size=4).map(sorted)
PUT = st.one_of(
    st.binary(max_size=4),
    st.sampled_from([b"\r\n", b"\n", b"\r\n\r\n", b" ", b"\0", b":", b"0", b"content-length: 5\r\n", b"fffffffff"]),
)
CHANGES = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 8), PUT), min_size=1, max_size=5)


def changed(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Valid bytes with some of them replaced."""
    for at, gone, put in changes:
        data = data[:at] + put + data[at + gone :]
    return data


def requests() -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=200), st.builds(changed, st.sampled_from(VALID), CHANGES))


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *cuts, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


async def exchanged(port: int, pieces: list[bytes]) -> bytes:
    """What comes back until the gateway has ended the connection, or has said nothing for a while."""
    async with connected(port) as (reader, writer):
        got = b""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            with contextlib.suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(0.03):
                        piece = await reader.read(65536)
                    if not piece:
                        return got
                    got += piece
            writer.write_eof()
            async with asyncio.timeout(10):
                while piece := await reader.read(65536):
                    got += piece
        return got


def in_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, bytes]) -> bytes:
    return asyncio.run_coroutine_threadsafe(work, loop).result(20)


async def answers_anything(call: Call) -> None:
    try:
        await chat(call)
    except (ValueError, AttributeError):
        await call.send(json_answer({"error": "no JSON object"}, "400 Bad Request"))


async def test_no_bytes_of_a_client_hang_or_kill_a_worker(plain: Plain) -> None:
    loop = asyncio.get_running_loop()
    plain.upstream.script = answers_anything

    @quick
    @given(data=requests(), cuts=CUTS)
    @example(data=b"\r", cuts=[])
    @example(data=VALID[0], cuts=[300])
    def fuzz(data: bytes, cuts: list[int]) -> None:
        got = in_loop(loop, exchanged(plain.port, cut(data, cuts)))
        assert not got or re.match(rb"HTTP/1\.1 [1-5]\d\d ", got), got

    await asyncio.to_thread(fuzz)
    assert (await say(plain.port, ask())).status == 200
    for call in plain.upstream.calls:
        assert call.target.startswith("/v1"), call.target
        assert call.headers["host"] == f"127.0.0.1:{plain.upstream.port}"
        assert "transfer-encoding" not in call.headers or "content-length" not in call.headers


async def test_no_bytes_of_an_upstream_hang_or_kill_a_worker(plain: Plain) -> None:
    loop = asyncio.get_running_loop()
    says: list[bytes] = []

    async def script(call: Call) -> None:
        for piece in says:
            await call.send(piece)
            await asyncio.sleep(0)
        call.close()

    plain.upstream.script = script
    sent = ask(connection="upgrade, close", upgrade="websocket")

    @quick
    @given(
        data=st.one_of(st.binary(max_size=200), st.builds(changed, st.sampled_from(ANSWERS), CHANGES)),
        cuts=CUTS,
        ledger=st.booleans(),
    )
    def fuzz(data: bytes, cuts: list[int], ledger: bool) -> None:
        says[:] = cut(data, cuts)
        head = sent.replace(b"host:", b"x-unslow-ledger: 1\r\nhost:") if ledger else sent
        got = in_loop(loop, everything(plain.port, head))
        assert re.match(rb"HTTP/1\.1 [1-5]\d\d ", got), got

    await asyncio.to_thread(fuzz)
    plain.upstream.script = chat
    assert (await say(plain.port, ask())).status == 200
