"""OpenAI's chat and text completions, and everybody who speaks like them.

Read here beside the API's own frames: `reasoning_content` (DeepSeek, vLLM, SGLang) and `reasoning` (OpenRouter, Groq,
Ollama), thinking parts in `content` (Mistral), usage in every chunk (vLLM's continuous usage), Groq's times, Azure's
content-filter frames (no tokens), llama.cpp's and our own engine's `timings`, Cerebras' `time_info`, llama.cpp's bare
`/completion`.

Theory of operation. The usual frame, one choice with one piece of text, is decoded into a struct of the few fields
that matter and answered at once. Whatever else it carries is looked at only where one of those fields says so, and a
frame of another shape is read once more without types.
"""

from __future__ import annotations

from typing import Any

import msgspec

from unslow.core.timeline import TOKEN_KINDS, ChunkKind, CountSource, ServerTimings, Usage
from unslow.core.wire.dialects.fields import (
    UNREADABLE,
    Object,
    a_name,
    a_text,
    an_object,
    error_line,
    objects,
    parse,
)
from unslow.core.wire.dialects.plain import plain_answer
from unslow.core.wire.dialects.timings import groq_timings, llama_timings
from unslow.core.wire.dialects.usage import llama_usage, openai_usage
from unslow.core.wire.events import Delta, SseEvent

CONTENT, REASONING, TOOL = ChunkKind.CONTENT, ChunkKind.REASONING, ChunkKind.TOOL
ROLE, USAGE, DONE, ERROR = ChunkKind.ROLE, ChunkKind.USAGE, ChunkKind.DONE, ChunkKind.ERROR

_replace = msgspec.structs.replace


class _Message(msgspec.Struct, gc=False):
    """A `delta` of a stream, or the `message` of an answer that was not streamed."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None
    reasoning_details: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    text: Any = None
    finish_reason: Any = None


class _Frame(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    timings: Any = None
    x_groq: Any = None
    time_info: Any = None
    error: Any = None
    model: Any = None
    content: Any = None


_decode = msgspec.json.Decoder(_Frame).decode


class OpenAiReader:
    """Reads one stream of chat or text completions."""

    __slots__ = ("_counted_tokens", "_counts", "_named", "_reasoned", "_uncounted")

    def __init__(self, *, counting: bool = True) -> None:
        self._named = False  # the model's name has been told, or tokens came without one
        self._uncounted = not counting  # tokens came without usage: a total says nothing about one frame any more
        self._counts = False  # a token frame brought its own count
        self._counted_tokens = 0  # visible tokens that frames so far accounted for
        self._reasoned = False

    def read(self, event: SseEvent) -> list[Delta]:
        """Read one frame; see `unslow.core.wire.events.Reader`."""
        try:
            frame = _decode(event[0])
        except UNREADABLE:
            return self._odd(event)
        choices = frame.choices
        if (
            self._named
            and choices is not None
            and len(choices) == 1
            and frame.usage is None
            and frame.timings is None
            and frame.x_groq is None
            and frame.error is None
        ):
            choice = choices[0]
            delta = choice.delta
            if delta is not None and choice.finish_reason is None and not delta.tool_calls:
                text, thought = delta.content, delta.reasoning_content or delta.reasoning
                if text and not thought and type(text) is str:
                    self._uncounted = True
                    return [Delta(CONTENT, text)]
                if thought and not text and type(thought) is str:
                    self._uncounted = self._reasoned = True
                    return [Delta(REASONING, thought)]
        return self._frame(frame, event)

    def _odd(self, event: SseEvent) -> list[Delta]:
        """A frame that is no chunk of ours: the end mark, or JSON of another shape."""
        if event.data.strip() == b"[DONE]":
            return [Delta(DONE)]
        value = parse(event.data)
        if isinstance(value, dict):
            return self._frame(_loose(value), event)
        return [Delta(ERROR, error=error_line(value or "error event"))] if event.name == "error" else []

    def _frame(self, frame: _Frame, event: SseEvent) -> list[Delta]:
        if frame.choices is None and frame.content is None and not frame.error:
            _reshape(frame, event)
        deltas = [delta for choice in frame.choices or () for delta in choice_deltas(choice)]
        if not deltas and isinstance(frame.content, str) and frame.choices is None:
            deltas = [Delta(CONTENT, frame.content) if frame.content else Delta(ROLE)]
        if frame.error:
            deltas.append(Delta(ERROR, error=error_line(frame.error)))
        deltas = self._totals(deltas, frame) or [Delta(ROLE)]
        if not self._named:
            model = a_name(frame.model)
            self._named = model is not None or any(delta.kind in TOKEN_KINDS for delta in deltas)
            deltas[0] = _replace(deltas[0], model=model)
        return deltas

    def _totals(self, deltas: list[Delta], frame: _Frame) -> list[Delta]:
        """Put the frame's own counts and times on the delta that they belong to, or on one of their own."""
        at = next((n for n, delta in enumerate(deltas) if delta.kind in TOKEN_KINDS), None)
        self._reasoned = self._reasoned or any(delta.kind is REASONING for delta in deltas)
        if frame.usage is None and frame.timings is None and frame.x_groq is None and frame.time_info is None:
            self._uncounted = self._uncounted or at is not None
            return deltas
        usage, server = frame_usage(frame), frame_server(frame)
        if usage is None:
            self._uncounted = self._uncounted or at is not None
            return _with_server(deltas, server)
        tokens = self._newly_counted(usage)
        if at is not None and not self._uncounted and tokens is not None:
            usage = _replace(usage, source=CountSource.USAGE_DELTA)
            deltas[at] = _replace(deltas[at], tokens=tokens, usage=usage, server=server)
            self._counts = True
            return deltas
        if at is not None:
            self._uncounted = True
        elif self._counts and not self._uncounted:
            usage = _replace(usage, source=CountSource.USAGE_DELTA)
        return _with_usage(deltas, usage, server)

    def _newly_counted(self, usage: Usage) -> int | None:
        """Visible tokens since the last count. Reasoning that was never shown belongs to no frame."""
        if usage.completion_tokens is None:
            return None
        hidden = 0 if self._reasoned else usage.reasoning_tokens or 0
        before, self._counted_tokens = self._counted_tokens, max(0, usage.completion_tokens - hidden)
        return max(0, self._counted_tokens - before)


