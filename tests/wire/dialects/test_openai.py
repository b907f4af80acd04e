"""OpenAI's chat and text completions, and the variants of those who speak like them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unslow.core.timeline import ChunkKind, CountSource, ServerTimings, Usage
from unslow.core.wire import SseDecoder
from unslow.core.wire.dialects import by_name
from unslow.core.wire.events import Delta, SseEvent

ROLE, CONTENT, REASONING, TOOL = ChunkKind.ROLE, ChunkKind.CONTENT, ChunkKind.REASONING, ChunkKind.TOOL
USAGE, DONE, ERROR = ChunkKind.USAGE, ChunkKind.DONE, ChunkKind.ERROR


def read(*frames: dict[str, Any] | bytes, name: str = "") -> list[Delta]:
    """Read frames by one reader."""
    reader = by_name("openai").reader()
    data = [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]
    return [delta for frame in data for delta in reader.read(SseEvent(frame, name))]


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def test_the_apis_own_stream() -> None:
    usage = {
        "prompt_tokens": 19,
        "completion_tokens": 2,
        "total_tokens": 21,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert read(
        chunk({"role": "assistant", "content": "", "refusal": None}, model="gpt-4o", usage=None),
        chunk({"content": "Hel"}, model="gpt-4o", usage=None),
        chunk({"content": "lo"}, model="gpt-4o", usage=None),
        chunk(finish="stop", model="gpt-4o", usage=None),
        {"choices": [], "usage": usage},
        b"[DONE]",
    ) == [
        Delta(ROLE, model="gpt-4o"),
        Delta(CONTENT, "Hel"),
        Delta(CONTENT, "lo"),
        Delta(ROLE, finish_reason="stop"),
        Delta(USAGE, usage=Usage(19, 2, 0, 16)),
        Delta(DONE),
    ]


def test_the_model_is_told_once_even_by_the_first_content() -> None:
    deltas = read(*[chunk({"role": "assistant", "content": "x"}, model="m")] * 3)
    assert [delta.model for delta in deltas] == ["m", None, None]
    assert {delta.kind for delta in deltas} == {CONTENT}


def test_the_model_is_told_when_it_comes_with_the_first_tokens_at_the_latest() -> None:
    assert [d.model for d in read({"choices": [], "model": ""}, chunk({"content": "x"}, model="m"))] == [None, "m"]
    assert [d.model for d in read(chunk({"content": "x"}), chunk({"content": "x"}, model="m"))] == [None, None]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_fields(field: str) -> None:
    deltas = read(
        chunk({"role": "assistant", "content": None, field: ""}, model="r"),
        chunk({"content": None, field: "Hm"}),
        chunk({"content": "", field: "."}),
        chunk({"content": "Yes", field: None}),
    )
    assert [(delta.kind, delta.text) for delta in deltas] == [
        (ROLE, ""),
        (REASONING, "Hm"),
        (REASONING, "."),
        (CONTENT, "Yes"),
    ]


def test_a_frame_that_means_several_things_says_them_in_order() -> None:
    call = {"index": 0, "function": {"name": "now", "arguments": "{}"}}
    frame = chunk({"content": "b", "reasoning_content": "a", "tool_calls": [call]}, finish="tool_calls")
    assert read(frame) == [
        Delta(REASONING, "a"),
        Delta(CONTENT, "b"),
        Delta(TOOL, "now{}", finish_reason="tool_calls"),
    ]


@pytest.mark.parametrize(
    ("delta", "kind", "text"),
    [
        ({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}, TOOL, "f"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}, TOOL, '{"a"'),
        ({"tool_calls": [{"index": 0, "custom": {"name": "g", "input": "x"}}]}, TOOL, "gx"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": {"a": 1}}}]}, TOOL, '{"a":1}'),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, ROLE, ""),
        ({"tool_calls": []}, ROLE, ""),
        ({"function_call": {"name": "h", "arguments": "{"}}, TOOL, "h{"),
        ({"refusal": "I can't"}, CONTENT, "I can't"),
        ({"audio": {"transcript": "hi", "data": "AAAA"}}, CONTENT, "hi"),
        ({"role": "assistant"}, ROLE, ""),
        ({}, ROLE, ""),
    ],
)
def test_what_a_delta_carries(delta: dict[str, Any], kind: ChunkKind, text: str) -> None:
    assert read(chunk(delta)) == [Delta(kind, text)]


WARM = chunk({"content": "w"}, model="m")
"""After it the usual frames are read the short way."""


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (
            chunk({"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}),
            [Delta(CONTENT, "x"), Delta(TOOL, "f")],
        ),
        (chunk({"content": "x"}, error={"message": "cut"}), [Delta(CONTENT, "x"), Delta(ERROR, error="cut")]),
        (chunk({"content": "x"}, finish="stop"), [Delta(CONTENT, "x", finish_reason="stop")]),
        (chunk({"content": "x", "reasoning": "r"}), [Delta(REASONING, "r"), Delta(CONTENT, "x")]),
        (chunk({"content": [{"type": "text", "text": "x"}]}), [Delta(CONTENT, "x")]),
        (chunk({"content": 7, "reasoning": ["r"]}), [Delta(ROLE)]),
        ({"choices": [WARM["choices"][0], WARM["choices"][0]]}, [Delta(CONTENT, "w")] * 2),
        (
            chunk({"content": "x"}, timings={"prompt_ms": 1}),
            [Delta(CONTENT, "x", server=ServerTimings(prefill_ns=10**6))],
        ),
    ],
)
def test_the_short_way_takes_only_the_usual_frame(frame: dict[str, Any], expected: list[Delta]) -> None:
    assert read(WARM, frame)[1:] == expected


def test_once_a_chunk_came_uncounted_no_total_counts_a_chunk() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 9}
    for first in ({"content": "b"}, {"reasoning": "b"}):
        deltas = read(
            WARM | {"usage": usage}, chunk(first), chunk({"content": "c"}, usage=usage | {"completion_tokens": 11})
        )
        assert [(delta.kind, delta.tokens) for delta in deltas][-2:] == [(CONTENT, None), (USAGE, None)]


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "9", 10**30, None, [3]])
def test_what_is_no_count_is_unknown(wrong: object) -> None:
    (delta,) = read({"choices": [], "usage": {"prompt_tokens": wrong, "completion_tokens": 3}})
    assert delta.usage == Usage(None, 3)


@pytest.mark.parametrize("wrong", [-1, True, "9", 10**30, None, 1e300])
def test_what_is_no_duration_is_unknown(wrong: object) -> None:
    (delta,) = read({"choices": [], "timings": {"prompt_ms": wrong, "predicted_ms": 2, "predicted_n": 1}})
    assert delta.server == ServerTimings(decode_ns=2_000_000)


def test_several_choices() -> None:
    frame = {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}
    assert read(frame) == [Delta(CONTENT, "a"), Delta(CONTENT, "b")]


def test_azures_filter_frames_are_no_tokens() -> None:
    assert read(
        {"choices": [], "model": "", "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]},
        {"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {}, "content_filter_offsets": {}}]},
        chunk({"content": "x"}, model="gpt"),
    ) == [Delta(ROLE), Delta(ROLE), Delta(CONTENT, "x", model="gpt")]


def test_continuous_usage_tells_the_tokens_of_each_chunk() -> None:
    """vLLM's `continuous_usage_stats`: totals so far in every chunk; four tokens in one are seen as four."""

    def usage(n: int) -> dict[str, int]:
        return {"prompt_tokens": 7, "completion_tokens": n, "total_tokens": 7 + n}

    deltas = read(
        chunk({"role": "assistant", "content": ""}, usage=usage(0)),
        chunk({"content": "a"}, usage=usage(1)),
        chunk({"content": "bcde"}, usage=usage(5)),
        chunk({"content": ""}, finish="stop", usage=usage(6)),
        {"choices": [], "usage": usage(6)},
    )
    assert [(delta.kind, delta.tokens) for delta in deltas] == [
        (ROLE, None),
        (CONTENT, 1),
        (CONTENT, 4),
        (USAGE, None),
        (USAGE, None),
    ]
    assert deltas[-1].usage == Usage(7, 6, source=CountSource.USAGE_DELTA)


