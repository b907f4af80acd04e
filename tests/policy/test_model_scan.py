"""The scan for a body's model: any JSON object, any spelling, any split, little memory, no time wasted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.pieces import CUTS, assert_linear, cut, each, peak_bytes

from unslow.core.policy.model_scan import ModelScan

quick = settings(max_examples=150, deadline=None)


def scanned(*pieces: bytes) -> str | None:
    """What a scan finds. Once it says that it knows, it has to keep to that."""
    scan = ModelScan(b"application/json")
    known = {scan.model for piece in pieces if scan.feed(piece)}
    assert len(known) <= 1
    return scan.model


FOUND = [
    ("first", b'{"model":"m","messages":[]}', "m"),
    ("last", b'{"messages":[{"role":"user"}],"stream":true,"model":"m"}', "m"),
    ("alone", b'{"model":"m"}', "m"),
    ("spaced", b' \r\n\t{ \n"model" \t: \r\n "m" }', "m"),
    ("cut short behind it", b'{"model":"m","messages":[{"ro', "m"),
    ("escapes in the value", b'{"model":"a\\"b\\\\c\\u0064\\n"}', 'a"b\\cd\n'),
    ("a pair of surrogates", b'{"model":"\\ud83d\\ude00"}', "\U0001f600"),
    ("UTF-8", '{"model":"模型"}'.encode(), "模型"),
    ("escapes in the key", b'{"mod\\u0065l":"m"}', "m"),
    ("the key all in escapes", b'{"\\u006d\\u006F\\u0064\\u0065\\u006c":"m"}', "m"),
    ("empty", b'{"model":""}', ""),
    ("a key that ends like it", b'{"a_model":"x","model":"m"}', "m"),
    ("a key with a quote in it", b'{"\\"model":"x","model":"m"}', "m"),
    ("a key that only looks escaped", b'{"\\\\u006dodel":"x","model":"m"}', "m"),
    ("as a value", b'{"type":"model","x":"y","model":"m"}', "m"),
    ("as a member of a list", b'{"a":["model","x"],"model":"m"}', "m"),
    ("within an object", b'{"a":{"model":"x"},"model":"m"}', "m"),
    ("deep within", b'{"a":[[{"b":{"model":"x"}}]],"model":"m"}', "m"),
    ("within a text", b'{"a":"{\\"model\\":\\"x\\"}","model":"m"}', "m"),
    ("brackets within a text", b'{"a":"}]}{[","b":{"c":"}}"},"model":"m"}', "m"),
    ("first one without a name", b'{"model":5,"model":"m"}', "m"),
    ("the first of two", b'{"model":"m","model":"x"}', "m"),
]  # fmt: skip

NONE = [
    ("no such key", b'{"messages":[]}'),
    ("only within", b'{"a":{"model":"x"},"b":[{"model":"x"}]}'),
    ("a number", b'{"model":5,"a":"x"}'),
    ("null", b'{"model":null,"a":"x"}'),
    ("an object", b'{"model":{"model":"x"},"a":"x"}'),
    ("a list", b'{"model":["x"],"a":"x"}'),
    ("upper case", b'{"Model":"x"}'),
    ("a list of bodies", b'[{"model":"x"}]'),
    ("a text", b'"model"'),
    ("after the body", b'{} {"model":"x"}'),
    ("before the body", b'"model":"x"'),
    ("no JSON", b'model=x&a="model":"x"'),
    ("half a name", b'{"model":"x'),
    ("bytes that are no UTF-8", b'{"model":"\xff"}'),
    ("nothing", b""),
]
BODIES = [body for _, body, _ in FOUND] + [body for _, body in NONE]


@pytest.mark.parametrize(("body", "model"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_the_name_at_the_top_is_found(body: bytes, model: str) -> None:
    assert scanned(body) == model
    assert scanned(*each(body, 1)) == model


@pytest.mark.parametrize("body", [row[1] for row in NONE], ids=[row[0] for row in NONE])
def test_nothing_else_is_a_name(body: bytes) -> None:
    assert scanned(body) is None
    assert scanned(*each(body, 1)) is None


def test_the_answer_is_known_as_soon_as_it_can_be() -> None:
    for body, over in [(b'{"model":"m"', True), (b'{"a":1}', True), (b"[", True), (b"x", True)]:
        assert ModelScan().feed(body) is over, body
    for body in (b"", b" \n", b"{", b'{"a":1', b'{"model"', b'{"model":"m', b'{"a":{"model":"m"}'):
        assert not ModelScan().feed(body), body


def test_what_comes_after_the_answer_changes_nothing() -> None:
    scan = ModelScan()
    assert scan.feed(b'{"model":"m"')
    assert scan.feed(b',"model":"x"}')
    assert scan.model == "m"


# -- any JSON object

KEY = st.one_of(st.sampled_from(["model", "Model", "model ", "", '"model":', "m"]), st.text(max_size=5))
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), KEY),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEY, inner, max_size=3)),
    max_leaves=10,
)
LAYOUT = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}])


@quick
@given(st.dictionaries(KEY, VALUE, max_size=5), LAYOUT, CUTS)
@example({"a": {"model": "inner"}, "model": "outer"}, {"indent": 1}, [5, 20])
def test_it_finds_what_json_finds(body: dict[str, Any], layout: dict[str, Any], cuts: list[int]) -> None:
    data = json.dumps(body, **layout).encode()
    named = json.loads(data).get("model")
    assert scanned(*cut(data, cuts)) == (named if isinstance(named, str) else None)


@quick
@given(st.lists(st.booleans(), min_size=5, max_size=5), st.text(max_size=8), VALUE, CUTS)
def test_any_spelling_of_the_key_will_do(escaped: list[bool], name: str, before: Any, cuts: list[int]) -> None:
    key = "".join(f"\\u{ord(c):04x}" if e else c for c, e in zip("model", escaped, strict=True))
    data = f'{{"a": {json.dumps(before)}, "{key}": {json.dumps(name)}}}'.encode()
    assert json.loads(data)["model"] == name
    assert scanned(*cut(data, cuts)) == name


# -- any split

NASTY = st.sampled_from([b'"', b"\\", b'"model"', b'"model":', b'"x"', b"{", b"}", b"[", b"]", b",", b":", b" ", b"1"])
LONG = st.sampled_from([b'"' + b"y" * size + b'"' for size in (1022, 1023, 1024, 1025, 3000)])


@quick
@given(st.lists(st.one_of(NASTY, st.binary(max_size=3), LONG), max_size=12).map(b"".join), CUTS, st.booleans())
@example(b'{"model":"' + b"y" * 1024 + b'"}', [1040], False)
@example(b'{"model":["' + b"y" * 2000 + b'"]"x"}', [1500], False)
@example(b'"' + b"y" * 2000 + b'"{"model":"x"}', [1500], False)
def test_any_bytes_read_the_same_however_they_are_cut(data: bytes, cuts: list[int], inside: bool) -> None:
    data = b"{" + data if inside else data
    assert scanned(*cut(data, cuts)) == scanned(data)


@pytest.mark.parametrize("cuts", [[], [1500], [1034, 1035, 1036], list(range(0, 2020, 7))])
@pytest.mark.parametrize(("size", "found"), [(1, True), (1023, True), (1024, False), (2000, False)])
def test_a_name_has_a_longest_size_and_cuts_do_not_move_it(size: int, found: bool, cuts: list[int]) -> None:
    name = "n" * size
    body = b'{"model":"%b","a":"b"}' % name.encode()
    assert scanned(*cut(body, cuts)) == (name if found else None)


@pytest.mark.parametrize("cuts", [[], [1500], list(range(0, 4020, 13))])
@pytest.mark.parametrize("text", [b"t" * 4000, b"\\\\" * 2000, b'\\"' * 2000, b"\\u005c" * 600, b"{[" * 2000])
def test_a_long_text_before_it_is_passed_over(text: bytes, cuts: list[int]) -> None:
    body = b'{"a":"%b","%b":1,"model":"m"}' % (text, text)
    assert scanned(*cut(body, cuts)) == "m"


# -- time and memory


@pytest.mark.parametrize(
    "unit",
    [
        b'"',
        b"{",
        b"[",
        b'{"a":',
        b'["",',
        b"\\",
        b'\\"',
        b'"a" ',
        b"{}",
        b"[{},",
        b" ",
        b',"model"',
        b'"model":{}',
        b"x",
    ],
)
@pytest.mark.parametrize("read_bytes", [1 << 20, 509])
def test_hostile_json_takes_linear_time(unit: bytes, read_bytes: int) -> None:
    assert_linear(lambda data: scanned(*each(data, read_bytes)), unit, start=b'{"a":[')
    assert_linear(lambda data: scanned(*each(data, read_bytes)), unit, start=b'{"a":')


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b'{"a":"', b"t" * 4096),
        (b'{"a":[', b'"x",' * 1024),
        (b'{"', b"\\\\" * 2048),
        (b'{"a":', b'{"b":' * 800),
    ],
)
def test_what_was_scanned_is_let_go(start: bytes, piece: bytes) -> None:
    scan = ModelScan()
    scan.feed(start)
    assert peak_bytes(lambda: [scan.feed(piece) for _ in range(64)]) < 32 << 10
