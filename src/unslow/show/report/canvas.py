"""Bars on a grid of terminal cells: where a stretch of time starts and ends, finer than a cell where glyphs allow.

A track is one line of the waterfall. The way a cell is filled says how we know (`Fill`), the colour says the phase,
so the picture keeps its meaning without colour and without Unicode.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from rich.text import Text

from unslow.core.timeline import Phase, Source

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"
LEVELS_ASCII = "_.-:=+*#"


class Look(NamedTuple):
    """What the terminal can show. `color` is one of `none`, `standard` (16), `256`, `truecolor`."""

    width: int = 80
    color: str = "none"
    unicode: bool = True


class Fill(Enum):
    """How a bar is filled: (with Unicode, with ASCII, what it means)."""

    MEASURED = ("█", "#", "measured")
    REPORTED = ("▓", "=", "reported by the other side")
    INFERRED = ("▒", "~", "inferred")
    LOST = ("╱", "/", "lost attempt")
    UNEXPLAINED = ("░", "?", "unexplained")

    def glyph(self, look: Look) -> str:
        """The character of a full cell."""
        return self.value[0] if look.unicode else self.value[1]

    @property
    def meaning(self) -> str:
        """For the legend."""
        return self.value[2]


def fill_of(phase: Phase | None, source: Source | None, *, won: bool) -> Fill:
    """The fill of a ledger row."""
    if phase is None:
        return Fill.UNEXPLAINED
    if not won:
        return Fill.LOST
    return {Source.REPORTED: Fill.REPORTED, Source.INFERRED: Fill.INFERRED}.get(
        source or Source.MEASURED, Fill.MEASURED
    )


_OF_SOURCE = {Source.MEASURED: Fill.MEASURED, Source.REPORTED: Fill.REPORTED, Source.INFERRED: Fill.INFERRED}
_COLORS = {
    Phase.CALLER: ("#93a3ad", "bright_black"),
    Phase.DNS: ("#7cc4f0", "bright_blue"),
    Phase.CONNECT: ("#56a8e8", "blue"),
    Phase.PROXY: ("#7f9fe0", "white"),
    Phase.TLS: ("#9a9df2", "bright_cyan"),
    Phase.SEND: ("#3fc0c4", "cyan"),
    Phase.WAIT: ("#f0c04a", "yellow"),
    Phase.QUEUE: ("#f58a4b", "bright_red"),
    Phase.PREFILL: ("#ec8fc4", "magenta"),
    Phase.THINKING: ("#bd9bf0", "bright_magenta"),
    Phase.DECODE: ("#3ccf9c", "green"),
    Phase.DRAIN: ("#b3d26a", "bright_green"),
    Phase.RENDER: ("#cfa98b", "bright_yellow"),
}
_UNEXPLAINED = ("#c7d0d6", "white")
"""The page's colours for a dark background (`web/src/parts/base.css`), and the nearest of the 16."""


def color_of(phase: Phase | None, look: Look) -> str:
    """The colour of a phase, as rich names it; empty without colour."""
    if look.color == "none":
        return ""
    rgb, named = _COLORS[phase] if phase else _UNEXPLAINED
    return named if look.color == "standard" else rgb


class Scale(NamedTuple):
    """Wall time [0, end_ns] on `cells` cells."""

    end_ns: int
    cells: int

    def at(self, ns: int) -> float:
        """Where a moment lies, in cells."""
        return self.cells * ns / self.end_ns if self.end_ns else 0.0

    def cell(self, ns: int) -> int:
        """The cell that holds a moment."""
        return max(0, min(self.cells - 1, int(self.at(ns))))


class Track:
    """One line of cells, each a glyph and a style."""

    def __init__(self, cells: int) -> None:
        self._glyphs = [" "] * cells
        self._styles = [""] * cells

    def bar(self, start: float, end: float, fill: Fill, style: str, look: Look) -> None:
        """Fill [start, end), in cells. What is shorter than a cell can show still leaves a mark."""
        first, last = int(start), min(int(end), len(self._glyphs) - 1)
        drawn = False
        for n in range(first, last + 1):
            glyph = _cell(max(0.0, start - n), min(1.0, end - n), fill, look)
            if glyph != " ":
                self._put(n, glyph, style)
                drawn = True
        if not drawn:
            thin = "▏" if look.unicode and fill is Fill.MEASURED else fill.glyph(look)
            self._put(min(first, len(self._glyphs) - 1), thin, style)

    def guide(self, cell: int, look: Look, style: str) -> None:
        """A thin vertical line where nothing was drawn."""
        if self._glyphs[cell] == " ":
            self._put(cell, "┊" if look.unicode else ":", style)

    def write(self, start: int, text: str, style: str = "") -> bool:
        """Write text of single-width characters if its place, and a cell around it, is free; say whether it was."""
        end = start + len(text)
        if start < 0 or end > len(self._glyphs):
            return False
        if any(g != " " for g in self._glyphs[max(0, start - 1) : end + 1]):
            return False
        for n, ch in enumerate(text, start):
            self._put(n, ch, style)
        return True

    def text(self) -> Text:
        """The line as styled text."""
        out = Text()
        for glyph, style in zip(self._glyphs, self._styles, strict=True):
            out.append(glyph, style or None)
        return out

    def _put(self, n: int, glyph: str, style: str) -> None:
        self._glyphs[n], self._styles[n] = glyph, style


def _cell(start: float, end: float, fill: Fill, look: Look) -> str:
    """The glyph of one cell that is filled over [start, end) of its width."""
    covered = end - start
    if covered <= 0.06:
        return " "
    if not look.unicode or fill is not Fill.MEASURED:
        return fill.glyph(look) if covered >= 0.5 else " "
    if start <= 0.06:
        return EIGHTHS[max(1, round(covered * 8))]
    if covered >= 0.75:
        return "█"
    return "▐" if end > 0.94 else EIGHTHS[max(1, round(covered * 8))]


def ticks(scale: Scale, room: int) -> list[int]:
    """Round moments (1, 2 or 5 times a power of ten) at least `room` cells apart, from 0 on."""
    if scale.end_ns <= 0:
        return [0]
    least = scale.end_ns * room / max(1, scale.cells)
    step = 1
    while step < least:
        for factor in (2, 5, 10):
            if step * factor >= least or factor == 10:
                step *= factor
                break
    return list(range(0, scale.end_ns + 1, step))
