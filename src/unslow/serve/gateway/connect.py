"""A new connection to an upstream, with a stamp at each step: resolve, connect (each address in turn), TLS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

from unslow.core.timeline import Phase
from unslow.errors import ConnectFailed, PhaseTimeout
from unslow.serve.gateway.target import Target
from unslow.serve.gateway.tls import ResumingContext
from unslow.serve.gateway.upstream import UpstreamConnection

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


class Step(NamedTuple):
    """A stretch of a connection's making; absolute stamps. `won` is False for an address that failed."""

    phase: Phase
    start_ns: int
    end_ns: int
    attempt: int
    won: bool = True


class Resolved:
    """Addresses of a host, kept for a while, the one that worked last first."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_ns = int(ttl_s * 1e9)
        self._until_ns = 0
        self.addresses: list[Address] = []

    def fresh(self, now_ns: int) -> list[Address]:
        """What is known and not too old."""
        return self.addresses if now_ns < self._until_ns else []

    def store(self, addresses: list[Address], now_ns: int) -> None:
        """Keep a new answer."""
        self.addresses, self._until_ns = addresses, now_ns + self._ttl_ns

    def prefer(self, address: Address) -> None:
        """This one works: try it first from now on."""
        if self.addresses and self.addresses[0] != address:
            self.addresses = [address, *(other for other in self.addresses if other != address)]


class Connector:
    """Makes connections to one upstream."""

    def __init__(
        self,
        name: str,
        target: Target,
        tls: ResumingContext | None,
        *,
        timeout_s: float,
        dns_ttl_s: float,
        receive_bytes: int,
    ) -> None:
        self._name, self._target, self._tls = name, target, tls
        self._timeout_s, self._receive_bytes = timeout_s, receive_bytes
        self._resolved = Resolved(dns_ttl_s)

    async def connect(
        self, make: Callable[[], UpstreamConnection], steps: list[Step], first_attempt: int = 0
    ) -> UpstreamConnection:
        """Connect, noting each step in `steps`. Raises ConnectFailed or PhaseTimeout."""
        start_ns = perf_counter_ns()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connect(make, steps, first_attempt)
        except TimeoutError as error:
            why = f"{self._name} ({self._target.where}) within {self._timeout_s:g} s"
            raise PhaseTimeout(why, phase=_open_phase(steps), limit_ns=int(self._timeout_s * 1e9)) from error
        except OSError as error:
            why = f"{self._name} cannot be reached at {self._target.where} ({_reason(error)})"
            raise ConnectFailed(why, phase=_open_phase(steps)) from error
        finally:
            _close_steps(steps, start_ns)

    async def _connect(
        self, make: Callable[[], UpstreamConnection], steps: list[Step], attempt: int
    ) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        if self._target.unix_path is not None:
            steps.append(Step(Phase.CONNECT, perf_counter_ns(), 0, attempt))
            return (await loop.create_unix_connection(make, self._target.unix_path))[1]
        sock = await self._first_socket(await self._addresses(loop, steps, attempt), steps, attempt)
        if self._tls is None:
            return (await loop.create_connection(make, sock=sock))[1]
        steps.append(Step(Phase.TLS, perf_counter_ns(), 0, steps[-1].attempt))
        host = self._target.host
        return (await loop.create_connection(make, sock=sock, ssl=self._tls, server_hostname=host))[1]

    async def _addresses(self, loop: asyncio.AbstractEventLoop, steps: list[Step], attempt: int) -> list[Address]:
        now_ns = perf_counter_ns()
        known = self._resolved.fresh(now_ns)
        if known:
            return known
        steps.append(Step(Phase.DNS, now_ns, 0, attempt))
        found = await loop.getaddrinfo(self._target.host, self._target.port, type=socket.SOCK_STREAM)
        end_ns = perf_counter_ns()
        steps[-1] = steps[-1]._replace(end_ns=end_ns)
        addresses: list[Address] = [(item[0], item[4]) for item in found]  # type: ignore[misc]
        self._resolved.store(addresses, end_ns)
        return addresses

    async def _first_socket(self, addresses: list[Address], steps: list[Step], attempt: int) -> socket.socket:
        """The first address that answers, each given its share of the time."""
        failure: OSError = OSError("the name has no address")
        for n, address in enumerate(addresses):
            start_ns = perf_counter_ns()
            steps.append(Step(Phase.CONNECT, start_ns, 0, attempt + n))
            try:
                async with asyncio.timeout(self._timeout_s / len(addresses)):
                    sock = await self._socket(address)
            except OSError as error:
                failure = error
                steps[-1] = Step(Phase.CONNECT, start_ns, perf_counter_ns(), attempt + n, won=False)
                continue
            steps[-1] = steps[-1]._replace(end_ns=perf_counter_ns())
            self._resolved.prefer(address)
            return sock
        raise failure

    async def _socket(self, address: Address) -> socket.socket:
        family, where = address
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_bytes:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
            await asyncio.get_running_loop().sock_connect(sock, where)
        except BaseException:
            sock.close()
            raise
        return sock


def _open_phase(steps: list[Step]) -> Phase:
    """What was going on when it failed."""
    return steps[-1].phase if steps and steps[-1].end_ns == 0 else Phase.CONNECT


def _close_steps(steps: list[Step], start_ns: int) -> None:
    """Whatever is still open ended now; stamps of an earlier try stay."""
    now_ns = perf_counter_ns()
    for n, step in enumerate(steps):
        if step.end_ns == 0 and step.start_ns >= start_ns:
            steps[n] = step._replace(end_ns=now_ns)


def _reason(error: OSError) -> str:
    """A short reason without addresses or paths."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.strerror or str(error) or type(error).__name__
    return text.splitlines()[0]
