"""No reader raises, whatever a provider sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.core.timeline import ChunkKind
from unslow.core.wire.dialects import NAMES, by_name
from unslow.core.wire.events import Delta, SseEvent

_WORDS = st.sampled_from(
    [
        "choices", "delta", "message", "content", "reasoning", "reasoning_content", "tool_calls", "function", "name",
        "arguments", "usage", "prompt_tokens", "completion_tokens", "prompt_tokens_details", "total_tokens", "timings",
        "predicted_n", "prompt_ms", "x_groq", "queue_time", "error", "model", "finish_reason", "text", "type",
        "response", "item", "output", "summary", "encrypted_content", "content_block", "thinking", "input_tokens",
        "output_tokens", "candidates", "parts", "thought", "usageMetadata", "candidatesTokenCount", "finishReason",
        "promptFeedback", "blockReason", "event_type", "interaction", "done", "eval_count", "load_duration", "metrics",
        "contentBlockDelta", "metadata", "outputs", "functionCall", "reasoning_details", "audio", "input", "args",
    ]
)  # fmt: skip
_TYPES = st.sampled_from(
    [
        "message_start", "content_block_start", "content_block_delta", "message_delta", "error", "text_delta", "ping",
        "thinking_delta", "tool_use", "redacted_thinking", "response.completed", "response.output_item.added",
        "response.output_text.delta", "response.created", "response.failed", "reasoning", "function_call", "thinking",
        "interaction.completed", "step.delta", "reasoning.encrypted",
    ]
)  # fmt: skip
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | _TYPES
)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=6),
    max_leaves=25,
)
_FRAMES = st.dictionaries(_WORDS, _VALUES, max_size=8)


def check(deltas: list[Delta]) -> None:
    for delta in deltas:
        assert isinstance(delta.kind, ChunkKind)
        assert isinstance(delta.text, str)
        assert delta.tokens is None or delta.tokens >= 0
        assert (delta.kind is ChunkKind.ERROR) == (delta.error is not None)
        assert delta.error is None or "\n" not in delta.error
        for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"):
            count = getattr(delta.usage, name) if delta.usage else None
            assert count is None or (isinstance(count, int) and count >= 0)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=150)
@given(frames=st.lists(_FRAMES, max_size=4), event=st.sampled_from(["", "error", "message_start", "metadata"]))
def test_readers_take_any_object(name: str, frames: list[dict[str, Any]], event: str) -> None:
    dialect = by_name(name)
    reader = dialect.reader()
    for frame in frames:
        data = json.dumps(frame).encode()
        check(reader.read(SseEvent(data, event)))
        check(dialect.body(data))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(value=_VALUES)
def test_readers_take_any_json(name: str, value: Any) -> None:
    data = json.dumps(value).encode()
    check(by_name(name).reader().read(SseEvent(data)))
    check(by_name(name).body(data))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(data=st.binary(max_size=60))
def test_readers_take_any_bytes(name: str, data: bytes) -> None:
    check(by_name(name).reader().read(SseEvent(data)))
    check(by_name(name).body(data))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"choices":' * 50_000,
        b'{"usage":{"prompt_tokens":1e400,"completion_tokens":' + b"9" * 400 + b"}}",
        b'{"choices":[{"delta":{"content":"\\ud800"}}]}',
        b'{"eval_count":1e308,"load_duration":1e308,"done":true}',
        b'{"type":"content_block_delta","delta":{"type":"text_delta","text":"\xff"}}',
        b'{"message":{"content":"' + b"x" * (1 << 20),
    ],
)
def test_readers_take_hostile_frames(name: str, data: bytes) -> None:
    check(by_name(name).reader().read(SseEvent(data, truncated=True)))
    check(by_name(name).body(data))
