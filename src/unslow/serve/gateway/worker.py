"""The worker's life: read its settings, bind, serve, drain, stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time

import msgspec

from unslow.core.policy.access import is_loopback
from unslow.errors import ConfigError, UnslowError
from unslow.serve.gateway.client import ClientConnection
from unslow.serve.gateway.context import Gateway
from unslow.serve.gateway.errors import Refusal
from unslow.serve.gateway.pool import close_idle, probe_all
from unslow.serve.gateway.settings import GatewaySettings
from unslow.serve.recorder.protocol import Snapshot

EXIT_FAILED, EXIT_BIND = 1, 2
ORPHAN_DRAIN_S = 5.0
"""How long requests may still take once the parent is gone."""
LAST_WRITES_S = 0.02
"""For what was refused at the deadline to reach the kernel."""
PROBE_EVERY_TURNS = 4
"""Unreachable upstreams are tried again about every two seconds."""


class BindError(UnslowError):
    """The address cannot be listened on."""


def read_settings(line: bytes) -> GatewaySettings:
    """The settings from the first line of stdin. Raises ConfigError."""
    try:
        settings = msgspec.json.decode(line, type=GatewaySettings)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"the gateway's settings cannot be read: {error}") from error
    if not settings.api_keys and not is_loopback(settings.host):
        raise ConfigError(
            f"{settings.host} can be reached from other machines; configure api_keys, or listen on 127.0.0.1",
            key="host",
        )
    return settings


def bind(settings: GatewaySettings) -> socket.socket:
    """A listening socket. Raises BindError."""
    host = settings.host.strip("[]")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if settings.workers > 1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if settings.client_send_buffer_bytes:  # accepted sockets inherit it
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.client_send_buffer_bytes)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        why = error.strerror or str(error)
        raise BindError(f"cannot listen on {settings.host}:{settings.port}: {why}; choose another port") from error
    return sock


def raise_file_limit() -> None:
    """Two sockets a stream: take all the files that the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Worker:
    """One worker from bind to exit."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._drain_s = settings.drain_timeout_s
        self._turns = 0
        self._probe: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until told to stop. Raises ConfigError or BindError before it is ready."""
        loop = asyncio.get_running_loop()
        gateway = Gateway(self._settings, loop)
        sock = bind(self._settings)
        server = await loop.create_server(lambda: ClientConnection(gateway), sock=sock, backlog=4096)
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._watch_parent, args=(loop,), daemon=True).start()
        gateway.wheel.on_turn.append(lambda now_ns: self._turn(gateway, now_ns))
        gateway.wheel.start()
        gateway.feed.start()
        self._probe = loop.create_task(probe_all(list(gateway.pools.values())))
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        host, port = sock.getsockname()[:2]
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _say(b"ready " + msgspec.json.encode({"address": shown}))
        await self._stop.wait()
        await self._finish(gateway, server)

    def _watch_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stdin is a lifeline: its end means that the parent is gone."""
        while os.read(0, 4096):
            pass
        self._drain_s = min(self._drain_s, ORPHAN_DRAIN_S)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._stop.set)

    def _turn(self, gateway: Gateway, now_ns: int) -> None:
        """About twice a second: age the pools, count for the recorder, try what could not be reached."""
        for pool in gateway.pools.values():
            pool.sweep(now_ns)
        self._turns += 1
        if self._turns % 2 == 0 and gateway.feed.on:
            gateway.feed.put(snapshot(gateway))
        if self._turns % PROBE_EVERY_TURNS == 0 and (self._probe is None or self._probe.done()):
            pools = [pool for pool in gateway.pools.values() if not pool.reachable]
            self._probe = gateway.loop.create_task(probe_all(pools)) if pools else None
        idle = [client for client in gateway.clients if client.exchange is None]
        for client in idle[: max(0, len(idle) - gateway.max_idle_clients)]:
            client.drain()

    async def _finish(self, gateway: Gateway, server: asyncio.Server) -> None:
        """Take no more, let what is in flight end, then cut it."""
        gateway.draining = True
        server.close()
        for client in list(gateway.clients):
            client.drain()
        if gateway.clients:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gateway.empty.wait(), self._drain_s)
        if gateway.clients:
            await _cut(list(gateway.clients))
        if self._probe is not None:
            self._probe.cancel()
        close_idle(list(gateway.pools.values()))
        await gateway.feed.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one more would kill what is about to end well


async def _cut(clients: list[ClientConnection]) -> None:
    """The deadline: whoever has no answer yet is told, all others are cut."""
    for client in clients:
        if client.exchange is not None:
            client.exchange.refuse(Refusal("draining", retry_after_s=1))
    await asyncio.sleep(LAST_WRITES_S)
    for client in clients:
        client.transport.abort()
    await asyncio.sleep(LAST_WRITES_S)  # their ends are records too


def snapshot(gateway: Gateway) -> Snapshot:
    """The worker's live state."""
    return Snapshot(
        worker=gateway.settings.worker,
        pid=os.getpid(),
        at=time.time(),
        active_requests=gateway.active,
        open_connections=len(gateway.clients),
        idle_upstream_connections=gateway.idle_upstream,
        requests_total=gateway.requests_total,
        dropped_total=gateway.feed.dropped,
        rss_bytes=_rss_bytes(),
        cpu_ns=time.process_time_ns(),
    )


def _rss_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a file of the kernel, read every second
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def _say(line: bytes) -> None:
    os.write(1, line + b"\n")


def main() -> int:
    """Run a worker as a child process; the contract is in docs/reference/gateway.md."""
    import uvloop

    try:
        settings = read_settings(sys.stdin.buffer.readline())
        raise_file_limit()
        uvloop.run(Worker(settings).run())
    except BindError as error:
        sys.stderr.write(f"gateway: {error}\n")
        return EXIT_BIND
    except (UnslowError, OSError) as error:
        sys.stderr.write(f"gateway: {error}\n")
        return EXIT_FAILED
    return 0
