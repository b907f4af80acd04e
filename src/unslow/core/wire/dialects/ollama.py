"""Ollama's own API, `/api/chat` and `/api/generate`: a JSON object a line; the last has `done`, counts and times."""

from __future__ import annotations

import msgspec

from unslow.core.timeline import ChunkKind
from unslow.core.wire.dialects.fields import Object, a_name, a_text, an_object, error_line, objects, parse
from unslow.core.wire.dialects.timings import ollama_timings
from unslow.core.wire.dialects.usage import ollama_usage
from unslow.core.wire.events import Delta, SseEvent


class OllamaReader:
    """Reads one stream of chat or generate."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named = False

    def read(self, event: SseEvent) -> list[Delta]:
        """Read one line; see `unslow.core.wire.events.Reader`."""
        frame = parse(event.data)
        if not isinstance(frame, dict):
            return []
        if frame.get("error"):
            return [Delta(ChunkKind.ERROR, error=error_line(frame["error"]))]
        deltas = _said(frame)
        if frame.get("done") is True:
            deltas += _end(frame)
        deltas = deltas or [Delta(ChunkKind.ROLE)]
        if not self._named and (model := a_name(frame.get("model"))):
            self._named = True
            deltas[0] = msgspec.structs.replace(deltas[0], model=model)
        return deltas


def _said(frame: Object) -> list[Delta]:
    message = an_object(frame.get("message")) or frame
    deltas = []
    if thought := a_text(message.get("thinking")):
        deltas.append(Delta(ChunkKind.REASONING, thought))
    if text := a_text(message.get("content")) or a_text(frame.get("response")):
        deltas.append(Delta(ChunkKind.CONTENT, text))
    if calls := "".join(map(_call, objects(message.get("tool_calls")))):
        deltas.append(Delta(ChunkKind.TOOL, calls))
    return deltas


def _call(call: Object) -> str:
    said = an_object(call.get("function"))
    return a_text(said.get("name")) + msgspec.json.encode(said.get("arguments") or {}).decode()


def _end(frame: Object) -> list[Delta]:
    usage, server, finish = ollama_usage(frame), ollama_timings(frame), a_name(frame.get("done_reason"))
    counted = [Delta(ChunkKind.USAGE, usage=usage, server=server)]
    return [*(counted if usage or server else ()), Delta(ChunkKind.DONE, finish_reason=finish)]


class Ollama:
    """Ollama's own API (`ollama`)."""

    name = "ollama"

    def reader(self) -> OllamaReader:
        """Make a reader for one streamed answer."""
        return OllamaReader()

    def body(self, data: bytes) -> list[Delta]:
        """Read an answer that was not streamed: the same object, with everything in it."""
        return OllamaReader().read(SseEvent(data))
