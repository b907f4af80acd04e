"""Which upstream serves a model, and where a path goes there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unslow.core.policy.routing import Routes, join_target, path_listed

ROUTES = Routes(
    [
        ("exact", ["gpt-4o", "claude"]),
        ("short", ["gpt-*"]),
        ("long", ["gpt-4o-*", "gpt-4o"]),
        ("rest", []),
        ("second rest", []),
    ]
)


@pytest.mark.parametrize(
    ("model", "upstream"),
    [
        ("gpt-4o", "exact"),
        ("claude", "exact"),
        ("gpt-4o-mini", "long"),
        ("gpt-4o-", "long"),
        ("gpt-4", "short"),
        ("gpt-", "short"),
        ("gpt", "rest"),
        ("GPT-4o", "rest"),
        ("claude-3", "rest"),
        ("gpt-*", "short"),
        ("", "rest"),
    ],
)
def test_an_exact_name_then_the_longer_pattern_then_the_rest(model: str, upstream: str) -> None:
    assert ROUTES.by_model(model) == upstream


def test_a_bare_star_comes_before_the_rest() -> None:
    assert Routes([("rest", []), ("all", ["*"]), ("a", ["a*"])]).by_model("b") == "all"
    assert Routes([("rest", []), ("all", ["*"]), ("a", ["a*"])]).by_model("ab") == "a"


def test_what_nobody_lists_goes_nowhere() -> None:
    routes = Routes([("a", ["x"]), ("b", ["y*"])])
    assert routes.by_model("z") is None
    assert routes.rest is None
    assert routes.without_model() == "a", "the first takes what names no model"


def test_what_names_no_model_goes_to_the_rest() -> None:
    assert ROUTES.without_model() == ROUTES.rest == "rest"


def test_of_two_that_list_the_same_the_first_has_it() -> None:
    routes = Routes([("a", ["x", "y*"]), ("b", ["x", "y*"])])
    assert (routes.by_model("x"), routes.by_model("yy")) == ("a", "a")


@pytest.mark.parametrize(
    ("upstreams", "single"),
    [([("a", [])], True), ([("a", ["x"])], False), ([("a", ["*"])], False), ([("a", []), ("b", [])], False)],
)
def test_whether_there_is_nothing_to_choose(upstreams: list[tuple[str, list[str]]], single: bool) -> None:
    assert Routes(upstreams).single is single


def test_what_is_listed_can_be_said() -> None:
    assert ROUTES.known() == ["claude", "gpt-4o", "gpt-*", "gpt-4o-*"]


NAME = st.text("ab-", max_size=4)
LISTED = st.lists(st.one_of(NAME, NAME.map(lambda name: name + "*")), max_size=3)


@given(st.lists(LISTED, min_size=1, max_size=4), NAME)
def test_the_rules_hold_for_any_table(lists: list[list[str]], model: str) -> None:
    routes = Routes((str(n), listed) for n, listed in enumerate(lists))
    exact = [n for n, listed in enumerate(lists) if model in listed]
    patterns = [
        (-len(entry), n)
        for n, listed in enumerate(lists)
        for entry in listed
        if entry.endswith("*") and model.startswith(entry[:-1])
    ]
    rest = [n for n, listed in enumerate(lists) if not listed]
    expected = exact[:1] or [n for _, n in sorted(patterns)[:1]] or rest[:1]
    assert routes.by_model(model) == (str(expected[0]) if expected else None)
    assert routes.single == (lists == [[]])


# -- paths


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        ("/v1/models", True),
        ("/v1/models/x", True),
        ("/v1/models/", True),
        ("/v1/modelsx", False),
        ("/v1/model", False),
        ("/v1/audio/speech", True),
        ("/v1/audio", False),
        ("/v1/chat/completions", True),
        ("/v1/chat/completions/x", False),
        ("", False),
    ],
)
def test_a_path_in_a_list(path: str, listed: bool) -> None:
    assert path_listed(path, ("/v1/models", "/v1/models/*", "/v1/audio/*", "/v1/chat/completions")) is listed


def test_an_empty_list_lists_nothing() -> None:
    assert not path_listed("/v1/models", ())


@pytest.mark.parametrize(
    ("base", "target", "joined"),
    [
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/openai/v1", "/v1/models", "/openai/v1/models"),
        ("/api/v3", "/v1/models?x=/v1", "/api/v3/models?x=/v1"),
        ("", "/v1/models", "/models"),
        ("/v1", "/v1", "/v1"),
        ("/v1", "/v1?a=b", "/v1?a=b"),
        ("/v1", "/v1/v1/x", "/v1/v1/x"),
        ("/base", "/v1beta/models", "/base/v1beta/models"),
        ("/base", "/v10/models", "/base/v10/models"),
        ("/base", "/healthz", "/base/healthz"),
    ],
)
def test_where_a_path_goes(base: str, target: str, joined: str) -> None:
    assert join_target(base, target) == joined
