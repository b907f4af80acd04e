"""The usual whole answer, read by types alone: one choice of text, and OpenAI's own usage.

A gateway reads every answer that it relays, so the usual one has a short cut that gives the same. A field typed `None`
makes the decoder refuse whatever says more than that, and the long way (`openai.py`) reads it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from unslow.core.timeline import ChunkKind, Usage
from unslow.core.wire.events import Delta

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Message(msgspec.Struct, gc=False):
    content: Name
    reasoning_content: None = None
    reasoning: None = None
    tool_calls: None = None
    function_call: None = None
    refusal: None = None
    audio: None = None
    reasoning_details: None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    finish_reason: Name
    delta: None = None
    text: None = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Answer(msgspec.Struct, gc=False):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1, max_length=1)]
    usage: _Usage
    model: Name
    timings: None = None
    x_groq: None = None
    time_info: None = None
    error: None = None
    content: None = None


_decode = msgspec.json.Decoder(_Answer).decode
_DONE = Delta(ChunkKind.DONE)


def plain_answer(data: bytes) -> list[Delta] | None:
    """What the answer says, or None for one that is not that plain."""
    try:
        answer = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    choice, said = answer.choices[0], answer.usage
    cached = said.prompt_tokens_details.cached_tokens if said.prompt_tokens_details else None
    reasoned = said.completion_tokens_details.reasoning_tokens if said.completion_tokens_details else None
    if reasoned:  # some count it beside the completion
        return None
    text = Delta(ChunkKind.CONTENT, choice.message.content, finish_reason=choice.finish_reason, model=answer.model)
    usage = Usage(said.prompt_tokens, said.completion_tokens, reasoned, cached)
    return [text, Delta(ChunkKind.USAGE, usage=usage), _DONE]
