"""The relay's parsers without a socket: the same for any split of the bytes, and strict about all that is strange."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unslow.core.policy.model_scan import ModelScan
from unslow.core.policy.retry import may_resend
from unslow.core.policy.routing import Routes, join_target, path_listed
from unslow.core.wire import decoder_for
from unslow.core.wire.dialects import by_name
from unslow.core.wire.http1 import (
    ChunkedAnswer,
    FixedBody,
    chunk,
    read_request_head,
    read_response_head,
    upload_body,
)
from unslow.errors import RemoteProtocolError
from unslow.serve.gateway.known import Heads
from unslow.serve.gateway.ledger import LedgerComment
from unslow.serve.gateway.observer import Observer

T = TypeVar("T")
quick = settings(max_examples=100, deadline=None)
CUTS = st.lists(st.integers(0, 120), max_size=6).map(sorted)
PIECES = st.lists(st.binary(min_size=1, max_size=30), max_size=5)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *cuts, len(data)]
    return [part for a, b in itertools.pairwise(bounds) if (part := data[a:b])]


# -- bodies


@quick
@given(PIECES, CUTS, st.binary(max_size=20), st.booleans())
def test_a_chunked_upload_is_the_same_for_any_split(
    pieces: list[bytes], cuts: list[int], after: bytes, trailer: bool
) -> None:
    data = b"".join(b"%x;x=y\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n" + b"a: b\r\n" * trailer + b"\r\n"
    body = upload_body(chunked=True, length=None)
    got = b""
    for part in cut(data, cuts):
        assert not body.done
        got += b"".join(body.feed(part))
    assert (got, body.done, body.surplus) == (b"".join(pieces), True, b"")
    whole = upload_body(chunked=True, length=None)
    assert b"".join(whole.feed(data + after)) == got
    assert whole.surplus == after


@quick
@given(st.binary(max_size=60), CUTS)
@example(b"1\r\na\r\n0\r\n\r\n", [3])
@example(b"1\r\r\n", [2])
def test_what_a_chunked_upload_takes_does_not_depend_on_how_it_was_cut(data: bytes, cuts: list[int]) -> None:
    def outcome(parts: list[bytes]) -> tuple[bool, bytes | None]:
        body, got = upload_body(chunked=True, length=None), b""
        try:
            for n, part in enumerate(parts):
                got += b"".join(body.feed(part))
                if body.done:
                    return True, got + b"|" + body.surplus + b"".join(parts[n + 1 :])
        except RemoteProtocolError:
            return False, None
        return False, got

    assert outcome(cut(data, cuts)) == outcome([data] if data else [])


@quick
@given(PIECES, CUTS)
def test_a_chunked_answer_is_the_same_for_any_split(pieces: list[bytes], cuts: list[int]) -> None:
    body, got = ChunkedAnswer(), b""
    for part in cut(b"".join(map(chunk, pieces)) + b"0\r\n\r\n", cuts):
        got += b"".join(body.feed(part))
    assert (got, body.done) == (b"".join(pieces), True)


@quick
@given(st.binary(max_size=40), st.integers(0, 50), CUTS)
def test_a_fixed_body_takes_what_is_stated_and_no_more(data: bytes, length: int, cuts: list[int]) -> None:
    body, got = FixedBody(length), b""
    for part in cut(data, cuts):
        if body.done:
            break
        got += b"".join(body.feed(part))
    assert got == data[:length]
    assert body.done == (len(data) >= length)


# -- heads

NAMES = st.from_regex(re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,12}", re.ASCII), fullmatch=True)
VALUES = st.from_regex(re.compile(r"[\x21-\x7e]([\t\x20-\x7e]{0,20}[\x21-\x7e])?", re.ASCII), fullmatch=True)
SPECIAL = frozenset(
    ("host", "content-length", "transfer-encoding", "expect", "connection", "upgrade", "traceparent", "via")
)


@quick
@given(st.lists(st.tuples(NAMES, VALUES), max_size=8, unique_by=lambda field: field[0].lower()))
def test_a_head_s_fields_come_out_as_they_went_in(fields: list[tuple[str, str]]) -> None:
    fields = [(name, value) for name, value in fields if name.lower() not in SPECIAL]
    lines = "".join(f"{name}:  {value}\t\r\n" for name, value in fields)
    head = read_request_head(f"GET /v1/x HTTP/1.1\r\nHost: a\r\n{lines}".encode())
    assert head.fields == [(b"host", b"a"), *((n.lower().encode(), v.encode()) for n, v in fields)]


def tried(read: Callable[[bytes], T], data: bytes) -> tuple[T | None, int]:
    """What was read, or the status that refuses it."""
    try:
        return read(data), 0
    except RemoteProtocolError as error:
        return None, error.status_hint


@quick
@given(st.binary(max_size=120))
@example(b"GET / HTTP/1.1\r\nhost: a\r\n")
def test_no_bytes_read_as_two_heads(data: bytes) -> None:
    """What is read holds no line end within a field: written out again it is the same head."""
    for text in (data, b"GET / HTTP/1.1\r\nhost: a\r\n" + data, b"GET / HTTP/1.1\r\nhost: a\r\nx: " + data + b"\r\n"):
        head, hint = tried(read_request_head, text)
        assert hint in (0, 400, 417, 431, 501, 505)
        if head is None:
            continue
        assert not any(re.search(rb"[\r\n\0]", name + value) for name, value in head.fields)
        assert text.count(b"\r\n") == len(head.fields) + 1


@quick
@given(st.binary(max_size=120))
def test_an_answer_s_head_is_read_or_refused(data: bytes) -> None:
    for text in (data, b"HTTP/1.1 200 OK\r\n" + data + b"\r\n"):
        head, hint = tried(read_response_head, text)
        assert hint in (0, 502)
        if head is None:
            continue
        assert 100 <= head.status <= 999
        assert not (head.chunked and head.length is not None)


FIELD = st.sampled_from(
    ["content-length: 2", "Content-Length: 3", "CONTENT-LENGTH: 2", "content-length:2", "Content-Length: 2 ", "x: 1",
     "transfer-encoding: chunked", "content-length: 0", "content-length: x", "content-length: 2\r\n 3", "host: b"]
)  # fmt: skip


@quick
@given(st.lists(FIELD, max_size=3))
def test_a_remembered_head_means_what_a_head_that_is_read_means(lines: list[str]) -> None:
    """Heads are remembered without the line of their length; nothing may be read differently for that."""
    heads = Heads(max_headers=128)
    heads.read(b"GET / HTTP/1.1\r\nhost: a\r\n")  # known, without a length
    block = ("GET / HTTP/1.1\r\nhost: a\r\n" + "".join(line + "\r\n" for line in lines)).encode()
    for _ in range(2):
        try:
            plain = read_request_head(block)
        except RemoteProtocolError:
            with pytest.raises(RemoteProtocolError):
                heads.read(block)
            continue
        known, length = heads.read(block)
        assert (length, known.head.chunked) == (plain.length, plain.chunked)


# -- routing

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.just("model"), st.text(max_size=6)), inner, max_size=3),
    ),
    max_leaves=12,
)


@quick
@given(st.dictionaries(st.one_of(st.just("model"), st.text(max_size=6)), JSON, max_size=5), CUTS, st.booleans())
@example({"a": {"model": "inner"}, "model": "outer"}, [5, 20], True)
@example({"model": 5}, [], True)
@example({'\\"model\\":': '"model":"x', "model": 'a"b\\'}, [7], True)
def test_the_scan_finds_the_model_that_the_body_names(body: dict[str, Any], cuts: list[int], ascii_only: bool) -> None:
    data = json.dumps(body, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    scan = ModelScan(b"application/json")
    for part in cut(data, cuts):
        scan.feed(part)
    named = body.get("model")
    assert scan.model == (named if isinstance(named, str) else None)


@quick
@given(st.binary(max_size=80), CUTS)
def test_the_scan_takes_any_bytes(data: bytes, cuts: list[int]) -> None:
    whole, split = ModelScan(), ModelScan()
    whole.feed(data)
    for part in cut(data, cuts):
        split.feed(part)
    assert split.model == whole.model


@pytest.mark.parametrize("unit", [b'"', b"[", b'{"a":', b"\\", b'"a" ', b"{}", b'"\\', b"[[]", b" "])
def test_the_scan_is_linear_on_hostile_bodies(unit: bytes) -> None:
    """1 MB in pieces; the time limit of the test is the check."""
    scan = ModelScan()
    for _ in range(256):
        scan.feed((b'{"a": ' if not scan.over else b"") + unit * (4096 // len(unit)))


def test_routes() -> None:
    routes = Routes([("a", ["gpt-4", "gpt-*"]), ("b", ["gpt-4o-*", "gpt-4"]), ("c", []), ("d", ["*"])])
    found = [routes.by_model(name) for name in ("gpt-4", "gpt-3", "gpt-4o-mini", "llama")]
    assert found == ["a", "a", "b", "d"], "exact, then the longer pattern, and a bare star is one"
    assert Routes([("a", ["x"]), ("b", [])]).by_model("y") == "b"
    assert Routes([("a", ["x"])]).by_model("y") is None
    assert not Routes([("a", ["x"])]).single
    assert Routes([("a", [])]).single


def test_paths() -> None:
    assert join_target("/openai/v1", "/v1/models") == "/openai/v1/models"
    assert path_listed("/v1/audio/speech", ("/v1/audio/*",))
    assert not path_listed("/v1/audio", ("/v1/audio/*",))
    assert not path_listed("/v1/modelsx", ("/v1/models", "/v1/models/*"))


def test_what_may_be_sent_again() -> None:
    good = {"reused": True, "answer_bytes": 0, "sends": 1, "body_held": True}
    assert may_resend(**good)  # type: ignore[arg-type]
    for change in ({"reused": False}, {"answer_bytes": 1}, {"sends": 2}, {"body_held": False}):
        assert not may_resend(**good | change)  # type: ignore[arg-type]


# -- the ledger in a stream


@quick
@given(
    st.lists(st.sampled_from([b"data: x", b"data: [DONE]", b": c", b"\n", b"\r\n", b"\r", b"event: e"]), max_size=12),
    CUTS,
    st.booleans(),
)
def test_the_ledger_changes_nothing_but_adds_itself_once(lines: list[bytes], cuts: list[int], chunked: bool) -> None:
    data = b"".join(lines)
    decoder = decoder_for("text/event-stream", path="/v1/chat/completions")
    assert decoder is not None
    seen = Observer(by_name("openai"), decoder, 16)
    ledger = LedgerComment(seen, lambda _now_ns: b": unslow {}\n\n", chunked=chunked)
    out = b"".join(ledger.feed([part], 1, done=False) for part in cut(data, cuts)) + ledger.feed([], 1, done=True)
    if chunked:
        body = ChunkedAnswer()
        out = b"".join(list(body.feed(out)))
        assert body.done
    assert out.replace(b": unslow {}\n\n", b"") == data
    assert out.count(b": unslow {}") <= 1
    seen.close(2)
    if out.count(b": unslow {}"):
        assert seen.done
