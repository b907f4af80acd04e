"""Answers in the API's shapes, for chat and for completions, streamed or whole.

Chat streams: a chunk with the role, a chunk a token's text, a last one with `finish_reason` and `timings`, then (when
asked for) one with `usage` and no choices, then `[DONE]`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .link import Timings

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"


class Shape:
    """Writes one answer's chunks or its whole body."""

    def __init__(self, *, chat: bool, answer_id: str, model: str, created: int, prompt_tokens: int) -> None:
        self._chat, self._prompt_tokens = chat, prompt_tokens
        kind = "chat.completion" if chat else "text_completion"
        self._head = {"id": answer_id, "object": kind, "created": created, "model": model}
        self._chunk_head = {**self._head, "object": "chat.completion.chunk" if chat else "text_completion"}
        # A text chunk is a head, the text as JSON, and a tail: all but the text is written once.
        probe = self._choice_chunk({"content": "\0"} if chat else "\0", None)
        self._before, self._after = probe.split(_encode("\0"))

    def role(self) -> bytes:
        """The first chunk of a chat (completions have none)."""
        return self._choice_chunk({"role": "assistant", "content": ""}, None) if self._chat else b""

    def text(self, text: str) -> bytes:
        """A chunk with a piece of the answer."""
        return self._before + _encode(text) + self._after

    def finish(self, reason: str, timings: dict[str, float | int]) -> bytes:
        """The chunk that says why the answer ended, with our timings."""
        return self._choice_chunk({} if self._chat else "", reason, timings=timings)

    def usage(self, completion_tokens: int, cached_tokens: int) -> bytes:
        """The chunk with token counts."""
        counts = _usage(self._prompt_tokens, completion_tokens, cached_tokens)
        return _event({**self._chunk_head, "choices": [], "usage": counts})

    def whole(self, text: str, reason: str, tokens: int, timings: dict[str, float | int]) -> bytes:
        """The body of an answer that is not streamed."""
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        counts = _usage(self._prompt_tokens, tokens, int(timings["cache_n"]))
        return _encode({**self._head, "choices": [choice], "usage": counts, "timings": timings})

    def _choice_chunk(self, piece: dict[str, str] | str, reason: str | None, **more: Any) -> bytes:
        named = {"delta": piece} if self._chat else {"text": piece}
        choice = {"index": 0, **named, "logprobs": None, "finish_reason": reason}
        return _event({**self._chunk_head, "choices": [choice], **more})


def timings(measured: Timings, prompt_tokens: int, completion_tokens: int) -> dict[str, float | int]:
    """Our `timings`: llama.cpp's names, and `queue_ms`. `prompt_n` leaves out what the prefix cache served."""
    return {
        "queue_ms": round(measured.queue_ns / 1e6, 3),
        "prompt_ms": round(measured.prefill_ns / 1e6, 3),
        "predicted_ms": round(measured.decode_ns / 1e6, 3),
        "prompt_n": prompt_tokens - measured.cached_tokens,
        "predicted_n": completion_tokens,
        "cache_n": measured.cached_tokens,
    }


def model_list(name: str, created: int, context_tokens: int) -> bytes:
    """`GET /v1/models`."""
    return _encode({"object": "list", "data": [model_card(name, created, context_tokens)]})


def model_card(name: str, created: int, context_tokens: int) -> dict[str, Any]:
    """One model, with vLLM's `max_model_len`."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "unslow",
        "max_model_len": context_tokens,
    }


def _usage(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + _encode(data) + b"\n\n"