def choice_deltas(choice: _Choice) -> list[Delta]:
    """What one choice says: reasoning, then content, then tool calls; its finish reason on the last."""
    message = choice.delta or choice.message
    deltas = [] if message is None else list(_pieces(message))
    if isinstance(choice.text, str) and choice.text:
        deltas.append(Delta(CONTENT, choice.text))
    deltas = deltas or [Delta(ROLE, hidden=message is not None and _is_hidden(message.reasoning_details))]
    if finish := a_name(choice.finish_reason):
        deltas[-1] = _replace(deltas[-1], finish_reason=finish)
    return deltas


def _pieces(message: _Message) -> list[Delta]:
    found = []
    if thought := a_text(message.reasoning_content) or a_text(message.reasoning):
        found.append(Delta(REASONING, thought))
    if isinstance(message.content, list):
        found += [delta for part in objects(message.content) if (delta := _part(part))]
    elif text := a_text(message.content):
        found.append(Delta(CONTENT, text))
    if said := a_text(message.refusal) or a_text(an_object(message.audio).get("transcript")):
        found.append(Delta(CONTENT, said))
    if call := "".join(map(_call, objects(message.tool_calls))) or _call({"function": message.function_call}):
        found.append(Delta(TOOL, call))
    return found


def _part(part: Object) -> Delta | None:
    """A part of Mistral's `content`: text, or thinking that holds texts."""
    if part.get("type") == "thinking":
        thinking = part.get("thinking")
        text = a_text(thinking) or "".join(a_text(inner.get("text")) for inner in objects(thinking))
        return Delta(REASONING, text) if text else None
    return Delta(CONTENT, text) if (text := a_text(part.get("text"))) else None


