"""From addresses to a connection: happy eyeballs (RFC 8305) in one loop, every attempt recorded."""

from __future__ import annotations

import errno
import os
import select
import socket

from unslow.core.timeline import Hop, Phase
from unslow.measure.transport import stamps
from unslow.measure.transport.clock import now_ns
from unslow.measure.transport.failures import DialFailed
from unslow.measure.transport.link import Link, shown
from unslow.measure.transport.trail import Deadline, Trail

_STAGGER_NS = 250_000_000
"""Connection Attempt Delay (RFC 8305 5)."""

_KINDS = {
    errno.ECONNREFUSED: ("connection_refused", "nothing listens there; check the port and that the server runs"),
    errno.ENETUNREACH: ("network_unreachable", "this machine has no route to it; check the network"),
    errno.EHOSTUNREACH: ("host_unreachable", "no route to the host; check the network and the address"),
    errno.ETIMEDOUT: ("connect_timeout", "the host does not answer; check the address and firewalls"),
    errno.ECONNRESET: ("connection_reset", "the host closed while connecting"),
    errno.EACCES: ("connection_forbidden", "this machine's firewall forbids it"),
    errno.EPERM: ("connection_forbidden", "this machine's firewall forbids it"),
}


class _Attempt:
    def __init__(self, address: str, port: int, number: int) -> None:
        self.address, self.port, self.number = address, port, number
        self.start_ns, self.end_ns = now_ns(), 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.error = 0
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        stamps.enable_rx(self.sock)
        host, _, zone = address.partition("%")
        scope = socket.if_nametoindex(zone) if zone else 0
        try:
            code = self.sock.connect_ex((host, port, 0, scope) if family == socket.AF_INET6 else (host, port))
        except OSError as error:
            code = error.errno or errno.EIO
        if code not in (0, errno.EINPROGRESS):
            self.fail(code)

    def settle(self) -> bool:
        """Whether the connection stands now; notes a failure."""
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self.end_ns = now_ns()
        if code:
            self.fail(code)
        return not code

    def fail(self, code: int) -> None:
        self.error, self.end_ns = code, now_ns()
        self.sock.close()


def dial(addresses: tuple[str, ...], port: int, trail: Trail, deadline: Deadline, *, kernel_stamps: bool) -> Link:
    """Connect to the first address that answers; the rest of the attempts are recorded as lost.

    Raises DialFailed when all fail, TimedOut when the time is up.
    """
    waiting = list(addresses)
    attempts: list[_Attempt] = []
    next_at = 0
    winner: _Attempt | None = None
    try:
        while winner is None:
            deadline.check()
            live = [a for a in attempts if not a.error]
            if waiting and (not live or now_ns() >= next_at):
                number = trail.new_attempt() if attempts else trail.attempt
                attempts.append(_Attempt(waiting.pop(0), port, number))
                next_at = now_ns() + _STAGGER_NS
                continue
            if not live:
                raise _failure(attempts)
            winner = _first_up(live, min(deadline.until_ns, next_at if waiting else deadline.until_ns))
    finally:
        _record(attempts, winner, trail)
    trail.attempt = winner.number
    return Link(winner.sock, trail.wall, kernel_stamps=kernel_stamps)


def _first_up(live: list[_Attempt], until_ns: int) -> _Attempt | None:
    poll = select.poll()
    by_fd = {a.sock.fileno(): a for a in live}
    for fd in by_fd:
        poll.register(fd, select.POLLOUT)
    ready = poll.poll(max(1, (until_ns - now_ns() + 999_999) // 1_000_000))
    return next((by_fd[fd] for fd, _ in ready if by_fd[fd].settle()), None)


def _record(attempts: list[_Attempt], winner: _Attempt | None, trail: Trail) -> None:
    result = winner or (attempts[-1] if attempts else None)  # where all failed, the last is what is reported
    for attempt in attempts:
        if attempt is not winner and not attempt.error:
            attempt.end_ns = winner.end_ns if winner else now_ns()
            attempt.sock.close()
        won = attempt is result
        trail.span(Phase.CONNECT, Hop.CLIENT, attempt.start_ns, attempt.end_ns, attempt=attempt.number, won=won)
        if attempt.error and len(attempts) > 1:
            trail.note(f"{shown((attempt.address, attempt.port))}: {os.strerror(attempt.error).lower()}")


def _failure(attempts: list[_Attempt]) -> DialFailed:
    worst = attempts[-1]
    kind, advice = _KINDS.get(worst.error, ("connect_failed", "check the address"))
    where = ", ".join(dict.fromkeys(shown((a.address, a.port)) for a in attempts))
    why = f"cannot connect to {where} ({os.strerror(worst.error).lower()}): {advice}"
    return DialFailed(why, phase=Phase.CONNECT, kind=kind)
