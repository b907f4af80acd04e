"""Framings of bodies: the same payload, end and surplus for any split of the bytes; what is broken is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.pieces import CUTS, assert_linear, cut, each, peak_bytes

from unslow.core.wire.http1 import (
    Body,
    ChunkedAnswer,
    ChunkedUpload,
    FixedBody,
    NoBody,
    UntilClose,
    chunk,
    upload_body,
)
from unslow.errors import RemoteProtocolError

quick = settings(max_examples=200, deadline=None)
CHUNKED = (ChunkedUpload, ChunkedAnswer)


def fed(body: Body, pieces: list[bytes]) -> tuple[bytes, bool, bytes]:
    """Payload, whether it ended, and what came behind the end."""
    payload = b""
    for n, piece in enumerate(pieces):
        payload += b"".join(body.feed(piece))
        if body.done:
            return payload, True, body.surplus + b"".join(pieces[n + 1 :])
        assert body.surplus == b""
    return payload, body.done, body.surplus


def outcome(body: Body, pieces: list[bytes]) -> tuple[bytes, bool, bytes] | int:
    """The same, or the status that refuses it."""
    try:
        return fed(body, pieces)
    except RemoteProtocolError as error:
        return error.status_hint


# -- a stated length, none, or until the connection ends


@quick
@given(st.binary(max_size=60), st.integers(0, 70), CUTS)
def test_a_fixed_body_is_as_long_as_it_says(data: bytes, length: int, cuts: list[int]) -> None:
    assert fed(FixedBody(length), cut(data, cuts) or [b""]) == (data[:length], len(data) >= length, data[length:])


def test_a_fixed_body_of_nothing_is_over_before_it_begins() -> None:
    assert FixedBody(0).done
    assert not FixedBody(1).done


@given(st.binary(max_size=30), CUTS)
def test_no_body_leaves_everything(data: bytes, cuts: list[int]) -> None:
    body = NoBody()
    assert body.done
    assert [piece for part in cut(data, cuts) for piece in body.feed(part)] == []
    assert body.surplus == data


@given(st.binary(max_size=30), CUTS)
def test_a_body_until_the_end_takes_everything(data: bytes, cuts: list[int]) -> None:
    assert fed(UntilClose(), cut(data, cuts)) == (data, False, b"")


def test_an_upload_s_framing() -> None:
    assert isinstance(upload_body(chunked=True, length=None), ChunkedUpload)
    assert upload_body(chunked=False, length=None).done, "without a length there is no body (RFC 9112, section 6.3)"
    assert fed(upload_body(chunked=False, length=3), [b"abcd"]) == (b"abc", True, b"d")


# -- chunks

EXTENSIONS = st.sampled_from([b"", b";a", b";a=b", b';a="b c"', b';a="b;c=d"', b";a=b;c"])
SIZES = st.sampled_from([b"%x", b"%X", b"0%x", b"000%x"])
TRAILERS = st.sampled_from([b"", b"a: b\r\n", b"a: b\r\nC-D:\te\r\n", b"x:\r\n", b"trailer: x\r\nhost: y\r\n"])
PARTS = st.lists(st.tuples(st.binary(min_size=1, max_size=40), SIZES, EXTENSIONS), max_size=5)


def chunked(parts: list[tuple[bytes, bytes, bytes]], last: bytes = b"0", trailer: bytes = b"") -> bytes:
    chunks = (size % len(piece) + extension + b"\r\n" + piece + b"\r\n" for piece, size, extension in parts)
    return b"".join(chunks) + last + b"\r\n" + trailer + b"\r\n"


@pytest.mark.parametrize("framing", CHUNKED)
@quick
@given(PARTS, st.sampled_from([b"0", b"000", b"0;a=b"]), TRAILERS, CUTS)
def test_chunks_are_taken_off_however_they_come(
    framing: Callable[[], Body], parts: list[tuple[bytes, bytes, bytes]], last: bytes, trailer: bytes, cuts: list[int]
) -> None:
    data, payload = chunked(parts, last, trailer), b"".join(piece for piece, _, _ in parts)
    assert fed(framing(), cut(data, cuts)) == (payload, True, b"")
    assert fed(framing(), each(data, 1)) == (payload, True, b"")
    for end in (1, 2, len(data) // 2):
        got, done, surplus = fed(framing(), cut(data[:-end], cuts))
        assert (payload.startswith(got), done, surplus) == (True, False, b"")


@quick
@given(PARTS, st.binary(max_size=30), CUTS)
def test_what_follows_an_upload_is_the_next_request(
    parts: list[tuple[bytes, bytes, bytes]], after: bytes, cuts: list[int]
) -> None:
    payload = b"".join(piece for piece, _, _ in parts)
    assert fed(ChunkedUpload(), cut(chunked(parts) + after, cuts)) == (payload, True, after)


@pytest.mark.parametrize("after", [b"HTTP/1.1 200 OK\r\n\r\n", b"x", b"0\r\n\r\n", b"\0", b"\r\nx"])
def test_nothing_follows_an_answer(after: bytes) -> None:
    data = chunk(b"abc") + b"0\r\n\r\n"
    assert outcome(ChunkedAnswer(), [data + after]) == 502
    body = ChunkedAnswer()
    assert fed(body, [data])[:2] == (b"abc", True)
    assert outcome(body, [after]) == 502


@quick
@given(st.lists(st.binary(max_size=50), max_size=5), CUTS)
def test_what_we_write_in_chunks_is_read_back(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    for framing in CHUNKED:
        assert fed(framing(), cut(data, cuts)) == (b"".join(pieces), True, b"")


def test_an_empty_chunk_is_none_since_it_would_be_the_last() -> None:
    assert chunk(b"") == b""
    assert chunk(b"a" * 26) == b"1a\r\n" + b"a" * 26 + b"\r\n"


END = b"0\r\n\r\n"
BROKEN = [
    ("no size", b"\r\na\r\n" + END),
    ("no hexadecimal size", b"g\r\na\r\n" + END),
    ("signed size", b"+1\r\na\r\n" + END),
    ("negative size", b"-1\r\na\r\n" + END),
    ("size with 0x", b"0x1\r\na\r\n" + END),
    ("size with a space before it", b" 1\r\na\r\n" + END),
    ("size with a space behind it", b"1 \r\na\r\n" + END),
    ("size with an underscore", b"1_0\r\n" + b"a" * 16 + b"\r\n" + END),
    ("size of 17 digits", b"1" + b"0" * 16 + b"\r\na\r\n" + END),
    ("bare LF behind a size", b"1\na\r\n" + END),
    ("bare CR behind a size", b"1\ra\r\n" + END),
    ("two CRs behind a size", b"1\r\r\na\r\n" + END),
    ("bare LF behind a chunk", b"1\r\na\n" + END),
    ("bare CR behind a chunk", b"1\r\na\r" + END),
    ("chunk longer than said", b"1\r\nab\r\n" + END),
    ("chunk shorter than said", b"3\r\na\r\n" + END),
    ("no line end behind a chunk", b"1\r\na" + END),
    ("bare LF behind the last size", b"0\n\r\n"),
    ("bare LF in an extension", b"1;a=\nb\r\na\r\n" + END),
    ("bare LF in a quoted extension", b'1;a="\nb"\r\na\r\n' + END),
    ("NUL in an extension", b"1;a=\0\r\na\r\n" + END),
    ("a line end before it", b"\r\n1\r\na\r\n" + END),
    ("trailer without a colon", b"0\r\na\r\n\r\n"),
    ("trailer with a space before its colon", b"0\r\na : b\r\n\r\n"),
    ("folded trailer", b"0\r\na: b\r\n c\r\n\r\n"),
    ("trailer with NUL", b"0\r\na: \0\r\n\r\n"),
    ("trailer with a bare CR", b"0\r\na: b\rc\r\n\r\n"),
    ("trailer with a bare LF", b"0\r\na: b\nc: d\r\n\r\n"),
    ("text for a trailer", b"0\r\n{}\r\n\r\n"),
]  # fmt: skip


@pytest.mark.parametrize("data", [row[1] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_chunks_are_refused(data: bytes) -> None:
    for pieces in ([data], each(data, 1), each(data, 3)):
        assert outcome(ChunkedUpload(), pieces) == 400
        assert outcome(ChunkedAnswer(), pieces) == 502


@quick
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [b"1", b"0", b"a", b"\r\n", b"\r", b"\n", b"1\r\na\r\n", END, b";", b";a=b", b" ", b"a: b"]
            ),
            st.binary(max_size=3),
        ),
        max_size=8,
    ).map(b"".join),
    CUTS,
)
@example(b"1\r\na\r\n0\r\na: b\r\n\r\nGET", [3, 8, 15])
@example(b"5;" + b"x" * 4090 + b"\r\nabcde\r\n" + END, [4095])
@example(b"0\r\na: " + b"x" * 16380 + b"\r\n\r\n", [16386])
def test_chunks_mean_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    whole = outcome(ChunkedUpload(), [data])
    assert outcome(ChunkedUpload(), cut(data, cuts)) == whole
    assert outcome(ChunkedUpload(), each(data, 1)) == whole
    answer = outcome(ChunkedAnswer(), each(data, 1))
    cut_answer = outcome(ChunkedAnswer(), cut(data, cuts))
    if isinstance(answer, tuple) and answer[2]:  # bytes behind an answer's end break it where they come with the end
        assert cut_answer == 502 or (isinstance(cut_answer, tuple) and cut_answer[:2] == answer[:2])
    else:
        assert cut_answer == answer
    if isinstance(whole, tuple) and isinstance(answer, tuple) and whole[1] and answer[1]:
        assert whole[0] == answer[0], "two readers, two bodies"


@quick
@given(st.binary(max_size=80))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    for body in (ChunkedUpload(), ChunkedAnswer(), FixedBody(7), UntilClose(), NoBody()):
        outcome(body, [data])


# -- limits


@pytest.mark.parametrize("read_bytes", [1 << 20, 1000, 1])
def test_a_size_line_has_a_longest_size(read_bytes: int) -> None:
    def sent(extension_bytes: int) -> list[bytes]:
        return each(b"1;" + b"x" * extension_bytes + b"\r\na\r\n" + END, read_bytes)

    assert outcome(ChunkedUpload(), sent(4092)) == (b"a", True, b"")
    assert outcome(ChunkedUpload(), sent(4093)) == 400
    assert outcome(ChunkedUpload(), each(b"1;" + b"x" * 5000, read_bytes)) == 400
    assert outcome(ChunkedUpload(), each(b"0" * 5000, read_bytes)) == 400


@pytest.mark.parametrize("read_bytes", [1 << 20, 1000])
def test_trailers_have_a_longest_size(read_bytes: int) -> None:
    assert outcome(ChunkedUpload(), each(b"0\r\nx: " + b"y" * 16000 + b"\r\n\r\n", read_bytes)) == (b"", True, b"")
    assert outcome(ChunkedUpload(), each(b"0\r\nx: " + b"y" * 17000 + b"\r\n\r\n", read_bytes)) == 431
    assert outcome(ChunkedUpload(), each(b"0\r\nx: " + b"y" * 17000, read_bytes)) == 431
    assert outcome(ChunkedUpload(), each(b"0\r\n" + b"x: y\r\n" * 3000, read_bytes)) == 431


def test_a_chunk_of_any_size_is_not_waited_for() -> None:
    body = ChunkedUpload()
    assert body.feed(b"fffffffffffffff\r\nabc") == [b"abc"]
    assert body.feed(b"def") == [b"def"]
    assert not body.done


@pytest.mark.parametrize("framing", CHUNKED)
@pytest.mark.parametrize(
    "unit", [b"1\r\na\r\n", b"1;a=b\r\na\r\n", b"0", b"1;", b"0\r\na: b\r\n", b"\r\n", b"40\r\n" + b"x" * 64 + b"\r\n"]
)
@pytest.mark.parametrize("read_bytes", [1 << 20, 509])
def test_hostile_chunks_take_linear_time(framing: Callable[[], Body], unit: bytes, read_bytes: int) -> None:
    assert_linear(lambda data: outcome(framing(), each(data, read_bytes)), unit)
    assert_linear(lambda data: outcome(framing(), each(data, read_bytes)), unit, start=b"0\r\n")


def feed_often(body: Body, piece: bytes) -> None:
    for _ in range(64):
        body.feed(piece)


@pytest.mark.parametrize("framing", CHUNKED)
def test_what_was_read_is_let_go(framing: Callable[[], Body]) -> None:
    body = framing()
    for start, piece in [(b"", chunk(b"x" * 4000)), (b"100000\r\n", b"x" * 4096)]:
        body.feed(start)
        assert peak_bytes(lambda: feed_often(body, piece)) < 32 << 10  # noqa: B023 - called here
