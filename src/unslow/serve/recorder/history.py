"""The history as the event loop sees it: a bounded queue toward one thread that owns the file.

Theory of operation. `offer` never waits: what does not fit is dropped and counted. A task writes batches, every
`FLUSH_S` at most, in a thread of its own. Reads run in the same thread after what is queued, so a reader sees what
was offered before it asked. Where the file cannot be used (full disk, read-only, damaged), one line says so, rows
go to memory, and every `RETRY_S` the file is tried again; what memory holds then moves to the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from unslow.core.timeline import Timeline, dump_line, load_line
from unslow.errors import EvidenceError, UnslowError
from unslow.serve.recorder.store import Found, Store, StoredRow, StoreUnusable, is_damaged, set_aside

log = logging.getLogger("unslow.recorder")

FLUSH_S = 0.2
BATCH = 1000
RETRY_S = 30.0
QUEUE_ROWS = 8192
QUEUE_BYTES = 32 << 20
MEMORY_BYTES = 32 << 20

T = TypeVar("T")
_BAD_ROWS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, OverflowError, UnicodeError)
"""Errors that are the rows' fault, not the file's."""


class HistoryState(msgspec.Struct, frozen=True):
    """What `/api/config` says of the history. `where` is `file` or `memory`; `trouble` says why not the file."""

    where: str
    path: str | None
    rows: int
    size_bytes: int
    max_rows: int
    max_bytes: int
    dropped: int
    trouble: str | None


class HistoryKept(UnslowError):
    """The history, or a part of it, could not be deleted."""


class History:
    """Past exchanges. Made off the loop (`open`), then used from one event loop."""

    def __init__(self, path: str | None, *, max_rows: int, max_bytes: int, retry_s: float = RETRY_S) -> None:
        self._path, self._max_rows, self._max_bytes, self._retry_s = path, max_rows, max_bytes, retry_s
        self._pending: deque[StoredRow] = deque()
        self._pending_bytes = 0
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "unslow-history")
        self._retry_at = 0.0
        self.dropped = 0
        self.trouble: str | None = None
        self._store = self._first_store()

    def offer(self, row: StoredRow) -> None:
        """Queue one row, or drop and count it."""
        if len(self._pending) >= QUEUE_ROWS or self._pending_bytes + row.size > QUEUE_BYTES:
            self.dropped += 1
            return
        self._pending.append(row)
        self._pending_bytes += row.size
        self._wake.set()

    async def run(self) -> None:
        """Write what is offered, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Write everything that is queued now."""
        self._wake.clear()
        while batch := self._take():
            await self._in_thread(lambda batch=batch: self._write(batch))  # type: ignore[misc]

    async def newest(self, limit: int, before: int | None) -> list[tuple[int, Timeline]]:
        """The newest exchanges below a place in the order, each with its place."""
        await self.flush()
        found = await self._in_thread(lambda: self._read(lambda store: store.newest(limit, before), list[Found]()))
        pairs = ((row.seq, _loaded(row.line)) for row in found)
        return [(seq, timeline) for seq, timeline in pairs if timeline is not None]

    async def of_id(self, key: str) -> list[Timeline]:
        """What every party recorded of one exchange."""
        await self.flush()
        lines = await self._in_thread(lambda: self._read(lambda store: store.of_id(key), list[bytes]()))
        return [t for t in map(_loaded, lines) if t is not None]

    async def purge(self) -> int:
        """Delete everything, queued rows included; how many there were. Raises HistoryKept where a file stays."""
        queued = len(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        return queued + await self._in_thread(self._purge)

    async def close(self) -> None:
        """Write what is queued and close the file."""
        await self.flush()
        await self._in_thread(self._store.close)
        self._thread.shutdown(wait=False)

    def state(self) -> HistoryState:
        """What is kept, and where."""
        where = "memory" if self._store.path == ":memory:" else "file"
        store = self._store
        return HistoryState(
            where, self._path, store.rows, store.size, self._max_rows, self._max_bytes, self.dropped, self.trouble
        )

    def _take(self) -> list[StoredRow]:
        batch = [self._pending.popleft() for _ in range(min(BATCH, len(self._pending)))]
        self._pending_bytes -= sum(row.size for row in batch)
        return batch

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    # From here on: in the history's thread (or before the loop runs).

    def _first_store(self) -> Store:
        if self._path is None:
            return self._memory()
        return self._file_store() or self._memory()

    def _file_store(self) -> Store | None:
        """Open the file; a damaged one is set aside first. None, with the trouble noted, where that fails."""
        assert self._path is not None  # only called with a file
        try:
            try:
                return self._opened(self._path)
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    raise
                self._put_aside(error)
                return self._opened(self._path)
        except (sqlite3.Error, OSError, StoreUnusable) as error:
            self._note(error)
            return None

    def _opened(self, path: str) -> Store:
        return Store(path, max_rows=self._max_rows, max_bytes=self._max_bytes)

    def _memory(self) -> Store:
        return Store(":memory:", max_rows=self._max_rows, max_bytes=min(self._max_bytes, MEMORY_BYTES))

    def _put_aside(self, error: sqlite3.Error) -> None:
        assert self._path is not None
        kept = set_aside(self._path, time.time())
        log.error("history: %s is damaged (%s); kept as %s, starting a new one", self._path, error, kept)

    def _note(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + self._retry_s
        what = error.strerror if isinstance(error, OSError) else error
        why = str(error) if isinstance(error, StoreUnusable) else f"{self._path}: {what}"
        if self.trouble is None:
            log.error("history: %s; keeping new exchanges in memory and trying again every %g s", why, self._retry_s)
        self.trouble = why

    def _write(self, batch: list[StoredRow]) -> None:
        if self.trouble is not None and time.monotonic() >= self._retry_at:
            self._return_to_file()
        if self._store.vanished():
            self._anew()
        try:
            self._store.write(batch)
        except _BAD_ROWS as error:
            self._lost(batch, error)
        except (sqlite3.Error, OSError) as error:
            self._fall(error)
            self._again(batch)

    def _anew(self) -> None:
        """Begin a new file: somebody deleted the open one, as `unslow purge` does."""
        log.warning("history: %s was deleted or replaced while in use; a new one is begun", self._path)
        with contextlib.suppress(sqlite3.Error):
            self._store.close()
        self._store = self._file_store() or self._memory()

    def _again(self, batch: list[StoredRow]) -> None:
        try:
            self._store.write(batch)
        except (sqlite3.Error, OSError) as error:
            self._lost(batch, error)

    def _lost(self, batch: list[StoredRow], error: Exception) -> None:
        self.dropped += len(batch)
        log.error("history: %d exchanges lost: %s", len(batch), error)

    def _fall(self, error: sqlite3.Error | OSError) -> None:
        """Leave a store that failed: for a new file where it was damaged, else for memory."""
        with contextlib.suppress(sqlite3.Error):
            self._store.close()
        again = None
        if isinstance(error, sqlite3.Error) and is_damaged(error) and self._path is not None:
            try:
                self._put_aside(error)
            except OSError as why:
                self._note(why)
            else:
                again = self._file_store()
        else:
            self._note(error)
        self._store = again or self._memory()

    def _return_to_file(self) -> None:
        store = self._file_store()
        if store is None:
            return
        try:
            store.write(list(self._store.all_rows()))
        except (sqlite3.Error, OSError) as error:
            self._note(error)
            with contextlib.suppress(sqlite3.Error):
                store.close()
            return
        log.warning("history: %s can be used again", self._path)
        self._store.close()
        self._store, self.trouble = store, None

    def _purge(self) -> int:
        if self.trouble is not None:
            self._return_to_file()  # or what the file holds would survive
        try:
            count = self._store.purge()
        except sqlite3.Error as error:
            raise HistoryKept(f"{self._path}: {error}") from error
        if self.trouble is not None and self._path is not None and Path(self._path).exists():
            raise HistoryKept(f"what memory held is deleted, but not the file: {self.trouble}")
        return count

    def _read(self, call: Callable[[Store], T], nothing: T) -> T:
        try:
            return call(self._store)
        except sqlite3.Error as error:
            self._fall(error)
            return nothing


def stored_row(timeline: Timeline, *, ttft_ns: int | None) -> StoredRow:
    """The row of one Timeline."""
    facts, usage, line = timeline.facts, timeline.facts.usage, dump_line(timeline)
    return StoredRow(
        id=facts.request_id or timeline.trace_id,
        party=timeline.party.value,
        trace_id=timeline.trace_id,
        started_at=timeline.started_at,
        model=facts.model,
        upstream=facts.upstream,
        status=facts.status,
        outcome=timeline.outcome.end.value,
        kind=timeline.outcome.kind,
        stream=facts.stream,
        e2e_ns=timeline.end_ns,
        ttft_ns=ttft_ns,
        tokens=usage.completion_tokens if usage else None,
        size=len(line),
        line=line,
    )


def _loaded(line: bytes) -> Timeline | None:
    """Read a stored line; one that another version wrote and we cannot read is left out."""
    try:
        return load_line(line, file="history")
    except EvidenceError as error:
        log.warning("%s", error)
        return None
