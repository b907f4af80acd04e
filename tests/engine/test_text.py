from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.serve.engine.text import AnswerText, Detokenizer, StopMatcher

BYTES = [bytes([value]) for value in range(256)]


def shown(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    out = [matcher.feed(piece) for piece in pieces]
    return [*out, matcher.close()], matcher.hit


def test_a_character_cut_in_two_is_held_until_whole() -> None:
    detokenizer = Detokenizer([b"a\xf0\x9f", b"\x99\x82b", b"c"])
    assert [detokenizer.feed(0), detokenizer.feed(1), detokenizer.feed(2), detokenizer.close()] == ["a", "🙂b", "c", ""]


def test_a_character_that_never_ends_becomes_a_replacement() -> None:
    detokenizer = Detokenizer([b"a\xf0\x9f"])
    assert detokenizer.feed(0) + detokenizer.close() == "a\ufffd"


def test_control_tokens_and_ids_outside_the_vocabulary_show_nothing() -> None:
    detokenizer = Detokenizer([b"x", b"<|im_end|>"], frozenset({1}))
    assert "".join(detokenizer.feed(token) for token in (0, 1, 7, -1)) == "x"


@given(st.binary())
@settings(deadline=None)
def test_any_bytes_come_out_as_whole_decoding_would_have_it(data: bytes) -> None:
    detokenizer = Detokenizer(BYTES)
    pieces = [detokenizer.feed(byte) for byte in data] + [detokenizer.close()]
    assert "".join(pieces) == data.decode("utf-8", "replace")


def test_a_stop_string_across_pieces_is_not_shown() -> None:
    assert shown(["STOP"], ["one S", "TO", "P two", "three"]) == (["one ", "", "", "", ""], True)


def test_a_false_start_is_shown_once_it_is_known_to_be_one() -> None:
    assert shown(["STOP"], ["one ST", "ART"]) == (["one ", "START", ""], False)


def test_what_is_held_at_the_end_is_shown() -> None:
    assert shown(["STOP"], ["one ST"]) == (["one ", "ST"], False)


def test_the_earliest_of_several_stops_counts() -> None:
    assert shown(["c", "b"], ["abc"]) == (["a", ""], True)


def test_a_stop_that_repeats_its_own_start() -> None:
    assert shown(["aab"], ["a", "a", "a", "b", "c"]) == (["", "", "a", "", "", ""], True)


alphabet = st.text("ab🙂", max_size=30)


@given(alphabet, st.lists(st.text("ab🙂", min_size=1, max_size=4), max_size=3), st.data())
@settings(deadline=None)
def test_any_split_shows_the_text_up_to_the_first_stop(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    # A stream stops at the first stop string to be complete; the earliest start decides among those in one piece.
    out, hit = shown(stops, pieces)
    joined = "".join(out)
    assert hit == any(stop in text for stop in stops)
    assert text.startswith(joined)
    assert not any(stop in joined for stop in stops)
    if not hit:
        assert joined == text


@pytest.mark.parametrize(("tokens", "text"), [(b"hello wor", "hello wor"), (b"hello", "hello")])
def test_an_answer_that_ends_without_a_stop_is_shown_whole(tokens: bytes, text: str) -> None:
    answer = AnswerText(BYTES, frozenset(), ["world"])
    assert "".join([answer.feed(token) for token in tokens] + [answer.close()]) == text
    assert not answer.stopped