def _call(call: Object) -> str:
    """What the model wrote of a tool call: its name, then its arguments."""
    said = an_object(call.get("function")) or an_object(call.get("custom"))
    arguments = said.get("arguments") or said.get("input")
    return a_text(said.get("name")) + (
        msgspec.json.encode(arguments).decode() if arguments.__class__ is dict else a_text(arguments)
    )


def _is_hidden(details: object) -> bool:
    return any(detail.get("type") == "reasoning.encrypted" for detail in objects(details))


def frame_usage(frame: _Frame) -> Usage | None:
    """The frame's token counts, from whoever speaks."""
    usage = openai_usage(frame.usage) or openai_usage(an_object(frame.x_groq).get("usage"))
    timed = llama_usage(frame.timings)
    if usage is None or timed is None or usage.cached_tokens is not None:
        return usage or timed
    return _replace(usage, cached_tokens=timed.cached_tokens)


def frame_server(frame: _Frame) -> ServerTimings | None:
    """The frame's own times, from whoever speaks."""
    return (
        llama_timings(frame.timings)
        or groq_timings(frame.usage)
        or groq_timings(frame.time_info)
        or groq_timings(an_object(frame.x_groq).get("usage"))
    )


def _reshape(frame: _Frame, event: SseEvent) -> None:
    """A frame without choices may be an error by its event's name or its own, or xAI's, whose choices are outputs."""
    value = an_object(parse(event.data))
    if event.name == "error" or value.get("object") == "error":
        frame.error = value or "error"
    elif isinstance(outputs := value.get("outputs"), list):
        frame.choices = [_loose_choice(output) for output in objects(outputs)]


def _with_server(deltas: list[Delta], server: ServerTimings | None) -> list[Delta]:
    if server is not None and deltas:
        deltas[-1] = _replace(deltas[-1], server=server)
    return deltas or ([] if server is None else [Delta(USAGE, server=server)])


def _with_usage(deltas: list[Delta], usage: Usage, server: ServerTimings | None) -> list[Delta]:
    """Usage goes on the empty delta that brought it (a role frame that counts nothing yet stays one)."""
    if not deltas or deltas[-1].kind is not ROLE:
        return [*deltas, Delta(USAGE, usage=usage, server=server)]
    kind = USAGE if usage.completion_tokens or deltas[-1].finish_reason else ROLE
    return [*deltas[:-1], _replace(deltas[-1], kind=kind, usage=usage, server=server)]


def _loose(value: Object) -> _Frame:
    """A frame from JSON of another shape than the API's, as far as it can be understood."""
    frame = _Frame(**{name: value.get(name) for name in _Frame.__struct_fields__ if name != "choices"})
    if isinstance(value.get("choices"), list):
        frame.choices = [_loose_choice(choice) for choice in objects(value["choices"])]
    return frame


def _loose_choice(value: Object) -> _Choice:
    delta, message = value.get("delta"), value.get("message")
    return _Choice(
        delta=_loose_message(delta) if isinstance(delta, dict) else None,
        message=_loose_message(message) if isinstance(message, dict) else None,
        text=value.get("text"),
        finish_reason=value.get("finish_reason"),
    )


def _loose_message(value: Object) -> _Message:
    return _Message(**{name: value.get(name) for name in _Message.__struct_fields__})


class OpenAi:
    """Chat completions (`openai`) and text completions (`openai-completions`): frames differ only in their choices."""

    def __init__(self, name: str = "openai") -> None:
        self.name = name

    def reader(self) -> OpenAiReader:
        """Make a reader for one streamed answer."""
        return OpenAiReader()

    def body(self, data: bytes) -> list[Delta]:
        """Read an answer that was not streamed: the frame that holds it all, and its end."""
        if plain := plain_answer(data):
            return plain
        deltas = OpenAiReader(counting=False).read(SseEvent(data))
        failed = not deltas or any(delta.kind in (ERROR, DONE) for delta in deltas)
        return deltas if failed else [*deltas, Delta(DONE)]
