"""Where gateway workers report: a Unix stream socket, mode 0600, in a folder that only its owner can write.

Messages are taken as they are read, so a recorder that cannot keep up stops reading, the socket fills, and the
workers drop and count: memory here stays bounded. A connection that sends what is no frame is closed; others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from unslow.errors import ConfigError, RemoteProtocolError
from unslow.serve.recorder.protocol import FrameDecoder, Message

log = logging.getLogger("unslow.recorder")

MAX_CONNECTIONS = 256
MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103
"""sun_path without its NUL (unix(7); 104 bytes on BSD and macOS)."""


class SocketTaken(ConfigError):
    """Another process listens on the socket."""


class Intake:
    """The listening side. `take` gets every message."""

    def __init__(self, take: Callable[[Message], None]) -> None:
        self.take = take
        self.connections: set[asyncio.BaseTransport] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve on a bound socket."""
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Worker(self), sock=listener)

    def close(self) -> None:
        """Stop listening and let workers go."""
        if self._server is not None:
            self._server.close()
        for transport in tuple(self.connections):
            transport.close()


class _Worker(asyncio.Protocol):
    """One worker's connection."""

    def __init__(self, intake: Intake) -> None:
        self._intake, self._frames = intake, FrameDecoder()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if len(self._intake.connections) >= MAX_CONNECTIONS:
            transport.close()
            return
        self._intake.connections.add(transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                self._intake.take(message)
        except RemoteProtocolError as error:
            log.error("intake: a worker's connection is closed: %s", error)
            if self._transport is not None:
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._intake.connections.discard(self._transport)


def bind(path: str) -> socket.socket:
    """A socket bound to `path`; a stale file of a recorder that died is replaced.

    Raises ConfigError for a path that is too long or in a folder that others can write, SocketTaken where a process
    listens there, OSError where the system refuses.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigError(f"{path}: longer than {MAX_PATH_BYTES} bytes; set a shorter one", key="socket_path")
    folder = Path(path).parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = folder.stat().st_mode
    if mode & 0o022:
        raise ConfigError(f"{folder}: others can write here; use a private folder (0700)", key="socket_path")
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.setblocking(False)
    return listener


def unlink(path: str) -> None:
    """Remove the socket's file at the end."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()


def _clear(path: str) -> None:
    """Remove a stale socket; refuse a live one, and anything that is no socket."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConfigError(f"{path}: exists and is no socket; remove it or set another path", key="socket_path")
        if _answers(path):
            raise SocketTaken(f"{path}: another recorder listens here; stop it or set another path", key="socket_path")
        Path(path).unlink()


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
