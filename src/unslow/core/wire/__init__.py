"""Decoders of HTTP/1.1, SSE, NDJSON and JSON-array bytes, and the providers' dialects. Sans-I/O."""

from __future__ import annotations

from unslow.core.wire.json_array import JsonArrayDecoder
from unslow.core.wire.ndjson import NdjsonDecoder
from unslow.core.wire.sse import MAX_EVENT_BYTES, SseDecoder

__all__ = ["Decoder", "JsonArrayDecoder", "NdjsonDecoder", "SseDecoder", "decoder_for"]

Decoder = SseDecoder | NdjsonDecoder | JsonArrayDecoder
"""From the bytes of a streamed answer to its events."""

_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")


def decoder_for(content_type: str, *, path: str = "", max_event_bytes: int = MAX_EVENT_BYTES) -> Decoder | None:
    """The decoder of a streamed answer; None for a body that is no stream.

    Gemini's stream without `alt=sse` is one JSON array that grows, and only the request's `path` tells it from a
    plain JSON body.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return SseDecoder(max_event_bytes)
    if kind in _NDJSON:
        return NdjsonDecoder(max_event_bytes)
    if kind == "application/json" and ":streamGenerateContent" in path:
        return JsonArrayDecoder(max_event_bytes)
    return None
