"""The terminal report: structure at every width, with and without colour and Unicode; nothing hostile gets through."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from rich.cells import cell_len
from tests.support.reports import HOSTILE, hostile, made
from tests.support.timelines import MS, failed, known, timelines

from unslow.core.timeline import ChunkKind, Chunks, Facts, Hop, Phase, Source, Span, Timeline
from unslow.show.report.canvas import Fill, Look, Scale, Track, ticks
from unslow.show.report.payload import exchange
from unslow.show.report.terminal import look, render, render_exchange

ANSI = re.compile(r"\x1b\[[0-9;]*m")
UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]")
WIDTHS = (200, 120, 80, 60, 40, 20)


def lines(text: str) -> list[str]:
    return ANSI.sub("", text).splitlines()


def row(text: str, label: str) -> str:
    (found,) = (line for line in lines(text) if line.startswith(label + " "))
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("color", ["none", "standard", "256", "truecolor"])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, color: str, unicode: bool) -> None:
    for shown in (made(known()), made(known(), failed(), known(reused=True)), made()):
        text = render(shown, width, color, unicode)
        assert text.endswith("\n")
        assert max(cell_len(line) for line in lines(text)) <= max(width, 32)
        assert ("\x1b[" in text) == ((color != "none" and shown.exchanges != ()) or color != "none")
        assert unicode or text.isascii()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("unicode", [True, False])
def test_every_ledger_row_has_its_line_with_its_length(width: int, unicode: bool) -> None:
    text = render_exchange(exchange(known()), width, False, unicode)
    units = {"dns": "10.0 ms", "tls": "40.0 ms", "prefill": "500 ms", "decode": "545 ms", "drain": "5.00 ms"}
    for label, length in units.items():
        assert length in row(text, label)
    starts = ("dns ", "connect ", "tls ", "send ", "wait ", "queue ", "prefill ", "think", "decode ", "drain ", "unexp")
    found = [start for line in lines(text) for start in starts if line.startswith(start)]
    assert found == ["dns ", "connect ", *starts[1:]]


def test_shares_are_left_out_where_there_is_no_room() -> None:
    assert row(render_exchange(exchange(known()), 80), "prefill").endswith("28.4%")
    assert row(render_exchange(exchange(known()), 59), "prefill").endswith("500 ms")


def test_bars_lie_where_their_time_is() -> None:
    spans = (Span(Phase.WAIT, Hop.CLIENT, 0, 50 * MS), Span(Phase.DECODE, Hop.CLIENT, 50 * MS, 100 * MS))
    text = render_exchange(exchange(Timeline("t", Hop.CLIENT, 0.0, 100 * MS, spans)), 80, False, False)
    track = slice(len("decode  "), -18)
    wait, decode = row(text, "wait")[track], row(text, "decode")[track]
    assert set(wait) == set(decode) == {" ", "#"}
    assert wait.count("#") == decode.count("#") == len(wait) // 2
    assert wait.rindex("#") + 1 == decode.index("#")


def test_what_is_known_otherwise_is_drawn_otherwise_and_explained() -> None:
    text = render_exchange(exchange(known()), 120)
    for label, fill in (("prefill", Fill.REPORTED), ("connect (lost attempt 1)", Fill.LOST), ("decode", Fill.MEASURED)):
        assert fill.glyph(Look()) in row(text, label)
        assert f"{fill.glyph(Look())} {fill.meaning}" in text
    assert Fill.UNEXPLAINED.glyph(Look()) in row(text, "unexplained")
    assert "inferred" not in text
    inferred = Span(Phase.QUEUE, Hop.PROVIDER, 0, 9, Source.INFERRED)
    assert "▒ inferred" in render_exchange(exchange(Timeline("t", Hop.CLIENT, 0.0, 9, (inferred,))), 80)
    plain = Timeline("t", Hop.CLIENT, 0.0, 9, (Span(Phase.WAIT, Hop.CLIENT, 0, 9),))
    assert "measured" not in render_exchange(exchange(plain), 80)


def test_the_first_moments_are_flagged_with_their_error() -> None:
    text = render_exchange(exchange(known()), 120)
    assert "TTFB 381 ms" in text
    assert "TTFT 1.00 s ± 20 µs" in text
    assert "TTFOT 1.20 s" in text
    flags = next(line for line in lines(text) if "TTFB" in line)
    assert row(text, "queue")[flags.index("▾")] == "┊"


def test_moments_at_one_place_share_a_flag() -> None:
    spans = (Span(Phase.WAIT, Hop.CLIENT, 0, 10), Span(Phase.DECODE, Hop.CLIENT, 10, 1000))
    chunks = Chunks((10, 1000), (1, 1), (ChunkKind.CONTENT, ChunkKind.CONTENT), (1, 1))
    shown = exchange(Timeline("t", Hop.CLIENT, 0.0, 1000, spans, chunks))
    assert "▾ TTFB 10 ns · TTFT 10 ns\n" in render_exchange(shown, 80)
    assert "v TTFB 10 ns, TTFT 10 ns\n" in render_exchange(shown, 80, unicode=False)
    assert "TTFT 10 ns\n" in render_exchange(shown, 32)


def test_a_guide_never_hides_a_bar() -> None:
    track = Track(3)
    track.bar(0.0, 2.0, Fill.MEASURED, "", Look())
    for cell in range(3):
        track.guide(cell, Look(), "")
    assert track.text().plain == "██┊"


def test_the_tokens_are_a_strip_with_its_spread() -> None:
    text = render_exchange(exchange(known()), 120)
    strip = next(line for line in lines(text) if re.fullmatch(r"[▁▂▃▄▅▆▇█]+", line))
    assert len(strip) == 69
    assert strip.count("█") == 1
    assert strip.index("█") == 44  # the gap of 60 ms before the 26th token of the answer, after 20 of reasoning
    assert "gaps between 70 chunks: p50 10.0 ms · p95 10.0 ms · max 60.0 ms" in text
    narrow = render_exchange(exchange(known()), 40)
    assert any(re.fullmatch(r"[▁▂▃▄▅▆▇█]{35}", line) for line in lines(narrow))
    assert "gaps" not in render_exchange(exchange(failed()), 80)


def test_the_facts_say_where_a_count_came_from() -> None:
    text = render_exchange(exchange(known()), 200)
    assert "status 200 · HTTP/1.1 · TLSv1.3 · new connection · 203.0.113.7:443" in text
    assert "20 tokens in (16 cached) · 70 tokens out (20 reasoning), counted by the provider" in text
    bare = render_exchange(exchange(msgspec.structs.replace(known(), facts=Facts())), 200)
    assert "status" not in bare
    assert "None" not in bare


def test_a_failure_is_red() -> None:
    text = render_exchange(exchange(failed()), 80, "standard")
    assert "\x1b[1;31mFailed in wait" in text
    assert "\x1b[1;31m" not in render_exchange(exchange(known()), 80, "standard").splitlines()[0]


def test_several_are_summed_up_cold_and_warm_apart() -> None:
    text = render(made(known(), known(reused=True), known(reused=True), failed()), 100)
    assert "4 exchanges: 3 completed, 1 did not" in text
    assert "1 × Failed in wait: first_byte_timeout" in text
    assert [line.split()[1] for line in lines(text) if line.startswith("#")][:3] == ["cold", "warm", "warm"]
    assert row(text, "all").split() == [
        "all",
        "3",
        "1.00",
        "s",
        "1.00",
        "s",
        "11.0",
        "ms",
        "11.0",
        "ms",
        "1.76",
        "s",
        "1.76",
        "s",
    ]
    assert row(text, "cold").split()[1] == "1"
    assert row(text, "warm").split()[1] == "2"
    assert "The one in the middle by total time, #" in text
    narrow = render(made(known(), known(reused=True)), 40)
    assert [line.split()[:2] for line in lines(narrow) if line.startswith("all ")] == [["all", "2"]] * 3


def test_only_failures_have_no_figures() -> None:
    text = render(made(failed(), failed()), 80)
    assert "No exchange completed" in text
    assert "2 × Failed in wait" in text


def test_of_many_only_some_have_a_line() -> None:
    text = render(made(*[known(reused=True) for _ in range(30)]), 80)
    assert sum(line.startswith("#") for line in lines(text)) == 12
    assert "and 18 more" in text


def test_lines_of_all_phases_tell_them_apart_without_colour() -> None:
    line = next(line for line in lines(render(made(known(), known()), 120)) if line.startswith("#1"))
    assert [letter for letter in "/.qfhD" if letter in line] == list("/.qfhD")
    assert "q queue" in render(made(known(), known()), 120)


def test_parties_that_did_the_same_are_told_apart() -> None:
    spans = (Span(Phase.CONNECT, Hop.CLIENT, 0, 5), Span(Phase.CONNECT, Hop.GATEWAY, 5, 9))
    text = render_exchange(exchange(Timeline("t", Hop.CLIENT, 0.0, 9, spans)), 80)
    assert row(text, "connect · client")
    assert row(text, "connect · gateway")
    twice = (Span(Phase.DNS, Hop.RESOLVER, 0, 5), Span(Phase.DNS, Hop.RESOLVER, 5, 9, attempt=1))
    assert row(render_exchange(exchange(Timeline("t", Hop.CLIENT, 0.0, 9, twice)), 80), "dns #2")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("color", [False, True])
def test_hostile_text_cannot_speak_to_the_terminal(text: str, color: bool) -> None:
    for width in (100, 40):
        found = ANSI.sub("", render(hostile(text), width, color))
        assert not re.search(
            r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]", found
        )
        assert max(cell_len(line) for line in found.splitlines()) <= width


@settings(deadline=None, max_examples=40)
@given(timelines())
def test_any_timeline_can_be_shown(timeline: Timeline) -> None:
    shown = exchange(timeline)
    for width, unicode in ((80, True), (40, False)):
        text = render_exchange(shown, width, True, unicode)
        assert max(cell_len(line) for line in lines(text)) <= width


@pytest.mark.parametrize(
    ("environ", "tty", "color"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, "truecolor"),
        ({"TERM": "xterm-256color"}, True, "256"),
        ({"TERM": "linux"}, True, "standard"),
        ({"TERM": "dumb"}, True, "none"),
        ({"TERM": "xterm-256color"}, False, "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, "none"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "1"}, False, "256"),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, "none"),
    ],
)
def test_what_a_stream_can_show(environ: dict[str, str], tty: bool, color: str) -> None:
    assert look(environ, tty=tty, columns=90, encoding="UTF-8") == Look(90, color, True)
    assert look(environ, tty=tty, columns=90, encoding="ascii").unicode is False
    assert look(environ, tty=tty, columns=90, encoding=None).unicode is False


@pytest.mark.parametrize("end_ns", [0, 1, 7, 999, 10**6, 1_810 * MS, 10**13])
def test_ticks_are_round_in_order_and_apart(end_ns: int) -> None:
    found = ticks(Scale(end_ns, 60), 9)
    assert found[0] == 0
    assert found == sorted(set(found))
    assert len(found) <= 60 // 9 + 1
    assert all(ns <= end_ns for ns in found)


def test_a_bar_shorter_than_a_cell_leaves_a_mark_at_the_very_end_too() -> None:
    for fill in Fill:
        for unicode in (True, False):
            track = Track(10)
            track.bar(10.0, 10.0, fill, "", Look(unicode=unicode))
            track.bar(3.001, 3.002, fill, "", Look(unicode=unicode))
            assert track.text().plain.strip() != ""
            assert track.text().plain[9] != " "
            assert track.text().plain[3] != " "


def test_the_same_arguments_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first: Any = render(made(known()), 80, True)
    monkeypatch.setenv("COLUMNS", "33")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert render(made(known()), 80, True) == first
