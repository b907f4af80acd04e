"""OpenAI's Responses API: every event has a type; deltas of text, reasoning and calls; usage at the end.

Reasoning may come as a summary, as text, or encrypted (an item with `encrypted_content`): then nobody sees a token of
it, and only the usage at the end tells how many there were.
"""

from __future__ import annotations

from unslow.core.timeline import ChunkKind
from unslow.core.wire.dialects.fields import (
    Object,
    a_name,
    a_text,
    an_object,
    error_line,
    objects,
    parse,
)
from unslow.core.wire.dialects.usage import openai_usage
from unslow.core.wire.events import Delta, SseEvent

_CONTENT_DELTAS = frozenset(
    ("response.output_text.delta", "response.refusal.delta", "response.output_audio_transcript.delta")
)
_REASONING_DELTAS = frozenset(
    (
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary.delta",
        "response.reasoning_text.delta",
        "response.reasoning.delta",
    )
)
_TOOL_DELTAS = frozenset(
    (
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
        "response.code_interpreter_call_code.delta",
    )
)
_ENDS = frozenset(("response.completed", "response.incomplete", "response.failed", "response.cancelled"))
_CALLS = ("function_call", "custom_tool_call", "mcp_call")


class ResponsesReader:
    """Reads one stream of Responses."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named = False

    def read(self, event: SseEvent) -> list[Delta]:
        """Read one frame; see `unslow.core.wire.events.Reader`."""
        frame = parse(event.data)
        if not isinstance(frame, dict):
            return _unshaped(event)
        kind = a_text(frame.get("type")) or event.name
        if channel := _channel(kind):
            text = a_text(frame.get("delta"))
            return [Delta(channel, text) if text else Delta(ChunkKind.ROLE)]
        if kind == "error" or "error" in frame:
            return [Delta(ChunkKind.ERROR, error=error_line(frame.get("error") or frame))]
        if kind in _ENDS:
            return _end(an_object(frame.get("response")))
        return self._structure(kind, frame)

    def _structure(self, kind: str, frame: Object) -> list[Delta]:
        if kind == "keepalive":
            return [Delta(ChunkKind.KEEPALIVE)]
        if kind == "response.output_item.added":
            return [_item_start(an_object(frame.get("item")))]
        if kind == "response.output_item.done":
            return [Delta(ChunkKind.ROLE, hidden=_is_hidden(an_object(frame.get("item"))))]
        model = None if self._named else a_name(an_object(frame.get("response")).get("model"))
        self._named = self._named or model is not None
        return [Delta(ChunkKind.ROLE, model=model)]


def _channel(kind: str) -> ChunkKind | None:
    if kind in _CONTENT_DELTAS:
        return ChunkKind.CONTENT
    if kind in _REASONING_DELTAS:
        return ChunkKind.REASONING
    return ChunkKind.TOOL if kind in _TOOL_DELTAS else None


def _unshaped(event: SseEvent) -> list[Delta]:
    if event.data.strip() == b"[DONE]":
        return [Delta(ChunkKind.DONE)]
    return [Delta(ChunkKind.ERROR, error=error_line(None))] if event.name == "error" else []


def _item_start(item: Object) -> Delta:
    """A new item: a call's name is the first that the model wrote of it."""
    if item.get("type") in _CALLS and (name := a_name(item.get("name"))):
        return Delta(ChunkKind.TOOL, name)
    return Delta(ChunkKind.ROLE, hidden=bool(item.get("encrypted_content")) and _is_hidden(item))


def _is_hidden(item: Object) -> bool:
    """Reasoning that is encrypted, or that was kept back whole (an item that is done and says nothing)."""
    if item.get("type") != "reasoning":
        return False
    said = item.get("summary") or item.get("content")
    return bool(item.get("encrypted_content")) or (item.get("status") in (None, "completed") and not said)


def _end(response: Object) -> list[Delta]:
    """The last frame: usage, how it ended, and the end itself. Its text was all told before."""
    status = a_name(response.get("status"))
    reason = a_name(an_object(response.get("incomplete_details")).get("reason")) or status
    if response.get("error") or status == "failed":
        problem = error_line(response.get("error") or status)
        return [Delta(ChunkKind.ERROR, usage=openai_usage(response.get("usage")), error=problem)]
    usage = openai_usage(response.get("usage"))
    model = a_name(response.get("model"))
    hidden = any(map(_is_hidden, objects(response.get("output"))))
    counted = [Delta(ChunkKind.USAGE, usage=usage, model=model, hidden=hidden)]
    return [*(counted if usage else ()), Delta(ChunkKind.DONE, finish_reason=reason)]


def _item(item: Object) -> list[Delta]:
    """A whole item of an answer that was not streamed."""
    kind = item.get("type")
    if kind == "reasoning":
        parts = [*objects(item.get("summary")), *objects(item.get("content"))]
        text = "".join(a_text(part.get("text")) for part in parts)
        return [Delta(ChunkKind.REASONING, text) if text else Delta(ChunkKind.ROLE, hidden=_is_hidden(item))]
    if kind in _CALLS:
        return [Delta(ChunkKind.TOOL, a_text(item.get("name")) + a_text(item.get("arguments") or item.get("input")))]
    texts = (a_text(part.get("text")) or a_text(part.get("refusal")) for part in objects(item.get("content")))
    return [Delta(ChunkKind.CONTENT, text) for text in texts if text]


class Responses:
    """The Responses API (`openai-responses`)."""

    name = "openai-responses"

    def reader(self) -> ResponsesReader:
        """Make a reader for one streamed answer."""
        return ResponsesReader()

    def body(self, data: bytes) -> list[Delta]:
        """Read an answer that was not streamed."""
        response = parse(data)
        if not isinstance(response, dict):
            return []
        if "output" not in response and response.get("error"):
            return [Delta(ChunkKind.ERROR, error=error_line(response["error"]))]
        said = [delta for item in objects(response.get("output")) for delta in _item(item)]
        return [*said, *_end(response)]
