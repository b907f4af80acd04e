"""Responses, Messages, Gemini, Ollama, Bedrock: each frame's meaning, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unslow.core.timeline import ChunkKind, CountSource, ServerTimings, Usage
from unslow.core.wire.dialects import by_name
from unslow.core.wire.events import Delta, SseEvent

ROLE, CONTENT, REASONING, TOOL = ChunkKind.ROLE, ChunkKind.CONTENT, ChunkKind.REASONING, ChunkKind.TOOL
USAGE, DONE, ERROR, KEEPALIVE = ChunkKind.USAGE, ChunkKind.DONE, ChunkKind.ERROR, ChunkKind.KEEPALIVE


def read(dialect: str, *frames: dict[str, Any] | bytes, name: str = "") -> list[Delta]:
    reader = by_name(dialect).reader()
    data = [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]
    return [delta for frame in data for delta in reader.read(SseEvent(frame, name))]


def whole(dialect: str, body: dict[str, Any] | list[Any]) -> list[Delta]:
    return by_name(dialect).body(json.dumps(body).encode())


# Responses


@pytest.mark.parametrize(
    ("kind", "channel"),
    [
        ("response.output_text.delta", CONTENT),
        ("response.refusal.delta", CONTENT),
        ("response.reasoning_text.delta", REASONING),
        ("response.reasoning_summary_text.delta", REASONING),
        ("response.function_call_arguments.delta", TOOL),
        ("response.custom_tool_call_input.delta", TOOL),
        ("response.mcp_call_arguments.delta", TOOL),
    ],
)
def test_responses_deltas(kind: str, channel: ChunkKind) -> None:
    assert read("openai-responses", {"type": kind, "delta": "x"}) == [Delta(channel, "x")]
    assert read("openai-responses", {"delta": "x"}, name=kind) == [Delta(channel, "x")]
    assert read("openai-responses", {"type": kind, "delta": ""}) == [Delta(ROLE)]


def test_responses_text_that_was_told_is_not_told_again() -> None:
    done: list[dict[str, Any]] = [
        {"type": "response.output_text.done", "text": "Hello"},
        {"type": "response.content_part.done", "part": {"type": "output_text", "text": "Hello"}},
        {"type": "response.output_item.done", "item": {"type": "message", "content": [{"text": "Hello"}]}},
    ]
    assert read("openai-responses", *done) == [Delta(ROLE)] * 3


def test_responses_begin_and_end() -> None:
    usage = {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    response = {"model": "gpt-5", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    deltas = read(
        "openai-responses",
        {"type": "response.created", "response": {"model": "gpt-5", "usage": None}},
        {"type": "response.in_progress", "response": {"model": "gpt-5"}},
        {"type": "response.incomplete", "response": response | {"usage": usage}},
    )
    assert deltas == [
        Delta(ROLE, model="gpt-5"),
        Delta(ROLE),
        Delta(USAGE, usage=Usage(30, 9, 4, 20), model="gpt-5"),
        Delta(DONE, finish_reason="max_output_tokens"),
    ]


def test_responses_reasoning_kept_back_is_hidden() -> None:
    item = {"type": "reasoning", "id": "rs", "summary": []}
    deltas = read(
        "openai-responses",
        {"type": "response.output_item.added", "item": item},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.output_item.added", "item": item | {"encrypted_content": "gAAA"}},
        {"type": "response.output_item.done", "item": item | {"summary": [{"text": "thought"}]}},
    )
    assert [delta.hidden for delta in deltas] == [False, True, True, False]


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        ({"type": "error", "code": "server_error", "message": "oops"}, "server_error: oops"),
        ({"type": "error", "error": {"type": "overloaded", "message": "busy"}}, "overloaded: busy"),
        ({"type": "response.failed", "response": {"status": "failed", "error": {"code": "x", "message": "y"}}}, "x: y"),
        ({"type": "response.failed", "response": {"status": "failed"}}, "failed"),
    ],
)
def test_responses_errors(frame: dict[str, Any], line: str) -> None:
    (delta,) = read("openai-responses", frame)
    assert (delta.kind, delta.error) == (ERROR, line)


def test_a_whole_response() -> None:
    body = {
        "model": "gpt-5",
        "status": "completed",
        "error": None,
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
            {"type": "function_call", "name": "f", "arguments": "{}"},
            {
                "type": "message",
                "content": [{"type": "output_text", "text": "Hi"}, {"type": "refusal", "refusal": "no"}],
            },
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    assert [(delta.kind, delta.text) for delta in whole("openai-responses", body)] == [
        (REASONING, "Hm"),
        (TOOL, "f{}"),
        (CONTENT, "Hi"),
        (CONTENT, "no"),
        (USAGE, ""),
        (DONE, ""),
    ]
    assert whole("openai-responses", {"error": {"message": "bad"}})[0].error == "bad"


# Messages


def test_messages_stream() -> None:
    start = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}
    deltas = read(
        "anthropic",
        {"type": "message_start", "message": {"model": "claude", "usage": start}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "ping"},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "name": "f", "input": {}}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": ""}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    assert deltas == [
        Delta(ROLE, usage=Usage(125, 1, None, 100), model="claude"),
        Delta(ROLE),
        Delta(REASONING, "Hm"),
        Delta(ROLE),
        Delta(ROLE),
        Delta(KEEPALIVE),
        Delta(ROLE),
        Delta(CONTENT, "Hi"),
        Delta(TOOL, "f"),
        Delta(ROLE),
        Delta(TOOL, "{"),
        Delta(USAGE, usage=Usage(125, 9, None, 100), finish_reason="tool_use"),
        Delta(DONE),
    ]


def test_messages_thinking_that_is_not_shown_is_hidden() -> None:
    signature = {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "s"}}
    redacted = {"type": "content_block_start", "content_block": {"type": "redacted_thinking", "data": "x"}}
    assert read("anthropic", signature, redacted) == [Delta(ROLE, hidden=True)] * 2


def test_messages_error_and_unknown_events() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert read("anthropic", error, name="error") == [Delta(ERROR, error="overloaded_error: Overloaded")]
    assert read("anthropic", {"type": "something_new"}) == [Delta(ROLE)]
    assert read("anthropic", b"not json") == []


def test_a_whole_message() -> None:
    body = {
        "type": "message",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    assert whole("anthropic", body) == [
        Delta(REASONING, "Hm"),
        Delta(CONTENT, "Hi"),
        Delta(TOOL, 'f{"a":1}'),
        Delta(USAGE, usage=Usage(3, 4), finish_reason="tool_use", model="claude"),
        Delta(DONE),
    ]
    assert whole("anthropic", {"type": "error", "error": {"message": "no"}}) == [Delta(ERROR, error="no")]


# Gemini


def candidate(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}], **more}


def test_gemini_thoughts_content_and_calls() -> None:
    call = {"functionCall": {"name": "f", "args": {"a": 1}}}
    deltas = read(
        "gemini",
        candidate({"text": "Hm", "thought": True}, modelVersion="g"),
        candidate({"text": "Hi"}, call),
        candidate({"text": ""}, finish="STOP"),
    )
    assert deltas == [
        Delta(REASONING, "Hm", model="g"),
        Delta(CONTENT, "Hi"),
        Delta(TOOL, 'f{"a":1}'),
        Delta(ROLE, finish_reason="STOP"),
        Delta(DONE),
    ]


def test_gemini_totals_so_far_give_the_tokens_of_each_chunk() -> None:
    def meta(candidates: int) -> dict[str, int]:
        return {"promptTokenCount": 4, "candidatesTokenCount": candidates, "cachedContentTokenCount": 2}

    deltas = read(
        "gemini",
        candidate({"text": "a"}, usageMetadata=meta(2)),
        candidate({"text": "b"}, finish="STOP", usageMetadata=meta(7)),
    )
    assert [delta.tokens for delta in deltas] == [2, 5, None]
    assert deltas[1].usage == Usage(4, 7, None, 2, CountSource.USAGE_DELTA)
    assert not deltas[1].hidden


def test_gemini_counts_thoughts_apart_from_what_is_seen() -> None:
    deltas = read(
        "gemini",
        candidate({"text": "Hm", "thought": True}, usageMetadata={"promptTokenCount": 4, "thoughtsTokenCount": 50}),
        candidate(
            {"text": "a"}, usageMetadata={"promptTokenCount": 4, "candidatesTokenCount": 1, "thoughtsTokenCount": 60}
        ),
    )
    assert [(delta.kind, delta.tokens, delta.hidden) for delta in deltas] == [
        (REASONING, None, False),
        (USAGE, None, False),
        (CONTENT, 1, False),
    ]
    assert deltas[-1].usage == Usage(4, 61, 60, None, CountSource.USAGE_DELTA)


def test_gemini_errors() -> None:
    assert read("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}) == [
        Delta(ERROR, error="prompt blocked: SAFETY", finish_reason="SAFETY")
    ]
    error = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}}
    assert read("gemini", error) == [Delta(ERROR, error="429: quota")]


def test_gemini_whole_and_as_an_array() -> None:
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 2}
    assert whole("gemini", candidate({"text": "Hi"}, finish="STOP", usageMetadata=usage)) == [
        Delta(CONTENT, "Hi", usage=Usage(1, 2), finish_reason="STOP"),
        Delta(DONE),
    ]
    array = whole("gemini", [candidate({"text": "a"}), candidate({"text": "b"}, finish="STOP")])
    assert [(delta.kind, delta.text) for delta in array] == [(CONTENT, "a"), (CONTENT, "b"), (DONE, "")]


def test_gemini_interaction_thoughts_and_errors() -> None:
    deltas = read(
        "gemini",
        {"event_type": "step.delta", "delta": {"type": "thought_summary", "content": {"type": "text", "text": "Hm"}}},
        {"event_type": "step.delta", "delta": {"type": "function_call", "name": "f", "arguments": {"a": 1}}},
        {"event_type": "error", "error": {"code": 500, "message": "x"}},
    )
    assert deltas == [Delta(REASONING, "Hm"), Delta(TOOL, 'f{"a":1}'), Delta(ERROR, error="500: x")]


# Ollama


def test_ollama_chat() -> None:
    end = {"model": "q", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
           "total_duration": 900, "load_duration": 300, "prompt_eval_count": 26, "prompt_eval_duration": 100,
           "eval_count": 290, "eval_duration": 400}  # fmt: skip
    deltas = read(
        "ollama",
        {"model": "q", "message": {"role": "assistant", "content": "", "thinking": "Hm"}, "done": False},
        {"model": "q", "message": {"role": "assistant", "content": "Hi"}, "done": False},
        {"model": "q", "message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, "done": False},
        end,
    )
    assert deltas == [
        Delta(REASONING, "Hm", model="q"),
        Delta(CONTENT, "Hi"),
        Delta(TOOL, 'f{"a":1}'),
        Delta(USAGE, usage=Usage(26, 290), server=ServerTimings(None, 300, 100, None, 400, 900)),
        Delta(DONE, finish_reason="stop"),
    ]


def test_ollama_generate_error_and_load_only() -> None:
    assert read("ollama", {"response": "Sky", "done": False}) == [Delta(CONTENT, "Sky")]
    assert read("ollama", {"error": "model not found"}) == [Delta(ERROR, error="model not found")]
    assert read("ollama", {"response": "", "done": True, "done_reason": "load"}) == [Delta(DONE, finish_reason="load")]
    assert read("ollama", {"response": "", "thinking": "Hm", "done": False}) == [Delta(REASONING, "Hm")]


# Bedrock


def test_bedrock_stream_by_key_and_by_event_name() -> None:
    assert read("bedrock", {"contentBlockDelta": {"delta": {"text": "Hi"}}}) == [Delta(CONTENT, "Hi")]
    assert read("bedrock", {"delta": {"text": "Hi"}}, name="contentBlockDelta") == [Delta(CONTENT, "Hi")]
    assert read("bedrock", {"contentBlockDelta": {"delta": {"toolUse": {"input": "{"}}}}) == [Delta(TOOL, "{")]
    assert read("bedrock", {"contentBlockDelta": {"delta": {"reasoningContent": {"redactedContent": "x"}}}}) == [
        Delta(ROLE, hidden=True)
    ]
    assert read("bedrock", {"throttlingException": {"message": "slow down"}}) == [Delta(ERROR, error="slow down")]


def test_a_whole_bedrock_answer() -> None:
    body = {
        "output": {
            "message": {
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm"}}},
                    {"text": "Hi"},
                    {"toolUse": {"name": "f", "input": {"a": 1}}},
                ]
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 3, "outputTokens": 4, "cacheReadInputTokens": 5},
        "metrics": {"latencyMs": 1500},
    }
    assert whole("bedrock", body) == [
        Delta(REASONING, "Hm"),
        Delta(CONTENT, "Hi"),
        Delta(TOOL, 'f{"a":1}'),
        Delta(USAGE, usage=Usage(8, 4, None, 5), server=ServerTimings(total_ns=1_500_000_000)),
        Delta(DONE, finish_reason="tool_use"),
    ]
    assert whole("bedrock", {"message": "no access"}) == [Delta(ERROR, error="no access")]
