from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.core.timeline import ChunkKind
from unslow.core.wire.dialects import by_name
from unslow.core.wire.dialects.openai import OpenAiReader
from unslow.core.wire.dialects.plain import plain_answer
from unslow.core.wire.events import Delta, SseEvent


def long_way(data: bytes) -> list[Delta]:
    return [*OpenAiReader(counting=False).read(SseEvent(data)), Delta(ChunkKind.DONE)]


def answer(**more: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hi", "refusal": None}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        **more,
    }


counts = st.integers(0, 1 << 20) | st.none() | st.just(-1) | st.just(1.0) | st.just("3")
odd: Any = st.none() | st.just("x") | st.just([]) | st.just({}) | st.integers()


@settings(deadline=None)
@given(
    st.fixed_dictionaries({}, optional={
        "usage": st.fixed_dictionaries({}, optional={
            "prompt_tokens": counts, "completion_tokens": counts, "total_tokens": counts, "queue_time": counts,
            "prompt_tokens_details": st.fixed_dictionaries({}, optional={"cached_tokens": counts}) | odd,
            "completion_tokens_details": st.fixed_dictionaries({}, optional={"reasoning_tokens": counts}) | odd,
        }) | odd,
        "model": st.text(max_size=3) | odd, "timings": odd, "x_groq": odd, "time_info": odd, "error": odd,
        "choices": st.lists(st.fixed_dictionaries({}, optional={
            "message": st.fixed_dictionaries({}, optional={"content": st.text(max_size=4) | odd, "reasoning": odd,
                                                           "tool_calls": odd, "refusal": odd}) | odd,
            "finish_reason": st.text(max_size=3) | odd, "text": odd, "delta": odd,
        }), max_size=2) | odd,
    })
)  # fmt: skip
def test_the_short_cut_gives_what_the_long_way_gives_or_nothing(change: dict[str, Any]) -> None:
    data = json.dumps(answer(**change)).encode()
    plain = plain_answer(data)
    assert plain is None or plain == long_way(data)


def test_the_usual_answer_takes_it() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 0}}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, **details}
    data = json.dumps(answer(usage=usage)).encode()
    plain = plain_answer(data)
    assert plain is not None
    assert plain == long_way(data) == by_name("openai").body(data)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"choices":[]}'])
def test_what_is_no_answer_is_left_to_the_long_way(data: bytes) -> None:
    assert plain_answer(data) is None