def test_a_total_is_no_count_of_the_chunk_that_brings_it() -> None:
    deltas = read(
        chunk({"content": "a"}),
        chunk({"content": "b"}, finish="stop", usage={"prompt_tokens": 1, "completion_tokens": 9}),
    )
    assert [(delta.kind, delta.tokens) for delta in deltas] == [(CONTENT, None), (CONTENT, None), (USAGE, None)]
    assert deltas[-1].usage == Usage(1, 9)


def test_hidden_reasoning_is_not_counted_to_the_first_visible_chunk() -> None:
    def usage(n: int) -> dict[str, Any]:
        return {"prompt_tokens": 1, "completion_tokens": n, "completion_tokens_details": {"reasoning_tokens": 40}}

    deltas = read(chunk({"content": "a"}, usage=usage(41)), chunk({"content": "b"}, usage=usage(43)))
    assert [delta.tokens for delta in deltas] == [1, 2]


def test_usage_beside_an_empty_choice_is_usage() -> None:
    """LiteLLM, TensorZero, OpenRouter: the usage chunk has a choice."""
    (delta,) = read(chunk({"role": "assistant", "content": ""}, usage={"prompt_tokens": 5, "completion_tokens": 2}))
    assert (delta.kind, delta.usage) == (USAGE, Usage(5, 2))


