"""Heads for tests of HTTP/1.1: plain ones, and strategies for those that try to mean two things."""

from __future__ import annotations

from hypothesis import strategies as st

LINE = b"GET /v1/x HTTP/1.1"


def block(*lines: bytes, first: bytes = LINE, host: bytes | None = b"host: a") -> bytes:
    """A head up to the line end of its last field."""
    return b"".join(line + b"\r\n" for line in (first, *([] if host is None else [host]), *lines))


METHODS = st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"get", b"P!ST", b"", b"GE T", b"G\tT"])
TARGETS = st.sampled_from(
    [
        b"/",
        b"/v1/x",
        b"/v1/x?a=b&c",
        b"*",
        b"http://a/v1/x",
        b"HTTP://A",
        b"http://b/",
        b"/a b",
        b"/#x",
        b"/\xe4",
        b"a:1",
    ]
)
VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 "])
FRAMING = st.sampled_from(
    [
        b"content-length: 5",
        b"Content-Length:5",
        b"content-length: 05",
        b"content-length: +5",
        b"content-length: 5, 5",
        b"content-length:\t5 ",
        b"content-length: 0",
        b"content-length : 5",
        b"content-length: 5\x0b",
        b"content_length: 5",
        b"transfer-encoding: chunked",
        b"Transfer-Encoding:CHUNKED\t",
        b"transfer-encoding: gzip, chunked",
        b"transfer-encoding: identity",
        b"transfer-encoding:",
        b"transfer-encoding: chunked, chunked",
        b"transfer-encoding\t: chunked",
        b"transfer-encoding: \x0bchunked",
        b" transfer-encoding: chunked",
    ]
)
OTHERS = st.sampled_from(
    [
        b"connection: close",
        b"Connection: keep-alive, X-Named",
        b"connection: host, content-length",
        b"connection: upgrade",
        b"upgrade: websocket",
        b"expect: 100-continue",
        b"te: trailers",
        b"x-named: a",
        b"x: a",
        b"x:",
        b"x:\t \t",
        b"x: a\tb \xe4\xff",
        b"x: a\rb: c",
        b"x: a\nb: c",
        b"x: a\r\n b",
        b"x: a\0",
        b"x: \x7f",
        b": a",
        b"x",
        b"",
        b"x y: a",
        b"host: b",
        b"Host: A",
    ]
)
FIELDS = st.lists(st.one_of(FRAMING, OTHERS), max_size=4)
_FIRST = st.tuples(METHODS, TARGETS, VERSIONS).map(b" ".join)
_HOST = st.sampled_from([b"host: a", b"Host:A", b"host: a:80", b"host: [::1]:1", b"host: a b", b"host: a/", None])


def _changed(head: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for where, gone, put in changes:
        at = where % (len(head) + 1)
        head = head[:at] + put + head[at + gone :]
    return head


_PUT = st.one_of(
    st.binary(max_size=2), st.sampled_from([b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\0", b",", b"\xa0"])
)
_CHANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2), _PUT), max_size=2)
_SOUND_FIRST = st.sampled_from(
    [b"GET / HTTP/1.1", b"POST /v1/x?a=b HTTP/1.1", b"PUT HTTP://A/v1 HTTP/1.1", b"HEAD / HTTP/1.0", b"X * HTTP/1.1"]
)
_SOUND_FRAMING = st.sampled_from(
    [
        [],
        [b"content-length: 5"],
        [b"Content-Length:\t0042 "],
        [b"content-length: 0"],
        [b"content-length: 999999999"],
        [b"transfer-encoding: chunked"],
        [b"Transfer-Encoding:CHUNKED\t"],
    ]
)
_SOUND_OTHERS = st.sampled_from(
    [
        b"connection: close",
        b"Connection: keep-alive, X-Named",
        b"connection: host, content-length",
        b"connection: upgrade",
        b"te: trailers",
        b"x-named: a",
        b"x:\t \t",
        b"x: a\tb \xe4\xff",
        b"content_length: 7",
        b"x-content-length: 7",
    ]
)
_ONCE = st.sampled_from(
    [[], [b"upgrade: websocket"], [b"expect: 100-continue"], [b"upgrade: h2c", b"content-type: a/b"]]
)
SOUND = st.builds(
    lambda first, framing, others, once: block(*others, *framing, *once, first=first),
    _SOUND_FIRST,
    _SOUND_FRAMING,
    st.lists(_SOUND_OTHERS, max_size=3),
    _ONCE,
)
"""Heads of requests that are read, but for a coding in HTTP/1.0."""

HEADS = st.one_of(
    SOUND,
    st.builds(_changed, SOUND, _CHANGES),
    st.builds(_changed, SOUND, _CHANGES),
    st.builds(lambda first, host, fields: block(*fields, first=first, host=host), _FIRST, _HOST, FIELDS),
)
"""Heads of requests, half of which are sound."""
