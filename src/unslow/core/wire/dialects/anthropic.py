"""Anthropic's Messages API: blocks that start, grow by deltas and stop, between a message's start and its stop.

Text grows by `text_delta`, reasoning by `thinking_delta` (its `signature_delta` is no text; with thinking not shown it
is all that comes), calls by `input_json_delta`. `ping` keeps the stream alive. Results of the provider's own tools
come whole in a block's start and are no generated tokens. A compaction's summary is generated before the answer and
outside of it: it is read as reasoning, for that is the time that it takes.
"""

from __future__ import annotations

import msgspec

from unslow.core.timeline import ChunkKind, Usage
from unslow.core.wire.dialects.fields import Object, a_name, a_text, an_object, error_line, objects, parse
from unslow.core.wire.dialects.usage import anthropic_usage
from unslow.core.wire.events import Delta, SseEvent

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_DELTAS = {
    "text_delta": (ChunkKind.CONTENT, "text"),
    "thinking_delta": (ChunkKind.REASONING, "thinking"),
    "input_json_delta": (ChunkKind.TOOL, "partial_json"),
    "compaction_delta": (ChunkKind.REASONING, "content"),
}
_ROLE = Delta(ChunkKind.ROLE)


class MessagesReader:
    """Reads one stream of Messages. The start tells the prompt's tokens, the end the answer's."""

    __slots__ = ("_thought", "_usage")

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._thought = False

    def read(self, event: SseEvent) -> list[Delta]:
        """Read one frame; see `unslow.core.wire.events.Reader`."""
        frame = parse(event.data)
        if not isinstance(frame, dict):
            return [Delta(ChunkKind.ERROR, error=error_line(frame))] if event.name == "error" else []
        kind = a_text(frame.get("type")) or event.name
        if kind == "content_block_delta":
            return [self._delta(an_object(frame.get("delta")))]
        if kind == "ping":
            return [Delta(ChunkKind.KEEPALIVE)]
        if kind == "message_stop":
            return [Delta(ChunkKind.DONE)]
        if kind == "error" or "error" in frame:
            return [Delta(ChunkKind.ERROR, error=error_line(frame.get("error") or frame))]
        return self._structure(kind, frame)

    def _delta(self, delta: Object) -> Delta:
        kind = a_text(delta.get("type"))
        channel, field = _DELTAS.get(kind, (ChunkKind.ROLE, ""))
        if text := a_text(delta.get(field)):
            self._thought = self._thought or channel is ChunkKind.REASONING
            return Delta(channel, text)
        return Delta(ChunkKind.ROLE, hidden=True) if kind == "signature_delta" and not self._thought else _ROLE

    def _structure(self, kind: str, frame: Object) -> list[Delta]:
        if kind == "message_start":
            message = an_object(frame.get("message"))
            usage = self._counted(message.get("usage"))
            return [Delta(ChunkKind.ROLE, usage=usage, model=a_name(message.get("model")))]
        if kind == "content_block_start":
            return _block_start(an_object(frame.get("content_block")))
        if kind == "message_delta":
            finish = a_name(an_object(frame.get("delta")).get("stop_reason"))
            return [Delta(ChunkKind.USAGE, usage=self._counted(frame.get("usage")), finish_reason=finish)]
        if kind == "content_block_stop":
            return [_ROLE]
        return [_ROLE] if kind else []

    def _counted(self, value: object) -> Usage | None:
        """Counts are totals so far; what a later frame leaves out, an earlier one said."""
        new, old = anthropic_usage(value), self._usage
        if new is not None and old is not None:
            blanks = {k: getattr(old, k) for k in ("prompt_tokens", "cached_tokens") if getattr(new, k) is None}
            new = msgspec.structs.replace(new, **blanks)
        self._usage = new or old
        return self._usage


def _block_start(block: Object) -> list[Delta]:
    """A new block may already hold its first text; a call's name is the first that the model wrote of it."""
    kind = block.get("type")
    if kind in _CALLS and (name := a_name(block.get("name"))):
        return [Delta(ChunkKind.TOOL, name)]
    if kind == "text" and (text := a_text(block.get("text"))):
        return [Delta(ChunkKind.CONTENT, text)]
    if kind == "thinking" and (text := a_text(block.get("thinking"))):
        return [Delta(ChunkKind.REASONING, text)]
    return [Delta(ChunkKind.ROLE, hidden=kind == "redacted_thinking")]


def _block(block: Object) -> list[Delta]:
    """A whole block of an answer that was not streamed."""
    kind = block.get("type")
    if kind in _CALLS:
        arguments = block.get("input")
        return [Delta(ChunkKind.TOOL, a_text(block.get("name")) + msgspec.json.encode(arguments or {}).decode())]
    if kind == "thinking" and not block.get("thinking"):
        return [Delta(ChunkKind.ROLE, hidden=bool(block.get("signature")))]
    return _block_start(block)


class Messages:
    """The Messages API (`anthropic`)."""

    name = "anthropic"

    def reader(self) -> MessagesReader:
        """Make a reader for one streamed answer."""
        return MessagesReader()

    def body(self, data: bytes) -> list[Delta]:
        """Read an answer that was not streamed."""
        message = parse(data)
        if not isinstance(message, dict):
            return []
        if message.get("type") == "error" or "error" in message:
            return [Delta(ChunkKind.ERROR, error=error_line(message.get("error")))]
        said = [delta for block in objects(message.get("content")) for delta in _block(block)]
        usage, finish = anthropic_usage(message.get("usage")), a_name(message.get("stop_reason"))
        model = a_name(message.get("model"))
        return [*said, Delta(ChunkKind.USAGE, usage=usage, finish_reason=finish, model=model), Delta(ChunkKind.DONE)]
