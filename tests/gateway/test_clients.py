"""The real Python clients of OpenAI and Anthropic, unchanged, through the gateway: answers, streams, errors, aborts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import openai
import pytest
from tests.support.gateway import Plain, becomes, relay
from tests.support.records import Records
from tests.support.upstream import SSE_HEAD, Call, Upstream, both_apis, chunk, delta, json_answer

from unslow.core.timeline import End
from unslow.serve.gateway.settings import UpstreamSettings, client_key

pytestmark = pytest.mark.anyio

ASKED: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def apis(plain: Plain) -> Plain:
    """The module's worker, with both APIs behind it."""
    plain.upstream.script = both_apis
    return plain


@pytest.fixture
async def async_openai(apis: Plain) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=apis.gateway.url, api_key="sk-x", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_anthropic(apis: Plain) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base = apis.gateway.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="sk-x", max_retries=0) as client:
        yield client


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run a blocking client while the servers go on."""
    return await asyncio.to_thread(work)


# -- OpenAI


async def test_openai_async(async_openai: openai.AsyncOpenAI, apis: Plain) -> None:
    answer = await async_openai.chat.completions.create(model="mock", messages=ASKED)
    assert answer.choices[0].message.content == "hello"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5
    for _ in range(3):
        stream = await async_openai.chat.completions.create(
            model="mock", messages=ASKED, stream=True, stream_options={"include_usage": True}
        )
        frames = [frame async for frame in stream]
        assert "".join(f.choices[0].delta.content or "" for f in frames if f.choices) == "hello"
        assert frames[-1].usage is not None
    assert apis.upstream.calls[-1].headers["authorization"] == "Bearer sk-x"
    raw = await async_openai.chat.completions.with_raw_response.create(model="mock", messages=ASKED)
    assert raw.headers["x-unslow-upstream"] == "up0"


async def test_openai_sync(apis: Plain) -> None:
    def work() -> tuple[str | None, str, list[str]]:
        with openai.OpenAI(base_url=apis.gateway.url, api_key="sk-x", max_retries=0) as client:
            answer = client.chat.completions.create(model="mock", messages=ASKED)
            stream = client.chat.completions.create(model="mock", messages=ASKED, stream=True)
            text = "".join(f.choices[0].delta.content or "" for f in stream if f.choices)
            return answer.choices[0].message.content, text, [model.id for model in client.models.list()]

    assert await in_thread(work) == ("hello", "hello", ["mock"])


async def test_openai_s_other_endpoints(async_openai: openai.AsyncOpenAI, apis: Plain) -> None:
    embedded = await async_openai.embeddings.create(model="mock", input="x", encoding_format="float")
    assert embedded.data[0].embedding == [0.5, 1.0]
    spoken = await async_openai.audio.transcriptions.create(model="mock", file=("a.wav", bytes(range(256)) * 20))
    assert spoken.text == "heard 5120"
    sound = await async_openai.audio.speech.create(model="mock", voice="x", input="x")
    assert sound.read() == bytes(range(256))
    assert (await async_openai.models.retrieve("mock")).id == "mock"
    stream = await async_openai.responses.create(model="mock", input="hi", stream=True)
    kinds = [event.type async for event in stream]
    assert kinds == ["response.created", "response.output_text.delta", "response.completed"]


OPENAI_ERRORS: list[tuple[int, type[openai.APIStatusError]]] = [
    (400, openai.BadRequestError),
    (401, openai.AuthenticationError),
    (403, openai.PermissionDeniedError),
    (404, openai.NotFoundError),
    (409, openai.ConflictError),
    (422, openai.UnprocessableEntityError),
    (429, openai.RateLimitError),
    (500, openai.InternalServerError),
    (503, openai.InternalServerError),
]


async def test_openai_s_errors_of_an_upstream(async_openai: openai.AsyncOpenAI, apis: Plain) -> None:
    for status, kind in OPENAI_ERRORS:
        apis.upstream.script = failing(status)
        for stream in (False, True):
            with pytest.raises(kind) as failed:
                await async_openai.chat.completions.create(model="mock", messages=ASKED, stream=stream)
            assert failed.value.status_code == status
            assert failed.value.body == {"message": f"theirs {status}", "type": "t", "code": "c", "param": None}


def failing(status: int) -> Callable[[Call], Any]:
    async def script(call: Call) -> None:
        error = {"message": f"theirs {status}", "type": "t", "code": "c", "param": None}
        await call.send(json_answer({"type": "error", "error": error}, f"{status} X"))

    return script


async def test_our_own_errors_are_openai_s() -> None:
    """Status, code and message arrive in the client's own exception."""
    async with Upstream(both_apis) as upstream:
        settings: dict[str, Any] = {"api_keys": (client_key("k", "sk-good"),), "max_body_bytes": 5000}
        named = UpstreamSettings(name="a", url=upstream.url, models=("mock",))
        dead = UpstreamSettings(name="b", url="http://127.0.0.1:1/v1", models=("dead",))
        async with relay(named, dead, **settings) as gateway:
            good = openai.AsyncOpenAI(base_url=gateway.url, api_key="sk-good", max_retries=0)
            async with good, good.with_options(api_key="sk-bad") as bad:
                cases: list[tuple[openai.AsyncOpenAI, str, Any, type[openai.APIStatusError], str]] = [
                    (bad, "mock", ASKED, openai.AuthenticationError, "invalid_api_key"),
                    (good, "other", ASKED, openai.NotFoundError, "model_not_found"),
                    (good, "dead", ASKED, openai.InternalServerError, "connect_failed"),
                    (good, "mock", [{"role": "user", "content": "x" * 9000}], openai.APIStatusError, "body_too_large"),
                ]
                for client, model, messages, kind, code in cases:
                    with pytest.raises(kind) as failed:
                        await client.chat.completions.create(model=model, messages=messages)
                    assert failed.value.code == code
                    assert isinstance(failed.value.body, dict)
                    assert failed.value.body["message"]
                assert (await good.chat.completions.create(model="mock", messages=ASKED)).model == "mock"


