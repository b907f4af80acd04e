"""Words and numbers for people: units, clean text, and the sentence that says where the time went.

Text from outside (models, providers, headers, URLs) passes through `clean` before it reaches a terminal: escape
sequences, control characters and direction overrides would let it forge what a person sees (CWE-150).
"""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len

from unslow.core.timeline import CountSource, End, Phase
from unslow.show.report.payload import Exchange, LedgerRow

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor (ECMA-48, 5.4)
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_BLANK = frozenset(("Zl", "Zp", "Zs"))
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn"))

COUNTED = {
    CountSource.USAGE_DELTA: "counted by the provider, chunk by chunk",
    CountSource.USAGE_TOTAL: "counted by the provider",
    CountSource.RETOKENISED: "counted by us from the text",
}
"""Where a token count came from, in words."""

UNTIL_FIRST_TOKEN = frozenset((Phase.WAIT, Phase.QUEUE, Phase.PREFILL))
CONNECTING = frozenset((Phase.DNS, Phase.CONNECT, Phase.PROXY, Phase.TLS))


def clean(text: str, *, limit: int = 300) -> str:
    """Text from outside, safe to print on one line: no escapes, controls, overrides or line ends; at most `limit`."""
    text = re.sub(r"[\t\r\n\v\f\x1c-\x1e\x85]+", " ", _ESCAPES.sub("", text[: 4 * limit]))
    kinds = ((unicodedata.category(ch), ch) for ch in text)
    kept = "".join(" " if kind in _BLANK else ch for kind, ch in kinds if kind not in _UNSEEN)
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def duration(ns: float) -> str:
    """A length of time with three significant digits in the unit that fits: `412 µs`, `12.3 ms`, `1.84 s`."""
    if ns < 0:
        return "-" + duration(-ns)
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        shown = _three(ns / size)
        if float(shown) < 1000:
            return f"{int(ns) if size == 1 else shown} {unit}"
    seconds = ns / 1e9
    if float(_three(seconds)) < 60:
        return f"{_three(seconds)} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _three(value: float) -> str:
    """Three significant digits, no more."""
    for digits, below in ((2, 9.995), (1, 99.95)):
        if value < below:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


def tick(ns: int) -> str:
    """A round moment without trailing zeros: `0`, `500 ms`, `1 s`."""
    number, _, unit = duration(ns).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}" if ns else "0"


def error(ns: int) -> str:
    """An error bar with two significant digits: `20 µs`, `1.3 ms`."""
    digits = max(0, len(str(ns)) - 2)
    return tick(-(-ns // 10**digits) * 10**digits)


def share(part: int, whole: int) -> str:
    """A part of the whole in per cent, never `0%` for something."""
    if whole <= 0 or part <= 0:
        return "0%"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1%"
    return "100%" if percent >= 99.95 else f"{percent:.1f}%"


def size(count: int) -> str:
    """Bytes in the unit that fits, by powers of ten."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{_three(count / scale)} {unit}"
    return f"{count} B"


def rate(per_token_ns: float) -> str:
    """Tokens a second for a time a token."""
    per_s = 1e9 / per_token_ns
    return f"{per_s:,.0f} tok/s" if per_s >= 10 else f"{_three(per_s)} tok/s"


def counted(count: int, noun: str) -> str:
    """`1 token`, `96 tokens`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def headline(shown: Exchange) -> str:
    """One sentence: how it ended, how long it took, and what took most of it."""
    total = duration(shown.timeline.end_ns)
    parts = _parts(shown)
    said = f"{total} in all" + (": " + ", ".join(parts) if parts else "")
    failure = ending(shown)
    return f"{failure} {said[0].upper()}{said[1:]}." if failure else said


def ending(shown: Exchange) -> str:
    """How an exchange that did not complete ended, as a sentence; empty for one that did."""
    outcome = shown.timeline.outcome
    if outcome.end is End.COMPLETED:
        return ""
    verb = "Failed" if outcome.end is End.FAILED else "Aborted by the client"
    where = f" in {outcome.phase.value}" if outcome.phase else ""
    why = ": ".join(clean(part) for part in (outcome.kind, outcome.detail) if part)
    text = f"{verb}{where}" + (f": {why}" if why else "")
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def _parts(shown: Exchange) -> list[str]:
    """The up to three biggest parts, biggest first, each at least a twentieth of the whole."""
    rows, total = shown.rows, shown.timeline.end_ns
    won = [r for r in rows if r.won]
    sums = [
        (_sum(won, CONNECTING), "connecting"),
        (_sum(won, UNTIL_FIRST_TOKEN), "waiting for the first token" if _has_tokens(shown) else "waiting"),
        (_sum(won, {Phase.THINKING}), "thinking"),
        (_sum(won, {Phase.DECODE}), "decoding" + _decoded(shown)),
        (_sum(won, {Phase.DRAIN}), "receiving the rest" if _has_tokens(shown) else "receiving the body"),
        (_sum(won, {Phase.CALLER}), "in the caller"),
        (_sum(won, {Phase.SEND}), "sending"),
        (_sum(won, {Phase.RENDER}), "rendering"),
        (sum(r.duration_ns for r in rows if not r.won), "lost on attempts that did not win"),
        (sum(r.duration_ns for r in rows if r.phase is None), "unexplained"),
    ]
    big = sorted((s for s in sums if s[0] * 20 >= total and s[0] > 0), key=lambda s: -s[0])
    return [f"{duration(ns)} {text}" for ns, text in big[:3]]


def _sum(rows: list[LedgerRow], phases: frozenset[Phase] | set[Phase]) -> int:
    return sum(r.duration_ns for r in rows if r.phase in phases)


def _has_tokens(shown: Exchange) -> bool:
    return shown.metrics.ttft_ns is not None


def _decoded(shown: Exchange) -> str:
    n = shown.metrics.completion_tokens
    if n is None:
        return ""
    per_token = shown.metrics.tpot_star_ns or shown.metrics.tpot_ns
    return f" {counted(n, 'token')}" + (f" ({rate(per_token)})" if per_token else "")


def ascii_only(text: str) -> str:
    """Text for a terminal without Unicode: our own signs spelled out, anything else as `?`."""
    spelled = text.translate(_SPELLED)
    return "".join(ch if ord(ch) < 128 else "?" * cell_len(ch) for ch in spelled)


_SPELLED = str.maketrans({"µ": "u", "±": "+-", "·": "|", "×": "x", "…": "~", "–": "-"})
