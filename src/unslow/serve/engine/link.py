"""What the HTTP process and the step process tell each other: length-prefixed MessagePack on a socket pair."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from typing import Literal

import msgspec

_LENGTH = struct.Struct("<I")

Finish = Literal["stop", "length", "error"]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """One turn of a chat, checked."""

    role: str
    content: str


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How tokens are chosen. `temperature` 0 is greedy; `top_k` 0 is off; `max_tokens` is checked and positive."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    presence_penalty: float
    frequency_penalty: float
    ignore_eos: bool


class Text(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A raw prompt: control tokens' texts in it are control tokens."""

    text: str


class Ids(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A prompt in token ids."""

    ids: list[int]


class Chat(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A chat, to be put into the model's template."""

    messages: list[Message]


Prompt = Text | Ids | Chat


class Submit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answer this. `received_ns`: on the monotonic clock both processes share."""

    key: int
    prompt: Prompt
    sampling: Sampling
    received_ns: int


class Cancel(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nobody waits for this answer any more, or it has reached a stop string."""

    key: int


class Tokenize(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Give the token ids of `prompt`."""

    key: int
    prompt: Prompt


Command = Submit | Cancel | Tokenize


class Stage(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the step process is busy with before it is loaded: a line for the log."""

    text: str


class Loaded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The model is in memory. `vocab[id]` are a token's bytes; `control` are ids that are never shown."""

    backend: str
    context_tokens: int
    vocab: list[bytes]
    control: list[int]


class Fatal(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """It cannot start, and trying again will not help. `line` is for the user."""

    line: str


class Accepted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The prompt fits; the request is queued or running."""

    key: int
    prompt_tokens: int


class Refused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The request will not run. `code` and `status` are the API's."""

    key: int
    status: int
    code: str
    message: str
    param: str | None = None


class Tokenized(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `Tokenize`."""

    key: int
    ids: list[int]


class Timings(msgspec.Struct, frozen=True, array_like=True):
    """Where a request's time went in the step process. `cached_tokens` is inferred (see `prefix`)."""

    queue_ns: int
    prefill_ns: int
    decode_ns: int
    cached_tokens: int


class Emitted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Tokens of one request out of one step. The last one of a request carries `finish` and `timings`."""

    key: int
    ids: list[int]
    timings: Timings
    finish: Finish | None = None


Event = Stage | Loaded | Fatal | Accepted | Refused | Tokenized | Emitted

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(list[Command])
_events = msgspec.msgpack.Decoder(list[Event])


def frame(items: Sequence[Command] | Sequence[Event]) -> bytes:
    """Bytes of one frame."""
    body = _encoder.encode(items)
    return _LENGTH.pack(len(body)) + body


def frame_length(head: bytes) -> int:
    """Bytes that follow the four of a frame's head."""
    return int(_LENGTH.unpack(head)[0])


def events(body: bytes) -> list[Event]:
    """What the step process said in one frame."""
    return _events.decode(body)


class CommandSocket:
    """The step process's end: commands in (without waiting, where asked), events out."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._buffer = sock, bytearray()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, items: list[Event]) -> None:
        """Send `items` in one frame; waits while the other side does not read."""
        if items:
            self._sock.sendall(frame(items))

    def receive(self, *, wait: bool) -> list[Command] | None:
        """Commands that have come, or None once the other side is gone."""
        commands = self._take()
        while (wait and not commands) or self._poll.poll(0):
            data = self._sock.recv(1 << 18)
            if not data:
                return None
            self._buffer += data
            commands += self._take()
        return commands

    def _take(self) -> list[Command]:
        commands: list[Command] = []
        head = _LENGTH.size
        while len(self._buffer) >= head:
            end = head + frame_length(bytes(self._buffer[:head]))
            if len(self._buffer) < end:
                break
            commands += _commands.decode(bytes(self._buffer[head:end]))
            del self._buffer[:end]
        return commands
