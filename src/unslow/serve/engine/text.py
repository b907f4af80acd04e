"""From token ids to text that may be shown: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Joins tokens' bytes and gives out whole characters; a token may end in the middle of one."""

    def __init__(self, vocab: Sequence[bytes], hidden: frozenset[int] = frozenset()) -> None:
        self._vocab, self._hidden = vocab, hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """Text that is complete with `token`: possibly none. Control tokens (`hidden`) have none."""
        if token in self._hidden or not 0 <= token < len(self._vocab):
            return ""
        return self._decoder.decode(self._vocab[token])

    def close(self) -> str:
        """What was held, with U+FFFD for a character that never ended."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Lets text through up to the first stop string, and holds an end that may be the start of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.hit = False

    def feed(self, text: str) -> str:
        """What may be shown now. After a hit, nothing."""
        if self.hit or not self._stops:
            return "" if self.hit else text
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.hit, self._held = True, ""
            return text[: min(found)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def close(self) -> str:
        """What was held, as no more will come."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a start of `stop`, but not all of it."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0


class AnswerText:
    """One answer's text: tokens in, text that may be sent out."""

    def __init__(self, vocab: Sequence[bytes], hidden: frozenset[int], stops: Sequence[str]) -> None:
        self._tokens, self._stop = Detokenizer(vocab, hidden), StopMatcher(stops)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has come."""
        return self._stop.hit

    def feed(self, token: int) -> str:
        """Text that may be sent after `token`."""
        return self._stop.feed(self._tokens.feed(token))

    def close(self) -> str:
        """The rest, once the model has ended."""
        return self._stop.feed(self._tokens.close()) + self._stop.close()
