"""An answer on its way from an upstream to a client.

Theory of operation. Bytes of the head are held until it is whole, read strictly, rebuilt and written with whatever
of the body came along. From then on each read costs: framing (llhttp for chunked bodies, a counter for others), one
write to the client, and then a look at what it carried. Framing comes before the write, so that a broken or
over-long body never goes on; the look comes after it. Nothing is armed: when the last byte came is all that a
time-out needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, cast

from unslow.core.timeline import Phase
from unslow.core.wire.http1 import (
    Body,
    ChunkedAnswer,
    ResponseHead,
    UntilClose,
    answer_body,
    stray_line_end,
)
from unslow.errors import RemoteProtocolError
from unslow.serve.gateway.headers import answer_head
from unslow.serve.gateway.known import AnswerHead
from unslow.serve.gateway.ledger import LedgerComment
from unslow.serve.gateway.observer import BATCH, LARGE_BYTES, Observer, observer_for
from unslow.serve.gateway.record import comment_of

if TYPE_CHECKING:
    from unslow.serve.gateway.exchange import Exchange
    from unslow.serve.gateway.upstream import UpstreamConnection

MAX_HEAD_BYTES = 64 << 10
MAX_SAMPLE_BYTES = 256 << 10
"""An answer that was not streamed is kept up to this size, to read what it says of itself (usage, timings)."""


class Answer:
    """The answer to one request as sent on one connection."""

    head: ResponseHead | None = None
    observer: Observer | None = None
    sample: list[bytes] | None = None
    first_byte_ns = _last_ns = _size_bytes = 0
    tunnel = reusable = _dechunk = _rewrites = _straight = False
    _held = b""
    _body: Body | None = None
    _ledger: LedgerComment | None = None

    def __init__(self, exchange: Exchange, connection: UpstreamConnection, write: Callable[[bytes], None]) -> None:
        self.exchange, self.connection, self._write = exchange, connection, write

    def received(self, data: bytes, now_ns: int) -> None:
        """Bytes from the upstream, and when they were read."""
        body = self._body
        if body is None:
            self._head_bytes(data, now_ns)
            return
        self._last_ns = now_ns
        try:
            pieces = body.feed(data)
        except RemoteProtocolError as error:
            self.exchange.answer_broken(str(error))
            return
        self._write(self._rewritten(body, pieces, now_ns) if self._rewrites or body.surplus else data)
        if self.observer is None:
            self._sample(pieces)
        elif self._ledger is None:
            self.observer.look(pieces, now_ns)
        if body.done:
            self._ended(body, now_ns)

    # -- the head

    def _head_bytes(self, data: bytes, now_ns: int) -> None:
        self._last_ns = now_ns
        self.first_byte_ns = self.first_byte_ns or now_ns
        if self.tunnel:
            self._write(data)
            return
        data = self._held + data
        self._held = b""
        while self.head is None:
            end = data.find(b"\r\n\r\n")
            if end < 0 or end > MAX_HEAD_BYTES:
                self._hold(data)
                return
            try:
                read = self.exchange.gateway.answer_heads.read(data[: end + 2])
            except RemoteProtocolError as error:
                self.exchange.answer_broken(str(error))
                return
            data = data[end + 4 :]
            if read.head.status >= 200 or read.head.status == 101:
                self.head = read.head
        self._started(read, data, now_ns)

    def _hold(self, data: bytes) -> None:
        if data[:7] != b"HTTP/1."[: len(data)]:
            self.exchange.answer_broken("sent something that is no HTTP answer")
        elif len(data) > MAX_HEAD_BYTES:
            self.exchange.answer_broken(f"sent a head of more than {MAX_HEAD_BYTES} bytes")
        elif stray_line_end(data):
            self.exchange.answer_broken("sent a head with a line that does not end in CRLF")
        else:
            self._held = data

    def _started(self, read: AnswerHead, rest: bytes, now_ns: int) -> None:
        """The head is whole: send it on, with the part of the body that came along."""
        exchange, head = self.exchange, read.head
        if head.status == 101:
            self._switch(read, rest)
            return
        body = self._body = answer_body(head, exchange.head.method)
        framing = self._framing(head, body)
        self._choose_look(head)
        out = answer_head(read, keyed=exchange.keyed, lines=exchange.answer_lines(now_ns) + framing)
        pieces: list[bytes] = []
        if rest:
            try:
                pieces = body.feed(rest)
            except RemoteProtocolError as error:
                self.exchange.answer_broken(str(error))
                return
        exchange.head_is_out = True
        if self._rewrites or body.surplus:
            rest = self._rewritten(body, pieces, now_ns)
        self._write(out + rest)
        if self.observer is None:
            self._sample(pieces)
        elif self._ledger is None:
            self.observer.look(pieces, now_ns)
            if isinstance(body, ChunkedAnswer) and not self._rewrites and not body.done:
                self._go_straight(body, self.observer)
        if body.done:
            self._ended(body, now_ns)

    def _go_straight(self, body: ChunkedAnswer, observer: Observer) -> None:
        """The same for a chunked stream that goes on as it is: as few steps a read as can be, since these are most."""
        parse, broken, write = body.parse, body.BROKEN, self._write
        observer.settled()
        body.pieces.clear()
        later = observer.later = cast("list[bytes | int]", body.pieces)
        stamp = later.append

        def received(data: bytes) -> None:
            stamp(perf_counter_ns())
            try:
                parse(data)
            except broken:
                self.exchange.answer_broken("its chunked body is broken")
                return
            write(data)
            if body.done or len(later) > BATCH or len(data) > LARGE_BYTES:
                now_ns = observer.settled().last_ns
                if body.done:
                    self._ended(body, now_ns)

        self._straight = True
        self.connection.stream(received)

    def _switch(self, read: AnswerHead, rest: bytes) -> None:
        """101: from here on bytes go both ways as they are (RFC 9110, section 7.8)."""
        exchange = self.exchange
        if exchange.head.upgrade is None:
            exchange.answer_broken("switched protocols without being asked to")
            return
        upgrade = read.head.index.get(b"upgrade") or exchange.head.upgrade
        framing = b"connection: upgrade\r\nupgrade: %b\r\n" % upgrade
        out = answer_head(read, keyed=exchange.keyed, lines=exchange.answer_lines(self._last_ns) + framing)
        self.tunnel = exchange.head_is_out = True
        self._write(out + rest)
        exchange.tunnel_open()

    def _framing(self, head: ResponseHead, body: Body) -> bytes:
        """Field lines that frame the body for this client (RFC 9112, section 6)."""
        exchange = self.exchange
        if isinstance(body, UntilClose):
            exchange.keep_client = False
        keep = exchange.may_keep_client()
        connection = b"" if keep else b"connection: close\r\n"
        if head.chunked:
            self._dechunk = self._rewrites = not exchange.head.minor
            return connection if self._dechunk else connection + b"transfer-encoding: chunked\r\n"
        return connection if head.length is None else connection + b"content-length: %d\r\n" % head.length

    # -- what it carries

    def _choose_look(self, head: ResponseHead) -> None:
        """Streams are observed, other bodies sampled; compressed ones are not looked into."""
        exchange = self.exchange
        if head.encoding not in (b"", b"identity") or self._body is None or self._body.done:
            return
        kept = exchange.gateway.settings.kept_chunks
        self.observer = observer_for(head.content_type, exchange.path, exchange.host, kept)
        if self.observer is None:
            small = head.length is None or head.length <= MAX_SAMPLE_BYTES
            self.sample = [] if small and b"json" in head.content_type else None
        elif exchange.wants_ledger and head.length is None and b"event-stream" in head.content_type:
            chunked = head.chunked and exchange.head.minor > 0
            comment = functools.partial(comment_of, exchange)
            self._ledger, self._rewrites = LedgerComment(self.observer, comment, chunked=chunked), True

    def _rewritten(self, body: Body, pieces: list[bytes], now_ns: int) -> bytes:
        if self._ledger is not None:
            return self._ledger.feed(pieces, now_ns, done=body.done)
        return b"".join(pieces)

    def _sample(self, pieces: list[bytes]) -> None:
        self._size_bytes += sum(map(len, pieces))
        if self.sample is not None:
            self.sample += pieces
            if self._size_bytes > MAX_SAMPLE_BYTES:
                self.sample = None

    # -- ends

    def _ended(self, body: Body, now_ns: int) -> None:
        self.reusable = self.head is not None and self.head.keep and not body.surplus
        if self._straight:
            self.connection.stream(None)
        self._answered(now_ns)

    def _answered(self, now_ns: int) -> None:
        if self.observer is not None:
            self.observer.close(now_ns)
        self.exchange.answered(now_ns)

    def upstream_lost(self, exc: Exception | None, now_ns: int) -> None:
        """The connection ended: the end of some bodies, the failure of all others."""
        whole = isinstance(self._body, UntilClose) and self.connection.ended_well  # RFC 9112, section 8
        if exc is None and (self.tunnel or whole):
            self._last_ns = now_ns
            if self._ledger is not None and self._body is not None:
                self._write(self._ledger.feed([], now_ns, done=True))
            self._answered(now_ns)
        else:
            self.exchange.answer_lost(now_ns)

    def upstream_choked(self, choked: bool) -> None:
        """The upstream does not take the request as fast as it comes."""
        self.exchange.upload_choked(choked)

    @property
    def size_bytes(self) -> int:
        """Bytes of the body so far, without its framing."""
        return self._size_bytes if self.observer is None else self.observer.settled().size_bytes

    @property
    def last_ns(self) -> int:
        """When the last byte came."""
        return self._last_ns if self.observer is None else max(self._last_ns, self.observer.settled().last_ns)

    @property
    def framed(self) -> bool:
        """Whether the client can tell a whole answer from a cut one by its framing."""
        head = self.head
        return head is not None and (head.length is not None or (head.chunked and not self._dechunk))

    @property
    def end_mark_seen(self) -> bool:
        """Whether the stream's own end mark (`[DONE]`) has come."""
        return self.observer is not None and self.observer.settled().done

    def phase(self) -> Phase:
        """Where it is now, in the record's words."""
        if self.head is None:
            return Phase.WAIT
        if self.observer is None:
            return Phase.DRAIN
        return Phase.WAIT if self.observer.settled().first_token_ns is None else Phase.DECODE

    def detach(self) -> None:
        """The client is gone, but the answer is complete enough: read on without it."""
        self._write = _nowhere
        if self._straight and isinstance(self._body, ChunkedAnswer) and self.observer is not None:
            self._go_straight(self._body, self.observer)


def _nowhere(_data: bytes) -> None:
    """Where the bytes of an answer go when its client has left."""
