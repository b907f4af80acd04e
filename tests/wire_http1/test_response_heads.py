"""An answer's head, the framing that it states, and what is written of a head that goes on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.heads import FIELDS, block
from tests.support.pieces import assert_linear

from unslow.core.wire.http1 import (
    HOP_BY_HOP,
    ChunkedAnswer,
    Field,
    FixedBody,
    NoBody,
    ResponseHead,
    UntilClose,
    answer_body,
    read_response_head,
    reason,
    write_fields,
)
from unslow.errors import RemoteProtocolError

quick = settings(max_examples=200, deadline=None)
OK = b"HTTP/1.1 200 OK"
OLD = b"HTTP/1.0 200 OK"


def answer(*lines: bytes, first: bytes = OK) -> bytes:
    return block(*lines, first=first, host=None)


REFUSED = [
    ("nothing", b""),
    ("a line end", b"\r\n"),
    ("a line end before it", b"\r\n" + answer()),
    ("HTML", b"<html>\r\n"),
    ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n"),
    ("HTTP/2", answer(first=b"HTTP/2 200")),
    ("HTTP/1.2", answer(first=b"HTTP/1.2 200 OK")),
    ("version in lower case", answer(first=b"http/1.1 200 OK")),
    ("ICY", answer(first=b"ICY 200 OK")),
    ("no status", answer(first=b"HTTP/1.1 OK")),
    ("status of two digits", answer(first=b"HTTP/1.1 99 No")),
    ("status of four digits", answer(first=b"HTTP/1.1 2000 OK")),
    ("status below 100", answer(first=b"HTTP/1.1 099 OK")),
    ("signed status", answer(first=b"HTTP/1.1 +20 OK")),
    ("two spaces", answer(first=b"HTTP/1.1  200 OK")),
    ("tab", answer(first=b"HTTP/1.1\t200 OK")),
    ("a space before it", answer(first=b" HTTP/1.1 200 OK")),
    ("NUL in the phrase", answer(first=b"HTTP/1.1 200 O\0K")),
    ("bare CR in the phrase", answer(first=b"HTTP/1.1 200 O\rK")),
    ("bare LF", b"HTTP/1.1 200 OK\n"),
    ("bare LF between fields", answer(b"x: 1\ny: 2")),
    ("bare CR between fields", answer(b"x: 1\ry: 2")),
    ("no end", answer(b"x: 1")[:-2]),
    ("folded", answer(b"x: 1", b" 2")),
    ("space before the colon", answer(b"x : 1")),
    ("no colon", answer(b"x")),
    ("NUL in a value", answer(b"x: a\0b")),
    ("CL and TE", answer(b"content-length: 5", b"transfer-encoding: chunked")),
    ("two different CLs", answer(b"content-length: 5", b"Content-Length: 6")),
    ("two spellings of a CL", answer(b"content-length: 5", b"content-length: 05")),
    ("two CLs in one", answer(b"content-length: 5, 5")),
    ("CL negative", answer(b"content-length: -5")),
    ("CL hexadecimal", answer(b"content-length: 0x5")),
    ("CL empty", answer(b"content-length:")),
    ("two TEs", answer(b"transfer-encoding: chunked", b"transfer-encoding: chunked")),
    ("TE other", answer(b"transfer-encoding: gzip")),
    ("TE list", answer(b"transfer-encoding: gzip, chunked")),
    ("TE empty", answer(b"transfer-encoding:")),
    ("257 fields", answer(*[b"x: y"] * 257)),
]


@pytest.mark.parametrize("data", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_garbled_answer_is_a_bad_gateway(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        read_response_head(data)
    assert refused.value.status_hint == 502


def test_an_answer_as_servers_send_it() -> None:
    head = read_response_head(
        answer(b"Content-Type: text/event-stream", b"Content-Encoding: GZip", b"Set-Cookie: a", b"Set-Cookie: b")
    )
    assert (head.status, head.phrase, head.minor) == (200, b"OK", 1)
    assert head.fields == [
        (b"content-type", b"text/event-stream"),
        (b"content-encoding", b"GZip"),
        (b"set-cookie", b"a"),
        (b"set-cookie", b"b"),
    ]
    assert (head.content_type, head.encoding, head.index[b"set-cookie"]) == (b"text/event-stream", b"gzip", b"b")
    assert (head.length, head.chunked, head.keep) == (None, False, True)
    assert len(read_response_head(answer(*[b"x: y"] * 256)).fields) == 256


@pytest.mark.parametrize(
    ("line", "status", "phrase"),
    [
        (b"HTTP/1.1 200 OK", 200, b"OK"),
        (b"HTTP/1.1 200 ", 200, b""),
        (b"HTTP/1.1 200", 200, b""),
        (b"HTTP/1.0 404 Not Found\t!", 404, b"Not Found\t!"),
        ("HTTP/1.1 500 Ärger".encode("latin-1"), 500, "Ärger".encode("latin-1")),
        (b"HTTP/1.1 100 Continue", 100, b"Continue"),
        (b"HTTP/1.1 999 ?", 999, b"?"),
    ],
)
def test_the_phrase_says_nothing_and_may_be_missing(line: bytes, status: int, phrase: bytes) -> None:
    head = read_response_head(answer(first=line))
    assert (head.status, head.phrase) == (status, phrase)


@pytest.mark.parametrize(
    ("fields", "length", "chunked"),
    [
        ([], None, False),
        ([b"content-length: 0"], 0, False),
        ([b"content-length: 5", b"Content-Length:5"], 5, False),
        ([b"Transfer-Encoding:Chunked"], None, True),
    ],
)
def test_the_framing_that_it_states(fields: list[bytes], length: int | None, chunked: bool) -> None:
    head = read_response_head(answer(*fields))
    assert (head.length, head.chunked) == (length, chunked)


@pytest.mark.parametrize(
    ("first", "fields", "keep"),
    [
        (OK, [], True),
        (OK, [b"connection: keep-alive"], True),
        (OK, [b"connection: close"], False),
        (OK, [b"Connection: Keep-Alive, Close"], False),
        (OK, [b"connection: x", b"connection: close"], False),
        (OLD, [], False),
        (OLD, [b"connection: keep-alive"], True),
        (OLD, [b"connection: x, Keep-Alive"], True),
        (OLD, [b"connection: keep-alive, close"], False),
        (OLD, [b"connection: keep-alive", b"transfer-encoding: chunked"], False),
    ],
)
def test_whether_the_connection_goes_on(first: bytes, fields: list[bytes], keep: bool) -> None:
    assert read_response_head(answer(*fields, first=first)).keep is keep


@pytest.mark.parametrize(
    ("status", "method", "fields", "framing"),
    [
        (200, b"GET", [], UntilClose),
        (200, b"GET", [b"content-length: 5"], FixedBody),
        (200, b"POST", [b"transfer-encoding: chunked"], ChunkedAnswer),
        (404, b"GET", [b"content-length: 5"], FixedBody),
        (200, b"HEAD", [b"content-length: 5"], NoBody),
        (200, b"HEAD", [b"transfer-encoding: chunked"], NoBody),
        (200, b"HEAD", [], NoBody),
        (204, b"GET", [b"content-length: 5"], NoBody),
        (304, b"GET", [b"transfer-encoding: chunked"], NoBody),
    ],
)
def test_which_body_follows(status: int, method: bytes, fields: list[bytes], framing: type) -> None:
    head = read_response_head(answer(*fields, first=b"HTTP/1.1 %d X" % status))
    assert type(answer_body(head, method)) is framing


def test_phrases() -> None:
    assert (reason(200), reason(404), reason(418)) == (b"OK", b"Not Found", b"I'm a Teapot")
    assert reason(299) == reason(999) == b""


# -- any bytes


def tried(data: bytes) -> ResponseHead | None:
    try:
        return read_response_head(data)
    except RemoteProtocolError as error:
        hint = error.status_hint
    assert hint == 502
    return None


STATUS_LINES = st.one_of(
    st.sampled_from([OK, OLD, b"HTTP/1.1 200", b"HTTP/1.1 204 ", b"HTTP/1.1 20 OK"]), st.binary(max_size=20)
)


@quick
@given(st.one_of(st.builds(lambda first, fields: answer(*fields, first=first), STATUS_LINES, FIELDS), st.binary()))
def test_a_head_that_is_read_can_be_written_again(data: bytes) -> None:
    head = tried(data)
    if head is not None:
        line = b"HTTP/1.%d %d %b" % (head.minor, head.status, head.phrase)
        assert read_response_head(line + b"\r\n" + write_fields(head.fields)) == head
        assert not (head.chunked and head.length is not None)
        assert 100 <= head.status <= 999


@pytest.mark.parametrize(
    "unit", [b"a", b":", b" ", b"\t", b"a: b\r\n", b"a:\t \r\n", b"\r\n", b"\r", b"\n", b"\0", b"2"]
)
@pytest.mark.parametrize("start", [b"", OK, OK + b"\r\n", OK + b"\r\nx: ", OK + b"\r\nconnection:"])
def test_hostile_heads_take_linear_time(unit: bytes, start: bytes) -> None:
    def work(data: bytes) -> None:
        tried(data)
        tried(data + b"\r\n")

    assert_linear(work, unit, start=start)


# -- writing fields

WRITTEN: list[Field] = [
    (b"host", b"a"),
    *((name, b"x") for name in sorted(HOP_BY_HOP)),
    (b"x-named", b"b"),
    (b"x", b""),
    (b"x", b"a\tb"),
]


def test_fields_are_written_in_order() -> None:
    assert write_fields([(b"x", b"1"), (b"y", b""), (b"x", b"2")]) == b"x: 1\r\ny: \r\nx: 2\r\n"
    assert write_fields([]) == b""


def test_what_concerns_one_connection_stays_here() -> None:
    assert write_fields(WRITTEN, drop=HOP_BY_HOP) == b"host: a\r\nx-named: b\r\nx: \r\nx: a\tb\r\n"
    assert write_fields(WRITTEN, drop=HOP_BY_HOP, named=(b"x-named",)) == b"host: a\r\nx: \r\nx: a\tb\r\n"
    assert write_fields(WRITTEN, drop=HOP_BY_HOP, named=iter([b"x", b"host"])) == b"x-named: b\r\n"
    rfc = b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
    assert set(rfc) <= HOP_BY_HOP, "RFC 9110, section 7.6.1"


@quick
@given(FIELDS, st.sets(st.sampled_from([b"x", b"connection", b"te", b"content-length", b"host"])))
def test_what_is_dropped_is_gone_and_the_rest_is_there(fields: list[bytes], drop: set[bytes]) -> None:
    head = tried(answer(*fields))
    if head is not None:
        written = read_response_head(answer() + write_fields(head.fields, drop=frozenset(drop), named=head.named))
        kept = [(name, value) for name, value in head.fields if name not in drop and name not in head.named]
        assert written.fields == kept
