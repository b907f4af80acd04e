"""Kernel stamps of a socket (Linux SO_TIMESTAMPING, Documentation/networking/timestamping.rst) and TCP_INFO.

Theory of operation. The kernel stamps each TCP segment as it comes in, before any process runs, and each send as it
leaves for the device. A read gives one stamp: that of the last segment it took. `TCP_INFO` counts data segments, so
a read knows whether its bytes came as one segment (then the stamp is that of every byte) or as several.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

from unslow.core.timeline import TcpInfo

LINUX = sys.platform == "linux"
SO_TIMESTAMPING = 37
SCM_TIMESTAMPING = SO_TIMESTAMPING
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE = 1 << 1, 1 << 3, 1 << 4
_OPT_ID, _OPT_TSONLY, _OPT_ID_TCP = 1 << 7, 1 << 11, 1 << 16
RX_FLAGS = _RX_SOFTWARE | _SOFTWARE
TX_FLAGS = RX_FLAGS | _TX_SOFTWARE | _OPT_ID | _OPT_TSONLY | _OPT_ID_TCP
ANCILLARY_BYTES = 512
_MSG_ERRQUEUE = getattr(socket, "MSG_ERRQUEUE", 0x2000)
_ORIGIN_TIMESTAMPING = 4
_TSTAMP_SND = 0
_TCP_INFO_BYTES = 256

Ancillary = Iterable[tuple[int, int, bytes]]


class Segments(NamedTuple):
    """The kernel's counts of a connection so far: data segments in, bytes in, segments out of order."""

    segments: int
    size_bytes: int
    disordered: int


class Departure(NamedTuple):
    """The send that ended with byte number `last_byte` left at `wall_ns`."""

    last_byte: int
    wall_ns: int


def enable_rx(sock: socket.socket) -> bool:
    """Ask for arrival stamps; False where the platform has none."""
    return _enable(sock, RX_FLAGS)


def enable_tx(sock: socket.socket) -> bool:
    """Ask for departure stamps too; the socket must be connected. Bytes are numbered from here on."""
    return _enable(sock, TX_FLAGS) or _enable(sock, TX_FLAGS & ~_OPT_ID_TCP)


def _enable(sock: socket.socket, flags: int) -> bool:
    if not LINUX:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
    except OSError:
        return False
    return True


def stamp_in(ancillary: Ancillary) -> int | None:
    """The software stamp among a read's ancillary data, in wall-clock nanoseconds."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SCM_TIMESTAMPING and len(data) >= 16:
            seconds, nanoseconds = struct.unpack_from("qq", data)
            if seconds:
                return int(seconds * 1_000_000_000 + nanoseconds)
    return None


def departures(sock: socket.socket) -> list[Departure]:
    """Take what stands in the socket's error queue."""
    found: list[Departure] = []
    while LINUX:
        try:
            _, ancillary, _, _ = sock.recvmsg(0, ANCILLARY_BYTES, _MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            break
        wall_ns = stamp_in(ancillary)
        for _, kind, data in ancillary:
            if kind == SCM_TIMESTAMPING or len(data) < 16:
                continue
            _, origin, _, _, _, info, number = struct.unpack_from("IBBBBII", data)
            if wall_ns is not None and origin == _ORIGIN_TIMESTAMPING and info == _TSTAMP_SND:
                found.append(Departure(number, wall_ns))
    return found


def segments(sock: socket.socket) -> Segments | None:
    """Counts of a TCP connection (struct tcp_info of Linux ≥ 5.4); None where there are none."""
    info = _tcp_info(sock)
    if info is None or len(info) < 228:
        return None
    size_bytes = struct.unpack_from("Q", info, 128)[0]
    return Segments(_u32(info, 152), int(size_bytes), _u32(info, 224))


def tcp_facts(sock: socket.socket) -> TcpInfo | None:
    """The kernel's view of the connection, for the record."""
    info = _tcp_info(sock)
    if info is None or len(info) < 152:
        return None
    smallest = _u32(info, 148)
    return TcpInfo(
        rtt_ns=_u32(info, 68) * 1000,
        rttvar_ns=_u32(info, 72) * 1000,
        min_rtt_ns=smallest * 1000 if smallest not in (0, 0xFFFFFFFF) else None,
        retransmits=_u32(info, 100),
        cwnd_segments=_u32(info, 80),
        mss_bytes=_u32(info, 16),
    )


def _u32(info: bytes, offset: int) -> int:
    return int(struct.unpack_from("I", info, offset)[0])


def _tcp_info(sock: socket.socket) -> bytes | None:
    if not LINUX:
        return None
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