def test_groq_times_in_seconds_under_either_key() -> None:
    usage = {"queue_time": 0.5, "prompt_tokens": 2, "prompt_time": 0.25, "completion_tokens": 3,
             "completion_time": 1.5, "total_time": 1.75}  # fmt: skip
    expected = ServerTimings(
        queue_ns=500_000_000, prefill_ns=250_000_000, decode_ns=1_500_000_000, total_ns=1_750_000_000
    )
    for more in ({"usage": usage}, {"x_groq": {"id": "r", "usage": usage}}):
        (delta,) = read(chunk(finish="stop", **more))
        assert (delta.kind, delta.server, delta.finish_reason) == (USAGE, expected, "stop")
        assert delta.usage == Usage(2, 3)


def test_cerebras_times() -> None:
    info = {"queue_time": 0.5, "prompt_time": 0.25, "completion_time": 1.0, "total_time": 1.75, "created": 1723733419}
    (delta,) = read(chunk(finish="stop", time_info=info))
    assert delta.server == ServerTimings(500_000_000, None, 250_000_000, None, 1_000_000_000, 1_750_000_000)


def test_llama_cpp_timings_give_times_and_counts() -> None:
    timings = {"cache_n": 8, "prompt_n": 4, "prompt_ms": 30.5, "predicted_n": 12, "predicted_ms": 600.25}
    (delta,) = read(chunk(finish="stop", timings=timings))
    assert delta.server == ServerTimings(prefill_ns=30_500_000, decode_ns=600_250_000)
    assert delta.usage == Usage(12, 12, None, 8)
    assert delta.kind is USAGE


def test_our_engines_timings_add_its_queue_and_fill_the_cached_tokens() -> None:
    timings = {"queue_ms": 1.5, "prompt_ms": 20, "predicted_ms": 80, "prompt_n": 12, "predicted_n": 9, "cache_n": 32}
    frame = {"choices": [], "usage": {"prompt_tokens": 44, "completion_tokens": 9}, "timings": timings}
    (delta,) = read(frame)
    assert delta.server == ServerTimings(queue_ns=1_500_000, prefill_ns=20_000_000, decode_ns=80_000_000)
    assert delta.usage == Usage(44, 9, None, 32)


def test_timings_in_each_chunk_count_its_tokens() -> None:
    """llama.cpp's `timings_per_token`."""
    frames = [
        chunk({"content": "x"}, timings={"prompt_n": 4, "prompt_ms": 30, "predicted_n": n, "predicted_ms": n})
        for n in (1, 2, 4)
    ]
    assert [(delta.kind, delta.tokens) for delta in read(*frames)] == [(CONTENT, 1), (CONTENT, 1), (CONTENT, 2)]


