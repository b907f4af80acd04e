"""`/v1/models` over several upstreams: what a request would be routed to, whoever is silent left out by name."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from tests.support.gateway import Relay, Reply, becomes, relay, request, say
from tests.support.upstream import LAST_CHUNK, Call, Script, Upstream, chunk, json_answer, sends

from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def lists(*names: str, **more: str) -> Script:
    """A server with these models."""

    async def script(call: Call) -> None:
        await call.send(json_answer({"object": "list", "data": [{"id": n, "object": "model", **more} for n in names]}))

    return script


def pair(one: Upstream, two: Upstream, **settings: Any) -> AbstractAsyncContextManager[Relay]:
    """A worker before two: `one` takes m-a, `two` the rest."""
    first = UpstreamSettings(name="one", url=one.url, models=("m-a",))
    return relay(first, UpstreamSettings(name="two", url=two.url), **settings)


async def listed(port: int, **headers: str) -> tuple[Reply, list[str]]:
    reply = await say(port, request("GET", "/v1/models", None, **headers))
    return reply, [model["id"] for model in reply.json().get("data", [])]


async def test_lists_are_merged_and_a_name_goes_where_it_is_routed() -> None:
    async with Upstream(lists("both", "m-a", by="a")) as first, Upstream(lists("both", "m-b", "x", by="b")) as second:
        one = UpstreamSettings(name="one", url=first.url, models=("m-*",))
        two = UpstreamSettings(name="two", url=second.url)
        async with relay(one, two) as gateway:
            reply, names = await listed(gateway.port)
            assert names == ["m-a", "both", "x"], "m-b would go to one, and both to two"
            assert {model["by"] for model in reply.json()["data"] if model["id"] == "both"} == {"b"}
            assert reply.json()["object"] == "list"
            assert "x-unslow-silent" not in reply.headers
            for _ in range(5):
                assert (await listed(gateway.port))[1] == names
        assert first.connections <= 2, "connections are kept"


async def test_listed_names_are_shown_though_the_upstream_is_down() -> None:
    async with Upstream(lists("m-b")) as upstream:
        down = UpstreamSettings(name="down", url="http://127.0.0.1:1/v1", models=("m-a", "m-x*"))
        async with relay(down, UpstreamSettings(name="up", url=upstream.url)) as gateway:
            reply, names = await listed(gateway.port)
    assert names == ["m-a", "m-b"]
    assert reply.json()["data"][0] == {"id": "m-a", "object": "model", "owned_by": "down"}
    assert reply.headers["x-unslow-silent"] == "down"


NOT_LISTS: list[Script] = [
    sends(b"garbage", then="silence"),
    sends(HEAD + b"content-length: 3\r\n\r\nnot", then="keep"),
    sends(HEAD + b"content-length: 2\r\n\r\n[]", then="keep"),
    sends(HEAD + b'content-length: 11\r\n\r\n{"data": 1}', then="keep"),
    sends(HEAD + b'content-length: 50\r\n\r\n{"data":', then="close"),
    sends(HEAD + b'transfer-encoding: chunked\r\n\r\n5\r\n{"data":', then="close"),
    sends(HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", then="silence"),
    sends(json_answer({"error": "no"}, "401 Unauthorized"), then="keep"),
    sends(json_answer({"data": [{"id": "m-b"}]}, "500 Oops"), then="keep"),
    sends(then="reset"),
    sends(HEAD + b'content-length: 25\r\n\r\n{"data": [{"id": "\\ud800"}', then="keep"),
]


async def test_who_has_no_list_is_left_out() -> None:
    async def left_out(script: Script) -> None:
        async with Upstream(lists("m-a")) as good, Upstream(script) as bad:
            async with pair(good, bad, pool_idle_s=0.2) as gateway:
                began = time.monotonic()
                for _ in range(3):
                    reply, names = await listed(gateway.port)
                    assert names == ["m-a"]
                    assert reply.headers["x-unslow-silent"] == "two"
                assert time.monotonic() - began < 3, "what is no list is no reason to wait"
                await becomes(lambda: not bad.open)
            assert len(bad.calls) >= 3

    await asyncio.gather(*map(left_out, NOT_LISTS))


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk(b'{"data": [{"id": "m-b"}') + chunk(b"]}") + LAST_CHUNK,
        HEAD + b'\r\n{"data": [{"id": "m-b"}]}',
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + HEAD + b'content-length: 25\r\n\r\n{"data": [{"id": "m-b"}]}',
        json_answer({"data": [{"id": "m-b"}, {"name": "x"}, {"id": ""}], "more": None}),
    ],
)
async def test_lists_may_come_in_any_framing(answer: bytes) -> None:
    async with (
        Upstream(lists("m-a")) as one,
        Upstream(sends(answer[:50], answer[50:], then="close")) as two,
        pair(one, two) as gateway,
    ):
        reply, names = await listed(gateway.port)
    assert names == ["m-a", "m-b"]
    assert "x-unslow-silent" not in reply.headers


async def test_a_slow_one_is_waited_for_no_longer_than_its_time() -> None:
    async with (
        Upstream(sends(then="silence")) as slow,
        Upstream(lists("m-a")) as good,
        pair(good, slow, models_timeout_s=0.3) as gateway,
    ):
        began = time.monotonic()
        reply, names = await listed(gateway.port)
        assert 0.3 <= time.monotonic() - began < 3
        assert (names, reply.headers["x-unslow-silent"]) == (["m-a"], "two")
        await becomes(lambda: slow.calls[0].closed)


async def test_a_list_without_end_is_cut_off() -> None:
    async def endless(call: Call) -> None:
        await call.send(HEAD + b'\r\n{"data": [')
        while not call.writer.transport.is_closing():
            await call.send(b'{"id": "x"},' * 1000)
            await asyncio.sleep(0)

    async with (
        Upstream(endless) as bad,
        Upstream(lists("m-a")) as good,
        pair(good, bad, models_timeout_s=10.0) as gateway,
    ):
        before = gateway.rss_bytes()
        async with asyncio.timeout(8):
            reply, names = await listed(gateway.port)
        assert (names, reply.headers["x-unslow-silent"]) == (["m-a"], "two")
        assert gateway.rss_bytes() - before < 48 << 20


async def test_nobody_answers() -> None:
    dead = [UpstreamSettings(name=name, url="http://127.0.0.1:1/v1") for name in ("a", "b")]
    async with relay(*dead) as gateway:
        reply = await say(gateway.port, request("GET", "/v1/models", None))
    assert (reply.status, reply.code) == (502, "connect_failed")
    assert "a, b" in reply.json()["error"]["message"]


async def test_a_connection_that_went_stale_costs_no_list() -> None:
    seen: set[int] = set()

    async def script(call: Call) -> None:
        if call.connection in seen:
            call.reset()
            return
        seen.add(call.connection)
        await lists("m-b")(call)

    async with Upstream(lists("m-a")) as one, Upstream(script) as two, pair(one, two) as gateway:
        for _ in range(4):
            reply, names = await listed(gateway.port)
            assert names == ["m-a", "m-b"], reply.headers.get("x-unslow-silent")


async def test_one_upstream_s_own_list_can_be_asked_for() -> None:
    async with Upstream(lists("x", "y")) as one, Upstream(lists("m-b")) as two, pair(one, two) as gateway:
        reply, names = await listed(gateway.port, x_unslow_upstream="one")
        assert (names, reply.headers["x-unslow-upstream"]) == (["x", "y"], "one"), "as it is"
        reply = await say(gateway.port, request("GET", "/v1/models", None, x_unslow_upstream="nobody"))
        assert reply.code == "upstream_not_found"


async def test_with_one_upstream_the_list_is_its_own() -> None:
    async with Upstream(lists("x")) as upstream, relay(upstream.url) as gateway:
        reply, names = await listed(gateway.port)
    assert (names, reply.headers["x-unslow-upstream"]) == (["x"], "up0")


async def test_a_client_that_leaves_ends_the_asking() -> None:
    async with (
        Upstream(sends(then="silence")) as one,
        Upstream(sends(then="silence")) as two,
        pair(one, two, models_timeout_s=15.0) as gateway,
    ):
        asking = asyncio.ensure_future(listed(gateway.port))
        await becomes(lambda: len(one.calls) == len(two.calls) == 1)
        asking.cancel()
        await becomes(lambda: one.calls[0].closed and two.calls[0].closed)
