"""Names and addresses: every attempt recorded, the first that works wins."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dns_server import Said, naming
from tests.support.timed_server import Peer, closed_port, serving

from unslow.core.timeline import Hop, Phase
from unslow.errors import UpstreamError
from unslow.measure.transport import Deadline, Request, Session, TimedOut, Trail, TransportSettings
from unslow.measure.transport.dial import dial
from unslow.measure.transport.resolve import (
    Config,
    from_hosts,
    interleaved,
    literal,
    names_to_try,
    resolve,
    system_config,
)

HAS_IPV6 = (
    socket.has_ipv6 and Path("/proc/net/if_inet6").exists() and "00000001 01" in Path("/proc/net/if_inet6").read_text()
)


def ok(peer: Peer) -> None:
    while peer.request()[0]:
        peer.answer(b"ok")


def ask(url: str, **options: object) -> Trail:
    session, trail = Session(TransportSettings(**options)), Trail()  # type: ignore[arg-type]
    request = Request(url=url)
    session.prepare(request)
    try:
        answer = session.ask(request, trail)
        while answer.body(trail.until_ns):
            pass
        session.finish(trail)
    finally:
        session.close()
    return trail


def test_name_is_asked_in_both_families_and_the_one_used_won() -> None:
    with serving(ok) as server, naming(Said(("127.0.0.1",), 0.03), Said((), 0.01)) as names:
        trail = ask(f"http://unslow.test:{server.port}/", nameservers=(names.address,))
        spans = [s for s in trail.spans() if s.phase is Phase.DNS]
        assert sorted(kind for _, kind in names.asked) == ["A", "AAAA"]
    assert [(s.hop, s.won) for s in spans] == [(Hop.RESOLVER, True), (Hop.RESOLVER, False)]
    assert spans[0].duration_ns >= 30_000_000
    assert spans[1].duration_ns >= 10_000_000
    assert trail.facts["addresses"] == ("127.0.0.1",)


def test_silent_aaaa_costs_the_resolution_delay_and_no_more() -> None:
    with serving(ok) as server, naming(Said(("127.0.0.1",)), Said(silent=True)) as names:
        started = time.perf_counter()
        ask(f"http://unslow.test:{server.port}/", nameservers=(names.address,))
        assert time.perf_counter() - started >= 0.045
        assert [kind for _, kind in names.asked].count("AAAA") == 1  # not waited for until the next try


def test_second_name_server_is_asked_when_the_first_cannot_tell() -> None:
    with naming(Said(rcode="SERVFAIL"), Said(rcode="SERVFAIL")) as bad, naming(Said(("127.0.0.1",))) as good:
        trail = Trail()
        found = resolve("unslow.test", (bad.address, good.address), trail, Deadline(Phase.DNS, 5, trail))
        assert found.addresses == ("127.0.0.1",)


def test_cut_answer_is_asked_for_again_over_tcp() -> None:
    with naming(Said(("127.0.0.1",), cut=True)) as names:
        trail = Trail()
        found = resolve("unslow.test", (names.address,), trail, Deadline(Phase.DNS, 5, trail))
        assert found.addresses == ("127.0.0.1",)
        assert ("unslow.test.", "A over TCP") in names.asked


def test_search_list_and_ndots(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(
        "# x\nnameserver 10.0.0.1\nnameserver bad\nnameserver ::1\nsearch a.test. b.test\noptions edns0 ndots:2\n"
    )
    config = system_config(file)
    assert config == Config([("10.0.0.1", 53), ("::1", 53)], ["a.test", "b.test"], 2)
    assert names_to_try("h", config) == ["h.a.test.", "h.b.test.", "h."]
    assert names_to_try("x.y.z", config) == ["x.y.z.", "x.y.z.a.test.", "x.y.z.b.test."]
    assert names_to_try("h.", config) == ["h."]
    assert system_config(tmp_path / "none") == Config([], [], 1)


def test_no_name_server_answers() -> None:
    with naming(Said(silent=True), Said(silent=True)) as names, pytest.raises(TimedOut) as caught:
        ask("http://unslow.test/", nameservers=(names.address,), dns_timeout_s=0.1)
    assert caught.value.kind == "dns_timeout"
    assert "unslow.test" in str(caught.value)


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED"])
def test_name_servers_that_refuse_are_believed_the_second_time(rcode: str) -> None:
    with naming(Said(rcode=rcode), Said(rcode=rcode)) as names, pytest.raises(UpstreamError) as caught:
        ask("http://unslow.invalid/", nameservers=(names.address,), dns_timeout_s=10.0)
    assert getattr(caught.value, "kind", "") == "name_unknown"
    assert len(names.asked) == 4


@pytest.mark.parametrize("server", ["127.0.0.1:1", "255.255.255.255"])
def test_no_name_server_at_all(server: str) -> None:
    """Nobody listens there; and a broadcast, which the kernel does not let us send."""
    started = time.perf_counter()
    with pytest.raises(UpstreamError) as caught:
        ask("http://unslow.invalid/", nameservers=(server,), dns_timeout_s=10.0)
    assert time.perf_counter() - started < 5
    assert getattr(caught.value, "kind", "") == "name_unknown"


def test_unknown_name() -> None:
    unknown = Said(rcode="NXDOMAIN")
    with naming(unknown, unknown) as names, pytest.raises(UpstreamError) as caught:
        ask("http://unslow.invalid/", nameservers=(names.address,))
    assert getattr(caught.value, "kind", "") == "name_unknown"
    assert caught.value.phase == Phase.DNS


def test_literals_and_hosts_have_no_dns_span() -> None:
    with serving(ok) as server:
        for host in ("127.0.0.1", "localhost"):
            spans = ask(f"http://{host}:{server.port}/", nameservers=("127.0.0.1:1",)).spans()
            assert not [s for s in spans if s.phase is Phase.DNS]


def test_hosts_file_is_respected(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# c\n10.0.0.1 a b # d\n::2 A\nnonsense a\n10.0.0.3\n")
    assert from_hosts("a", file) == ["10.0.0.1", "::2"]
    assert from_hosts("B.", file) == ["10.0.0.1"]
    assert from_hosts("c", file) == []
    assert from_hosts("a", tmp_path / "none") == []


@given(st.lists(st.sampled_from(["::1", "::2", "::3", "1.1.1.1", "2.2.2.2", "3.3.3.3"])))
@settings(deadline=None)
def test_families_take_turns_and_none_is_lost(addresses: list[str]) -> None:
    mixed = interleaved(addresses)
    assert sorted(mixed) == sorted(set(addresses))
    six = sum(":" in a for a in mixed)
    turns = min(six, len(mixed) - six)
    assert all((":" in a) == (n % 2 == 0) for n, a in enumerate(mixed[: 2 * turns]))


@pytest.mark.parametrize(
    ("host", "is_one"), [("127.0.0.1", True), ("::1", True), ("[::1]", True), ("a.b", False), ("1", False)]
)
def test_literals(host: str, is_one: bool) -> None:
    assert literal(host) is is_one


@pytest.mark.skipif(not HAS_IPV6, reason="no IPv6 loopback on this machine")
def test_refused_ipv6_falls_back_to_ipv4_at_once() -> None:
    with serving(ok) as server, naming(Said(("127.0.0.1",)), Said(("::1",))) as names:
        trail = ask(f"http://unslow.test:{server.port}/", nameservers=(names.address,))
    connects = [s for s in trail.spans() if s.phase is Phase.CONNECT]
    assert [s.won for s in connects] == [False, True]
    assert len({s.attempt for s in connects}) == 2
    assert connects[1].end_ns - connects[0].start_ns < 200_000_000  # no wait for the 250 ms of the next attempt
    assert any("[::1]" in note and "refused" in note for note in trail.notes)


def test_black_hole_is_overtaken_after_the_stagger() -> None:
    """A listener whose queue is full drops SYNs: the next address is tried after 250 ms and wins."""
    with socket.socket() as full, serving(ok) as server:
        full.bind(("127.0.0.2", server.port))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.2", server.port))
        time.sleep(0.05)
        trail = Trail()
        link = dial(
            ("127.0.0.2", "127.0.0.1"), server.port, trail, Deadline(Phase.CONNECT, 5, trail), kernel_stamps=True
        )
        link.close()
        for filler in fillers:
            filler.close()
    first, second = sorted((s for s in trail.spans() if s.phase is Phase.CONNECT), key=lambda s: s.start_ns)
    assert (first.won, second.won) == (False, True)
    assert second.start_ns - first.start_ns >= 240_000_000
    assert first.end_ns == second.end_ns


def test_all_addresses_refuse() -> None:
    port, trail = closed_port(), Trail()
    with pytest.raises(UpstreamError) as caught:
        dial(("127.0.0.1", "127.0.0.2"), port, trail, Deadline(Phase.CONNECT, 5, trail), kernel_stamps=True)
    assert f"127.0.0.1:{port}, 127.0.0.2:{port}" in str(caught.value)
    assert [s.won for s in trail.spans()] == [False, True]  # the last one's failure is the result
