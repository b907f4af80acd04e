"""The report in a terminal: a sentence, the waterfall, the tokens, the facts.

Theory of operation. Every function makes lines (`rich.text.Text`) no wider than `Look.width`; `render` and
`render_exchange` print them into a string with a console that knows nothing of the real terminal, so the same
arguments give the same bytes. What the terminal can do is decided once, by `look`, from values the caller hands in.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from unslow.core.timeline import End
from unslow.show.report import words
from unslow.show.report.canvas import Fill, Look, Scale, Track, color_of, fill_of, ticks
from unslow.show.report.details import facts, tokens
from unslow.show.report.payload import Exchange, LedgerRow, Report
from unslow.show.report.summary import summary

NARROW = 60
"""Below this many columns the share of the total is left out."""

LEAST_WIDTH = 32
"""Narrower terminals get lines of this width."""


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
    return Look(max(LEAST_WIDTH, width), named, unicode)


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
    lines += _waterfall(shown, seen)
    strip = tokens(shown, seen)
    lines += [Text(), *strip] if strip else []
    return [*lines, Text(), *facts(shown, seen)]


# The waterfall.


def _waterfall(shown: Exchange, seen: Look) -> list[Text]:
    labels = [_label(row, shown) for row in shown.rows]
    label_cells = min(max((cell_len(t) for t in labels), default=0), 28, seen.width // 3)
    tail = 10 if seen.width < NARROW else 18
    scale = Scale(shown.timeline.end_ns, max(8, seen.width - label_cells - 2 - tail))
    marks = _marks(shown)
    guides = sorted({scale.cell(ns) for _, ns in marks})
    lines = [_indent(line, label_cells) for line in _mark_lines(marks, scale, seen)]
    for n, row in enumerate(shown.rows):
        lines.append(_row_line(n, row, labels[n], label_cells, scale, guides, shown, seen))
    lines.append(_indent(_axis(scale, seen), label_cells))
    return lines + _legend(shown.rows, seen)


def _label(row: LedgerRow, shown: Exchange) -> str:
    """The row's name; with its hop where more than one hop did the same."""
    alike = [r for r in shown.rows if r.label == row.label]
    if row.hop is None or len({r.hop for r in alike}) < 2:
        return words.clean(row.label)
    return words.clean(f"{row.label} · {row.hop.value}")


def _row_line(
    n: int, row: LedgerRow, label: str, label_cells: int, scale: Scale, guides: list[int], shown: Exchange, seen: Look
) -> Text:
    track, style = Track(scale.cells), color_of(row.phase, seen)
    fill = fill_of(row.phase, row.source, won=row.won)
    for bar in shown.bars:
        if bar.row == n:
            faded = f"dim {style}".strip() if fill is Fill.LOST else style
            track.bar(scale.at(bar.start_ns), scale.at(bar.end_ns), fill, faded, seen)
    for cell in guides:
        track.guide(cell, seen, "dim")
    line = Text(set_cell_size(_fit(label, label_cells, seen), label_cells) + "  ", _label_style(row, seen))
    line.append_text(track.text())
    line.append(f"{words.duration(row.duration_ns):>10}", "bold" if row.won else "dim")
    if seen.width >= NARROW:
        line.append(f"{words.share(row.duration_ns, shown.timeline.end_ns):>8}", "dim")
    return line


def _fit(text: str, cells: int, seen: Look) -> str:
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1) + ("…" if seen.unicode else "~")


def _label_style(row: LedgerRow, seen: Look) -> str:
    if row.phase is None:
        return f"bold {color_of(None, seen)}".strip()
    return "" if row.won else "dim"


def _indent(line: Text, label_cells: int) -> Text:
    return Text(" " * (label_cells + 2)).append_text(line)


def _marks(shown: Exchange) -> list[tuple[str, int]]:
    """First byte, first token, first token of the answer: named, where known and where they tell something new."""
    m = shown.metrics
    known = [("TTFB", m.ttfb_ns), ("TTFT", m.ttft_ns), ("TTFOT", m.ttfot_ns if m.ttfot_ns != m.ttft_ns else None)]
    error = m.ttft_error_ns
    named = []
    for name, ns in known:
        if ns is not None:
            bar = f" ± {words.error(error)}" if name == "TTFT" and error else ""
            named.append((f"{name} {words.duration(ns)}{bar}", ns))
    return named


def _mark_lines(marks: list[tuple[str, int]], scale: Scale, seen: Look) -> list[Text]:
    """Flags above the bars: to the right of their moment where there is room, else to its left, else a line higher."""
    flag = "▾" if seen.unicode else "v"
    tracks: list[Track] = []
    for text, ns in sorted(marks, key=lambda m: m[1]):
        cell, plain = scale.cell(ns), text if seen.unicode else text.replace("±", "+-").replace("µ", "u")
        places = ((cell, f"{flag} {plain}"), (cell - len(plain) - 1, f"{plain} {flag}"))
        if not any(track.write(at, said, "") for track in tracks for at, said in places):
            tracks.append(Track(scale.cells))
            if not any(tracks[-1].write(at, said, "") for at, said in places):
                tracks[-1].write(0, plain[: scale.cells], "")
    return [track.text() for track in reversed(tracks)]


def _axis(scale: Scale, seen: Look) -> Text:
    track = Track(scale.cells)
    for ns in ticks(scale, 10):
        text = words.tick(ns) if seen.unicode else words.tick(ns).replace("µ", "u")
        track.write(min(scale.cell(ns), scale.cells - len(text)), text, "dim")
    return track.text()


def _legend(rows: Iterable[LedgerRow], seen: Look) -> list[Text]:
    """What the fills mean, where any but `measured` is there."""
    used = {fill_of(r.phase, r.source, won=r.won) for r in rows} - {Fill.UNEXPLAINED}
    if used <= {Fill.MEASURED}:
        return []
    said = [f"{fill.glyph(seen)} {fill.meaning}" for fill in Fill if fill in used]
    return [Text("   ".join(said), "dim")]


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
