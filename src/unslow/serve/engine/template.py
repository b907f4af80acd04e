"""Prompts in pieces. User text must stay text: `<|im_end|>` typed by a user must not end the user's turn.

The tokenizer makes a control token of every place where a control token's text stands. So a marker is put after the
first character of each such place in user text before the chat template is applied, and the rendered prompt is cut
at the markers: no piece holds a whole control token of the user's, and the pieces, tokenised one by one, are the
same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .link import Message

_WORD_START = re.compile(r"(?<=\S) (?=\S)")
_PRIVATE_USE = range(0xF0000, 0xFFFFE)


class Neutraliser:
    """Marks the control tokens' texts in what users write."""

    def __init__(self, control: Sequence[str]) -> None:
        texts = sorted({text for text in control if len(text) > 1}, key=len, reverse=True)
        self._at = re.compile("(?=" + "|".join(map(re.escape, texts)) + ")(.)", re.DOTALL) if texts else None

    def mark(self, messages: Sequence[Message]) -> tuple[list[Message], str | None]:
        """Messages with markers, and the marker (None: nothing to mark)."""
        if self._at is None or not any(self._at.search(message.content) for message in messages):
            return list(messages), None
        marker = unused_character("".join(message.content for message in messages))
        at = self._at
        return [Message(m.role, at.sub(lambda hit: hit[1] + marker, m.content)) for m in messages], marker


def unused_character(text: str) -> str:
    """A private-use character that `text` does not hold."""
    return next(chr(point) for point in _PRIVATE_USE if chr(point) not in text)


def pieces(text: str, most: int) -> Iterator[str]:
    """`text` in pieces of at most `most` characters, cut before single spaces where there are any.

    GPT-2's pre-tokeniser starts a new word at such a space, so the pieces' tokens are those of the whole.
    """
    while len(text) > most:
        spaces = [hit.start() for hit in _WORD_START.finditer(text, 1, most)]
        end = spaces[-1] if spaces else most
        yield text[:end]
        text = text[end:]
    yield text


def batched(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """At most `most` of `texts` at a time."""
    for start in range(0, len(texts), most):
        yield list(texts[start : start + most])
