"""No smuggling: what we accept, h11 and llhttp read in the same meaning, as it came and as it goes on.

Each reader is given a head, a body as we would frame it, and the start of a second request. Where it finds the body's
end is what counts (RFC 9112, section 11.2). A reader may refuse what we accept; it may not read something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import h11
import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.heads import FIELDS, HEADS, block
from tests.support.pieces import CUTS, cut

from unslow.core.wire.http1 import (
    HOP_BY_HOP,
    Field,
    RequestHead,
    chunk,
    read_request_head,
    read_response_head,
    upload_body,
    write_fields,
)
from unslow.errors import RemoteProtocolError

quick = settings(max_examples=400, deadline=None)
SECOND = b"GET /second HTTP/1.1\r\nhost: a\r\n\r\n"
PAYLOAD = b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n0\r\n\r\n"
HUGE = 1 << 16


class Message(NamedTuple):
    """What a reader made of the bytes. `rest` is what it left; None: the body did not end."""

    method: bytes
    target: bytes
    fields: list[Field]
    body: bytes
    rest: bytes | None


def plain(fields: Iterable[Field]) -> list[Field]:
    """Fields, but for the case of a coding, which h11 lowers."""
    coding = b"transfer-encoding"
    return [(bytes(name), bytes(value).lower() if name == coding else bytes(value)) for name, value in fields]


def by_h11(data: bytes) -> Message:
    """Raises h11.RemoteProtocolError."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HUGE)
    connection.receive_data(data)
    request, body, ended = None, b"", False
    while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            ended = True
            break
    assert request is not None, "a whole head, and h11 waits for more"
    rest = connection.trailing_data[0] if ended else None
    return Message(bytes(request.method), bytes(request.target), plain(request.headers), body, rest)


class _Seen:
    """What llhttp calls."""

    def __init__(self) -> None:
        self.targets: list[bytes] = []
        self.fields: list[list[Field]] = []
        self.bodies: list[bytes] = []
        self.ended = 0

    def on_message_begin(self) -> None:
        self.targets.append(b"")
        self.fields.append([])
        self.bodies.append(b"")

    def on_url(self, url: bytes) -> None:
        self.targets[-1] += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields[-1].append((name.lower(), value.strip(b" \t")))

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.ended += 1


def by_llhttp(data: bytes) -> Message | None:
    """None where it refuses. What it left is told by the second request alone."""
    seen = _Seen()
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade as end:  # a reader that takes the rest for another protocol
        return Message(parser.get_method(), seen.targets[0], seen.fields[0], seen.bodies[0], data[end.args[0] :])
    except httptools.HttpParserError:
        return None
    rest = {0: None, 1: b"", 2: SECOND}[seen.ended]
    assert rest != SECOND or seen.targets[1:] == [b"/second"]
    method = b"GET" if seen.ended == 2 else parser.get_method()
    return Message(method, seen.targets[0], seen.fields[0], seen.bodies[0], rest)


