"""A request's head means one thing, or it is refused with the status that says why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.heads import HEADS, LINE, block
from tests.support.pieces import assert_linear

from unslow.core.wire.http1 import RequestHead, read_request_head, stray_line_end
from unslow.errors import RemoteProtocolError

quick = settings(max_examples=200, deadline=None)
OLD = b"GET /v1/x HTTP/1.0"

REFUSED = [
    # two framings, or one that two parsers may read differently (RFC 9112, sections 6.1 to 6.3)
    ("CL and TE", 400, block(b"content-length: 5", b"transfer-encoding: chunked")),
    ("TE and CL", 400, block(b"transfer-encoding: chunked", b"content-length: 5")),
    ("TE and a CL of 0", 400, block(b"transfer-encoding: chunked", b"content-length: 0")),
    ("two equal CLs", 400, block(b"content-length: 5", b"content-length: 5")),
    ("two different CLs", 400, block(b"content-length: 5", b"Content-Length: 6")),
    ("two CLs in one", 400, block(b"content-length: 5, 5")),
    ("two TEs", 400, block(b"transfer-encoding: chunked", b"Transfer-Encoding: chunked")),
    ("CL empty", 400, block(b"content-length:")),
    ("CL signed", 400, block(b"content-length: +5")),
    ("CL negative", 400, block(b"content-length: -5")),
    ("CL hexadecimal", 400, block(b"content-length: 0x5")),
    ("CL with an underscore", 400, block(b"content-length: 1_0")),
    ("CL with a space", 400, block(b"content-length: 1 0")),
    ("CL in other digits", 400, block("content-length: ٥".encode())),
    ("CL of 19 digits", 400, block(b"content-length: " + b"1" * 19)),
    ("TE other", 501, block(b"transfer-encoding: gzip")),
    ("TE list", 501, block(b"transfer-encoding: gzip, chunked")),
    ("TE chunked twice", 501, block(b"transfer-encoding: chunked, chunked")),
    ("TE identity", 501, block(b"transfer-encoding: identity")),
    ("TE empty", 501, block(b"transfer-encoding:")),
    ("TE in quotes", 501, block(b'transfer-encoding: "chunked"')),
    ("TE with a parameter", 501, block(b"transfer-encoding: chunked;q=1")),
    ("TE in HTTP/1.0", 400, block(b"transfer-encoding: chunked", first=OLD)),
    # lines (RFC 9112, sections 2.2 and 5)
    ("bare LF", 400, b"GET / HTTP/1.1\nhost: a\n"),
    ("bare LF behind the request line", 400, b"GET / HTTP/1.1\nhost: a\r\n"),
    ("bare LF between fields", 400, block(b"x: 1\ny: 2")),
    ("bare LF at the end", 400, block()[:-2] + b"\n"),
    ("bare CR", 400, block(b"x: 1\ry: 2")),
    ("bare CR at the end", 400, block(b"x: 1\r")),
    ("no end", 400, block(b"x: 1")[:-2]),
    ("folded", 400, block(b"x: 1", b" 2")),
    ("folded with a tab", 400, block(b"x: 1", b"\t2")),
    ("first field folded", 400, block(b" x: 1", host=None)),
    ("space before the colon", 400, block(b"x : 1")),
    ("tab before the colon", 400, block(b"x\t: 1")),
    ("space before the name", 400, block(b" x: 1")),
    ("no name", 400, block(b": 1")),
    ("no colon", 400, block(b"x")),
    ("an empty line within", 400, block(b"", b"x: 1")),
    ("NUL in a value", 400, block(b"x: a\0b")),
    ("NUL in a name", 400, block(b"x\0: a")),
    ("control character in a value", 400, block(b"x: a\x1fb")),
    ("vertical tab", 400, block(b"transfer-encoding: \x0bchunked")),
    ("form feed", 400, block(b"x: \x0c")),
    ("DEL in a value", 400, block(b"x: \x7f")),
    ("8-bit name", 400, block(b"\xe4: a")),
    ("space in a name", 400, block(b"x y: a")),
    ("name in quotes", 400, block(b'"x": a')),
    # the request line (RFC 9112, section 3)
    ("empty", 400, b""),
    ("nothing but a line end", 400, b"\r\n"),
    ("no method", 400, block(first=b" / HTTP/1.1")),
    ("bad method", 400, block(first=b"GE(T / HTTP/1.1")),
    ("8-bit method", 400, block(first=b"G\xcbT / HTTP/1.1")),
    ("method with a colon", 400, block(first=b"a: / HTTP/1.1")),
    ("no target", 400, block(first=b"GET HTTP/1.1")),
    ("empty target", 400, block(first=b"GET  HTTP/1.1")),
    ("target with a space", 400, block(first=b"GET /a b HTTP/1.1")),
    ("target with a tab", 400, block(first=b"GET /a\tb HTTP/1.1")),
    ("target with a fragment", 400, block(first=b"GET /a#b HTTP/1.1")),
    ("target with NUL", 400, block(first=b"GET /a\0 HTTP/1.1")),
    ("8-bit target", 400, block(first="GET /ä HTTP/1.1".encode())),
    ("tabs for spaces", 400, block(first=b"GET\t/\tHTTP/1.1")),
    ("two spaces", 400, block(first=b"GET  / HTTP/1.1")),
    ("a space behind it", 400, block(first=b"GET / HTTP/1.1 ")),
    ("a space before it", 400, block(first=b" GET / HTTP/1.1")),
    ("a line end before it", 400, b"\r\n" + block()),
    ("no version", 400, block(first=b"GET /")),
    ("version in lower case", 400, block(first=b"GET / http/1.1")),
    ("not quite a version", 400, block(first=b"GET / HTTP/1.x")),
    ("another protocol", 400, block(first=b"GET / ICAP/1.1")),
    ("TLS", 400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n"),
    ("HTTP/2", 505, block(first=b"GET / HTTP/2.0")),
    ("HTTP/2's preface", 505, b"PRI * HTTP/2.0\r\n"),
    ("HTTP/1.2", 505, block(first=b"GET / HTTP/1.2")),
    ("HTTP/1.10", 505, block(first=b"GET / HTTP/1.10")),
    ("HTTP/0.9 said aloud", 505, block(first=b"GET / HTTP/0.9")),
    ("HTTP/3", 505, block(first=b"GET / HTTP/3")),
    # Host and the target (RFC 9112, section 3.2)
    ("no Host", 400, block(host=None)),
    ("no Host in HTTP/1.0", 400, block(first=OLD, host=None)),
    ("two Hosts", 400, block(b"host: b")),
    ("two equal Hosts", 400, block(b"Host: a")),
    ("Host empty", 400, block(host=b"host:")),
    ("Host with a path", 400, block(host=b"host: a/b")),
    ("Host with a user", 400, block(host=b"host: u@a")),
    ("Host list", 400, block(host=b"host: a, b")),
    ("Host with a space", 400, block(host=b"host: a b")),
    ("Host in 8 bits", 400, block(host="host: ä".encode())),
    ("Host with a port that is none", 400, block(host=b"host: a:b")),
    ("Host with an endless port", 400, block(host=b"host: a:123456")),
    ("Host with an open bracket", 400, block(host=b"host: [::1")),
    ("Host with text behind brackets", 400, block(host=b"host: [::1]a")),
    ("Host a bare IPv6 address", 400, block(host=b"host: ::1")),
    ("target of another host", 400, block(first=b"GET http://b/ HTTP/1.1")),
    ("target of another port", 400, block(first=b"GET http://a:81/ HTTP/1.1")),
    ("target with a user", 400, block(first=b"GET http://u@a/ HTTP/1.1")),
    ("target whose host only starts so", 400, block(first=b"GET http://a.b/ HTTP/1.1")),
    ("target with a backslash", 400, block(first=b"GET http://a\\/ HTTP/1.1")),
    ("target of no host", 400, block(first=b"GET http:///v1 HTTP/1.1")),
    ("target of another scheme", 400, block(first=b"GET ftp://a/ HTTP/1.1")),
    ("target an authority", 400, block(first=b"CONNECT a:443 HTTP/1.1")),
    ("target a relative path", 400, block(first=b"GET v1/x HTTP/1.1")),
    # what is said twice, or cannot be done
    ("two Authorizations", 400, block(b"authorization: a", b"authorization: b")),
    ("two equal x-api-keys", 400, block(b"x-api-key: a", b"X-Api-Key: a")),
    ("two api-keys", 400, block(b"api-key: a", b"api-key: b")),
    ("two x-goog-api-keys", 400, block(b"x-goog-api-key: a", b"x-goog-api-key: b")),
    ("two Origins", 400, block(b"origin: http://a", b"origin: http://b")),
    ("two content types", 400, block(b"content-type: a/b", b"content-type: c/d")),
    ("two traces", 400, block(b"traceparent: a", b"traceparent: b")),
    ("two expectations", 400, block(b"expect: 100-continue", b"expect: 100-continue")),
    ("two Upgrades", 400, block(b"upgrade: websocket", b"upgrade: h2c")),
    ("two upstreams", 400, block(b"x-unslow-upstream: a", b"x-unslow-upstream: b")),
    ("an upgrade with a body", 400, block(b"connection: upgrade", b"upgrade: websocket", b"content-length: 5")),
    (
        "an upgrade with chunks",
        400,
        block(b"transfer-encoding: chunked", b"connection: upgrade", b"upgrade: websocket"),
    ),
    ("another expectation", 417, block(b"expect: wonders")),
    ("an expectation and more", 417, block(b"expect: 100-continue, wonders")),
    ("an empty expectation", 417, block(b"expect:")),
    ("another expectation in HTTP/1.0", 417, block(b"expect: wonders", first=OLD)),
    ("129 fields", 431, block(*[b"x: y"] * 128)),
]


@pytest.mark.parametrize(("status", "data"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_ambiguous_or_broken_is_refused(status: int, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        read_request_head(data)
    assert refused.value.status_hint == status, str(refused.value)


def test_the_number_of_fields_has_a_limit() -> None:
    assert len(read_request_head(block(*[b"x: y"] * 127)).fields) == 128
    assert len(read_request_head(block(b"x: y"), max_headers=2).fields) == 2
    with pytest.raises(RemoteProtocolError):
        read_request_head(block(b"x: y"), max_headers=1)


# -- what is read


def test_a_head_as_clients_send_it() -> None:
    head = read_request_head(
        b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: a:8080\r\nContent-Type: application/json\r\n"
        b"X-Empty:\r\nX-Spaces: \t a b\tc \t\r\nX-More: 1\r\nX-More: 2\r\nCONTENT-LENGTH: 17\r\n"
    )
    assert (head.method, head.target, head.path, head.minor) == (
        b"POST",
        b"/v1/chat/completions?a=b",
        b"/v1/chat/completions",
        1,
    )
    assert head.fields == [
        (b"host", b"a:8080"),
        (b"content-type", b"application/json"),
        (b"x-empty", b""),
        (b"x-spaces", b"a b\tc"),
        (b"x-more", b"1"),
        (b"x-more", b"2"),
        (b"content-length", b"17"),
    ]
    assert (head.host, head.length, head.chunked, head.close, head.expects) == (b"a:8080", 17, False, False, False)
    assert head.index[b"content-type"] == b"application/json"


@pytest.mark.parametrize(
    ("target", "host", "read"),
    [
        (b"/", b"a", b"/"),
        (b"*", b"a", b"*"),
        (b"/v1/%2e%2e/x?y=%00", b"a", b"/v1/%2e%2e/x?y=%00"),
        (b"/x?http://b/", b"a", b"/x?http://b/"),
        (b"//b/x", b"a", b"//b/x"),
        (b"http://a/v1/x?y", b"a", b"/v1/x?y"),
        (b"HTTPS://A.Example:8080/V1", b"a.example:8080", b"/V1"),
        (b"http://a", b"A", b"/"),
        (b"http://a/http://b/", b"a", b"/http://b/"),
        (b"http://[::1]:80/x", b"[::1]:80", b"/x"),
    ],
)
def test_a_target_is_a_path_whatever_its_form(target: bytes, host: bytes, read: bytes) -> None:
    head = read_request_head(block(first=b"GET " + target + b" HTTP/1.1", host=b"host: " + host))
    assert (head.target, head.host) == (read, host)


@pytest.mark.parametrize("host", [b"a", b"A-b.c_d~e:1", b"1.2.3.4:65535", b"[2001:DB8::1]", b"a.", b"a:0"])
def test_names_and_addresses_are_hosts(host: bytes) -> None:
    assert read_request_head(block(host=b"Host:" + host)).host == host


@pytest.mark.parametrize(
    ("fields", "length", "chunked"),
    [
        ([], None, False),
        ([b"content-length: 0"], 0, False),
        ([b"Content-Length:\t0042 "], 42, False),
        ([b"content-length: " + b"9" * 18], 10**18 - 1, False),
        ([b"transfer-encoding: chunked"], None, True),
        ([b"TRANSFER-ENCODING:Chunked\t"], None, True),
    ],
)
def test_how_the_body_is_framed(fields: list[bytes], length: int | None, chunked: bool) -> None:
    head = read_request_head(block(*fields))
    assert (head.length, head.chunked) == (length, chunked)


@pytest.mark.parametrize(
    ("first", "fields", "close", "named"),
    [
        (LINE, [], False, ()),
        (LINE, [b"connection: close"], True, (b"close",)),
        (LINE, [b"Connection: Keep-Alive, CLOSE"], True, (b"keep-alive", b"close")),
        (LINE, [b"connection: x ,, y,", b"Connection:z"], False, (b"x", b"y", b"z")),
        (LINE, [b"connection: x", b"connection: close"], True, (b"x", b"close")),
        (LINE, [b"connection: closed"], False, (b"closed",)),
        (LINE, [b"connection:"], False, ()),
        (OLD, [], True, ()),
        (OLD, [b"connection: keep-alive"], True, (b"keep-alive",)),
    ],
)
def test_what_becomes_of_the_connection(
    first: bytes, fields: list[bytes], close: bool, named: tuple[bytes, ...]
) -> None:
    head = read_request_head(block(*fields, first=first))
    assert (head.close, head.named) == (close, named)


@pytest.mark.parametrize(
    ("first", "fields", "upgrade"),
    [
        (LINE, [b"connection: Upgrade", b"upgrade: WebSocket"], b"websocket"),
        (LINE, [b"connection: keep-alive, upgrade", b"upgrade: websocket"], b"websocket"),
        (LINE, [b"content-length: 0", b"connection: upgrade", b"upgrade: websocket"], b"websocket"),
        (LINE, [b"upgrade: websocket"], None),
        (LINE, [b"upgrade: websocket", b"content-length: 5"], None),
        (LINE, [b"connection: upgrade", b"upgrade: h2c", b"content-length: 5"], None),
        (LINE, [b"connection: upgrade"], None),
        (LINE, [b"connection: upgrade", b"upgrade: h2c"], None),
        (LINE, [b"connection: upgrade", b"upgrade: websocket, h2c"], None),
        (OLD, [b"connection: upgrade", b"upgrade: websocket"], None),
    ],
)
def test_only_web_sockets_are_upgrades(first: bytes, fields: list[bytes], upgrade: bytes | None) -> None:
    assert read_request_head(block(*fields, first=first)).upgrade == upgrade


def test_who_waits_for_100_continue() -> None:
    assert read_request_head(block(b"Expect: 100-Continue")).expects
    assert not read_request_head(block()).expects
    assert not read_request_head(block(b"expect: 100-continue", first=OLD)).expects, "RFC 9110, section 10.1.1"


@pytest.mark.parametrize(
    ("partial", "stray"),
    [
        (b"", False),
        (b"GET", False),
        (b"GET / HTTP/1.1\r", False),
        (b"GET / HTTP/1.1\r\nhost: a\r\n\r", False),
        (b"GET / HTTP/1.1\n", True),
        (b"\n", True),
        (b"GET / HTTP/1.1\r\nhost: a\n", True),
        (b"GET / HTTP/1.1\rh", True),
        (b"GET / HTTP/1.1\r\r", True),
        (b"GET / HTTP/1.1\r\r\n", True),
        (b"GET / HTTP/1.1\r\nx: a\rb: c\r\n", True),
    ],
)
def test_a_line_end_that_no_head_may_have_shows_early(partial: bytes, stray: bool) -> None:
    assert stray_line_end(partial) is stray


# -- any bytes


def tried(data: bytes) -> RequestHead | None:
    try:
        return read_request_head(data)
    except RemoteProtocolError as error:
        hint = error.status_hint
    assert hint in (400, 417, 431, 501, 505)
    return None


@quick
@given(st.one_of(HEADS, st.binary(max_size=150)))
def test_a_head_that_is_read_can_be_written_again(data: bytes) -> None:
    head = tried(data)
    if head is None:
        return
    assert not stray_line_end(data)
    line = head.method + b" " + head.target + b" HTTP/1.%d" % head.minor
    again = read_request_head(block(*(name + b": " + value for name, value in head.fields), first=line, host=None))
    assert again == head
    assert not (head.chunked and head.length is not None)
    for name in (b"host", b"content-length", b"transfer-encoding"):
        assert [given for given, _ in head.fields].count(name) <= 1


@quick
@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_stray_line_end_does_not_go_away_as_more_comes(data: bytes, at: int) -> None:
    if stray_line_end(data[:at]):
        assert stray_line_end(data)


@pytest.mark.parametrize(
    "unit",
    [b"a", b":", b"a:", b" ", b"\t", b"a: b\r\n", b"a:\t \r\n", b"\r\n", b"\r", b"\n", b" HTTP/2", b"\0", b"1", b","],
)
@pytest.mark.parametrize(
    "start",
    [b"", b"GET /", b"GET / HTTP/1.1\r\nhost: a\r\n", block(b"connection: a") + b"x: ", block() + b"connection:"],
)
def test_hostile_heads_take_linear_time(unit: bytes, start: bytes) -> None:
    def work(data: bytes) -> None:
        for whole in (data, data + b"\r\n"):
            tried(whole)
            stray_line_end(whole)

    assert_linear(work, unit, start=start)