async def test_a_cut_stream_raises(async_openai: openai.AsyncOpenAI, apis: Plain) -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")) + chunk(delta("b"))[:-9])
        call.close()

    apis.upstream.script = script
    stream = await async_openai.chat.completions.create(model="mock", messages=ASKED, stream=True)
    with pytest.raises(Exception, match=r"(?i)incomplete|peer closed|connection"):
        _ = [frame async for frame in stream]


async def test_a_client_that_stops_early_is_heard(records: Records) -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD)
        for _ in range(1000):
            await call.send(chunk(delta("a")))
            await asyncio.sleep(0.01)

    async with Upstream(script) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        async with openai.AsyncOpenAI(base_url=gateway.url, api_key="x", max_retries=0) as client:
            stream = await client.chat.completions.create(model="mock", messages=ASKED, stream=True)
            async for _frame in stream:
                break
            await stream.close()
            outcome = (await records.wait())[0].timeline.outcome
        await becomes(lambda: upstream.open <= 1)  # the probe's connection may be there still
    assert (outcome.end, outcome.kind) == (End.ABORTED, "client_gone")


async def test_many_streams_at_once(async_openai: openai.AsyncOpenAI) -> None:
    async def one() -> str:
        stream = await async_openai.chat.completions.create(model="mock", messages=ASKED, stream=True)
        return "".join([frame.choices[0].delta.content or "" async for frame in stream if frame.choices])

    assert set(await asyncio.gather(*(one() for _ in range(40)))) == {"hello"}


# -- Anthropic


async def test_anthropic_async(async_anthropic: anthropic.AsyncAnthropic, apis: Plain) -> None:
    answer = await async_anthropic.messages.create(model="mock", max_tokens=10, messages=ASKED)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "hello"
    async with async_anthropic.messages.stream(model="mock", max_tokens=10, messages=ASKED) as stream:
        assert "".join([text async for text in stream.text_stream]) == "hello"
        final = await stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 2)
    counted = await async_anthropic.messages.count_tokens(model="mock", messages=ASKED)
    assert counted.input_tokens == 3
    sent = apis.upstream.calls[-1].headers
    assert "sk-x" in (sent.get("authorization", "") + sent.get("x-api-key", ""))
    assert "anthropic-version" in sent


async def test_anthropic_sync(apis: Plain) -> None:
    def work() -> tuple[Any, str]:
        base = apis.gateway.url.removesuffix("/v1")
        with anthropic.Anthropic(base_url=base, api_key="sk-x", max_retries=0) as client:
            answer = client.messages.create(model="mock", max_tokens=10, messages=ASKED)
            with client.messages.stream(model="mock", max_tokens=10, messages=ASKED) as stream:
                return answer.content[0], "".join(stream.text_stream)

    block, text = await in_thread(work)
    assert (block.text, text) == ("hello", "hello")


async def test_anthropic_s_errors(async_anthropic: anthropic.AsyncAnthropic, apis: Plain) -> None:
    kinds: list[tuple[int, type[anthropic.APIStatusError]]] = [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (404, anthropic.NotFoundError),
        (429, anthropic.RateLimitError),
        (529, anthropic.APIStatusError),
    ]
    for status, kind in kinds:
        apis.upstream.script = failing(status)
        with pytest.raises(kind) as failed:
            await async_anthropic.messages.create(model="mock", max_tokens=10, messages=ASKED)
        assert failed.value.status_code == status
        assert f"theirs {status}" in failed.value.message


async def test_our_own_errors_reach_anthropic_s_client() -> None:
    async with relay("http://127.0.0.1:1/v1") as gateway:
        base = gateway.url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=base, api_key="x", max_retries=0) as client:
            with pytest.raises(anthropic.InternalServerError) as failed:
                await client.messages.create(model="mock", max_tokens=10, messages=ASKED)
    assert failed.value.status_code == 502
    assert "connect_failed" in json.dumps(failed.value.body)


async def test_streams_of_both_are_recorded_in_their_own_words(records: Records) -> None:
    async with Upstream(both_apis) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        async with (
            anthropic.AsyncAnthropic(base_url=gateway.url.removesuffix("/v1"), api_key="x") as client,
            client.messages.stream(model="mock", max_tokens=10, messages=ASKED) as stream,
        ):
            await stream.get_final_message()
        async with openai.AsyncOpenAI(base_url=gateway.url, api_key="x") as other:
            _ = [e async for e in await other.responses.create(model="mock", input="hi", stream=True)]
        first, second = [one.timeline for one in await records.wait(2)]
    for timeline in (first, second):
        assert timeline.outcome.end is End.COMPLETED
        assert [kind.value for kind in timeline.chunks.kind].count("content") >= 1
        assert timeline.chunks.kind[-1].value == "done"
        assert timeline.facts.usage is not None
        assert (timeline.facts.usage.prompt_tokens, timeline.facts.usage.completion_tokens) == (3, 2)
