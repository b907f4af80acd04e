"""Amazon Bedrock's Converse and ConverseStream, as JSON: a message's start, block deltas, its stop, then metadata."""

from __future__ import annotations

import msgspec

from unslow.core.timeline import ChunkKind
from unslow.core.wire.dialects.fields import Object, a_name, a_text, an_object, error_line, objects, parse
from unslow.core.wire.dialects.timings import bedrock_timings
from unslow.core.wire.dialects.usage import bedrock_usage
from unslow.core.wire.events import Delta, SseEvent


class ConverseReader:
    """Reads one stream of ConverseStream. An event's type is its only key, or its name."""

    def read(self, event: SseEvent) -> list[Delta]:
        """Read one frame; see `unslow.core.wire.events.Reader`."""
        frame = parse(event.data)
        if not isinstance(frame, dict):
            return []
        kind, value = (event.name, frame) if event.name else next(iter(frame.items()), ("", None))
        if kind == "contentBlockDelta":
            return [_delta(an_object(an_object(value).get("delta")))]
        if kind == "contentBlockStart":
            call = an_object(an_object(an_object(value).get("start")).get("toolUse"))
            name = a_text(call.get("name"))
            return [Delta(ChunkKind.TOOL, name) if name else Delta(ChunkKind.ROLE)]
        if kind == "messageStop":
            return [Delta(ChunkKind.ROLE, finish_reason=a_name(an_object(value).get("stopReason")))]
        if kind == "metadata":
            return [*_metadata(an_object(value)), Delta(ChunkKind.DONE)]
        if kind.endswith("Exception") or kind == "message":
            return [Delta(ChunkKind.ERROR, error=error_line(frame if kind == "message" else value))]
        return [Delta(ChunkKind.ROLE)]


def _delta(delta: Object) -> Delta:
    if text := a_text(delta.get("text")):
        return Delta(ChunkKind.CONTENT, text)
    if text := a_text(an_object(delta.get("toolUse")).get("input")):
        return Delta(ChunkKind.TOOL, text)
    reasoning = an_object(delta.get("reasoningContent"))
    if text := a_text(reasoning.get("text")):
        return Delta(ChunkKind.REASONING, text)
    return Delta(ChunkKind.ROLE, hidden=bool(reasoning.get("redactedContent")))


def _metadata(value: Object) -> list[Delta]:
    usage, server = bedrock_usage(value.get("usage")), bedrock_timings(value.get("metrics"))
    return [Delta(ChunkKind.USAGE, usage=usage, server=server)] if usage or server else []


def _block(block: Object) -> Delta:
    if isinstance(call := block.get("toolUse"), dict):
        return Delta(ChunkKind.TOOL, a_text(call.get("name")) + msgspec.json.encode(call.get("input") or {}).decode())
    reasoning = an_object(block.get("reasoningContent"))
    if text := a_text(an_object(reasoning.get("reasoningText")).get("text")):
        return Delta(ChunkKind.REASONING, text)
    text = a_text(block.get("text"))
    return Delta(ChunkKind.CONTENT, text) if text else Delta(ChunkKind.ROLE, hidden=bool(reasoning))


class Converse:
    """Bedrock's Converse (`bedrock`)."""

    name = "bedrock"

    def reader(self) -> ConverseReader:
        """Make a reader for one streamed answer."""
        return ConverseReader()

    def body(self, data: bytes) -> list[Delta]:
        """Read an answer that was not streamed."""
        answer = parse(data)
        if not isinstance(answer, dict):
            return []
        if "output" not in answer:
            return [Delta(ChunkKind.ERROR, error=error_line(answer))]
        message = an_object(an_object(answer.get("output")).get("message"))
        said = [_block(block) for block in objects(message.get("content"))]
        finish = a_name(answer.get("stopReason"))
        return [*said, *_metadata(answer), Delta(ChunkKind.DONE, finish_reason=finish)]
