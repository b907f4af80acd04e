"""Keys: ours go to listed paths of their own upstream only, clients' stay here beside them, and none is ever shown."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from tests.support.gateway import Relay, ask, everything, relay, request, say
from tests.support.records import Records
from tests.support.upstream import Call, Upstream, chat, json_answer

from unslow.serve.gateway.settings import KEY_PATHS, UpstreamSettings, client_key

pytestmark = pytest.mark.anyio

OURS, THEIRS, CLIENTS = "sk-ours-1111", "sk-theirs-2222", "sk-client-3333"
CREDENTIALS = {
    "authorization": f"Bearer {THEIRS}",
    "cookie": f"session={THEIRS}",
    "x_api_key": THEIRS,
    "api_key": THEIRS,
    "x_goog_api_key": THEIRS,
}


async def answers_with_a_cookie(call: Call) -> None:
    await call.send(json_answer({"id": "x"}, extra="set-cookie: a=1\r\nset-cookie: b=2\r\n"))


def asks(given: dict[str, str], model: str = "mock", path: str = "/v1/chat/completions") -> bytes:
    """A chat request with these headers."""
    return request("POST", path, b'{"model": "%b"}' % model.encode(), **given)


def keyed(upstream: Upstream, **settings: Any) -> AbstractAsyncContextManager[Relay]:
    """A worker that has a key for this upstream."""
    return relay(UpstreamSettings(name="a", url=upstream.url, api_key=OURS, **settings))


async def test_a_key_goes_to_its_paths_and_the_client_s_credentials_stay_here() -> None:
    async with Upstream(answers_with_a_cookie) as upstream, keyed(upstream) as gateway:
        for path in KEY_PATHS:
            reply = await say(gateway.port, request("POST", path.replace("*", "x"), b"{}", **CREDENTIALS))
            sent = upstream.calls[-1].headers
            assert OURS in (sent.get("authorization", "") + sent.get("x-api-key", "")), path
            assert not any(THEIRS in value for value in sent.values()), path
            assert "set-cookie" not in reply.headers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files",
        "/v1/organization/api_keys",
        "/v1/fine_tuning/jobs",
        "/v1/modelsx",
        "/v1",
        "/v1/chat",
        "/v1/chat/completions/x",
        "/v1/chat/%63ompletions",
        "/v1/CHAT/completions",
    ],
)
async def test_other_paths_get_no_key_and_the_client_s_own(path: str) -> None:
    async with Upstream(answers_with_a_cookie) as upstream, keyed(upstream) as gateway:
        reply = await say(gateway.port, request("GET", path, None, **CREDENTIALS))
    sent = upstream.calls[-1].headers
    assert not any(OURS in value for value in sent.values())
    assert sent["authorization"] == f"Bearer {THEIRS}"
    assert sent["cookie"] == f"session={THEIRS}"
    assert reply.headers["set-cookie"] == "a=1, b=2"


@pytest.mark.parametrize(
    ("path", "named", "header", "value"),
    [
        ("/v1/chat/completions", None, "authorization", f"Bearer {OURS}"),
        ("/v1/messages", None, "x-api-key", OURS),
        ("/v1/messages/count_tokens", None, "x-api-key", OURS),
        ("/v1/chat/completions", "api-key", "api-key", OURS),
        ("/v1/chat/completions", "Authorization", "authorization", f"Bearer {OURS}"),
        ("/v1/chat/completions", "X-Custom", "x-custom", OURS),
    ],
)
async def test_the_header_that_carries_a_key(path: str, named: str | None, header: str, value: str) -> None:
    async with Upstream(answers_with_a_cookie) as upstream, keyed(upstream, key_header=named) as gateway:
        more = {header.replace("-", "_"): THEIRS}
        await say(gateway.port, request("POST", path, b"{}", **{**CREDENTIALS, **more}))
    sent = [(name.lower(), said) for name, said in upstream.calls[-1].fields]
    assert [said for name, said in sent if name == header] == [value]
    assert not any(THEIRS in said for _, said in sent)


async def test_a_key_goes_to_no_other_upstream() -> None:
    async with Upstream(chat) as first, Upstream(chat) as second:
        has_key = UpstreamSettings(name="a", url=first.url, api_key=OURS, models=("m-a",))
        has_none = UpstreamSettings(name="b", url=second.url)
        async with relay(has_key, has_none) as gateway:
            for model in ("m-a", "m-b"):
                await say(gateway.port, ask(model=model, authorization=f"Bearer {THEIRS}"))
            await say(gateway.port, ask(model="m-a", x_unslow_upstream="b", authorization=f"Bearer {THEIRS}"))
            await say(gateway.port, request("GET", "/v1/models", None, authorization=f"Bearer {THEIRS}"))
    assert {call.headers["authorization"] for call in first.calls} == {f"Bearer {OURS}"}
    assert {call.headers["authorization"] for call in second.calls} == {f"Bearer {THEIRS}"}
    assert [len(first.calls), len(second.calls)] == [2, 3]


async def test_redirects_are_not_followed_and_take_no_key_along() -> None:
    async with Upstream(chat) as other:

        async def script(call: Call) -> None:
            await call.send(json_answer({}, "307 Moved", f"location: {other.url}/chat/completions\r\n"))

        async with Upstream(script) as upstream, keyed(upstream) as gateway:
            reply = await say(gateway.port, ask())
        assert (reply.status, reply.headers["location"]) == (307, f"{other.url}/chat/completions")
        assert not other.calls


# -- keys of the gateway

GUARDED = {"api_keys": (client_key("ann", CLIENTS), client_key("bob", "sk-bob"))}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {CLIENTS}"},
        {"authorization": f"Bearer {CLIENTS}x"},
        {"authorization": "Bearer "},
        {"authorization": client_key("x", CLIENTS).sha256},
        {"cookie": CLIENTS},
        {"x_api_key": "wrong"},
    ],
)
async def test_without_a_key_of_ours_nothing_is_served(given: dict[str, str]) -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, **GUARDED) as gateway:
        for path in ("/v1/chat/completions", "/v1/models", "/nothing"):
            reply = await say(gateway.port, request("GET", path, None, **given))
            assert (reply.status, reply.code) == (401, "invalid_api_key")
            assert reply.headers["www-authenticate"] == "Bearer"
            assert CLIENTS.encode() not in reply.body
        assert not upstream.calls
        assert (await say(gateway.port, request("GET", "/healthz", None))).status == 200
        assert (await say(gateway.port, request("GET", "/readyz", None))).status in (200, 503)


@pytest.mark.parametrize(
    "given",
    [
        {"authorization": f"Bearer {CLIENTS}"},
        {"authorization": f"bearer   {CLIENTS}"},
        {"authorization": CLIENTS},
        {"x_api_key": CLIENTS},
        {"api_key": CLIENTS},
        {"authorization": "Bearer wrong", "x_api_key": CLIENTS},
    ],
)
async def test_a_client_s_key_opens_the_door_and_goes_no_further(given: dict[str, str], records: Records) -> None:
    """The second time the head is a known one, and still it is the same."""
    async with Upstream(chat) as upstream, relay(upstream.url, recorder_socket=records.path, **GUARDED) as gateway:
        for _ in range(2):
            assert (await say(gateway.port, asks(given))).status == 200
        await records.wait(2)
    for call in upstream.calls:
        assert not any(CLIENTS in value or "wrong" in value for value in call.headers.values())
    assert [one.client for one in records.finished] == ["ann", "ann"]


async def test_clients_are_told_apart(records: Records) -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, recorder_socket=records.path, **GUARDED) as gateway:
        for key in (CLIENTS, "sk-bob", CLIENTS):
            await say(gateway.port, ask(authorization=f"Bearer {key}"))
        assert [one.client for one in await records.wait(3)] == ["ann", "bob", "ann"]


async def test_a_page_that_may_call_still_needs_a_key() -> None:
    async with (
        Upstream(chat) as upstream,
        relay(upstream.url, allowed_origins=("http://page.example",), **GUARDED) as gateway,
    ):
        reply = await say(gateway.port, ask(origin="http://page.example"))
        assert (reply.code, reply.headers["access-control-allow-origin"]) == ("invalid_api_key", "http://page.example")
        asked = {"origin": "http://page.example", "access_control_request_method": "POST"}
        assert (await say(gateway.port, request("OPTIONS", "/v1/x", None, **asked))).status == 204


# -- never shown


async def test_no_key_is_in_an_error_or_a_record(records: Records) -> None:
    async def breaks(call: Call) -> None:
        await call.send(b"garbage")

    async with Upstream(breaks) as upstream, Upstream(chat) as well:
        listed_ones = (
            UpstreamSettings(name="a", url=upstream.url, api_key=OURS, models=("a",)),
            UpstreamSettings(name="b", url="http://127.0.0.1:1/v1", api_key=OURS, models=("b",)),
            UpstreamSettings(name="c", url=well.url, api_key=OURS, models=("c",)),
        )
        secrets = {**CREDENTIALS, "authorization": f"Bearer {CLIENTS}"}
        async with relay(*listed_ones, recorder_socket=records.path, **GUARDED) as gateway:
            sent = [
                *(asks(secrets, model) for model in "abcd"),
                asks({**secrets, "x_unslow_upstream": THEIRS}),
                request("GET", f"/v1/models?key={THEIRS}", None, **secrets),
                request("GET", f"/nothing?key={THEIRS}", None, **secrets),
                asks(secrets, "c", f"/v1/chat/completions?key={THEIRS}"),
                asks({**CREDENTIALS, "x_bad": "\0"}),
                ask(authorization=f"Bearer {THEIRS}"),
            ]
            closing = [one.replace(b"host:", b"connection: close\r\nhost:") for one in sent]
            got = await asyncio.gather(*(everything(gateway.port, one) for one in closing))
            await records.wait(len(sent) - 1)  # what is no head is no exchange
            ready = await say(gateway.port, request("GET", "/readyz", None))
    seen = b"".join(got) + ready.body + b"".join(map(msgspec.json.encode, records.finished))
    for secret in (OURS, CLIENTS, "sk-bob", client_key("x", CLIENTS).sha256):
        assert secret.encode() not in seen
    assert seen.count(THEIRS.encode()) == seen.count(b"No upstream is named") > 0, "only what was said back by name"
