"""Events that repeat the last one but for their text: recognised without being decoded.

Streams repeat themselves. An event that is nothing but text is remembered as what stands before and after the text;
a read that is exactly these, with the inside of a plain JSON string between them, is the same event with another
text. It means the same, for whoever counts and times events.
"""

from __future__ import annotations

import re

from unslow.core.timeline import TOKEN_KINDS, ChunkKind
from unslow.core.wire.events import Delta, SseEvent

_NEVER = b"\xff\xff"
"""A start that no event has."""
_plain_text = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch
"""The inside of a JSON string without escapes."""


class Repeat:
    """What was remembered, if anything was."""

    __slots__ = ("after", "before", "kind")

    def __init__(self) -> None:
        self.before, self.after, self.kind = _NEVER, _NEVER, ChunkKind.KEEPALIVE

    def __call__(self, piece: bytes) -> bool:
        """Whether a read is the remembered event with another text."""
        return (
            piece.startswith(self.before)
            and piece.endswith(self.after)
            and _plain_text(piece, len(self.before), len(piece) - len(self.after)) is not None
        )

    def forget(self) -> None:
        """Recognise nothing until the next event that can be remembered."""
        self.before = _NEVER

    def remember(self, piece: bytes, event: SseEvent, delta: Delta) -> None:
        """Remember what stands around the text, if that is all that the event says.

        The text has to stand in the event once, as a whole JSON string, so that there is no doubt where it is.
        """
        if event.wire_bytes != len(piece) or event.truncated or piece[-2:] != b"\n\n":
            return
        if delta.kind not in TOKEN_KINDS or delta != Delta(delta.kind, delta.text) or not delta.text:
            return
        text = b'"%b"' % delta.text.encode()
        at = piece.find(text)
        if at < 0 or piece.find(text, at + 1) >= 0 or piece.count(b"\n") != 2 + bool(event.name):
            return
        self.before, self.after, self.kind = piece[: at + 1], piece[at + len(text) - 1 :], delta.kind
