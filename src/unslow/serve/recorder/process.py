"""The recorder as a process: sockets bound, parts started, and stopped in order.

Start: bind both sockets (errors here are fatal), open the history, serve, say `ready`. Stop (SIGTERM, or the
parent's end of stdin): no new messages, live streams end, answers under way finish, queues are written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from unslow.errors import UnslowError
from unslow.serve.recorder import intake
from unslow.serve.recorder.api import app
from unslow.serve.recorder.desk import Desk
from unslow.serve.recorder.guard import Guard, access
from unslow.serve.recorder.history import History
from unslow.serve.recorder.logfile import LogFile
from unslow.serve.recorder.settings import RecorderSettings

log = logging.getLogger("unslow.recorder")

GRACE_S = 3


class BindFailed(UnslowError):
    """An address cannot be listened on."""


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: this process has one place for signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: RecorderSettings, *, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Run until `stop` is set. `ready` gets the console's address, `host:port`. Raises BindFailed, ConfigError."""
    web = _listen(settings.console_host, settings.console_port)
    with web, _bound(settings.socket_path) as worker_socket:
        history = History(
            settings.history_path, max_rows=settings.history_max_rows, max_bytes=settings.history_max_bytes
        )
        access_log = LogFile(settings.access_log) if settings.access_log else None
        desk = Desk(settings, history, access_log)
        port = int(web.getsockname()[1])
        doors = intake.Intake(desk.take)
        await doors.start(worker_socket)
        server = _Server(_config(settings, desk, port))
        tasks = [asyncio.create_task(job) for job in (history.run(), desk.tell_live())]
        serving = asyncio.create_task(server.serve(sockets=[web]))
        _on_hangup(access_log)
        await _until_started(server, serving)
        host = settings.console_host
        ready(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await _until_stopped(stop, [*tasks, serving])
        doors.close()
        desk.hub.close()
        server.should_exit = True
        await serving
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await history.close()
        if access_log is not None:
            access_log.close()


def _config(settings: RecorderSettings, desk: Desk, port: int) -> uvicorn.Config:
    let_in = access(
        token=settings.console_token,
        host=settings.console_host,
        port=port,
        allowed_hosts=settings.console_allowed_hosts,
        gateway_url=settings.gateway_url,
    )
    return uvicorn.Config(
        Guard(app(desk, cookie=let_in.cookie), let_in),
        http="h11",  # bounds the size of heads, which httptools does not; a page's few requests need no speed
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="error",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=128,
        limit_concurrency=256,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACE_S,
    )


def _listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. TCP_NODELAY is set here: accepted sockets inherit it, and asyncio does not set it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise BindFailed(f"console: cannot listen on {host}:{port}: {error.strerror}; set another port") from error
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def _bound(path: str) -> Iterator[socket.socket]:
    try:
        listener = intake.bind(path)
    except intake.SocketTaken as error:
        raise BindFailed(str(error)) from error
    except OSError as error:
        raise BindFailed(f"recorder: cannot listen on {path}: {error.strerror}; set another socket_path") from error
    try:
        with listener:
            yield listener
    finally:
        intake.unlink(path)


def _on_hangup(access_log: LogFile | None) -> None:
    """Reopen the access log on SIGHUP; without one, SIGHUP is ignored rather than deadly."""
    with contextlib.suppress(NotImplementedError):
        reopen = access_log.reopen if access_log is not None else (lambda: None)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reopen)


async def _until_stopped(stop: asyncio.Event, jobs: list[asyncio.Task[None]]) -> None:
    """Wait for the word to stop. A job that ends by itself has failed: the process ends, and is started again."""
    word = asyncio.create_task(stop.wait())
    await asyncio.wait([word, *jobs], return_when=asyncio.FIRST_COMPLETED)
    word.cancel()
    for job in jobs:
        if job.done() and not stop.is_set():
            raise UnslowError(f"the recorder's {job.get_coro()} ended: {job.exception()!r}")


async def _until_started(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    while not server.started and not serving.done():  # noqa: ASYNC110 -- uvicorn has no event for it
        await asyncio.sleep(0.005)
    if serving.done():
        serving.result()
        raise BindFailed("console: the server ended at its start")
