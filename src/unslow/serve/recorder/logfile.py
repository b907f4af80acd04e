"""The access log's writer: a bounded queue toward one thread, so that a slow or full disk stops nobody.

What does not fit the queue, or cannot be written, is dropped and counted; one line on stderr says so. A line is
never left torn: where a write ended inside one, the next write begins with a newline. SIGHUP reopens the file
(after a rotation by rename).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque

log = logging.getLogger("unslow.recorder")

QUEUE_LINES = 8192
QUEUE_BYTES = 16 << 20
BATCH_BYTES = 1 << 18
PAUSE_S = 0.1
RETRY_S = 5.0


class LogFile:
    """An access log at `path`, or stderr for `-`."""

    def __init__(self, path: str, *, retry_s: float = RETRY_S) -> None:
        self._path, self._retry_s = path, retry_s
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._wake, self._done = threading.Event(), threading.Event()
        self._reopen = False
        self._torn = False
        self._fd: int | None = None
        self._retry_at = 0.0
        self.dropped = 0
        self.trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="unslow-access-log", daemon=True)
        self._thread.start()

    def offer(self, line: bytes) -> None:
        """Queue one line, or drop and count it. Never waits."""
        with self._lock:
            if len(self._queue) >= QUEUE_LINES or self._bytes + len(line) > QUEUE_BYTES:
                self.dropped += 1
                return
            self._queue.append(line)
            self._bytes += len(line)
        self._wake.set()

    def reopen(self) -> None:
        """Open the file anew before the next line."""
        self._reopen = True
        self._wake.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued, and stop; a writer that hangs is left behind."""
        self._done.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        self._open()
        while not self._done.is_set():
            self._wake.wait()
            self._wake.clear()
            self._round()
            self._done.wait(PAUSE_S)  # gathers lines: one write for many
        self._round()
        self._shut()

    def _round(self) -> None:
        if self._reopen:
            self._reopen = False
            self._shut()
            self._open()
        while batch := self._take():
            self._write(batch)

    def _take(self) -> list[bytes]:
        batch, size = [], 0
        with self._lock:
            while self._queue and size < BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += len(batch[-1])
            self._bytes -= size
        return batch

    def _write(self, batch: list[bytes]) -> None:
        if self._fd is None and time.monotonic() >= self._retry_at:
            self._open()
        if self._fd is None:
            self._drop(len(batch))
            return
        data = memoryview((b"\n" if self._torn else b"") + b"".join(batch))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            self._failed(error, batch, bytes(data[:written]))
            return
        self._torn = False
        self._works()

    def _failed(self, error: OSError, batch: list[bytes], written: bytes) -> None:
        """Count the lines that are not whole in the file, and remember a torn one."""
        if written:
            self._torn = not written.endswith(b"\n")
        whole = written.count(b"\n") - (1 if written.startswith(b"\n") else 0)
        self._drop(len(batch) - whole)
        self._note(error)

    def _drop(self, count: int) -> None:
        with self._lock:
            self.dropped += count

    def _open(self) -> None:
        if self._path == "-":
            self._fd = 2
            return
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as error:
            self._retry_at = time.monotonic() + self._retry_s
            self._note(error)
            return
        self._torn = False
        self._works()

    def _shut(self) -> None:
        if self._fd is not None and self._fd != 2:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd = None

    def _note(self, error: OSError) -> None:
        if self.trouble is None:
            log.error("access log: %s: %s; lines are dropped and counted until it works", self._path, error.strerror)
        self.trouble = f"{self._path}: {error.strerror}"

    def _works(self) -> None:
        if self.trouble is not None:
            log.warning("access log: %s can be written again", self._path)
        self.trouble = None
