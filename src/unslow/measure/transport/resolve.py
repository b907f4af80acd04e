"""The name step, on sockets of our own: A and AAAA asked side by side, each a recorded attempt.

Theory of operation. A literal address needs no step; a name in the hosts file costs none worth a span. Otherwise
both questions go to the system's name server at once over UDP (again over TCP when cut, RFC 1035 4.2.2), names tried
in the order of the search list and `ndots` (resolv.conf(5)). Once one family has answered, the other has 50 ms more
(the Resolution Delay of RFC 8305 3). A name that DNS does not know is put to the platform's resolver last, which may
have other sources (mDNS, NIS).
"""

from __future__ import annotations

import ipaddress
import select
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from unslow.core.timeline import Phase
from unslow.measure.transport import stamps
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.failures import DialFailed
from unslow.measure.transport.trail import Deadline, Trail

if TYPE_CHECKING:
    import dns.message

Family = Literal["A", "AAAA"]
_RESOLUTION_DELAY_NS = 50_000_000
_RETRY_NS = 2_000_000_000
_ROUNDS = 2
"""How often all name servers may refuse before we believe them (glibc's `attempts`)."""

_RESOLV_CONF = Path("/etc/resolv.conf")
_HOSTS = Path("/etc/hosts")


class Question(NamedTuple):
    """One question and its time (raw monotonic)."""

    family: Family
    start_ns: int
    end_ns: int
    addresses: tuple[str, ...]


class Resolution(NamedTuple):
    """Addresses in the order to try, who told, and the questions asked (none for literals and hosts)."""

    addresses: tuple[str, ...]
    resolver: str | None
    questions: tuple[Question, ...] = ()


def resolve(host: str, nameservers: tuple[str, ...], trail: Trail, deadline: Deadline) -> Resolution:
    """Find the addresses of a host. Raises DialFailed and TimedOut."""
    if literal(host):
        return Resolution((host.strip("[]"),), None)
    if found := from_hosts(host):
        return Resolution(interleaved(found), "hosts file")
    if f".{host.rstrip('.').lower()}".endswith(".localhost"):
        return Resolution(("::1", "127.0.0.1"), "RFC 6761")
    asked: list[Question] = []
    config = _config(nameservers)
    for name in names_to_try(host, config) if config.servers else ():
        pair = _ask(name, config, trail, deadline)
        asked += pair
        if any(q.addresses for q in pair):
            addresses = [a for q in sorted(pair, key=lambda q: q.family, reverse=True) for a in q.addresses]
            return Resolution(interleaved(addresses), config.servers[0][0], tuple(asked))
    return _by_platform(host, asked)


def warm_up(host: str) -> None:
    """Load what asking for this name takes, so that it costs no measured time."""
    if not (literal(host) or from_hosts(host)):
        import dns.exception
        import dns.message
        import dns.rcode
        import dns.rdatatype
        import dns.rdtypes.IN.A
        import dns.rdtypes.IN.AAAA  # noqa: F401


def literal(host: str) -> bool:
    """Whether the host is an address already."""
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def from_hosts(host: str, file: Path = _HOSTS) -> list[str]:
    """Addresses that the hosts file gives a name (hosts(5))."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    wanted = host.rstrip(".").lower()
    rows = (line.partition("#")[0].split() for line in lines)
    return [row[0] for row in rows if len(row) > 1 and wanted in (n.lower() for n in row[1:]) and literal(row[0])]


def interleaved(addresses: Iterable[str]) -> tuple[str, ...]:
    """Families in turn, IPv6 first (RFC 8305 4); doubles dropped."""
    unique = list(dict.fromkeys(addresses))
    six, four = [a for a in unique if ":" in a], [a for a in unique if ":" not in a]
    mixed: list[str] = []
    while six or four:
        mixed += [family.pop(0) for family in (six, four) if family]
    return tuple(mixed)


class Config(NamedTuple):
    """Where and how to ask (resolv.conf(5))."""

    servers: list[tuple[str, int]]
    search: list[str]
    ndots: int


def system_config(file: Path = _RESOLV_CONF) -> Config:
    """The system's name servers; none where the file is missing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Config([], [], 1)
    servers, search, ndots = [], list[str](), 1
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver" and rest and literal(rest[0]):
            servers.append((rest[0], 53))
        elif word in ("search", "domain"):
            search = [name.rstrip(".") for name in rest if name.strip(".")]
        elif word == "options":
            wanted = [o[6:] for o in rest if o.startswith("ndots:") and o[6:].isdigit()]
            ndots = min(15, int(wanted[-1])) if wanted else ndots
    return Config(servers, search, ndots)


def _config(nameservers: tuple[str, ...]) -> Config:
    return Config([_server(text) for text in nameservers], [], 1) if nameservers else system_config()


