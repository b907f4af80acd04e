"""The report in a terminal: a sentence, the waterfall, the tokens, the facts.

Theory of operation. Every function makes lines (`rich.text.Text`) no wider than `Look.width`; `render` and
`render_exchange` print them into a string with a console that knows nothing of the real terminal, so the same
arguments give the same bytes. What the terminal can do is decided once, by `look`, from values the caller hands in.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.text import Text

from unslow.core.timeline import End
from unslow.show.report import words
from unslow.show.report.canvas import Look
from unslow.show.report.details import facts, tokens
from unslow.show.report.payload import Exchange, Report
from unslow.show.report.summary import summary
from unslow.show.report.waterfall import waterfall

LEAST_WIDTH, MOST_WIDTH = 32, 140
"""Narrower and wider terminals get lines of these widths: a bar too far from its label cannot be read."""


def look(environ: Mapping[str, str], *, tty: bool, columns: int, encoding: str | None) -> Look:
    """What to show on a stream: colour only on a terminal without NO_COLOR (no-color.org), Unicode where it encodes."""
    return Look(columns, _color(environ, tty=tty), "utf" in (encoding or "").lower())


def _color(environ: Mapping[str, str], *, tty: bool) -> str:
    if environ.get("NO_COLOR") or (not tty and not environ.get("FORCE_COLOR")):
        return "none"
    term = environ.get("TERM", "")
    if term in ("dumb", "unknown"):
        return "none"
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in term else "standard"


def render(report: Report, width: int = 80, color: bool | str = False, unicode: bool = True) -> str:
    """The whole report as text, ending in a newline. `color` is True for truecolor or one of `Look.color`."""
    seen = _look(width, color, unicode)
    lines = [_title(report, seen)]
    if not report.exchanges:
        lines.append(Text("No exchange was measured."))
    elif len(report.exchanges) == 1:
        lines += _exchange(report.exchanges[0], seen)
    else:
        lines += [*summary(report.exchanges, seen), Text(), *_typical(report.exchanges, seen)]
    return _print(lines, seen)


def render_exchange(shown: Exchange, width: int = 80, color: bool | str = False, unicode: bool = True) -> str:
    """One exchange as text, ending in a newline."""
    seen = _look(width, color, unicode)
    return _print(_exchange(shown, seen), seen)


def _look(width: int, color: bool | str, unicode: bool) -> Look:
    named = color if isinstance(color, str) else ("truecolor" if color else "none")
    return Look(min(MOST_WIDTH, max(LEAST_WIDTH, width)), named, unicode)


def _title(report: Report, seen: Look) -> Text:
    target = report.target
    parts = [words.clean(part) for part in (target.url, target.model) if part]
    return Text("  ".join(parts), "dim", overflow="fold")


def _typical(exchanges: tuple[Exchange, ...], seen: Look) -> list[Text]:
    """The exchange in the middle by wall time, drawn in full."""
    order = sorted(range(len(exchanges)), key=lambda n: exchanges[n].timeline.end_ns)
    middle = order[(len(order) - 1) // 2]
    return [Text(f"The one in the middle by total time, #{middle + 1}:", "dim"), *_exchange(exchanges[middle], seen)]


def _exchange(shown: Exchange, seen: Look) -> list[Text]:
    failed = shown.timeline.outcome.end is not End.COMPLETED
    lines = [Text(words.headline(shown), "bold red" if failed else "bold"), Text()]
    lines += waterfall(shown, seen)
    strip = tokens(shown, seen)
    lines += [Text(), *strip] if strip else []
    return [*lines, Text(), *facts(shown, seen)]


def _print(lines: Iterable[Text], seen: Look) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=seen.width,
        color_system=None if seen.color == "none" else seen.color,  # type: ignore[arg-type]
        force_terminal=seen.color != "none",
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    for line in lines:
        for part in line.wrap(console, seen.width) if line.cell_len > seen.width else [line]:
            part.rstrip()
            console.print(part, no_wrap=True, overflow="ignore", crop=False)
    text = out.getvalue()
    return text if seen.unicode else words.ascii_only(text)
