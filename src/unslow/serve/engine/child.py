"""The HTTP process's side of the step process: starts it, passes requests to it, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import sys
import time
from collections.abc import Callable
from enum import Enum

import msgspec

from . import link
from .link import Accepted, Command, Emitted, Event, Fatal, Loaded, Prompt, Refused, Sampling, Stage, Text, Tokenized
from .settings import EngineSettings

_GIVE_UP_AFTER = 3  # deaths in a row without an answer
_END_S = 2.0  # from the end of its socket to the end of the process
_WARM_UP = Sampling(2, 0.0, 1.0, 0, 0, 0.0, 0.0, ignore_eos=True)


class State(Enum):
    """What a request meets."""

    LOADING = "loading"
    READY = "ok"
    RESTARTING = "restarting"
    STOPPED = "stopped"


class Lost(msgspec.Struct, frozen=True):
    """The step process died with the request in it."""

    why: str


class Left(msgspec.Struct, frozen=True):
    """The client is gone."""


StreamEvent = Accepted | Refused | Emitted | Tokenized | Lost | Left


class Stream:
    """What the step process says about one request."""

    def __init__(self, engine: Engine, key: int) -> None:
        self._engine, self.key = engine, key
        self._events: asyncio.Queue[StreamEvent] = asyncio.Queue()

    async def next(self) -> StreamEvent:
        """The next event."""
        return await self._events.get()

    def put(self, event: StreamEvent) -> None:
        """Called by the engine, and by whoever sees the client leave."""
        self._events.put_nowait(event)

    def close(self) -> None:
        """No more is wanted: the request's place is freed wherever it is. Harmless after its end."""
        self._engine.forget(self.key)


class Engine:
    """The step process, as seen from the HTTP process."""

    def __init__(self, settings: EngineSettings, log: Callable[[str], None]) -> None:
        self._settings, self._log = settings, log
        self._keys = itertools.count(1)
        self._streams: dict[int, Stream] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.state, self.loaded = State.LOADING, Loaded("", 0, [], [])
        self.hidden: frozenset[int] = frozenset()
        self.ready, self._is_loaded = asyncio.Event(), asyncio.Event()
        self.restarts = 0
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answered = False

    @property
    def open_requests(self) -> int:
        """Requests in the step process, waiting ones too."""
        return len(self._streams)

    @property
    def pid(self) -> int | None:
        """The step process's id."""
        return self._process.pid if self._process else None

    def submit(self, prompt: Prompt, sampling: Sampling, received_ns: int) -> Stream:
        """Pass a request on."""
        return self._open(lambda key: link.Submit(key, prompt, sampling, received_ns))

    def tokenize(self, prompt: Prompt) -> Stream:
        """Have a prompt tokenised."""
        return self._open(lambda key: link.Tokenize(key, prompt))

    def forget(self, key: int) -> None:
        """End a request that has not ended."""
        if self._streams.pop(key, None) is not None:
            self._send(link.Cancel(key))

    async def run(self) -> None:
        """Keep a step process running, until cancelled or `failed`."""
        pause_s, deaths = self._settings.restart_min_s, 0
        while True:
            self._answered = False
            why = await self._live()
            if self._answered:
                pause_s, deaths = self._settings.restart_min_s, 0
            deaths += 1
            if deaths > _GIVE_UP_AFTER and not self.failed.done():
                self.failed.set_result(f"the model process does not come up: it {why}")
            if self.failed.done() or self.state is State.STOPPED:
                return
            self.restarts += 1
            self._log(f"the step process {why}; starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, self._settings.restart_max_s)

    def stop(self) -> None:
        """Kill the step process; there is nothing in it worth keeping. Requests in it end with an error."""
        self.state = State.STOPPED
        self._lose("is shutting down")
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _live(self) -> str:
        """One life of the step process; says how it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "unslow.serve.engine.step",
                str(theirs.fileno()),
                msgspec.json.encode(self._settings).decode(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        self._writer = writer
        overdue = asyncio.get_running_loop().call_later(self._settings.load_timeout_s, self._overdue, self._process)
        warm = asyncio.ensure_future(self._warm_up(self._process, overdue))
        try:
            await self._read(reader)
        finally:
            overdue.cancel()
            warm.cancel()
            writer.close()
            code = await _end(self._process)
            self._lose(_ending(code))
        return _ending(code)

    async def _warm_up(self, process: asyncio.subprocess.Process, overdue: asyncio.TimerHandle) -> None:
        """One short answer: the first is slow, and only after it is the engine ready."""
        await self._is_loaded.wait()
        stream = self.submit(Text("Hi"), _WARM_UP, time.monotonic_ns())
        while True:
            event = await stream.next()
            if isinstance(event, Refused | Lost) or (isinstance(event, Emitted) and event.finish == "error"):
                self._log(f"the first answer failed: {event}")
                process.kill()
                return
            if isinstance(event, Emitted) and event.finish:
                break
        overdue.cancel()
        self._answered = True
        if self.state is not State.STOPPED:
            self.state = State.READY
            self.ready.set()

    def _overdue(self, process: asyncio.subprocess.Process) -> None:
        self._log(f"no answer after {self._settings.load_timeout_s:g} s: ending the step process")
        process.kill()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head = await reader.readexactly(4)
                for event in link.events(await reader.readexactly(link.frame_length(head))):
                    self._take(event)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _take(self, event: Event) -> None:
        if isinstance(event, Stage):
            self._log(event.text)
        elif isinstance(event, Fatal):
            if not self.failed.done():
                self.failed.set_result(event.line)
        elif isinstance(event, Loaded):
            self.loaded, self.hidden = event, frozenset(event.control)
            self._is_loaded.set()
        else:
            self._pass_on(event)

    def _pass_on(self, event: Accepted | Refused | Emitted | Tokenized) -> None:
        stream = self._streams.get(event.key)
        if stream is None:
            return
        if isinstance(event, Refused | Tokenized) or (isinstance(event, Emitted) and event.finish):
            del self._streams[event.key]
        stream.put(event)

    def _open(self, command: Callable[[int], Command]) -> Stream:
        stream = Stream(self, next(self._keys))
        self._streams[stream.key] = stream
        self._send(command(stream.key))
        return stream

    def _send(self, command: Command) -> None:
        if self._writer is not None:
            self._writer.write(link.frame([command]))

    def _lose(self, why: str) -> None:
        self.state = State.RESTARTING if self.state is not State.STOPPED else State.STOPPED
        self.ready.clear()
        self._is_loaded.clear()
        self._writer = None
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.put(Lost(why))


async def _end(process: asyncio.subprocess.Process) -> int:
    """The exit code; a process that does not end by itself is killed."""
    try:
        return await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        process.kill()
        return await process.wait()


def _ending(code: int) -> str:
    """How a process ended, in words."""
    if code == -signal.SIGKILL:
        return "was killed (the system does that when memory runs out)"
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"
