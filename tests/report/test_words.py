"""Units, clean text and the sentence on top."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.reports import HOSTILE
from tests.support.timelines import MS, failed, known

from unslow.core.timeline import Chunks, Facts, Hop, Phase, Span, Timeline
from unslow.show.report import words
from unslow.show.report.payload import exchange


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (412_000, "412 µs"),
        (999_499, "999 µs"),
        (999_600, "1.00 ms"),
        (1_210_000, "1.21 ms"),
        (9_994_999, "9.99 ms"),
        (9_995_001, "10.0 ms"),
        (99_950_001, "100 ms"),
        (1_840_000_000, "1.84 s"),
        (59_940_000_000, "59.9 s"),
        (59_960_000_000, "1 min 0 s"),
        (123_000_000_000, "2 min 3 s"),
        (3_600_000_000_000, "1 h 0 min"),
        (-5_000_000, "-5.00 ms"),
    ],
)
def test_durations_have_three_digits_in_the_unit_that_fits(ns: int, said: str) -> None:
    assert words.duration(ns) == said


@given(st.integers(0, 10**15))
def test_a_duration_is_short_and_never_shows_a_thousand_of_a_unit(ns: int) -> None:
    said = words.duration(ns)
    assert len(said) <= 12
    number = said.split()[0]
    assert float(number) < 1000 or said.endswith("min")


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 10, "0%"), (1, 100_000, "<0.1%"), (1, 3, "33.3%"), (3, 3, "100%"), (9999, 10_000, "100%"), (5, 0, "0%")],
)
def test_shares(part: int, whole: int, said: str) -> None:
    assert words.share(part, whole) == said


def test_sizes_rates_ticks_and_errors() -> None:
    assert [words.size(n) for n in (1, 999, 1_000, 12_345, 3_000_000)] == [
        "1 B",
        "999 B",
        "1.00 kB",
        "12.3 kB",
        "3.00 MB",
    ]
    assert [words.rate(ns) for ns in (5e6, 250e6, 1e3)] == ["200 tok/s", "4.00 tok/s", "1,000,000 tok/s"]
    assert [words.tick(ns) for ns in (0, 500 * MS, 1_500 * MS, 1_000 * MS)] == ["0", "500 ms", "1.5 s", "1 s"]
    assert [words.error(ns) for ns in (40, 20_000, 1_234_567)] == ["40 ns", "20 µs", "1.3 ms"]


@given(st.text(max_size=400) | st.sampled_from(HOSTILE))
def test_clean_text_is_one_line_without_anything_unseen(text: str) -> None:
    found = words.clean(text)
    assert len(found) <= 300
    assert all(unicodedata.category(ch) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for ch in found)
    assert words.clean(found) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;owned\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x9b2Jb\x1b(0c", "abc"),
        ("user\u202egnp", "usergnp"),
        ("one\r\ntwo\u2028three", "one two three"),
        ("plain 漢字 é", "plain 漢字 é"),
    ],
)
def test_clean_takes_out_whole_sequences(text: str, found: str) -> None:
    assert words.clean(text) == found


def test_the_headline_says_what_took_most() -> None:
    assert words.headline(exchange(known())) == (
        "1.76 s in all: 679 ms waiting for the first token, 545 ms decoding 70 tokens (93 tok/s), "
        "250 ms lost on attempts that did not win"
    )


def test_a_failure_comes_first() -> None:
    assert words.headline(exchange(failed())) == (
        "Failed in wait: first_byte_timeout: no byte of the answer within 3 s. 3.01 s in all: 3.00 s waiting."
    )


def test_an_answer_without_tokens_is_a_body() -> None:
    spans = (Span(Phase.WAIT, Hop.CLIENT, 0, 90), Span(Phase.DRAIN, Hop.CLIENT, 90, 190))
    plain = Timeline("t", Hop.CLIENT, 0.0, 190, spans, Chunks(), Facts(status=200))
    assert words.headline(exchange(plain)) == "190 ns in all: 100 ns receiving the body, 90 ns waiting"


def test_what_nothing_explains_is_said() -> None:
    assert words.headline(exchange(Timeline("t", Hop.CLIENT, 0.0, 50 * MS))) == "50.0 ms in all: 50.0 ms unexplained"
    nothing = msgspec.structs.replace(known(), end_ns=0)
    assert words.headline(exchange(nothing)) == "0 ns in all"


@given(st.text())
def test_ascii_only_is_ascii(text: str) -> None:
    assert words.ascii_only(text).isascii()
