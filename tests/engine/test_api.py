from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.serve.engine import api
from unslow.serve.engine.link import Chat, Ids, Message, Text
from unslow.serve.engine.refusal import Refusal
from unslow.serve.engine.settings import EngineSettings

SETTINGS = EngineSettings()
HI = [{"role": "user", "content": "hi"}]


def chat(**more: Any) -> api.Request:
    return api.chat_request(msgspec.json.encode({"messages": HI, **more}), SETTINGS, seed=5)


def complete(**more: Any) -> api.Request:
    return api.completion_request(msgspec.json.encode({"prompt": "hi", **more}), SETTINGS, seed=5)


def refused(**more: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        chat(**more)
    return caught.value


def test_what_a_request_leaves_out_comes_from_the_settings() -> None:
    request = chat()
    assert request.prompt == Chat([Message("user", "hi")])
    assert (request.sampling.temperature, request.sampling.top_p) == (0.2, 0.9)
    assert (request.sampling.max_tokens, request.sampling.seed) == (2_048, 5)
    assert not request.stream
    assert complete().sampling.max_tokens == 16


def test_what_a_request_says_is_taken() -> None:
    request = chat(
        model="smollm2-135m-instruct", temperature=0, top_p=0.5, seed=7, max_completion_tokens=3, stop=["a", "b"],
        stream=True, stream_options={"include_usage": True}, presence_penalty=1, frequency_penalty=-1.5,
    )  # fmt: skip
    assert request.sampling.temperature == 0
    assert (request.sampling.seed, request.sampling.max_tokens) == (7, 3)
    assert (request.sampling.presence_penalty, request.sampling.frequency_penalty) == (1, -1.5)
    assert (request.stops, request.stream, request.include_usage) == (("a", "b"), True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2), ("n", True), ("tools", [{}]), ("logprobs", True), ("logit_bias", {"1": 2}), ("audio", {}),
        ("response_format", {"type": "json_object"}), ("functions", [{}]), ("store", True),
        ("reasoning_effort", "high"),
    ],
)  # fmt: skip
def test_what_we_do_not_do_is_refused_by_name(name: str, value: object) -> None:
    refusal = refused(**{name: value})
    assert (refusal.status, refusal.code, refusal.param) == (400, "unsupported_parameter", name)
    assert f"`{name}`" in refusal.message


@pytest.mark.parametrize(
    "more",
    [
        {"n": 1},
        {"tools": []},
        {"logprobs": False},
        {"response_format": {"type": "text"}},
        {"user": "u"},
        {"stop": None},
    ],
)
def test_what_asks_for_nothing_is_let_through(more: dict[str, object]) -> None:
    assert chat(**more) == chat()


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"colour": 1}, "unknown_parameter", "colour"),
        ({"temperature": "warm"}, "invalid_type", "temperature"),
        ({"temperature": 2.5}, "invalid_value", "temperature"),
        ({"top_p": -0.1}, "invalid_value", "top_p"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "invalid_value", "max_completion_tokens"),
        ({"seed": "x"}, "invalid_type", "seed"),
        ({"stop": [""]}, "invalid_value", "stop"),
        ({"stop": ["x"] * 17}, "invalid_value", "stop"),
        ({"stop": [1]}, "invalid_type", "stop[0]"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "invalid_type", "stream_options"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "invalid_value", "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "unsupported_parameter", None),
        ({"messages": "hi"}, "invalid_type", "messages"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "unsupported_parameter", None),
    ],
)
def test_bad_values_are_named(more: dict[str, object], code: str, param: str | None) -> None:
    refusal = refused(**more)
    assert (refusal.status, refusal.code) == (400, code)
    if param:
        assert refusal.param == param
    assert list(msgspec.json.decode(refusal.body)["error"]) == ["message", "type", "param", "code"]


def test_text_parts_are_joined_and_developer_is_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = chat(messages=[{"role": "developer", "content": parts}])
    assert request.prompt == Chat([Message("system", "ab")])


def test_another_model_is_not_found() -> None:
    assert (refused(model="gpt-9").status, refused(model="gpt-9").code) == (404, "model_not_found")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000])
def test_a_body_that_is_no_json_object(body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        api.chat_request(body, SETTINGS, 0)
    assert caught.value.code == "invalid_json"


def test_prompts_are_text_or_ids() -> None:
    assert complete().prompt == Text("hi")
    assert complete(prompt=["hi"]).prompt == Text("hi")
    assert complete(prompt=[1, 2]).prompt == Ids([1, 2])
    for bad in ([], ["a", "b"], [1, "a"], [-1], [1 << 80], [True], "", [[1]]):
        with pytest.raises(Refusal):
            complete(prompt=bad)


def test_tokenize_takes_one_of_two() -> None:
    assert api.tokenize_request(b'{"prompt": "x"}', SETTINGS) == Text("x")
    with pytest.raises(Refusal):
        api.tokenize_request(b"{}", SETTINGS)
    with pytest.raises(Refusal):
        api.tokenize_request(b'{"prompt": "x", "messages": []}', SETTINGS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from([*api.ChatBody.__struct_fields__, *api.CompletionBody.__struct_fields__, "n", "tools", "x"])


@given(st.dictionaries(names, json_values, max_size=6), st.sampled_from([chat, complete]))
@settings(deadline=None, max_examples=300)
def test_any_body_is_taken_or_refused(body: dict[str, Any], ask: Any) -> None:
    try:
        request = ask(**body)
    except Refusal as refusal:
        refused_with = refusal.status
        assert refused_with in (400, 404)
    else:
        assert 0 <= request.sampling.seed < 1 << 32
        assert request.sampling.max_tokens >= 1
