"""A TCP connection of our own whose bytes carry stamps that our own lag cannot spoil.

Theory of operation. `receive` polls in ticks of a millisecond. A tick that ends without data proves that the queue
was empty then, so whatever a later read brings came after it: `lower_ns`. The read's stamp is the kernel's for the
last segment; `TCP_INFO` tells whether it was the only one. If the process is held up, segments pile up and merge:
then the last one keeps its exact stamp and the others are known to lie between `lower_ns` and it, an interval as
wide as the stall. Without kernel stamps the read's stamp is the middle between `lower_ns` and our own clock.
"""

from __future__ import annotations

import select
import socket

from unslow.core.timeline import TcpInfo
from unslow.measure.transport import stamps
from unslow.measure.transport.arrival import Arrival, Stamp
from unslow.measure.transport.clock import Mapping, now_ns

READ_BYTES = 1 << 18
_TICK_MS = 1
_TICK_NS = 1_000_000
_NS_PER_MS = 1_000_000
_RACE_NS = 20_000
"""A segment may be stamped on another CPU just before a read begins and be queued just after it."""


class Link:
    """A connected, non-blocking socket. `wall` maps the kernel's stamps onto the monotonic axis."""

    def __init__(self, sock: socket.socket, wall: Mapping, *, kernel_stamps: bool) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._wall = sock, wall
        self.kernel_stamps = kernel_stamps and stamps.enable_tx(sock)
        self._in = select.poll()
        self._in.register(sock, select.POLLIN)
        self._out = select.poll()
        self._out.register(sock, select.POLLOUT)
        self._lower_ns = now_ns()
        self._read_bytes, self._sent_bytes = 0, 0
        self._seen = (stamps.segments(sock) if kernel_stamps else None) or stamps.Segments(0, 0, 0)
        self._departed: dict[int, int] = {}
        self._user_sent_ns = self._lower_ns
        self.send_start_ns: int | None = None
        self._eof = False
        self.user_stamped = 0
        self.merged = 0

    @property
    def eof(self) -> bool:
        """Whether the other side has closed."""
        return self._eof

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    def begin_exchange(self, wall: Mapping) -> None:
        """Start a request: its own mapping of the kernel's clock, its own counts."""
        self._wall = wall
        self.user_stamped = self.merged = 0

    def send(self, data: bytes, until_ns: int) -> bool:
        """Send all; False when the time is up before. Raises OSError."""
        self.send_start_ns = self.send_start_ns or now_ns()
        view = memoryview(data)
        while view:
            try:
                sent = self._sock.send(view)
            except BlockingIOError:
                if not self._wait(self._out, until_ns):
                    return False
                self._drain_errors()
                continue
            self._sent_bytes += sent
            view = view[sent:]
        self._user_sent_ns = now_ns()
        return True

    def begin_send(self) -> None:
        """From here on `send_start_ns` is when the next first byte was handed over."""
        self.send_start_ns = None

    def sent(self) -> Stamp:
        """When the last byte given to `send` left: the kernel's stamp, or ours with what it can be late by."""
        self._drain_errors()
        wall_ns = self._departed.get((self._sent_bytes - 1) & 0xFFFFFFFF)
        if wall_ns is None:
            return Stamp(self._user_sent_ns, 0)
        at = wall_ns + self._wall.offset_ns
        return Stamp(at, self._wall.error_ns)

    def receive(self, until_ns: int) -> list[Arrival]:
        """Wait for bytes; see the module. Raises OSError."""
        while not self._eof:
            started = now_ns()
            try:
                data, ancillary, _, _ = self._sock.recvmsg(READ_BYTES, stamps.ANCILLARY_BYTES)
            except BlockingIOError:
                self._lower_ns = started
                if started >= until_ns:
                    return []
                self._tick()
                continue
            if not data:
                self._eof = True
                break
            return [self._stamped(data, ancillary, started)]
        return []

    def tcp(self) -> TcpInfo | None:
        """The kernel's view of the connection."""
        return stamps.tcp_facts(self._sock)

    def addresses(self) -> tuple[str, str]:
        """Local and remote address, each `ip:port`."""
        return shown(self._sock.getsockname()), shown(self._sock.getpeername())

    def close(self) -> None:
        """Close; a second time does nothing."""
        self._sock.close()

    def _stamped(self, data: bytes, ancillary: stamps.Ancillary, started: int) -> Arrival:
        read_at = now_ns()
        self._read_bytes += len(data)
        lower, drained = self._lower_ns, len(data) < READ_BYTES
        whole, ordered = self._lone_segment()
        wall_ns = stamps.stamp_in(ancillary) if self.kernel_stamps else None
        if wall_ns is None or not ordered:
            self.user_stamped += 1
            at, error = (lower + read_at) // 2, (read_at - lower) // 2 + 1
            arrival = Arrival(data, lower, at, error, whole=True, tail=True)
        else:
            at = min(max(wall_ns + self._wall.offset_ns, lower), read_at)
            arrival = Arrival(data, lower, at, self._wall.error_ns, whole=whole and drained, tail=drained)
        if not arrival.whole:
            self.merged += 1
        if drained:
            self._lower_ns = max(lower, started - _RACE_NS)
        return arrival

    def _lone_segment(self) -> tuple[bool, bool]:
        """Whether the bytes just read came as one segment, and whether none was out of order.

        Another segment may come between the read and the count: then the kernel has more bytes than we read, and
        what we know is that at least one of the new segments is still in the queue.
        """
        now = stamps.segments(self._sock) if self.kernel_stamps else None
        if now is None:
            return False, True
        new = now.segments - self._seen.segments
        ordered = now.disordered == self._seen.disordered
        behind = now.size_bytes - self._read_bytes
        drained = behind <= 1  # a FIN counts as a byte
        count = now.segments if drained else self._seen.segments + 1
        self._seen = stamps.Segments(count, now.size_bytes, now.disordered)
        return new - (0 if drained else 1) <= 1, ordered

    def _tick(self) -> None:
        """Wait a tick for data; one that ends without any proves that the queue was empty at its end."""
        began = now_ns()
        ready = self._in.poll(_TICK_MS)
        if not ready:
            self._lower_ns = began + _TICK_NS
        elif ready[0][1] & select.POLLERR:
            self._drain_errors()

    def _wait(self, poll: select.poll, until_ns: int) -> bool:
        left_ms = (until_ns - now_ns()) / _NS_PER_MS
        return left_ms > 0 and bool(poll.poll(max(1, int(left_ms))))

    def _drain_errors(self) -> None:
        if self.kernel_stamps:
            for departure in stamps.departures(self._sock):
                self._departed.setdefault(departure.last_byte, departure.wall_ns)


def shown(address: object) -> str:
    """A socket address as people write it."""
    if not isinstance(address, tuple):
        return str(address)
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
