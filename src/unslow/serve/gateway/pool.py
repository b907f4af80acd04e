"""An upstream with its idle connections: last in, first out, so that the coldest age out and the warmest serve."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter_ns
from typing import Any

from unslow.core.policy.admission import Admission
from unslow.errors import ConfigError, UpstreamError
from unslow.serve.gateway.connect import Connector, Step
from unslow.serve.gateway.settings import GatewaySettings, UpstreamSettings
from unslow.serve.gateway.target import check_upstream, read_target
from unslow.serve.gateway.tls import ResumingContext, client_context
from unslow.serve.gateway.upstream import UpstreamConnection
from unslow.serve.gateway.way import Way, make_way

MAX_WAYS = 256


class Pool:
    """One upstream: its connections, its places, and what is known of its health."""

    def __init__(self, settings: UpstreamSettings, gateway: GatewaySettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.name_bytes = settings.name.encode()
        check_upstream(settings)
        self.target = read_target(settings.name, settings.url)
        self.where = f"{self.target.where}{self.target.base_path}"
        """The base as the record has it."""
        self.tls = _trust(settings) if self.target.tls else None
        self.connector = Connector(
            settings.name,
            self.target,
            self.tls,
            timeout_s=gateway.connect_timeout_s,
            dns_ttl_s=gateway.dns_ttl_s,
            receive_bytes=gateway.upstream_receive_buffer_bytes,
        )
        share = max(1, gateway.workers)
        self.admission: Admission[Any] = Admission(max(1, settings.max_active // share), settings.max_waiting // share)
        self.write_buffer_bytes = gateway.write_buffer_bytes
        self.idle: deque[UpstreamConnection] = deque()
        self.open = 0
        self.reachable: bool | None = None
        self.trouble = "not tried yet"
        self._idle_limit_ns = int(gateway.pool_idle_s * 1e9)
        self._max_idle = gateway.max_idle_upstream
        self._ways: dict[str, Way] = {}

    def take(self, now_ns: int) -> UpstreamConnection | None:
        """A usable idle connection, the one used last."""
        idle = self.idle
        while idle:
            connection = idle.pop()
            if connection.transport.is_closing():
                continue
            if now_ns - connection.idle_since_ns < self._idle_limit_ns:
                return connection
            connection.transport.close()
        return None

    def put(self, connection: UpstreamConnection, now_ns: int) -> None:
        """Keep a connection whose exchange is complete."""
        connection.carried = None
        connection.read(True)
        if self.tls is not None and connection.served <= 1:
            self.tls.remember(self.target.host, connection.transport.get_extra_info("ssl_object"))
        if len(self.idle) >= self._max_idle or connection.transport.is_closing():
            connection.transport.close()
            return
        connection.idle_since_ns = now_ns
        self.idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """An idle connection was closed by the upstream."""
        if connection in self.idle:
            self.idle.remove(connection)

    def sweep(self, now_ns: int) -> None:
        """Close what has been idle for too long, before the server does."""
        idle = self.idle
        while idle and now_ns - idle[0].idle_since_ns >= self._idle_limit_ns:
            idle.popleft().transport.close()

    async def connect(self, steps: list[Step], attempt: int = 0) -> UpstreamConnection:
        """Connect anew. Raises ConnectFailed or PhaseTimeout."""
        try:
            connection = await self.connector.connect(lambda: UpstreamConnection(self), steps, attempt)
        except UpstreamError as error:
            self.reachable, self.trouble = False, str(error)
            raise
        self.reachable = True
        return connection

    async def probe(self) -> None:
        """Learn whether it can be reached; the connection is kept for the first request."""
        try:
            connection = await self.connect([])
        except UpstreamError:
            return
        self.put(connection, perf_counter_ns())

    def way(self, path: str) -> Way:
        """What every request for this path has in common; remembered for the first few hundred paths."""
        known = self._ways.get(path)
        if known is None:
            known = make_way(self.settings, self.target, path)
            if len(self._ways) < MAX_WAYS:
                self._ways[path] = known
        return known


def _trust(settings: UpstreamSettings) -> ResumingContext:
    try:
        return client_context(settings.ca_file)
    except OSError as error:
        why = f"{settings.ca_file} cannot be used: {error.strerror or error}"
        raise ConfigError(why, key=f"upstreams.{settings.name}.ca_file") from error


def close_idle(pools: list[Pool]) -> None:
    """At the end: close every idle connection."""
    for pool in pools:
        while pool.idle:
            pool.idle.pop().transport.close()


async def probe_all(pools: list[Pool]) -> None:
    """Probe those whose last connection failed, or that were never tried."""
    await asyncio.gather(*(pool.probe() for pool in pools if not pool.reachable))
