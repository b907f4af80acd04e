"""Workers that start in a few milliseconds: forked from a process that has imported them already.

A worker that is executed afresh takes 0.2 s of processor time to import itself, and hundreds of tests start one each.
What runs after the fork is the same `main`, with pipes of its own, to the end of its interpreter. Its parent is a small
process that waits for it and tells its exit code.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple


class Child:
    """A forked worker, with what tests need of `asyncio.subprocess.Process`."""

    def __init__(self, stdin: int, stdout: Pipe, stderr: int, status: Pipe) -> None:
        self._stdin, self._stdout, self._stderr, self._status = stdin, stdout, stderr, status
        self.pid = 0
        self.returncode: int | None = None

    async def readline(self) -> bytes:
        """A line that it says on stdout."""
        self.pid = self.pid or int(await self._status.reader.readline())
        return await self._stdout.reader.readline()

    def write(self, line: bytes) -> None:
        """Say something on its stdin."""
        os.write(self._stdin, line)

    def hang_up(self) -> None:
        """End its stdin, the lifeline."""
        if self._stdin >= 0:
            os.close(self._stdin)
        self._stdin = -1

    def send_signal(self, number: int) -> None:
        """Signal it, if it still runs."""
        if self.returncode is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        """Its exit code; minus the signal's number where one ended it."""
        if self.returncode is None:
            self.returncode = int(await self._status.reader.readline())
        return self.returncode

    def errors(self) -> str:
        """What it said on stderr. It has ended, and this is the last that is asked of it."""
        said = b""
        while data := os.read(self._stderr, 65536):
            said += data
        os.close(self._stderr)
        self.hang_up()
        for pipe in (self._stdout, self._status):
            pipe.transport.close()
        return said.decode()


class Nursery:
    """The process that has imported the worker, and forks."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()
        self._socket = ours
        atexit.register(self.close)

    def close(self) -> None:
        """It ends with its socket."""
        self._socket.close()
        self._process.wait()

    async def start(self) -> Child:
        """Fork a worker."""
        stdin, stdout, stderr, status = (os.pipe() for _ in range(4))
        theirs = [stdin[0], stdout[1], stderr[1], status[1]]
        socket.send_fds(self._socket, [b"start"], theirs)
        for number in theirs:
            os.close(number)
        return Child(stdin[1], await _pipe(stdout[0]), stderr[0], await _pipe(status[0]))


class Pipe(NamedTuple):
    """The end of a pipe that we read."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport


async def _pipe(number: int) -> Pipe:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    file = os.fdopen(number, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return Pipe(reader, transport)


_nursery: list[Nursery] = []


async def forked() -> Child:
    """A worker that is about to read its settings."""
    if not _nursery:
        _nursery.append(Nursery())
    return await _nursery[0].start()


def _serve(asked: socket.socket, main: Callable[[], int]) -> int:
    """Fork a worker for each request, until there are no more; in a worker, its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        said, numbers, _, _ = socket.recv_fds(asked, 16, 4)
        if not said:
            return 0
        if not os.fork():
            asked.close()
            return _parent(numbers, main)
        for number in numbers:
            os.close(number)


def _parent(numbers: list[int], main: Callable[[], int]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stdin, stdout, stderr, status = numbers
    worker = os.fork()
    if not worker:
        os.close(status)
        for number, place in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(number, place)
            os.close(number)
        return main()
    for number in (stdin, stdout, stderr):
        os.close(number)
    os.write(status, b"%d\n" % worker)
    _, ended = os.waitpid(worker, 0)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


if __name__ == "__main__":
    from unslow.serve.gateway.worker import main as gateway_main

    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1])), gateway_main))
