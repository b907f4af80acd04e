"""The waterfall in a terminal: a line a ledger row over one axis of time, flags for what came first, a legend."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from unslow.show.report import words
from unslow.show.report.canvas import Fill, Look, Scale, Track, color_of, fill_of, ticks
from unslow.show.report.payload import Bar, Exchange, LedgerRow

NARROW = 60
"""Below this many columns the share of the total is left out."""

LONGEST_LABEL, TICK_CELLS = 28, 9
_BAR = re.compile(r" (±|\+-) [\d.]+ \w+")


def waterfall(shown: Exchange, look: Look) -> list[Text]:
    """The picture, with flags above and the legend below."""
    return _Waterfall(shown, look).lines()


class _Waterfall:
    """One exchange laid out for one width."""

    def __init__(self, shown: Exchange, look: Look) -> None:
        self._shown, self._look = shown, look
        self._labels = [_label(row, shown.rows) for row in shown.rows]
        longest = max((cell_len(label) for label in self._labels), default=0)
        self._label_cells = min(longest, LONGEST_LABEL, look.width // 3)
        numbers = 10 if look.width < NARROW else 18
        self._scale = Scale(shown.timeline.end_ns, max(8, look.width - self._label_cells - 2 - numbers))
        self._marks = _marks(shown)

    def lines(self) -> list[Text]:
        """All of it."""
        axis = self._indented(self._axis())
        return [
            *self._flags(),
            *map(self._row, range(len(self._shown.rows))),
            axis,
            *_legend(self._shown.rows, self._look),
        ]

    def _row(self, n: int) -> Text:
        """A row: its name, its stretches, its length and its share."""
        row, look = self._shown.rows[n], self._look
        track, fill = Track(self._scale.cells), fill_of(row.phase, row.source, won=row.won)
        for start, end in _stretches(bar for bar in self._shown.bars if bar.row == n):
            track.bar(self._scale.at(start), self._scale.at(end), fill, color_of(row.phase, look), look)
        for _, ns in self._marks:
            track.guide(self._scale.cell(ns), look, "dim")
        line = Text().append(self._padded(self._labels[n]), _label_style(row, look)).append_text(track.text())
        line.append(f"{words.duration(row.duration_ns):>10}", "bold" if row.won else "dim")
        if look.width >= NARROW:
            line.append(f"{words.share(row.duration_ns, self._shown.timeline.end_ns):>8}", "dim")
        return line

    def _flags(self) -> list[Text]:
        """Flags right of their moment where there is room, else left of it, else a line higher."""
        flag, tracks = ("▾" if self._look.unicode else "v"), list[Track]()
        for cell, text in self._gathered():
            places = []
            for said in (text, _BAR.sub("", text)):  # the error bar goes first
                places += [(cell, f"{flag} {said}"), (cell - len(said) - 1, f"{said} {flag}")]
            if not any(track.write(at, whole) for track in tracks for at, whole in places[:2]):
                tracks.append(Track(self._scale.cells))
                if not any(tracks[-1].write(at, whole) for at, whole in places):
                    tracks[-1].write(0, text[: self._scale.cells])
        return [self._indented(track.text()) for track in reversed(tracks)]

    def _gathered(self) -> list[tuple[int, str]]:
        """What each flag says: moments less than two cells apart share one, where its text has room."""
        between, found = (" · " if self._look.unicode else ", "), list[tuple[int, str]]()
        for text, ns in sorted(self._marks, key=lambda mark: mark[1]):
            cell, said = self._scale.cell(ns), text if self._look.unicode else words.ascii_only(text)
            if found and cell - found[-1][0] < 2 and len(found[-1][1]) + len(said) < self._scale.cells - 5:
                found[-1] = (found[-1][0], found[-1][1] + between + said)
            else:
                found.append((cell, said))
        return found

    def _axis(self) -> Text:
        track, cells = Track(self._scale.cells), self._scale.cells
        for ns in ticks(self._scale, TICK_CELLS):
            text = words.tick(ns) if self._look.unicode else words.ascii_only(words.tick(ns))
            track.write(min(self._scale.cell(ns), cells - len(text)), text, "dim")
        return track.text()

    def _indented(self, line: Text) -> Text:
        return Text(" " * (self._label_cells + 2)).append_text(line)

    def _padded(self, label: str) -> str:
        cells = self._label_cells
        if cell_len(label) > cells:
            label = set_cell_size(label, cells - 1) + ("…" if self._look.unicode else "~")
        return set_cell_size(label, cells + 2)


def _label(row: LedgerRow, rows: Iterable[LedgerRow]) -> str:
    """The row's name; with its hop, or its attempt, where rows of the same name differ in it."""
    alike = [r for r in rows if r.label == row.label]
    if row.hop is not None and len({r.hop for r in alike}) > 1:
        return words.clean(f"{row.label} · {row.hop.value}")
    if row.won and len({r.attempt for r in alike}) > 1:
        return words.clean(f"{row.label} #{row.attempt + 1}")
    return words.clean(row.label)


def _label_style(row: LedgerRow, look: Look) -> str:
    if row.phase is None:
        return f"bold {color_of(None, look)}".strip()
    return "" if row.won else "dim"


def _stretches(bars: Iterable[Bar]) -> list[tuple[int, int]]:
    """Bars of one row, those that touch made one."""
    found: list[tuple[int, int]] = []
    for bar in bars:
        if found and found[-1][1] == bar.start_ns:
            found[-1] = (found[-1][0], bar.end_ns)
        else:
            found.append((bar.start_ns, bar.end_ns))
    return found


def _marks(shown: Exchange) -> list[tuple[str, int]]:
    """First byte, first token, first token of the answer: named, where known and where they tell something new."""
    m = shown.metrics
    shown_later = m.ttfot_ns if m.ttfot_ns != m.ttft_ns else None
    bar = f" ± {words.error(m.ttft_error_ns)}" if m.ttft_error_ns else ""
    known = (("TTFB", m.ttfb_ns, ""), ("TTFT", m.ttft_ns, bar), ("TTFOT", shown_later, ""))
    return [(f"{name} {words.duration(ns)}{error}", ns) for name, ns, error in known if ns is not None]


def _legend(rows: Iterable[LedgerRow], look: Look) -> list[Text]:
    """What the fills mean, where any but `measured` is there."""
    used = {fill_of(r.phase, r.source, won=r.won) for r in rows} - {Fill.UNEXPLAINED}
    if used <= {Fill.MEASURED}:
        return []
    said = [f"{fill.glyph(look)} {fill.meaning}" for fill in Fill if fill in used]
    return [Text("   ".join(said), "dim")]
