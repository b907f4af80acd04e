"""Gemini: `generateContent` (SSE, or one JSON array that grows), and the newer Interactions.

Each `generateContent` frame is a whole response with totals so far. Thoughts come as parts marked `thought`, or not at
all (then `thoughtsTokenCount` alone tells of them). The stream has no end mark: the finish reason is it.
"""

from __future__ import annotations

import msgspec

from unslow.core.timeline import OUTPUT_KINDS, ChunkKind, CountSource, Usage
from unslow.core.wire.dialects.fields import (
    Object,
    a_count,
    a_name,
    a_text,
    an_object,
    error_line,
    objects,
    parse,
)
from unslow.core.wire.dialects.usage import gemini_usage, interactions_usage
from unslow.core.wire.events import Delta, SseEvent

_replace = msgspec.structs.replace


class GeminiReader:
    """Reads one stream of `generateContent` or of an interaction."""

    __slots__ = ("_candidates", "_named", "_thought", "_uncounted")

    def __init__(self, *, counting: bool = True) -> None:
        self._named = self._thought = False
        self._uncounted = not counting  # output came without totals: they say nothing about one frame any more
        self._candidates = 0  # visible tokens told so far

    def read(self, event: SseEvent) -> list[Delta]:
        """Read one frame; see `unslow.core.wire.events.Reader`."""
        frame = parse(event.data)
        if isinstance(frame, list):
            return [delta for item in objects(frame) for delta in self._frame(item, event)]
        if isinstance(frame, dict):
            return self._frame(frame, event)
        if event.data.strip() == b"[DONE]":
            return [Delta(ChunkKind.DONE)]
        return [Delta(ChunkKind.ERROR, error=error_line(frame))] if event.name == "error" else []

    def _frame(self, frame: Object, event: SseEvent) -> list[Delta]:
        if frame.get("error") or event.name == "error":
            return [Delta(ChunkKind.ERROR, error=error_line(frame.get("error") or frame))]
        if kind := a_text(frame.get("event_type")):
            return [_interaction(kind, frame)] if kind != "interaction.completed" else _interaction_end(frame)
        deltas = [delta for candidate in objects(frame.get("candidates")) for delta in _candidate(candidate)]
        if blocked := a_name(an_object(frame.get("promptFeedback")).get("blockReason")):
            deltas.append(Delta(ChunkKind.ERROR, error=f"prompt blocked: {blocked}", finish_reason=blocked))
        finish = next((delta.finish_reason for delta in deltas if delta.finish_reason), None)
        deltas = self._counted(deltas, frame.get("usageMetadata"))
        if not self._named and (model := a_name(frame.get("modelVersion"))) and deltas:
            self._named = True
            deltas[0] = _replace(deltas[0], model=model)
        return [*deltas, Delta(ChunkKind.DONE)] if finish and not blocked else deltas

    def _counted(self, deltas: list[Delta], metadata: object) -> list[Delta]:
        """Put the totals on the frame's first tokens, with how many of them are new; else on a delta of their own."""
        usage = gemini_usage(metadata)
        self._thought = self._thought or any(delta.kind is ChunkKind.REASONING for delta in deltas)
        at = next((n for n, delta in enumerate(deltas) if delta.kind in OUTPUT_KINDS), None)
        if usage is None:
            self._uncounted = self._uncounted or at is not None
            return deltas
        if at is None:
            return [*(delta for delta in deltas if delta.kind is not ChunkKind.ROLE), _totals(deltas, usage)]
        tokens = None if self._uncounted else self._new_tokens(an_object(metadata))
        source = CountSource.USAGE_TOTAL if tokens is None else CountSource.USAGE_DELTA
        hidden = bool(usage.reasoning_tokens) and not self._thought
        deltas[at] = _replace(deltas[at], tokens=tokens, usage=_replace(usage, source=source), hidden=hidden)
        return deltas

    def _new_tokens(self, metadata: Object) -> int | None:
        """Visible tokens since the frame before."""
        candidates = a_count(metadata.get("candidatesTokenCount"))
        if candidates is None:
            return None
        before, self._candidates = self._candidates, candidates
        return max(0, candidates - before)


