"""What stands under the waterfall: the strip of gaps between chunks, and the facts of the exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.text import Text

from unslow.core.timeline import Facts, Phase, icl_ns
from unslow.show.report import words
from unslow.show.report.canvas import LEVELS, LEVELS_ASCII, Look, color_of
from unslow.show.report.payload import Exchange

OUTLIER = 2
"""The strip's height, in 95th percentiles: a steady stream is half high, what is over it is drawn full and in red."""


def tokens(shown: Exchange, look: Look) -> list[Text]:
    """The gaps between token chunks as a sparkline, and their spread; nothing for fewer than two chunks."""
    gaps, m = icl_ns(shown.timeline), shown.metrics
    if not gaps or m.icl_p50_ns is None or m.icl_p95_ns is None or m.icl_max_ns is None:
        return []
    strip = _strip(gaps, OUTLIER * max(1, m.icl_p95_ns), look)
    said = [f"gaps between {words.counted(len(gaps) + 1, 'chunk')}: p50 {words.duration(m.icl_p50_ns)}"]
    said += [f"p95 {words.duration(m.icl_p95_ns)}", f"max {words.duration(m.icl_max_ns)}"]
    if m.burst_ratio:
        said.append(f"{100 * m.burst_ratio:.0f}% near zero")
    return [strip, *joined(said, look)]


def _strip(gaps: list[int], top: int, look: Look) -> Text:
    """One cell a gap; where there are more gaps than cells, the widest of each group."""
    per_cell = -(-len(gaps) // look.width)
    groups = [max(gaps[n : n + per_cell]) for n in range(0, len(gaps), per_cell)]
    levels = LEVELS if look.unicode else LEVELS_ASCII
    out = Text()
    for gap in groups:
        level = min(len(levels) - 1, len(levels) * gap // top)
        out.append(levels[level], "red" if gap > top else color_of(Phase.DECODE, look))
    return out


def facts(shown: Exchange, look: Look) -> list[Text]:
    """What was negotiated, what was asked and answered, and what the parties noted."""
    known = shown.timeline.facts
    lines = [*joined(_connection(known), look), *joined(_answer(known), look)]
    for note in known.notes:
        lines.append(Text(f"note: {words.clean(note)}", "dim"))
    return lines


def joined(parts: Iterable[str], look: Look) -> list[Text]:
    """Parts in lines, broken between parts only; none for no parts."""
    between, lines = (" · " if look.unicode else " | "), [""]
    for part in parts:
        if lines[-1] and cell_len(lines[-1] + between + part) > look.width:
            lines.append(part)
        else:
            lines[-1] += (between if lines[-1] else "") + part
    return [Text(line, "dim") for line in lines if line]


def _connection(known: Facts) -> Iterator[str]:
    if known.status is not None:
        yield f"status {known.status}"
    if known.http_version:
        yield _http(words.clean(known.http_version))
    if known.tls_version:
        yield words.clean(known.tls_version) + (" resumed" if known.tls_resumed else "")
    if known.reused is not None:
        yield "connection reused" if known.reused else "new connection"
    if known.remote_address:
        yield words.clean(known.remote_address)
    if known.proxy:
        yield f"through {words.clean(known.proxy)}"
    if known.content_encoding:
        yield words.clean(known.content_encoding)
    if known.tcp and known.tcp.rtt_ns is not None:
        yield f"rtt {words.duration(known.tcp.rtt_ns)}"
    if known.retries:
        yield words.counted(known.retries, "retry").replace("retrys", "retries")
    if known.response_bytes is not None:
        yield f"{words.size(known.response_bytes)} received"


def _http(version: str) -> str:
    return version if version.upper().startswith("HTTP") else f"HTTP/{version}"


def _answer(known: Facts) -> Iterator[str]:
    model = known.model_answered or known.model
    if model:
        yield words.clean(model)
    usage = known.usage
    if usage and usage.prompt_tokens is not None:
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        yield f"{words.counted(usage.prompt_tokens, 'token')} in{cached}"
    if usage and usage.completion_tokens is not None:
        hidden = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
        yield f"{words.counted(usage.completion_tokens, 'token')} out{hidden}, {words.COUNTED[usage.source]}"
    if known.finish_reason:
        yield f"finish: {words.clean(known.finish_reason)}"
    if known.stamps:
        yield f"stamps: {words.clean(known.stamps)}"
