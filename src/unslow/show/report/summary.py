"""Several exchanges of one target at a glance: a line each, then medians and 95th percentiles, cold and warm apart."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence

from rich.text import Text

from unslow.core.timeline import End, Phase, quantile
from unslow.show.report import words
from unslow.show.report.canvas import Fill, Look, Scale, color_of, fill_of
from unslow.show.report.payload import Exchange, LedgerRow

MOST_LINES = 12
"""Exchanges drawn one a line; of more, the first ones are drawn and the rest are counted."""

WIDE = 72
"""From this width on all figures stand in one table."""

FEW = 20
"""Of fewer values the 95th percentile is the largest (nearest rank)."""

_LETTERS = dict(zip(Phase, "andpxs.qfhD-r", strict=True))
"""What stands for a phase on a line of all phases without colour."""

_FIGURES: tuple[tuple[str, Callable[[Exchange], float | None]], ...] = (
    ("TTFT", lambda x: x.metrics.ttft_ns),
    ("TPOT", lambda x: x.metrics.tpot_ns),
    ("total", lambda x: x.metrics.e2e_ns),
)

Group = tuple[str, list[Exchange]]


def summary(exchanges: Sequence[Exchange], look: Look) -> list[Text]:
    """A sentence, a line an exchange on one scale, and the table."""
    return [*_sentence(exchanges), Text(), *_lines(exchanges, look), Text(), *_table(exchanges, look)]


def _sentence(exchanges: Sequence[Exchange]) -> list[Text]:
    failed = sum(x.timeline.outcome.end is not End.COMPLETED for x in exchanges)
    said = f"{words.counted(len(exchanges), 'exchange')}: {len(exchanges) - failed} completed"
    lines = [Text(said + (f", {failed} did not" if failed else ""), "bold red" if failed else "bold")]
    endings = [words.ending(x) for x in exchanges]
    for ending in dict.fromkeys(e for e in endings if e):
        lines.append(Text(f"{endings.count(ending)} × {ending}", "red"))
    return lines


def _lines(exchanges: Sequence[Exchange], look: Look) -> list[Text]:
    longest = max(x.timeline.end_ns for x in exchanges)
    digits = len(str(len(exchanges)))
    scale = Scale(longest, look.width - digits - 20)
    lines = [_line(n, x, digits, scale, look) for n, x in enumerate(exchanges[:MOST_LINES], 1)]
    if len(exchanges) > MOST_LINES:
        lines.append(Text(f"and {len(exchanges) - MOST_LINES:,} more", "dim"))
    return [*lines, *_key(exchanges[:MOST_LINES], look)]


def _line(n: int, shown: Exchange, digits: int, scale: Scale, look: Look) -> Text:
    """All phases of one exchange side by side: by colour, or by letter without colour."""
    failed = shown.timeline.outcome.end is not End.COMPLETED
    line = Text().append(f"#{n:<{digits}} {_warmth(shown):<6} ", "red" if failed else "dim")
    cells = Text()
    for cell in range(scale.cells):
        row = _row_at(shown, scale, cell)
        glyph, style = _block(row, look) if row else (" ", "")
        cells.append(glyph, style or None)
    line.append_text(cells)
    return line.append(f"{words.duration(shown.timeline.end_ns):>10}", "bold red" if failed else "bold")


def _row_at(shown: Exchange, scale: Scale, cell: int) -> LedgerRow | None:
    """The row that has the middle of a cell; an exchange shorter than a cell still has its first one."""
    end_ns = shown.timeline.end_ns
    if not end_ns:
        return None
    middle = (2 * cell + 1) * scale.end_ns // (2 * scale.cells)
    if middle >= end_ns and cell > 0:
        return None
    n = bisect.bisect_right(shown.bars, min(middle, end_ns - 1), key=lambda bar: bar.start_ns) - 1
    return shown.rows[shown.bars[n].row]  # bars tile the axis from 0 on


def _block(row: LedgerRow, look: Look) -> tuple[str, str]:
    fill = fill_of(row.phase, row.source, won=row.won)
    if look.color == "none":
        plain = fill in (Fill.LOST, Fill.UNEXPLAINED) or row.phase is None
        return (fill.glyph(look._replace(unicode=False)) if plain or not row.phase else _LETTERS[row.phase]), ""
    return fill.glyph(look), color_of(row.phase, look)


def _key(exchanges: Sequence[Exchange], look: Look) -> list[Text]:
    """What the colours or letters mean, for the rows that take at least a hundredth of some exchange."""
    seen: dict[tuple[str, str], str] = {}
    for row in sorted((r for x in exchanges for r in x.rows if r.duration_ns * 100 >= x.timeline.end_ns), key=_order):
        name = "lost attempt" if not row.won else (row.phase.value if row.phase else "unexplained")
        seen.setdefault(_block(row, look), name)
    lines, cells = [Text()], 0
    for (glyph, style), name in seen.items():
        if cells and cells + len(name) + 4 > look.width:
            lines, cells = [*lines, Text()], 0
        lines[-1].append(glyph, style or None).append(f" {name}  ", "dim")
        cells += len(name) + 4
    return lines


def _order(row: LedgerRow) -> int:
    return list(Phase).index(row.phase) if row.phase else len(Phase)


def _warmth(shown: Exchange) -> str:
    reused = shown.timeline.facts.reused
    return "" if reused is None else ("warm" if reused else "cold")


def _groups(exchanges: Sequence[Exchange]) -> list[Group]:
    """All that completed; where both kinds are there, also those on a new and on a reused connection."""
    done = [x for x in exchanges if x.timeline.outcome.end is End.COMPLETED]
    apart = [(name, [x for x in done if _warmth(x) == name]) for name in ("cold", "warm")]
    return [("all", done), *(apart if all(members for _, members in apart) else [])]


def _table(exchanges: Sequence[Exchange], look: Look) -> list[Text]:
    groups = _groups(exchanges)
    if not groups[0][1]:
        return [Text("No exchange completed, so there are no figures.", "dim")]
    wide = look.width >= WIDE
    lines = _block_of(_FIGURES, groups) if wide else [t for f in _FIGURES for t in _block_of([f], groups)]
    notes = []
    if len(groups) > 1:
        notes.append("cold: a new connection; warm: a reused one.")
    if min(len(members) for _, members in groups) < FEW:
        notes.append(f"p95 of fewer than {FEW} is the largest.")
    return [*lines, Text(" ".join(notes), "dim")] if notes else lines


def _block_of(figures: Iterable[tuple[str, Callable[[Exchange], float | None]]], groups: list[Group]) -> list[Text]:
    named = list(figures)
    heads = "".join(f"{name + ' p50':>12}{'p95':>10}" for name, _ in named)
    lines = [Text(f"{'':6}{'n':>4}{heads}", "dim")]
    for name, members in groups:
        cells = "".join(_pair(members, value) for _, value in named)
        lines.append(Text(f"{name:<6}{len(members):>4}{cells}"))
    return lines


def _pair(members: list[Exchange], value: Callable[[Exchange], float | None]) -> str:
    known = [v for v in map(value, members) if v is not None]
    p50, p95 = quantile(known, 0.5), quantile(known, 0.95)
    return f"{_shown(p50):>12}{_shown(p95):>10}"


def _shown(value: float | None) -> str:
    return "-" if value is None else words.duration(value)
