"""Bytes that came in, and when: what every layer from the socket up to the probe hands on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Stamp(NamedTuple):
    """A moment: the truth lies in `at_ns` ± `error_ns` (raw monotonic nanoseconds)."""

    at_ns: int
    error_ns: int


class Arrival(NamedTuple):
    """Bytes of one read. The last one came at `at_ns` ± `error_ns`, none before `lower_ns`.

    `whole`: all came together, so `at_ns` holds for every byte. `tail`: the last byte of `data` is the one stamped
    (False: something else followed it in the same read).
    """

    data: bytes
    lower_ns: int
    at_ns: int
    error_ns: int
    whole: bool
    tail: bool

    def end(self) -> Stamp:
        """When the last byte came."""
        return Stamp(self.at_ns, self.error_ns) if self.whole or self.tail else self.within()

    def within(self) -> Stamp:
        """When a byte inside came: exactly where all came together, else the middle of the interval."""
        if self.whole:
            return Stamp(self.at_ns, self.error_ns)
        lower, upper = min(self.lower_ns, self.at_ns) - self.error_ns, self.at_ns + self.error_ns
        half = (upper - lower + 1) // 2
        return Stamp(lower + half, half)


class Channel(Protocol):
    """A two-way byte stream with stamps: a plain socket or TLS over one."""

    @property
    def eof(self) -> bool:
        """Whether the other side has closed its direction and all was read."""
        ...

    def send(self, data: bytes, until_ns: int) -> bool:
        """Send all; False when the time is up before."""
        ...

    def receive(self, until_ns: int) -> list[Arrival]:
        """Wait for bytes. Empty at `eof` and when the time is up."""
        ...


class Units:
    """Cuts a byte stream into units that start with a header telling their length (TLS records, HTTP/2 frames)."""

    def __init__(self, header_bytes: int, length: Callable[[bytes], int], limit_bytes: int) -> None:
        self._header_bytes, self._length, self._limit = header_bytes, length, limit_bytes
        self._held = b""

    def split(self, arrival: Arrival) -> list[Arrival]:
        """The units that this read completes. A unit counts as one thing: it is there when its last byte is.

        Raises ValueError for a unit longer than the limit.
        """
        data = self._held + arrival.data
        start, cuts = 0, []
        while len(data) - start >= self._header_bytes:
            size = self._header_bytes + self._length(data[start : start + self._header_bytes])
            if size > self._limit:
                raise ValueError(f"a unit of {size} bytes")
            if len(data) - start < size:
                break
            cuts.append((start, start + size))
            start += size
        self._held = data[start:]
        return [self._unit(arrival, data[a:b], last=b == len(data)) for a, b in cuts]

    @staticmethod
    def _unit(arrival: Arrival, data: bytes, *, last: bool) -> Arrival:
        exact = arrival.whole or (last and arrival.tail)
        return arrival._replace(data=data, whole=exact, tail=exact)
