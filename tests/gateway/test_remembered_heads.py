"""A head that is remembered is treated as one that is read anew: same meaning, same refusal, same door."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.gateway import Plain, Relay, everything, relay, request, say
from tests.support.heads import HEADS, block
from tests.support.upstream import Upstream, chat

from unslow.core.wire.http1 import RequestHead, read_request_head
from unslow.errors import RemoteProtocolError
from unslow.serve.gateway.known import MAX_HEADS, MAX_REMEMBERED_BYTES, Heads
from unslow.serve.gateway.settings import client_key

quick = settings(max_examples=300, deadline=None)


# -- reading


def meaning(head: RequestHead, length: int | None) -> dict[str, object]:
    """All that a head says. Where it states its length is no part of it, nor a trace that cannot be read."""
    apart = (b"content-length", b"traceparent")
    said = {name: getattr(head, name) for name in ("method", "target", "minor", "host", "chunked", "close", "expects")}
    index = {name: value for name, value in head.index.items() if name not in apart}
    fields = [field for field in head.fields if field[0] not in apart]
    return said | {"length": length, "named": head.named, "upgrade": head.upgrade, "fields": fields, "index": index}


def remembered(memory: Heads, data: bytes) -> dict[str, object] | None:
    """What a memory reads; None for what it refuses. Of two faults it may name the other one."""
    try:
        known, length = memory.read(data)
    except RemoteProtocolError:
        return None
    return meaning(known.head, length)


def anew(data: bytes) -> dict[str, object] | None:
    try:
        head = read_request_head(data)
    except RemoteProtocolError:
        return None
    return meaning(head, head.length)


LENGTHS = st.sampled_from(
    [b"content-length: 5", b"Content-Length: 17", b"content-length:5", b"CONTENT-LENGTH: 7", b"content-length: 5 ",
     b"content-length: +5", b"content-length: ", b"Content-Length: 9\r\nContent-Length: 9", b"x: \r\ncontent-length: 3",
     b"content-length: 99999999999999999999", b"content-length: 0", b"content-length: 1\r\n 2", b"x-content-length: 3"]
)  # fmt: skip


def with_line(head: bytes, line: bytes, at: int) -> bytes:
    """A head with one line more, anywhere behind its first."""
    lines = head.split(b"\r\n")
    at = 1 + at % len(lines)
    return b"\r\n".join([*lines[:at], line, *lines[at:]])


BLOCKS = st.one_of(HEADS, st.builds(with_line, HEADS, LENGTHS, st.integers(0, 9)))


@quick
@given(st.lists(BLOCKS, min_size=1, max_size=4), st.lists(st.tuples(LENGTHS, st.integers(0, 9)), max_size=3))
def test_what_is_remembered_means_what_it_would_mean_anew(heads: list[bytes], lines: list[tuple[bytes, int]]) -> None:
    memory = Heads(128)
    varied = [with_line(head, line, at) for head in heads for line, at in lines]
    for data in [*heads, *varied, *heads, *varied]:
        assert remembered(memory, data) == anew(data)


@quick
@given(HEADS, st.integers(0, 10**17), st.integers(0, 10**17), st.sampled_from([b"content-length", b"Content-Length"]))
def test_the_second_length_is_the_second_s(head: bytes, first: int, second: int, name: bytes) -> None:
    memory = Heads(128)
    one, two = (remembered(memory, head + b"%b: %d\r\n" % (name, n)) for n in (first, second))
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert (one["length"], two["length"]) == (first, second)
        assert one | {"length": second} == two


def test_a_known_head_refuses_a_body_that_it_may_not_have() -> None:
    memory = Heads(128)
    for lines in ([b"connection: upgrade", b"upgrade: websocket"], [b"transfer-encoding: chunked"]):
        alone = remembered(memory, block(*lines))
        assert alone is not None
        assert remembered(memory, block(*lines, b"content-length: 5")) is None
        assert remembered(memory, block(*lines)) == alone


def test_what_is_refused_is_not_remembered() -> None:
    memory = Heads(128)
    for data in (block(b"x : 1"), block(host=None), block(b"transfer-encoding: gzip")):
        assert [remembered(memory, data) for _ in range(2)] == [None, None]
    assert not memory._known


def test_memory_is_bounded_in_number_and_size() -> None:
    memory = Heads(128)
    for n in range(2 * MAX_HEADS + 7):
        memory.read(block(b"x: %d" % n))
    memory.read(block(b"x: " + b"y" * MAX_REMEMBERED_BYTES))
    assert 0 < len(memory._known) <= MAX_HEADS
    assert max(map(len, memory._known)) <= MAX_REMEMBERED_BYTES
    assert memory.read(block(b"x: 1"))[0] is memory.read(block(b"x: 1", b"content-length: 3"))[0]


# -- the door


class Asked(NamedTuple):
    """One way to come to the door; `refused` is the code that says why not, None where it lets in."""

    host: str
    origin: str | None
    key: dict[str, str]
    path: str
    method: str
    body: bytes | None

    @property
    def refused(self) -> str | None:
        """By the order in docs/reference/gateway.md."""
        if self.host != "127.0.0.1":
            return "host_not_allowed"
        if self.origin not in (None, LISTED):
            return "origin_not_allowed"
        if KEY not in " ".join(self.key.values()).split():
            return "invalid_api_key"
        return {"/v2/x": "not_found", "/v1/../x": "ambiguous_path"}.get(self.path) or (
            "method_not_allowed" if self.method == "TRACE" else None
        )

    def data(self) -> bytes:
        """As a request."""
        origin = {} if self.origin is None else {"origin": self.origin}
        return request(self.method, self.path, self.body, **({"host": self.host} | origin | self.key))


KEY, LISTED = "sk-client-1", "http://page.example"
WAYS = [
    Asked(*way)
    for way in itertools.product(
        ("127.0.0.1", "evil.example"),
        (None, LISTED, "http://evil.example"),
        ({"authorization": f"Bearer {KEY}"}, {"x_api_key": KEY}, {"authorization": "Bearer sk-client-2"}, {}),
        ("/v1/x", "/v2/x", "/v1/../x"),
        ("POST", "TRACE"),
        (None, b"{}"),
    )
]


@pytest.fixture(scope="module")
async def guarded() -> AsyncIterator[tuple[Upstream, Relay]]:
    keys = (client_key("one", KEY),)
    async with Upstream(chat) as upstream, relay(upstream.url, api_keys=keys, allowed_origins=(LISTED,)) as gateway:
        yield upstream, gateway


@pytest.mark.anyio
async def test_whoever_was_let_in_before_opens_the_door_to_nobody_else(guarded: tuple[Upstream, Relay]) -> None:
    """Every way to come, three times over in any order, between those who are let in."""
    upstream, gateway = guarded
    order = WAYS * 3
    random.Random(7).shuffle(order)
    let_in = 0
    for asked in order:
        reply = await say(gateway.port, asked.data(), asked.method)
        assert (None if reply.status == 200 else reply.code) == asked.refused, asked
        let_in += asked.refused is None
        assert len(upstream.calls) == let_in
    assert let_in == 3 * 8


@pytest.mark.anyio
@pytest.mark.parametrize("framing", [b"content-length: 31\r\n", b"transfer-encoding: chunked\r\n"])
async def test_behind_an_upgrade_comes_no_body(framing: bytes, plain: Plain) -> None:
    """Servers on httptools would take it for the next request, on a connection that others use."""
    upgrade = b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n"
    hidden = b"GET /admin HTTP/1.1\r\nhost: a\r\n\r\n"
    await everything(plain.port, upgrade + b"\r\n")
    known = len(plain.upstream.calls)
    for _ in range(2):
        got = await everything(plain.port, upgrade + framing + b"\r\n", hidden, pause_s=0.02)
        assert got.startswith(b"HTTP/1.1 400 ")
    assert len(plain.upstream.calls) == known
