"""What an observer knows of the events that it did not keep, and of those that nothing completed."""

from __future__ import annotations

import json

from unslow.core.timeline import Beyond, ChunkKind, Hop, Phase, answer_spans
from unslow.core.wire import SseDecoder
from unslow.core.wire.dialects import by_name
from unslow.serve.gateway.observer import Observer


def event(**delta: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def test_the_first_token_and_the_first_of_the_answer_are_known_beyond_the_bound() -> None:
    seen = Observer(by_name("openai"), SseDecoder(), 2)
    frames = [event(role="assistant"), event(reasoning_content="a"), event(reasoning_content="b"), event(content="x")]
    for n, frame in enumerate([*frames, event(content="y"), b"data: [DONE]\n\n"], 1):
        seen.look([frame], 1000 + 10 * n)
    chunks = seen.chunks(1000)
    assert chunks.kind == (ChunkKind.ROLE, ChunkKind.REASONING)
    kinds = {ChunkKind.REASONING: 1, ChunkKind.CONTENT: 2, ChunkKind.DONE: 1}
    size = chunks.beyond.size_bytes if chunks.beyond else 0
    assert chunks.beyond == Beyond(4, size, kinds, 60, 50, 10, None, first_token_ns=30, first_output_ns=40)
    spans = answer_spans(Hop.GATEWAY, sent_ns=0, first_byte_ns=10, end_ns=60, chunks=chunks)
    assert [(s.phase, s.end_ns) for s in spans[2:]] == [(Phase.THINKING, 40), (Phase.DECODE, 50), (Phase.DRAIN, 60)]


def test_an_end_mark_without_its_blank_line_is_one() -> None:
    seen = Observer(by_name("openai"), SseDecoder(), 9)
    seen.look([event(content="x"), b"data: [DONE]\n"], 10)
    assert not seen.settled().done
    seen.close(20)
    assert seen.done
    assert seen.chunks(0).kind == (ChunkKind.CONTENT, ChunkKind.DONE)


def test_half_an_event_at_the_end_is_none() -> None:
    seen = Observer(by_name("openai"), SseDecoder(), 9)
    seen.look([event(content="x"), event(content="y")[:30]], 10)
    seen.close(20)
    assert (seen.done, seen.error, seen.chunks(0).kind) == (False, None, (ChunkKind.CONTENT,))
