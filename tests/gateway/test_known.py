"""A head that was read before means what it would mean if it were read anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unslow.core.wire.http1 import read_request_head, read_response_head
from unslow.errors import RemoteProtocolError
from unslow.serve.gateway.headers import answer_head
from unslow.serve.gateway.known import MAX_HEADS, AnswerHeads, Heads

LENGTH = st.sampled_from(["content-length", "Content-Length", "CONTENT-LENGTH", "content-Length"])
VALUE = st.sampled_from(["0", "5", "17", " 17", "17 ", "+5", "", "1,1", "0x1", "99999999999999999999", "5\t"])
LINE = st.one_of(
    st.sampled_from(
        [
            "host: a",
            "transfer-encoding: chunked",
            "x: y",
            "connection: close",
            "expect: 100-continue",
            "authorization: b",
        ]
    ),
    st.builds("{}:{}".format, LENGTH, VALUE),
    st.builds("{}: {}".format, LENGTH, VALUE),
)
DATE = st.sampled_from(["date: Tue, 01 Dec 2026 04:00:00 GMT", "Date: x", "date: \x01", "connection: date", "DATE: y"])


def request_of(lines: list[str]) -> bytes:
    return "".join(line + "\r\n" for line in ["POST /v1/x?a=1 HTTP/1.1", *lines]).encode("latin-1")


def answer_of(lines: list[str]) -> bytes:
    return "".join(line + "\r\n" for line in ["HTTP/1.1 200 OK", *lines]).encode("latin-1")


@given(st.lists(st.lists(LINE, max_size=5), min_size=1, max_size=4))
def test_a_request_s_head_is_read_as_if_it_were_new(heads: list[list[str]]) -> None:
    memory = Heads(128)
    for lines in [*heads, *heads]:  # the second time from memory
        block = request_of(lines)
        try:
            expected = read_request_head(block)
        except RemoteProtocolError:
            with pytest.raises(RemoteProtocolError):
                memory.read(block)
            continue
        known, length = memory.read(block)
        head = known.head
        assert length == expected.length
        assert (head.chunked, head.close, head.expects, head.host, head.named) == (
            expected.chunked,
            expected.close,
            expected.expects,
            expected.host,
            expected.named,
        )
        without = [(name, value) for name, value in expected.fields if name != b"content-length"]
        assert [(name, value) for name, value in head.fields if name != b"content-length"] == without


@given(st.lists(st.lists(st.one_of(LINE, DATE), max_size=5), min_size=1, max_size=4))
def test_an_answer_s_head_is_read_as_if_it_were_new(heads: list[list[str]]) -> None:
    memory = AnswerHeads()
    for lines in [*heads, *heads]:
        block = answer_of(lines)
        try:
            expected = read_response_head(block)
        except RemoteProtocolError:
            with pytest.raises(RemoteProtocolError):
                memory.read(block)
            continue
        read = memory.read(block)
        assert (read.head.length, read.head.chunked, read.head.keep) == (
            expected.length,
            expected.chunked,
            expected.keep,
        )
        sent = read_response_head(answer_head(read, keyed=False, lines=b"")[:-2]).fields
        hop_by_hop = {b"connection", b"content-length", b"transfer-encoding", *expected.named}
        assert sorted(sent) == sorted((n, v) for n, v in expected.fields if n not in hop_by_hop)


def test_the_same_head_with_another_length_has_that_length() -> None:
    memory = Heads(128)
    first, second = (memory.read(request_of(["host: a", f"content-length: {n}", "x: y"])) for n in (3, 400))
    assert first[0] is second[0]
    assert (first[1], second[1]) == (3, 400)
    answers = AnswerHeads()
    one, two = (answers.read(answer_of([f"date: {n}", f"content-length: {n}"])) for n in (3, 400))
    assert (one.head.length, two.head.length, one.date, two.date) == (3, 400, b"date: 3\r\n", b"date: 400\r\n")


def test_memory_is_bounded() -> None:
    memory = Heads(128)
    for n in range(3 * MAX_HEADS):
        memory.read(request_of(["host: a", f"x: {n}"]))
    assert len(memory._known) <= MAX_HEADS
    memory.read(request_of(["host: a", "x: " + "y" * 5000]))
    assert all(len(block) < 5000 for block in memory._known)