def _totals(deltas: list[Delta], usage: Usage) -> Delta:
    """The totals of a frame without output; one that counts nothing yet stays a role frame."""
    finish = next((delta.finish_reason for delta in deltas if delta.finish_reason), None)
    return Delta(ChunkKind.USAGE if usage.completion_tokens else ChunkKind.ROLE, usage=usage, finish_reason=finish)


def _candidate(candidate: Object) -> list[Delta]:
    parts = objects(an_object(candidate.get("content")).get("parts"))
    deltas = [delta for part in parts if (delta := _part(part))] or [Delta(ChunkKind.ROLE)]
    if finish := a_name(candidate.get("finishReason")):
        deltas[-1] = _replace(deltas[-1], finish_reason=finish)
    return deltas


def _part(part: Object) -> Delta | None:
    if text := a_text(part.get("text")):
        return Delta(ChunkKind.REASONING if part.get("thought") is True else ChunkKind.CONTENT, text)
    if isinstance(call := part.get("functionCall"), dict):
        return Delta(ChunkKind.TOOL, a_text(call.get("name")) + msgspec.json.encode(call.get("args") or {}).decode())
    if isinstance(code := part.get("executableCode"), dict):
        return Delta(ChunkKind.TOOL, a_text(code.get("code")))
    return Delta(ChunkKind.CONTENT) if isinstance(part.get("inlineData"), dict) else None


def _interaction(kind: str, frame: Object) -> Delta:
    """One event of an interaction: steps that start, grow and stop."""
    if kind == "error":
        return Delta(ChunkKind.ERROR, error=error_line(frame))
    if kind == "interaction.created":
        return Delta(ChunkKind.ROLE, model=a_name(an_object(frame.get("interaction")).get("model")))
    delta = an_object(frame.get("delta"))
    kind = a_text(delta.get("type"))
    if kind == "thought_signature":
        return Delta(ChunkKind.ROLE, hidden=True)
    if kind == "function_call":
        arguments = msgspec.json.encode(delta.get("arguments") or {}).decode()
        return Delta(ChunkKind.TOOL, a_text(delta.get("name")) + arguments)
    text = a_text(delta.get("text")) or a_text(an_object(delta.get("content")).get("text"))
    if not text:
        return Delta(ChunkKind.ROLE)
    return Delta(ChunkKind.REASONING if kind.startswith("thought") else ChunkKind.CONTENT, text)


def _interaction_end(frame: Object) -> list[Delta]:
    interaction = an_object(frame.get("interaction"))
    usage, status = interactions_usage(interaction.get("usage")), a_name(interaction.get("status"))
    model = a_name(interaction.get("model"))
    return [Delta(ChunkKind.USAGE, usage=usage, finish_reason=status, model=model), Delta(ChunkKind.DONE)]


class Gemini:
    """`generateContent` and Interactions (`gemini`)."""

    name = "gemini"

    def reader(self) -> GeminiReader:
        """Make a reader for one streamed answer."""
        return GeminiReader()

    def body(self, data: bytes) -> list[Delta]:
        """Read an answer that was not streamed; a stream's array read whole counts as one."""
        value = parse(data)
        if isinstance(value, dict) and "outputs" in value:
            return _interaction_body(value)
        return GeminiReader(counting=isinstance(value, list)).read(SseEvent(data))


def _interaction_body(value: Object) -> list[Delta]:
    said = []
    for output in objects(value.get("outputs")):
        kind = ChunkKind.REASONING if a_text(output.get("type")).startswith("thought") else ChunkKind.CONTENT
        if text := a_text(output.get("text")):
            said.append(Delta(kind, text))
    return [*said, *_interaction_end({"interaction": value})]
