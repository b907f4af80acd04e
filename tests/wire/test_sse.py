"""The SSE decoder against the rules and examples of WHATWG HTML, section 9.2."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.core.wire import SseDecoder
from unslow.core.wire.events import Comment, SseEvent


def decoded(*reads: bytes, limit: int = 1 << 20) -> list[SseEvent | Comment]:
    decoder = SseDecoder(limit)
    found = [item for read in reads for item in decoder.feed(read)]
    return found + decoder.close()


def texts(*reads: bytes) -> list[bytes]:
    return [item.data for item in decoded(*reads) if isinstance(item, SseEvent)]


def test_the_standards_first_example() -> None:
    stream = b"data: This is the first message.\n\ndata: This is the second message, it\ndata: has two lines.\n\n"
    assert texts(stream) == [b"This is the first message.", b"This is the second message, it\nhas two lines."]


def test_the_standards_example_of_named_events() -> None:
    found = decoded(b"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: add\ndata: 113411\n\n")
    assert [(e.name, e.data) for e in found if isinstance(e, SseEvent)] == [
        ("add", b"73857293"),
        ("remove", b"2153"),
        ("add", b"113411"),
    ]


def test_the_standards_example_of_comments_and_ids() -> None:
    stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"
    comment, *events = decoded(stream)
    assert comment == Comment(b"test stream", 14)
    assert [(e.data, e.id) for e in events if isinstance(e, SseEvent)] == [
        (b"first event", "1"),
        (b"second event", ""),
        (b" third event", ""),
    ]


def test_the_standards_example_of_empty_data() -> None:
    found = decoded(b"data\n\ndata\ndata\n\ndata:")
    assert [(e.data, e.truncated) for e in found if isinstance(e, SseEvent)] == [
        (b"", False),
        (b"\n", False),
        (b"", True),
    ]


def test_the_standards_example_of_the_optional_space() -> None:
    assert texts(b"data:test\n\ndata: test\n\n") == [b"test", b"test"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_each_line_end(end: bytes) -> None:
    lines = (b"event: a", b"data: 1", b"data: 2", b"", b": note", b"data: 3", b"", b"")
    stream = end.join(lines)
    first, comment, second = decoded(stream)
    assert isinstance(first, SseEvent)
    assert isinstance(second, SseEvent)
    assert (first.name, first.data, second.name, second.data) == ("a", b"1\n2", "", b"3")
    assert comment == Comment(b"note", 7)


def test_a_carriage_return_ends_its_line_at_once_and_its_newline_is_swallowed() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: x\r\n\r") == [SseEvent(b"x", wire_bytes=10)]
    assert decoder.feed(b"\ndata: y\r\n\r\n") == [SseEvent(b"y", wire_bytes=12 - 1 + 0)]
    assert decoder.close() == []


def test_a_byte_order_mark_is_dropped_only_at_the_start() -> None:
    assert texts(b"\xef\xbb\xbfdata: x\n\n") == [b"x"]
    assert texts(b"\xef", b"\xbb", b"\xbfdata: x\n\n") == [b"x"]
    assert texts(b"data: x\n\n\xef\xbb\xbfdata: y\n\n") == [b"x"]
    assert texts(b"\xef\xbbdata: x\n\ndata: y\n\n") == [b"y"]


def test_an_id_with_nul_is_ignored_and_an_id_stays() -> None:
    found = decoded(b"id: 7\ndata: a\n\nid: 8\0\ndata: b\n\ndata: c\n\nid\ndata: d\n\n")
    assert [e.id for e in found if isinstance(e, SseEvent)] == ["7", "7", "7", ""]


def test_retry_takes_digits_only() -> None:
    decoder = SseDecoder()
    decoder.feed(b"retry: 1500\n\nretry: 15s\n\nretry: -3\n\nretry:\n\n")
    assert decoder.retry_ms == 1500


def test_no_data_no_event_and_its_name_is_forgotten() -> None:
    assert decoded(b"event: lost\n\ndata: x\n\n") == [SseEvent(b"x", wire_bytes=22)]


def test_fields_are_exact_and_unknown_ones_are_ignored() -> None:
    assert texts(b"Data: a\ndata : b\n data: c\nfoo: d\n\xff\xfe: e\ndata: f\n\n") == [b"f"]


def test_what_no_empty_line_completed_is_left_over_as_truncated() -> None:
    whole, rest = decoded(b'data: {"a":1}\n\ndata: [DO')
    assert whole == SseEvent(b'{"a":1}', wire_bytes=15)
    assert rest == SseEvent(b"[DO", wire_bytes=9, truncated=True)
    assert decoded(b"data: x\n") == [SseEvent(b"x", wire_bytes=8, truncated=True)]
    assert decoded(b"event: nothing") == []


def test_a_long_event_is_cut_but_counted() -> None:
    found = decoded(b"data: " + b"x" * 1000 + b"\n\ndata: y\n\n", limit=100)
    assert found == [SseEvent(b"x" * 94, wire_bytes=1008, truncated=True), SseEvent(b"y", wire_bytes=9)]


def test_a_long_event_of_many_lines_is_cut_but_counted() -> None:
    event, after = decoded(b"data: 0123456789\n" * 50 + b"\ndata: y\n\n", limit=100)
    assert isinstance(event, SseEvent)
    assert event.truncated
    assert len(event.data) == 100
    assert event.wire_bytes == 17 * 50 + 1
    assert after == SseEvent(b"y", wire_bytes=9)


_PIECES = st.sampled_from(
    [
        b"data: x", b"data:", b"data", b"data: [DONE]", b'data: {"choices":[]}', b"event: ping", b"id: 3", b"id: \0",
        b"retry: 10", b": hi", b":", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\xef", b" ",
        b"data: " + b"y" * 70, b"\xff", b"", b"event: a\ndata: b\n\n", b"data: z\n\n",
    ]
)  # fmt: skip
_STREAMS = st.lists(_PIECES | st.binary(max_size=12), max_size=24).map(b"".join)
_CUTS = st.lists(st.integers(0, 400), max_size=12)


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@settings(deadline=None, max_examples=400)
@given(_STREAMS, _CUTS, st.sampled_from([8, 64, 1 << 20]))
def test_the_same_events_for_any_split(stream: bytes, cuts: list[int], limit: int) -> None:
    whole = decoded(stream, limit=limit)
    assert decoded(*split(stream, cuts), limit=limit) == whole
    assert decoded(*(stream[n : n + 1] for n in range(len(stream))), limit=limit) == whole


@settings(deadline=None, max_examples=300)
@given(
    st.lists(_PIECES, max_size=5).map(b"".join), st.sampled_from([b"", b"\n", b"\n\n"]), st.sampled_from([8, 1 << 20])
)
def test_the_short_cuts_give_the_same_events(stream: bytes, end: bytes, limit: int) -> None:
    """A decoder between events, where the short cuts are open, against one that gets a byte at a time."""
    warm, stream = b"data: w\n\n", stream + end
    assert decoded(warm, stream, limit=limit) == decoded(
        warm, *(stream[n : n + 1] for n in range(len(stream))), limit=limit
    )


@pytest.mark.parametrize(
    "stream", [b"data: a\rdata: b\n\n", b"data: " + b"x" * 99 + b"\n\n", b"data: a\n\ndata: b\r\n\n", b"event: a\n\n"]
)
def test_what_only_looks_like_a_short_cut(stream: bytes) -> None:
    warm = b"data: w\n\n"
    slow = decoded(warm, *(stream[n : n + 1] for n in range(len(stream))), limit=50)
    assert decoded(warm, stream, limit=50) == slow


@settings(deadline=None, max_examples=200)
@given(_STREAMS, _CUTS)
def test_each_byte_counts_once(stream: bytes, cuts: list[int]) -> None:
    """Up to the last event, the sizes sum to the offset of its end; what follows belongs to no event."""
    mark = b"\n\ndata: end\n\n"
    found = decoded(*split(stream + mark, cuts))
    assert sum(item.wire_bytes for item in found) == len(stream) + len(mark)
    assert all(item.wire_bytes > 0 for item in found)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "add"]), st.text("ab\u20ac{}:", max_size=20)), max_size=8))
def test_what_is_encoded_comes_back(events: list[tuple[str, str]]) -> None:
    name_line = {"": "", "add": "event: add\n"}
    stream = "".join(f"{name_line[name]}data: {data}\n\n" for name, data in events).encode()
    found = decoded(stream)
    assert [(e.name, e.data.decode()) for e in found if isinstance(e, SseEvent)] == events


def by_the_letter(stream: bytes) -> list[tuple[bytes, str, str]]:
    """Section 9.2.6 word by word, over the whole stream: slow, simple, and written apart from the decoder."""
    stream = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found, data, name, last_id = [], b"", b"", b""
    for line in stream.split(b"\n")[:-1]:
        if line == b"":
            if data:
                found.append((data[:-1], name.decode(errors="replace"), last_id.decode(errors="replace")))
            data, name = b"", b""
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            data += value + b"\n" if field == b"data" else b""
            name = value if field == b"event" else name
            last_id = value if field == b"id" and b"\0" not in value else last_id
    return found


@settings(deadline=None, max_examples=400)
@given(_STREAMS, _CUTS)
def test_as_the_standard_says(stream: bytes, cuts: list[int]) -> None:
    found = [item for item in decoded(*split(stream, cuts)) if isinstance(item, SseEvent) and not item.truncated]
    assert [(event.data, event.name, event.id) for event in found] == by_the_letter(stream)


def test_short_cuts_give_what_the_long_way_gives() -> None:
    stream = b"event: a\ndata: 1\n\ndata: 2\n\n" * 3
    decoder = SseDecoder()
    decoder.feed(b"data: warm\n\n")
    quick = decoder.feed(stream)
    assert quick == decoded(*(stream[n : n + 1] for n in range(len(stream))))


_KIB = 1024


def _seconds(reads: list[bytes]) -> float:
    decoder = SseDecoder()
    started = time.process_time()
    for read in reads:
        decoder.feed(read)
    decoder.close()
    return time.process_time() - started


@pytest.mark.parametrize(
    ("unit", "read_bytes"),
    [
        (b"x", 16 * _KIB),  # one line without an end
        (b"x", 1),
        (b"\n", 16 * _KIB),
        (b"\r", 1),
        (b":\n", 16 * _KIB),
        (b"data:\n", 16 * _KIB),
        (b"id: 1\n", 16 * _KIB),
    ],
)
def test_work_grows_with_the_bytes(unit: bytes, read_bytes: int) -> None:
    """Four times the bytes may take at most nine times the time: quadratic work would take sixteen, at every try."""
    base = (256 if read_bytes > 1 else 64) * _KIB

    def run(size: int) -> float:
        stream = b"data: " + unit * (size // len(unit))
        return _seconds([stream[at : at + read_bytes] for at in range(0, len(stream), read_bytes)])

    tries = [(run(base), run(4 * base)) for _ in range(4)]
    assert any(large < 9 * small + 0.02 for small, large in tries), tries


@pytest.mark.slow
def test_a_hundred_megabytes_in_one_line_stay_small() -> None:
    decoder = SseDecoder(max_event_bytes=64 * _KIB)
    decoder.feed(b"data: ")
    read = b"x" * (1 << 20)
    for _ in range(100):
        assert decoder.feed(read) == []
        assert len(decoder._line) <= 64 * _KIB
    (event,) = decoder.feed(b"\n\n")
    assert isinstance(event, SseEvent)
    assert event.truncated
    assert event.wire_bytes == 6 + 100 * (1 << 20) + 2
    assert len(event.data) <= 64 * _KIB


@pytest.mark.slow
def test_millions_of_empty_lines_in_one_read() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"\n" * 8_000_000) == []
    (event,) = decoder.feed(b"data: x\n\n")
    assert event.wire_bytes == 8_000_009
