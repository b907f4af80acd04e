"""`python -m unslow.serve.engine`: settings as one line of JSON on stdin, which then stays open as a lifeline.

One line `ready {"address": …, "model": …, "backend": …}` on stdout once the model has answered; logs on stderr.
Exit codes: 0 after SIGTERM or when stdin ends, 1 for whatever is in the way of the model, 2 when it cannot listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from .app import App
from .child import Engine
from .settings import EngineSettings

_KEEP_ALIVE_S = 75  # longer than a client's pool keeps an idle connection
_LAST_WORDS_S = 1.0  # for telling clients that their answers end here


class _Server(uvicorn.Server):
    """uvicorn, with its signal handlers left out: ours are different."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main() -> int:
    """Run until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=EngineSettings)
    except msgspec.DecodeError as problem:
        return _fail(f"engine settings: {problem}", 1)
    try:
        listener = _listen(settings)
    except OSError as problem:
        where = settings.socket_path or f"{settings.host}:{settings.port}"
        return _fail(f"cannot listen on {where}: {os.strerror(problem.errno or 0)}", 2)
    with listener:
        try:
            return _run(settings, listener)
        finally:
            if settings.socket_path is not None:
                Path(settings.socket_path).unlink(missing_ok=True)


def _run(settings: EngineSettings, listener: socket.socket) -> int:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_serve(settings, listener))
    return uvloop.run(_serve(settings, listener))


def _listen(settings: EngineSettings) -> socket.socket:
    if settings.socket_path is not None:
        path = Path(settings.socket_path)
        listener = socket.socket(socket.AF_UNIX)
        _remove_stale(path)
        listener.bind(str(path))
        path.chmod(0o600)
    else:
        listener = socket.create_server((settings.host, settings.port), family=_family(settings.host), backlog=1024)
    listener.listen(1024)
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _remove_stale(path: Path) -> None:
    """Unlink a socket that nobody listens on any more."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) != 0:
            path.unlink(missing_ok=True)


async def _serve(settings: EngineSettings, listener: socket.socket) -> int:
    engine = Engine(settings, _log)
    server = _Server(_uvicorn_config(App(engine, settings)))
    loop = asyncio.get_running_loop()
    drain, orphaned = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, drain.set)
    threading.Thread(target=_watch_lifeline, args=(loop, orphaned), daemon=True).start()
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    running = asyncio.ensure_future(engine.run())
    telling = asyncio.ensure_future(_tell_ready(engine, settings, listener))
    abrupt: list[asyncio.Future[Any]] = [asyncio.ensure_future(orphaned.wait()), engine.failed]
    ends: list[asyncio.Future[Any]] = [serving, asyncio.ensure_future(drain.wait()), *abrupt]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await asyncio.wait([serving, *abrupt], timeout=settings.drain_s, return_when=asyncio.FIRST_COMPLETED)
    engine.stop()
    await asyncio.wait([serving], timeout=_LAST_WORDS_S)
    server.force_exit = True
    tasks = [serving, running, telling, *ends]
    for task in tasks:
        if task is not engine.failed:
            task.cancel()
    await asyncio.wait([task for task in tasks if task is not engine.failed])
    return _fail(engine.failed.result(), 1) if engine.failed.done() else 0


def _uvicorn_config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )


async def _tell_ready(engine: Engine, settings: EngineSettings, listener: socket.socket) -> None:
    await engine.ready.wait()
    info = {"address": _address(settings, listener), "model": settings.model_name, "backend": engine.loaded.backend}
    print(f"ready {msgspec.json.encode(info).decode()}", flush=True)  # noqa: T201


def _address(settings: EngineSettings, listener: socket.socket) -> str:
    if settings.socket_path is not None:
        return f"unix:{settings.socket_path}"
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _watch_lifeline(loop: asyncio.AbstractEventLoop, orphaned: asyncio.Event) -> None:
    """Wait for the end of stdin: then whoever started us is gone."""
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(orphaned.set)


def _log(text: str) -> None:
    print(f"engine: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _fail(line: str, code: int) -> int:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
