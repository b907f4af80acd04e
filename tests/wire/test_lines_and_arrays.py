"""NDJSON lines, elements of a JSON array, and the choice of a decoder."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.core.wire import JsonArrayDecoder, NdjsonDecoder, SseDecoder, decoder_for
from unslow.core.wire.events import Comment, SseEvent

Decoder = NdjsonDecoder | JsonArrayDecoder


def decoded(decoder: Decoder, *reads: bytes) -> list[SseEvent | Comment]:
    return [item for read in reads for item in decoder.feed(read)] + decoder.close()


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def test_lines() -> None:
    found = decoded(NdjsonDecoder(), b'{"a":1}\r\n\n  \n{"b":2}\n{"c":3}')
    assert found == [
        SseEvent(b'{"a":1}', wire_bytes=9),
        SseEvent(b'{"b":2}', wire_bytes=12),
        SseEvent(b'{"c":3}', wire_bytes=7),
    ]


def test_a_line_cut_off_is_truncated() -> None:
    assert decoded(NdjsonDecoder(), b'{"a":') == [SseEvent(b'{"a":', wire_bytes=5, truncated=True)]


def test_a_long_line_is_cut_but_counted() -> None:
    found = decoded(NdjsonDecoder(10), b"x" * 50 + b"\n{}\n")
    assert found == [SseEvent(b"x" * 10, wire_bytes=51, truncated=True), SseEvent(b"{}", wire_bytes=3)]


def test_array_elements() -> None:
    stream = b'[{"a": "}{\\"[,"}\n,\r\n{"b": [1, {"c": 2}]}\n]\n'
    first, second = decoded(JsonArrayDecoder(), stream)
    assert json.loads(first.data if isinstance(first, SseEvent) else b"") == {"a": '}{"[,'}
    assert json.loads(second.data if isinstance(second, SseEvent) else b"") == {"b": [1, {"c": 2}]}
    assert first.wire_bytes == len(b'[{"a": "}{\\"[,"}')


def test_an_element_is_told_as_soon_as_it_is_whole() -> None:
    decoder = JsonArrayDecoder()
    assert decoder.feed(b'[{"a":1') == []
    assert decoder.feed(b"}") == [SseEvent(b'{"a":1}', wire_bytes=8)]
    assert decoder.feed(b"\n,") == []
    assert decoder.feed(b'{"b":') == []
    assert decoder.close() == [SseEvent(b'{"b":', wire_bytes=7, truncated=True)]


def test_a_long_element_is_cut_but_counted() -> None:
    found = decoded(JsonArrayDecoder(10), b'[{"a":"' + b"x" * 50 + b'"},{}]')
    assert found == [
        SseEvent(b'{"a":"xxxx', wire_bytes=59, truncated=True),
        SseEvent(b"{}", wire_bytes=3),
    ]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text('a"\\{}[],\n\u20ac', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)
_CUTS = st.lists(st.integers(0, 300), max_size=10)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.dictionaries(st.text("ab", max_size=2), _JSON, max_size=3), max_size=5), _CUTS, st.booleans())
def test_what_is_encoded_comes_back_for_any_split(values: list[dict[str, Any]], cuts: list[int], indent: bool) -> None:
    array = json.dumps(values, indent=2 if indent else None).encode()
    lines = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    for decoder, stream in ((JsonArrayDecoder(), array), (NdjsonDecoder(), lines)):
        found = decoded(decoder, *split(stream, cuts))
        assert [json.loads(item.data) for item in found if isinstance(item, SseEvent)] == values


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"\n", b"\r\n", b"a", b" "]), max_size=60),
    _CUTS,
    st.sampled_from([4, 1 << 20]),
)
def test_the_same_events_of_garbage_for_any_split(pieces: list[bytes], cuts: list[int], limit: int) -> None:
    stream = b"".join(pieces)
    for make in (NdjsonDecoder, JsonArrayDecoder):
        whole = decoded(make(limit), stream)
        assert decoded(make(limit), *split(stream, cuts)) == whole
        assert decoded(make(limit), *(stream[n : n + 1] for n in range(len(stream)))) == whole


@pytest.mark.parametrize("make", [NdjsonDecoder, JsonArrayDecoder])
@pytest.mark.parametrize("unit", [b"x", b"\n", b"\\", b'"', b"{", b"{}\n"])
@pytest.mark.parametrize("read_bytes", [1, 1 << 14])
def test_work_grows_with_the_bytes(make: type[Decoder], unit: bytes, read_bytes: int) -> None:
    """Four times the bytes may take at most nine times the time: quadratic work would take sixteen, at every try."""

    def seconds(size: int) -> float:
        stream = b'[{"' + unit * (size // len(unit))
        reads = [stream[at : at + read_bytes] for at in range(0, len(stream), read_bytes)]
        decoder = make(1 << 16)
        started = time.process_time()
        for read in reads:
            decoder.feed(read)
        decoder.close()
        return time.process_time() - started

    base = 1 << 14
    tries = [(seconds(base), seconds(4 * base)) for _ in range(4)]
    assert any(large < 9 * small + 0.02 for small, large in tries), tries


def test_the_decoder_of_an_answer() -> None:
    assert isinstance(decoder_for("text/event-stream; charset=utf-8"), SseDecoder)
    assert isinstance(decoder_for("Application/X-NDJSON"), NdjsonDecoder)
    assert isinstance(decoder_for("application/json", path="/v1beta/models/g:streamGenerateContent"), JsonArrayDecoder)
    assert decoder_for("application/json; charset=utf-8", path="/v1/chat/completions") is None
    assert decoder_for("") is None
