"""One child process: started as `python -m MODULE`, told its settings on stdin, heard on stdout, ended by signal.

The first line on its stdin is its settings; stdin then stays open as a lifeline: when we die, however we die, it
reads the end of it and stops. It says `ready {json}` on stdout; what it says on stderr goes to `say`, line by line.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any

import msgspec

Say = Callable[[str, str], None]
"""Called with a child's name and one line of what it wrote to stderr."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. `settings` is the JSON line for stdin; the times are limits in seconds."""

    name: str
    module: str
    settings: bytes
    ready_timeout_s: float = 30.0
    stop_timeout_s: float = 35.0


class Child:
    """A running child."""

    def __init__(self, spec: ChildSpec, say: Say) -> None:
        self.spec, self._say = spec, say
        self.process: asyncio.subprocess.Process | None = None
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.last_words = ""
        self._readers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start it in a process group of its own, so that a terminal's Ctrl-C reaches only us."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", self.spec.module)
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0, limit=1 << 20
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(self.spec.settings + b"\n")
            await self.process.stdin.drain()
        self._readers = [
            asyncio.create_task(self._hear(self.process.stdout)),
            asyncio.create_task(self._echo(self.process.stderr)),
        ]

    async def ended(self) -> int:
        """Wait for its end and for its last words; gives the exit code (negative: the signal that ended it)."""
        assert self.process is not None
        code = await self.process.wait()
        _, unread = await asyncio.wait(self._readers, timeout=1)
        for reader in unread:  # a grandchild may hold the pipes
            reader.cancel()
        if not self.ready.done():
            self.ready.cancel()
        return code

    async def stop(self, *, at_once: bool = False) -> None:
        """Ask it to drain and end; kill it when it does not within its limit."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill() if at_once else process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self.spec.stop_timeout_s)
        except TimeoutError:
            self._say(self.spec.name, f"did not end within {self.spec.stop_timeout_s:g} s; killed")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _hear(self, stdout: asyncio.StreamReader) -> None:
        async for line in _lines(stdout):
            word, _, rest = line.partition(" ")
            if word == "ready" and not self.ready.done():
                with contextlib.suppress(msgspec.DecodeError):
                    self.ready.set_result(msgspec.json.decode(rest or "{}", type=dict[str, Any]))
            else:
                self._say(self.spec.name, line)

    async def _echo(self, stderr: asyncio.StreamReader) -> None:
        """Pass lines on; before it is ready its last one is held back, for whoever says why it could not start."""
        async for line in _lines(stderr):
            if self.last_words and not self.ready.done():
                self._say(self.spec.name, self.last_words)
            self.last_words = line or self.last_words
            if self.ready.done():
                self._say(self.spec.name, line)


async def _lines(stream: asyncio.StreamReader) -> Any:
    """Lines as text; one that is longer than the limit comes in pieces."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # over the limit: asyncio has thrown the piece away
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip("\r\n")
