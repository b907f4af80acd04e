"""Counting offline, and which count holds."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.core.timeline import CountSource, Usage
from unslow.core.tokens import MAX_CHARS, TokenCount, count, encoding_of, settle


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4o", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.1-codex-max", "o200k_base"),
        ("o1", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("openai/gpt-oss-120b", "o200k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("ft:gpt-4o-mini:org::id", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo-2024-04-09", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("claude-sonnet-4-5", None),
        ("llama-3.3-70b-versatile", None),
        ("gpt-4x", None),
        ("o1ympus", None),
        ("o10", None),
        ("", None),
        (None, None),
    ],
)
def test_the_models_own_vocabulary(model: str | None, encoding: str | None) -> None:
    assert encoding_of(model) == encoding


@pytest.mark.parametrize(
    ("text", "model", "n"),
    [
        ("hello world", "gpt-4", 2),
        ("hello world", "gpt-4o", 2),
        ("tiktoken is great!", "gpt-4", 6),
        ("antidisestablishmentarianism", "gpt-4", 6),
        ("お誕生日おめでとう", "gpt-4", 9),
        ("お誕生日おめでとう", "gpt-4o", 8),
        ("", "gpt-4o", 0),
        ("<|endoftext|>", "gpt-4o", 7),
    ],
)
def test_counts_known_from_elsewhere(text: str, model: str, n: int) -> None:
    """The first ones are the examples of OpenAI's cookbook on counting with tiktoken; a special token is plain text."""
    assert count(text, model) == TokenCount(n, encoding_of(model) or "", exact=True)


def test_another_models_count_is_an_estimate() -> None:
    assert count("hello world", "llama-3.3-70b") == TokenCount(2, "o200k_base", exact=False)


def test_a_text_that_is_too_long_is_not_counted() -> None:
    assert count("a " * MAX_CHARS, "gpt-4o") is None


def test_half_a_surrogate_is_counted_as_a_mark() -> None:
    assert count("a\ud800b", "gpt-4o") == count("a?b", "gpt-4o")


def test_the_sum_over_chunks_is_not_the_count() -> None:
    """Why chunks are never counted one by one."""
    chunks = ["un", "believ", "able", " stor", "ies"]
    whole = count("".join(chunks), "gpt-4o")
    assert whole is not None
    assert sum(found.n for chunk in chunks if (found := count(chunk, "gpt-4o"))) > whole.n


@pytest.mark.parametrize("unit", ["!", "漢", "ab", " "])
def test_a_long_run_is_counted_in_bounded_time_and_says_that_it_is_not_exact(unit: str) -> None:
    """Merged in one piece, 16,000 such characters take half a minute."""
    started = time.process_time()
    found = count(unit * (16_000 // len(unit)), "gpt-4o")
    assert time.process_time() - started < 8
    assert found is not None
    assert not found.exact
    assert 0 < found.n <= 32_000


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=200))
def test_any_text_counts(text: str) -> None:
    found = count(text, "gpt-4o")
    assert found is not None
    assert found.n <= len(text.encode("utf-8", "replace"))
    assert (found.n == 0) == (text == "")


def test_json_counts_exactly() -> None:
    text = json.dumps([{"id": n, "name": f"item {n}", "tags": ["a", "b"]} for n in range(50)], indent=1)
    found = count(text, "gpt-4o")
    assert found is not None
    assert found.exact


def test_what_was_reported_holds() -> None:
    for source in (CountSource.USAGE_DELTA, CountSource.USAGE_TOTAL):
        reported = Usage(3, 99, source=source)
        assert settle(reported, text="hello world", model="gpt-4o") is reported


def test_what_nobody_counted_is_counted_again() -> None:
    assert settle(None, text="hello world", model="gpt-4o") == Usage(None, 2, source=CountSource.RETOKENISED)
    assert settle(Usage(7), text="hello world", model="gpt-4o") == Usage(7, 2, source=CountSource.RETOKENISED)


def test_unknown_stays_unknown() -> None:
    assert settle(None, text="hello world", model="llama-3.3-70b") is None
    assert settle(None, text="hello world", model="gpt-5", whole=False) is None
    assert settle(None, text="", model="gpt-4o") is None
    assert settle(Usage(7), text="", model="gpt-4o") == Usage(7)
