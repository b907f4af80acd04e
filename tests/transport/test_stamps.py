"""Stamps are true: alone or merged, by the kernel or by our own clock, the interval covers the send."""

from __future__ import annotations

import socket
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.timed_server import Peer, serving

from unslow.measure.transport import Arrival
from unslow.measure.transport.arrival import Units
from unslow.measure.transport.clock import map_wall_clock, now_ns
from unslow.measure.transport.link import Link
from unslow.measure.transport.stamps import LINUX

kernel_only = pytest.mark.skipif(not LINUX, reason="kernel stamps are read on Linux only")
SLACK_NS = 5_000
"""A send's stamp is taken before the call; the kernel's own comes some microseconds after."""


def connected(port: int, *, kernel: bool) -> Link:
    return Link(socket.create_connection(("127.0.0.1", port)), map_wall_clock(), kernel_stamps=kernel)


def paced(sent: list[int], count: int = 6) -> object:
    def play(peer: Peer) -> None:
        peer.sock.recv(10)
        for n in range(count):
            time.sleep(0.005)
            sent.append(peer.send(b"%d" % n))
        peer.sock.recv(10)

    return play


@pytest.mark.parametrize("kernel", [pytest.param(True, marks=kernel_only), False])
def test_each_segment_is_stamped_when_it_was_sent(kernel: bool) -> None:
    sent: list[int] = []
    with serving(paced(sent)) as server:  # type: ignore[arg-type]
        link = connected(server.port, kernel=kernel)
        link.send(b"go", now_ns() + 10**9)
        arrivals: list[Arrival] = []
        while sum(len(a.data) for a in arrivals) < 6:
            arrivals += link.receive(now_ns() + 10**9)
        link.close()
    at = 0
    for arrival in arrivals:
        first, last = sent[at], sent[at + len(arrival.data) - 1]
        at += len(arrival.data)
        stamp = arrival.within()
        assert stamp.at_ns + stamp.error_ns + SLACK_NS >= last
        assert stamp.at_ns - stamp.error_ns <= first + 20_000_000  # the server may have been held up after its stamp


@kernel_only
def test_a_stalled_reader_gets_an_interval_that_covers_every_segment() -> None:
    sent: list[int] = []
    with serving(paced(sent)) as server:  # type: ignore[arg-type]
        link = connected(server.port, kernel=True)
        before = now_ns()
        link.send(b"go", now_ns() + 10**9)
        time.sleep(0.2)
        (arrival,) = link.receive(now_ns() + 10**9)
        link.close()
    assert arrival.data == b"012345"
    assert (arrival.whole, arrival.tail) == (False, True)
    within, end = arrival.within(), arrival.end()
    assert within.error_ns >= 10_000_000
    for at in sent:
        assert before <= at
        assert within.at_ns - within.error_ns <= at <= within.at_ns + within.error_ns
    assert sent[-1] - SLACK_NS <= end.at_ns
    assert end.error_ns < 1_000_000
    assert end.at_ns < now_ns() - 50_000_000  # the kernel's moment, not that of the late read


@kernel_only
def test_a_lone_segment_is_exact_even_when_read_late() -> None:
    sent: list[int] = []
    with serving(paced(sent, 1)) as server:  # type: ignore[arg-type]
        link = connected(server.port, kernel=True)
        link.send(b"go", now_ns() + 10**9)
        time.sleep(0.15)
        (arrival,) = link.receive(now_ns() + 10**9)
        link.close()
    assert arrival.whole
    assert arrival.within().error_ns < 1_000_000
    assert arrival.at_ns < now_ns() - 50_000_000


@kernel_only
def test_departure_is_the_kernels() -> None:
    with serving(paced([], 1)) as server:  # type: ignore[arg-type]
        link = connected(server.port, kernel=True)
        before = now_ns()
        link.send(b"go", now_ns() + 10**9)
        after = now_ns()
        time.sleep(0.02)
        sent = link.sent()
        link.close()
    assert before - SLACK_NS <= sent.at_ns <= after + SLACK_NS
    assert sent.error_ns > 0  # from the kernel: with the error of the mapping


def test_without_kernel_stamps_nothing_claims_to_be_exact() -> None:
    sent: list[int] = []
    with serving(paced(sent)) as server:  # type: ignore[arg-type]
        link = connected(server.port, kernel=False)
        link.send(b"go", now_ns() + 10**9)
        arrivals = link.receive(now_ns() + 10**9)
        assert arrivals[0].error_ns > 0
        assert link.user_stamped == 1
        link.close()


def test_time_is_up_and_end_of_input() -> None:
    with serving(lambda peer: time.sleep(0.1)) as server:
        link = connected(server.port, kernel=True)
        assert link.receive(now_ns() + 10_000_000) == []
        ended = [link.eof]
        assert link.receive(now_ns() + 10**9) == []
        assert [*ended, link.eof] == [False, True]
        link.close()


def length(header: bytes) -> int:
    return header[0]


@given(st.lists(st.binary(max_size=9)), st.data())
@settings(deadline=None)
def test_units_are_the_same_for_any_split(bodies: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(bytes([len(b)]) + b for b in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
    units, out, clock = Units(1, length, 100), [], 0
    for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        clock += 10
        for unit in units.split(Arrival(wire[a:b], clock - 9, clock, 1, whole=False, tail=True)):
            out.append(unit.data[1:])
            exact = unit.tail
            assert unit.whole == exact
            assert not exact or unit.within() == (clock, 1)
    assert out == bodies


def test_a_unit_that_ends_its_read_is_exact_and_one_before_it_is_not() -> None:
    first, last = Units(1, length, 100).split(Arrival(b"\x01a\x01b", 0, 100, 1, whole=False, tail=True))
    assert (first.whole, last.whole) == (False, True)
    assert (first.within().at_ns, first.within().error_ns) == (50, 51)
    assert last.within() == (100, 1)


def test_endless_units_are_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        Units(1, length, 10).split(Arrival(b"\xff", 0, 0, 0, whole=True, tail=True))
