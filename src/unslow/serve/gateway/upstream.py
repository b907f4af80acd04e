"""One connection to an upstream: it carries one exchange at a time, and is pooled between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from unslow.serve.gateway.pool import Pool


class Carried(Protocol):
    """What a connection carries: it gets the bytes of its answer."""

    def received(self, data: bytes, now_ns: int) -> None:
        """Bytes came."""
        ...

    def upstream_lost(self, exc: Exception | None, now_ns: int) -> None:
        """The connection ended; `exc` is None for an orderly end."""
        ...

    def upstream_choked(self, choked: bool) -> None:
        """Whether what is sent piles up in our buffer."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """A socket and what it carries (None: idle)."""

    __slots__ = ("carried", "ended_well", "idle_since_ns", "pool", "reading", "served", "transport")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.carried: Carried | None = None
        self.idle_since_ns = 0
        self.reading = True
        self.ended_well = False
        """Whether the upstream said that it was done: TLS that ends without its alert may have been cut by anybody."""
        self.served = 0
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, and through TLS where there is any."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.pool.write_buffer_bytes)
        self.pool.open += 1

    def data_received(self, data: bytes) -> None:
        """Hand on; bytes on an idle connection belong to nothing, so it is never used again."""
        carried = self.carried
        if carried is None:
            self.transport.abort()
            return
        carried.received(data, perf_counter_ns())

    def eof_received(self) -> None:
        """The upstream is done; the connection ends."""
        self.ended_well = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell what it carried, or leave the pool."""
        self.pool.open -= 1
        carried, self.carried = self.carried, None
        if carried is None:
            self.pool.forget(self)
        else:
            carried.upstream_lost(exc, perf_counter_ns())

    def pause_writing(self) -> None:
        """The upstream reads slowly."""
        if self.carried is not None:
            self.carried.upstream_choked(True)

    def resume_writing(self) -> None:
        """It caught up."""
        if self.carried is not None:
            self.carried.upstream_choked(False)

    def stream(self, received: Callable[[bytes], None] | None) -> None:
        """Have what comes from now on handed to `received` at once; None: as before."""
        taker = self if received is None else cast(UpstreamConnection, _Straight(self, received))
        self.transport.set_protocol(taker)

    def read(self, wanted: bool) -> None:
        """Read from it or leave the bytes in the kernel."""
        if wanted != self.reading and not self.transport.is_closing():
            self.reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def drop(self) -> None:
        """Cut it: the upstream sees that nobody listens and stops working."""
        self.carried = None
        self.transport.abort()


class _Straight:
    """Stands in for a connection while a stream comes through it: a read then costs one frame of Python, not two."""

    __slots__ = ("connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing")

    def __init__(self, connection: UpstreamConnection, received: Callable[[bytes], None]) -> None:
        self.data_received = received
        self.connection_lost, self.eof_received = connection.connection_lost, connection.eof_received
        self.pause_writing, self.resume_writing = connection.pause_writing, connection.resume_writing