def test_reasoning_counted_beside_the_completion_is_added() -> None:
    """xAI: total = prompt + completion + reasoning."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115, "reasoning_tokens": 100}
    (delta,) = read({"choices": [], "usage": usage})
    assert delta.usage == Usage(10, 105, 100)


def test_deepseeks_cache_hits() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}
    (delta,) = read({"choices": [], "usage": usage})
    assert delta.usage is not None
    assert delta.usage.cached_tokens == 8


@pytest.mark.parametrize(
    ("frame", "name", "line"),
    [
        ({"error": {"message": "Rate limit\nreached", "type": "requests", "code": "rate_limit"}}, "",
         "rate_limit: Rate limit reached"),
        ({"error": "boom"}, "", "boom"),
        ({"error": {}, "choices": []}, "", None),
        ({"object": "error", "message": "too long", "code": 400}, "", "400: too long"),
        ({"message": "overloaded"}, "error", "overloaded"),
        (b"plain words", "error", "error event"),
        (chunk({"content": ""}, finish="error", error={"code": 502, "message": "upstream"}), "", "502: upstream"),
    ],
)  # fmt: skip
def test_errors_inside_the_stream(frame: dict[str, Any] | bytes, name: str, line: str | None) -> None:
    errors = [delta.error for delta in read(frame, name=name) if delta.kind is ERROR]
    assert errors == ([] if line is None else [line])


def test_encrypted_reasoning_is_hidden() -> None:
    details = [{"type": "reasoning.encrypted", "data": "abcd"}]
    assert read(chunk({"content": "", "reasoning_details": details})) == [Delta(ROLE, hidden=True)]


def test_text_completions() -> None:
    reader = by_name("openai-completions").reader()
    frames = (
        {"choices": [{"text": "Once", "index": 0}], "model": "t"},
        {"choices": [{"text": "", "finish_reason": "length"}]},
    )
    deltas = [delta for frame in frames for delta in reader.read(SseEvent(json.dumps(frame).encode()))]
    assert deltas == [Delta(CONTENT, "Once", model="t"), Delta(ROLE, finish_reason="length")]


def test_llama_cpps_own_completion_endpoint() -> None:
    reader = by_name("openai-completions").reader()
    assert reader.read(SseEvent(b'{"content":"Hi","stop":false}')) == [Delta(CONTENT, "Hi")]
    last = b'{"content":"","stop":true,"timings":{"prompt_n":3,"prompt_ms":9,"predicted_n":1,"predicted_ms":5}}'
    (delta,) = reader.read(SseEvent(last))
    assert (delta.kind, delta.usage) == (USAGE, Usage(3, 1, source=CountSource.USAGE_TOTAL))


def test_an_answer_that_was_not_streamed() -> None:
    body = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "Hi", "reasoning": "Hm"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    assert by_name("openai").body(json.dumps(body).encode()) == [
        Delta(REASONING, "Hm", model="m"),
        Delta(CONTENT, "Hi", finish_reason="stop"),
        Delta(USAGE, usage=Usage(3, 4)),
        Delta(DONE),
    ]


def test_a_whole_answer_that_is_an_error_or_no_json() -> None:
    assert by_name("openai").body(b'{"error":{"message":"no such model","code":"model_not_found"}}') == [
        Delta(ERROR, error="model_not_found: no such model")
    ]
    assert by_name("openai").body(b"<html>502</html>") == []


def test_embeddings_have_usage_and_no_tokens() -> None:
    body = b'{"object":"list","data":[{"embedding":[0.1]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}'
    deltas = by_name("openai").body(body)
    assert [delta.kind for delta in deltas] == [USAGE, DONE]
    assert deltas[0].usage == Usage(8)


def test_frames_of_another_shape_are_read_as_far_as_they_go() -> None:
    assert read({"choices": [7, {"delta": {"content": "x"}}, None]}) == [Delta(CONTENT, "x")]
    assert read({"choices": {"delta": {"content": "x"}}}) == [Delta(ROLE)]
    assert read({"choices": [{"delta": "x"}]}) == [Delta(ROLE)]
    assert read(b"[]", b"7", b"null", b"{", b"", b"\xff\xfe") == []


def test_through_the_decoder_as_the_relay_does() -> None:
    stream = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' * 3 + b"data: [DONE]\n\n"
    decoder, reader = SseDecoder(), by_name("openai").reader()
    deltas = [d for event in decoder.feed(stream) if isinstance(event, SseEvent) for d in reader.read(event)]
    assert [delta.kind for delta in deltas] == [CONTENT, CONTENT, CONTENT, DONE]