def body_for(head: RequestHead) -> tuple[bytes, bytes]:
    """A body that this head frames, and its payload."""
    if head.chunked:
        return chunk(PAYLOAD[:7]) + chunk(PAYLOAD[7:]) + b"0\r\n\r\n", PAYLOAD
    length = min(head.length or 0, HUGE)
    payload = (PAYLOAD * (length // len(PAYLOAD) + 1))[:length]
    return payload, payload


def agreed(data: bytes, head: RequestHead, *, must_read: bool) -> None:
    """Both readers find in these bytes what we found. To httptools all upgrades are ones that it may make."""
    framed, payload = body_for(head)
    whole = (head.length or 0) <= HUGE
    wire = data + b"\r\n" + framed + (SECOND if whole else b"")
    found = by_h11(wire)
    if found.target != head.target:
        assert found.target.lower() in (b"http://" + head.host.lower() + head.target.lower(), b"http://a")
    found = found._replace(fields=sorted(found.fields))
    assert (found.method, found.fields, found.body) == (
        head.method,
        sorted(plain(head.fields)),
        payload,
    )
    assert found.rest == (SECOND if whole else None)
    if b"upgrade" in head.index and b"upgrade" in head.named and head.upgrade is None:
        return
    other = by_llhttp(wire)
    if other is None:
        assert not must_read
        return
    assert (sorted(plain(other.fields)), other.body, other.target) == (found.fields, payload, found.target)
    assert other.rest == (SECOND if whole else None) or (other.rest == b"" and head.close)


@quick
@given(HEADS)
def test_a_head_that_we_accept_is_read_alike_by_others(data: bytes) -> None:
    try:
        head = read_request_head(data)
    except RemoteProtocolError:
        return
    agreed(data, head, must_read=False)


def forwarded(head: RequestHead) -> bytes:
    """The head as a relay sends it on: its own Host and framing, no field of the client's connection."""
    own = frozenset((b"host", b"content-length", b"expect"))
    fields = write_fields(head.fields, drop=HOP_BY_HOP | own, named=head.named)
    framing = b"transfer-encoding: chunked\r\n" if head.chunked else b""
    if head.length is not None:
        framing = b"content-length: %d\r\n" % head.length
    if head.upgrade is not None:
        framing += b"connection: upgrade\r\nupgrade: %b\r\n" % head.upgrade
    return head.method + b" " + head.target + b" HTTP/1.1\r\nhost: upstream\r\n" + fields + framing


@quick
@given(HEADS)
def test_what_goes_on_means_what_came(data: bytes) -> None:
    try:
        head = read_request_head(data)
    except RemoteProtocolError:
        return
    sent = forwarded(head)
    again = read_request_head(sent)
    agreed(sent, again, must_read=head.method in (b"GET", b"POST", b"PUT", b"HEAD") and head.target != b"*")
    assert (again.method, again.target, again.length, again.chunked) == (
        head.method,
        head.target,
        head.length,
        head.chunked,
    )
    assert (again.upgrade, again.expects, again.close) == (head.upgrade, False, False)
    dropped = {*HOP_BY_HOP, *head.named, b"host", b"content-length", b"expect"}
    kept = [field for field in head.fields if field[0] not in dropped]
    own = [b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade"]
    assert [field for field in again.fields if field[0] not in own] == kept


@pytest.mark.parametrize(
    "data",
    [
        block(b"content-length: 5", b"transfer-encoding: chunked"),
        block(b"transfer-encoding: gzip, chunked"),
        block(b"content-length: 5", b"content-length: 5"),
        block(b"x: 1", b" 2"),
        block(b"host: b"),
    ],
)
def test_where_a_lenient_reader_would_choose_we_refuse(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_request_head(data)


@quick
@given(FIELDS, CUTS, st.binary(max_size=20))
def test_an_upload_ends_where_h11_finds_its_end(fields: list[bytes], cuts: list[int], after: bytes) -> None:
    data = block(*fields, first=b"POST / HTTP/1.1")
    try:
        head = read_request_head(data)
    except RemoteProtocolError:
        return
    framed, payload = body_for(head)
    body, got, surplus = upload_body(chunked=head.chunked, length=head.length), b"", b""
    for piece in cut(framed + after, cuts):
        if body.done:
            surplus += piece
        else:
            got += b"".join(body.feed(piece))
            surplus = body.surplus
    assert (body.done, got, surplus) == (True, payload, after)
    found = by_h11(data + b"\r\n" + framed + after)
    assert (found.body, found.rest) == (payload, after)


@quick
@given(
    st.sampled_from(
        [b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 404", b"HTTP/1.1 204 No", b"HTTP/1.1 304 x\xe4"]
    ),
    FIELDS,
)
def test_an_answer_s_head_is_read_alike_by_h11(first: bytes, fields: list[bytes]) -> None:
    data = block(*fields, first=first, host=None)
    try:
        head = read_response_head(data)
    except RemoteProtocolError:
        return
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data + b"\r\n")
    found = connection.next_event()
    assert isinstance(found, h11.Response)
    assert (found.status_code, bytes(found.reason)) == (head.status, head.phrase)
    length = {b"content-length"}  # h11 makes one of two equal ones
    ours = [field for field in plain(head.fields) if field[0] not in length]
    assert [field for field in plain(found.headers) if field[0] not in length] == ours
    sent = b"5\r\nabcde\r\n0\r\n\r\n" if head.chunked else b"abcde"[: head.length]
    if sent:
        connection.receive_data(sent)
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += bytes(event.data)
    bodiless = head.status in (204, 304)
    assert body == (b"" if bodiless else b"abcde"[: head.length])
    assert isinstance(event, h11.EndOfMessage) == (bodiless or head.chunked or head.length is not None)
