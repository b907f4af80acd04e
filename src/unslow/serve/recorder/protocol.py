"""What gateway workers tell the recorder, over a Unix stream socket: frames of a 4-byte length and MessagePack.

Workers batch, keep a bounded buffer, drop and count when the recorder is slow or away, and never wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from unslow.core.timeline import Timeline
from unslow.errors import RemoteProtocolError

MAX_FRAME_BYTES = 4 << 20


class Finished(msgspec.Struct, frozen=True, tag="finished", omit_defaults=True):
    """An exchange ended. `client` names the caller's key (never the key) for logs.

    `sampled` is the flag of the caller's `traceparent` (W3C Trace Context), None where the caller sent none.
    """

    timeline: Timeline
    worker: int = 0
    client: str | None = None
    path: str | None = None
    sampled: bool | None = None


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot", omit_defaults=True):
    """A worker's live state, sent about once a second. Counters count since the worker's start."""

    worker: int
    pid: int
    at: float
    active_requests: int = 0
    open_connections: int = 0
    idle_upstream_connections: int = 0
    requests_total: int = 0
    dropped_total: int = 0
    rss_bytes: int | None = None
    cpu_ns: int | None = None


Message = Finished | Snapshot
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """One frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class FrameDecoder:
    """Cuts a byte stream into messages, however it was split. Raises RemoteProtocolError for what is no frame."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Messages completed by these bytes, one by one: those before a bad frame come out before it raises."""
        self._held += data
        held, start = self._held, 0
        try:
            while len(held) - start >= 4:
                size = int.from_bytes(held[start : start + 4], "big")
                if size > MAX_FRAME_BYTES:
                    raise RemoteProtocolError(f"a frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
                if len(held) - start - 4 < size:
                    break
                body = bytes(held[start + 4 : start + 4 + size])
                start += 4 + size
                yield _decode(body)
        finally:
            del held[:start]


def _decode(body: bytes) -> Message:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a frame that is no message: {error}") from error