def _server(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon and ":" not in host and port.isdigit() else (text, 53)


def names_to_try(host: str, config: Config) -> list[str]:
    """Full names to try, in order (resolv.conf(5): search, ndots)."""
    if host.endswith("."):
        return [host]
    searched = [f"{host}.{suffix}." for suffix in config.search]
    return [host + ".", *searched] if host.count(".") >= config.ndots else [*searched, host + "."]


class _Pending:
    """One question on its way: the socket it was asked on and what was asked."""

    def __init__(self, name: str, family: Family) -> None:
        import dns.message

        self.family: Family = family
        self.query: dns.message.QueryMessage = dns.message.make_query(name, family)
        self.start_ns = now_ns()
        self.sock: socket.socket | None = None
        self.server: tuple[str, int] = ("", 53)
        self.done: Question | None = None

    def ask(self, server: tuple[str, int]) -> None:
        """Send the question (again) to a server, from a fresh port."""
        self.close()
        self.server = server
        family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        stamps.enable_rx(self.sock)
        try:
            self.sock.connect(server)
            self.sock.send(self.query.to_wire())
        except OSError:
            self.close()

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def finish(self, addresses: tuple[str, ...], end_ns: int) -> None:
        self.close()
        self.done = Question(self.family, self.start_ns, max(end_ns, self.start_ns), addresses)


def _ask(name: str, config: Config, trail: Trail, deadline: Deadline) -> list[Question]:
    """Ask for both families; raises TimedOut when no server says anything."""
    try:
        pair = [_Pending(name, "A"), _Pending(name, "AAAA")]
    except (ValueError, dns_error()) as error:
        why = f"{name.rstrip('.')!r} is no host name: check the URL"
        raise DialFailed(why, phase=Phase.DNS, kind="name_invalid") from error
    try:
        _converse(pair, config.servers, trail, deadline)
    finally:
        for pending in pair:
            pending.close()
    return [p.done or Question(p.family, p.start_ns, now_ns(), ()) for p in pair]


def dns_error() -> type[Exception]:
    """What dnspython raises for a name that cannot be asked."""
    import dns.exception

    return dns.exception.DNSException


def _converse(pair: list[_Pending], servers: list[tuple[str, int]], trail: Trail, deadline: Deadline) -> None:
    tries = 0
    retry_at = 0
    grace_ns = deadline.until_ns
    while waiting := [p for p in pair if p.done is None]:
        now = now_ns()
        if now >= grace_ns and any(p.done and p.done.addresses for p in pair):
            return
        deadline.check()
        if now >= retry_at:
            for pending in waiting:
                pending.ask(servers[tries % len(servers)])
            tries, retry_at = tries + 1, now + _RETRY_NS
        _listen(waiting, min(retry_at, grace_ns, deadline.until_ns), trail)
        if all(p.sock is None for p in waiting):  # refused by this server, or answered
            retry_at = now
            if tries >= _ROUNDS * len(servers):
                return
        if any(p.done and p.done.addresses for p in pair):
            grace_ns = min(grace_ns, now_ns() + _RESOLUTION_DELAY_NS)


def _listen(waiting: list[_Pending], until_ns: int, trail: Trail) -> None:
    poll = select.poll()
    asked = [pending for pending in waiting if pending.sock is not None]
    for pending in asked:
        assert pending.sock is not None
        poll.register(pending.sock, select.POLLIN)
    if not asked or not poll.poll(max(1, (until_ns - now_ns()) // 1_000_000)):
        return
    for pending in waiting:
        _take(pending, trail)


def _take(pending: _Pending, trail: Trail) -> None:
    import dns.exception
    import dns.message
    import dns.rcode

    if pending.sock is None:
        return
    try:
        data, ancillary, _, _ = pending.sock.recvmsg(65535, stamps.ANCILLARY_BYTES)
    except BlockingIOError:
        return
    except OSError:  # ICMP: nobody listens there
        pending.close()
        return
    wall_ns = stamps.stamp_in(ancillary)
    end_ns = now_ns() if wall_ns is None else min(now_ns(), wall_ns + trail.wall.offset_ns)
    try:
        answer: dns.message.Message = dns.message.from_wire(data, ignore_trailing=True)
        if not pending.query.is_response(answer):
            return
        if answer.flags & 0x0200:  # TC: cut, so ask over TCP
            answer, end_ns = _over_tcp(pending), now_ns()
    except (dns.exception.DNSException, OSError, EOFError):
        return
    code = answer.rcode()
    if code in (dns.rcode.SERVFAIL, dns.rcode.REFUSED):
        pending.close()  # another server may know
        return
    pending.finish(_records(answer, pending.family), end_ns)


def _over_tcp(pending: _Pending) -> dns.message.Message:
    """Ask again over TCP (RFC 7766). Raises OSError and what dnspython raises."""
    import dns.message

    with socket.create_connection(pending.server, timeout=_RETRY_NS / 1e9) as sock, sock.makefile("rb") as file:
        query = pending.query.to_wire()
        sock.sendall(len(query).to_bytes(2, "big") + query)
        size = int.from_bytes(file.read(2), "big")
        answer: dns.message.Message = dns.message.from_wire(file.read(size))
    if not pending.query.is_response(answer):
        raise OSError("an answer to another question")
    return answer


def _records(answer: dns.message.Message, family: Family) -> tuple[str, ...]:
    import dns.rdatatype

    kind = dns.rdatatype.from_text(family)
    return tuple(str(item.address) for rrset in answer.answer if rrset.rdtype == kind for item in rrset)


def _by_platform(host: str, asked: list[Question]) -> Resolution:
    start = now_ns()
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = f"the name {host} is not known to the resolver: check the spelling of the URL ({_reason(error)})"
        raise DialFailed(why, phase=Phase.DNS, kind="name_unknown") from error
    addresses = interleaved(str(row[4][0]) for row in found)
    family: Family = "AAAA" if ":" in addresses[0] else "A"
    return Resolution(addresses, "getaddrinfo", (*asked, Question(family, start, now_ns(), addresses)))


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
