"""Where a request goes: by header, by the model that its body names, by its path, and what happens without any."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from tests.support.gateway import Relay, Reply, ask, becomes, connected, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import Call, Upstream, chat, json_answer

from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio

BOUND = 4096


async def says_its_length(call: Call) -> None:
    await call.send(json_answer({"bytes": len(call.body), "target": call.target}))


@pytest.fixture(scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream(says_its_length) as one:
        yield one


def listing(upstream: Upstream, **models: tuple[str, ...]) -> list[UpstreamSettings]:
    """Several names for one server: x-unslow-upstream tells which was taken."""
    return [UpstreamSettings(name=name, url=upstream.url, models=listed) for name, listed in models.items()]


@pytest.fixture(scope="module")
async def gateway(upstream: Upstream) -> AsyncIterator[Relay]:
    """Exact names, patterns, and one that takes the rest."""
    several = listing(upstream, exact=("gpt-4o", "名"), short=("gpt-*",), longer=("gpt-4*",), rest=(), never=())
    async with relay(*several, routing_body_bytes=BOUND) as running:
        yield running


@pytest.fixture(scope="module")
async def strict(upstream: Upstream) -> AsyncIterator[Relay]:
    """Nobody takes the rest."""
    async with relay(*listing(upstream, a=("m-a",), b=("m-b", "c/*")), routing_body_bytes=BOUND) as running:
        yield running


def taken(reply: Reply) -> str:
    """The upstream that answered."""
    assert reply.status == 200, reply.body
    return reply.headers["x-unslow-upstream"]


async def post(port: int, body: bytes, path: str = "/v1/chat/completions", **headers: str) -> Reply:
    return await say(port, request("POST", path, body, **headers))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "exact"),
        ("gpt-4o-mini", "longer"),
        ("gpt-3.5", "short"),
        ("gpt-", "short"),
        ("GPT-4o", "rest"),
        ("llama", "rest"),
        ("gpt", "rest"),
        ("名", "exact"),
        ("", "rest"),
        ("*", "rest"),
    ],
)
async def test_the_model_decides(model: str, name: str, gateway: Relay) -> None:
    assert taken(await say(gateway.port, ask(model=model))) == name
    assert taken(await say(gateway.port, ask(stream=True, model=model))) == name


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"model": "gpt-4o"}', "exact"),
        (b' {"messages": [{"model": "gpt-4o"}], "model": "gpt-3"}', "short"),
        (b'{"a": "\\"model\\": \\"gpt-3\\"", "model": "gpt-4o"}', "exact"),
        (b'{"model": "gpt\\u002d4o"}', "exact"),
        (b'{"model": null}', "rest"),
        (b'{"model": 4}', "rest"),
        (b'{"model": {"model": "gpt-4o"}}', "rest"),
        (b'{"messages": []}', "rest"),
        (b"", "rest"),
        (b"not json", "rest"),
        (b"[]", "rest"),
        (b'["model", "gpt-4o"]', "rest"),
        (b'"model"', "rest"),
        (b"{", "rest"),
        (b"\xff\xfe", "rest"),
        (b'{"model": "\\ud800"}', "rest"),
        (b'{"model": "gpt-4o", "cut": [', "exact"),
    ],
)
async def test_any_body_goes_somewhere_and_arrives_as_it_is(
    body: bytes, name: str, gateway: Relay, upstream: Upstream
) -> None:
    assert taken(await post(gateway.port, body)) == name
    assert upstream.calls[-1].body == body
    head = request("POST", "/v1/chat/completions", None, transfer_encoding="chunked")
    async with connected(gateway.port) as (reader, writer):
        writer.write(head)
        for n in range(0, len(body), 3):
            writer.write(b"%x\r\n%b\r\n" % (len(body[n : n + 3]), body[n : n + 3]))
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        assert taken(await read_reply(reader)) == name
    assert upstream.calls[-1].body == body


async def test_the_header_wins_over_the_model(gateway: Relay) -> None:
    for name in ("exact", "short", "longer", "rest", "never"):
        assert taken(await say(gateway.port, ask(model="gpt-4o", x_unslow_upstream=name))) == name
    for name in ("nobody", "EXACT", "exact,short", "exact ", "../exact", "a" * 5000, '"<script>'):
        reply = await say(gateway.port, ask(model="gpt-4o", x_unslow_upstream=name))
        if name.strip() == "exact":
            assert taken(reply) == "exact"
        else:
            assert (reply.status, reply.code) == (404, "upstream_not_found")
            assert len(reply.body) < 400


async def test_a_model_in_the_path(gateway: Relay, strict: Relay) -> None:
    assert taken(await say(gateway.port, request("GET", "/v1/models/gpt-4o", None))) == "exact"
    assert taken(await say(gateway.port, request("DELETE", "/v1/models/ft:x", None))) == "rest"
    assert taken(await say(strict.port, request("GET", "/v1/models/c/d", None))) == "b"
    assert (await say(strict.port, request("GET", "/v1/models/x", None))).code == "model_not_found"


async def test_requests_without_a_model(gateway: Relay, strict: Relay) -> None:
    assert taken(await say(gateway.port, request("GET", "/v1/files", None))) == "rest"
    assert taken(await say(strict.port, request("GET", "/v1/files", None))) == "a", "the first one, without a body"
    for body in (b'{"messages": []}', b"[]", b"not json", b'{"model": 3}'):
        reply = await post(strict.port, body)
        assert (reply.status, reply.code) == (400, "model_required")
        assert reply.json()["error"]["param"] == "model"


async def test_a_model_that_nobody_lists(strict: Relay) -> None:
    reply = await say(strict.port, ask(model="gpt-5"))
    assert (reply.status, reply.code) == (404, "model_not_found")
    error = reply.json()["error"]
    assert error["param"] == "model"
    assert "'gpt-5'" in error["message"]
    assert "m-a, m-b, c/*" in error["message"], "it says what there is"
    long = await say(strict.port, ask(model="x" * 3000))
    assert len(long.body) < 500


@pytest.mark.parametrize("last", [True, False])
async def test_a_form_names_its_model(last: bool, gateway: Relay, strict: Relay, upstream: Upstream) -> None:
    def part(name: str, value: bytes, more: str = "") -> bytes:
        return f'--B\r\nContent-Disposition: form-data; name="{name}"{more}\r\n'.encode() + b"\r\n" + value + b"\r\n"

    sound = part("file", bytes(range(256)) * 4, '; filename="a.wav"\r\nContent-Type: audio/wav')
    for model, port, name in (("gpt-4o", gateway.port, "exact"), ("m-b", strict.port, "b")):
        fields = [sound, part("language", b"en"), part("model", model.encode())]
        body = b"".join(fields if last else reversed(fields)) + b"--B--\r\n"
        reply = await post(port, body, "/v1/audio/transcriptions", content_type="multipart/form-data; boundary=B")
        assert taken(reply) == name
        assert upstream.calls[-1].body == body
    reply = await post(strict.port, sound + b"--B--\r\n", "/v1/x", content_type="multipart/form-data; boundary=B")
    assert reply.code == "model_required"


async def test_a_model_beyond_the_bound(gateway: Relay, strict: Relay, upstream: Upstream) -> None:
    late = json.dumps({"input": "a" * (2 * BOUND), "model": "m-b"}).encode()
    chunked = request("POST", "/v1/x", None, transfer_encoding="chunked")
    for sent in (
        chunked + b"%x\r\n%b\r\n" % (BOUND, late[:BOUND]),
        request("POST", "/v1/x", None, content_length=str(len(late))) + late[: BOUND + 1],
    ):
        reply = await say(strict.port, sent)
        assert (reply.status, reply.code) == (400, "model_beyond_bound")
        assert str(BOUND) in reply.json()["error"]["message"]
    async with connected(gateway.port) as (reader, writer):
        writer.write(request("POST", "/v1/x", None, content_length=str(len(late))) + late[: BOUND + 1])
        before = len(upstream.calls)
        await asyncio.sleep(0.05)
        writer.write(late[BOUND + 1 :])
        assert taken(await read_reply(reader)) == "rest"
    assert upstream.calls[before].body == late


async def test_no_more_is_held_than_it_takes_to_find_the_model() -> None:
    """The upstream has the request before the client has sent the rest of it."""

    async def script(call: Call) -> None:
        await call.read_body()
        await says_its_length(call)

    async with Upstream(script, read_body=False) as first, Upstream(chat) as second:
        named = UpstreamSettings(name="a", url=first.url, models=("m-a",))
        other = UpstreamSettings(name="b", url=second.url)
        async with relay(named, other) as gateway, connected(gateway.port) as (reader, writer):
            body = json.dumps({"model": "m-a", "input": "a" * 100_000}).encode()
            writer.write(request("POST", "/v1/chat/completions", None, content_length=str(len(body))) + body[:20])
            await becomes(lambda: len(first.calls) == 1)
            writer.write(body[20:])
            assert (await read_reply(reader)).json()["bytes"] == len(body)
        assert not second.calls


async def test_one_upstream_without_models_takes_everything_at_once() -> None:
    async with Upstream(says_its_length) as upstream, relay(upstream.url) as gateway:
        for body in (b"", b"junk", b'{"model": "any"}'):
            assert taken(await post(gateway.port, body)) == "up0"
        upstream.script = chat
        async with connected(gateway.port) as (_, writer):
            writer.write(request("POST", "/v1/x", None, content_length="5"))
            await asyncio.sleep(0)
            await becomes(lambda: upstream.connections > 0)


async def test_one_upstream_with_models_takes_only_these() -> None:
    async with Upstream(chat) as upstream, relay(*listing(upstream, a=("mock", "m-*"))) as gateway:
        assert taken(await say(gateway.port, ask(model="mock"))) == "a"
        assert (await say(gateway.port, ask(model="other"))).code == "model_not_found"
        assert taken(await say(gateway.port, ask(model="other", x_unslow_upstream="a"))) == "a"


async def test_the_record_says_which_model_and_upstream(records: Records) -> None:
    async with Upstream(chat) as upstream:
        several = listing(upstream, a=("m-a",), b=())
        async with relay(*several, recorder_socket=records.path) as gateway:
            await say(gateway.port, ask(model="m-a"))
            await say(gateway.port, ask(model="other", stream=True))
            await say(gateway.port, ask(model="m-a", x_unslow_upstream="nobody"))
            facts = [one.timeline.facts for one in await records.wait(3)]
    assert [(f.upstream, f.model, f.model_answered) for f in facts] == [
        ("a", "m-a", "mock"),
        ("b", "other", "mock"),
        (None, "m-a", None),
    ]
