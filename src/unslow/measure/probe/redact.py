"""Nothing secret leaves the probe: keys are taken out of every text of a Timeline, even where a server echoes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from unslow.core.timeline import Timeline

MASK = "***"
_SHORTEST = 6
"""Parts of a secret this long are taken out too: providers echo keys partly masked."""

_OWN_FACTS = frozenset(
    ("method", "dialect", "model", "http_version", "alpn", "tls_version", "tls_cipher", "stamps", "usage")
)
"""Facts whose words are ours or the user's, never the other side's."""


class Redactor:
    """Takes these secrets, and parts of them, out of texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        named = {s.strip() for s in secrets if _is_secret(s.strip())}
        tokens = {part for s in named for part in s.split() if len(part) >= _SHORTEST}
        quoted = {quote(s, safe="") for s in named | tokens}
        self._secrets = sorted(named | tokens | quoted, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
            text = _without_parts(text, secret)
        return text

    def timeline(self, timeline: Timeline) -> Timeline:
        """The Timeline with every text of its facts and outcome cleaned."""
        if not self._secrets:
            return timeline
        said = msgspec.to_builtins(timeline.facts)
        said |= {name: self._clean(value) for name, value in said.items() if name not in _OWN_FACTS}
        detail = timeline.outcome.detail
        outcome = msgspec.structs.replace(timeline.outcome, detail=None if detail is None else self.text(detail))
        facts = msgspec.convert(said, type(timeline.facts))
        return msgspec.structs.replace(timeline, facts=facts, outcome=outcome)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self._clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(item) for item in value]
        return value


def _is_secret(text: str) -> bool:
    """Placeholders that local servers are given (`ollama`, `none`, `EMPTY`) are no secrets: they are words."""
    return len(text) >= 8 or (len(text) >= 4 and any(c.isdigit() for c in text))


def _without_parts(text: str, secret: str) -> str:
    """Mask every stretch of the text that is a part of the secret, `_SHORTEST` characters or longer."""
    if len(secret) < _SHORTEST:
        return text
    out, at = [], 0
    while at < len(text):
        size = _shared(text, at, secret)
        if size:
            out.append(MASK)
            at += size
        else:
            out.append(text[at])
            at += 1
    return "".join(out)


def _shared(text: str, at: int, secret: str) -> int:
    size = _SHORTEST
    if text[at : at + size] not in secret or len(text) - at < size:
        return 0
    while at + size < len(text) and text[at : at + size + 1] in secret:
        size += 1
    return size
