"""The history's file: SQLite, bounded, used by one thread at a time.

Theory of operation. One row an exchange and party: the Timeline as its JSON line, plus the columns that lists and
look-ups need. Rows and bytes are bounded: each batch drops the oldest rows over a bound, and the file gives pages
back. `user_version` is the schema's version; `MIGRATIONS[n]` leads from version n to n + 1, each in a transaction
of its own. A file that is not SQLite, or is damaged, is set aside under a new name and never deleted; a file of a
newer schema is left alone. The same code runs on `:memory:` when there is no usable file.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from unslow.errors import UnslowError

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE exchanges (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        party TEXT NOT NULL,
        trace_id TEXT NOT NULL,
        started_at REAL NOT NULL,
        model TEXT,
        upstream TEXT,
        status INTEGER,
        outcome TEXT NOT NULL,
        kind TEXT,
        stream INTEGER,
        e2e_ns INTEGER NOT NULL,
        ttft_ns INTEGER,
        tokens INTEGER,
        size INTEGER NOT NULL,
        line BLOB NOT NULL
    );
    CREATE UNIQUE INDEX exchanges_id ON exchanges (id, party);
    """,
)
"""Schema changes in order; append, never edit."""

ROW_OVERHEAD_BYTES = 300
"""Estimate of what a row takes besides its line (columns, indexes, page slack)."""

_COLUMNS = "id, party, trace_id, started_at, model, upstream, status, outcome, kind, stream, e2e_ns, ttft_ns, tokens"
_INSERT = f"INSERT OR REPLACE INTO exchanges ({_COLUMNS}, size, line) VALUES ({', '.join('?' * 15)})"  # noqa: S608


class StoreUnusable(UnslowError):
    """The file cannot be used; the text says why and what to do."""


class StoredRow(NamedTuple):
    """What is written of one exchange, in the order of the columns."""

    id: str
    party: str
    trace_id: str
    started_at: float
    model: str | None
    upstream: str | None
    status: int | None
    outcome: str
    kind: str | None
    stream: bool | None
    e2e_ns: int
    ttft_ns: int | None
    tokens: int | None
    size: int
    line: bytes


class Found(NamedTuple):
    """A row as it is read: its place in the order of arrival, and its line."""

    seq: int
    line: bytes


class Store:
    """An open history. Every method may raise sqlite3.Error; none is safe to call from two threads at once."""

    def __init__(self, path: str, *, max_rows: int, max_bytes: int, migrations: Sequence[str] = MIGRATIONS) -> None:
        self.path, self._max_rows, self._max_bytes = path, max_rows, max_bytes
        self._db = _opened(path, migrations)
        self._inode = None if path == ":memory:" else Path(path).stat().st_ino
        self.rows, self.size = self._db.execute("SELECT count(*), coalesce(sum(size), 0) FROM exchanges").fetchone()

    def write(self, rows: Iterable[StoredRow]) -> None:
        """Write a batch in one transaction and drop the oldest rows over a bound."""
        before = self.rows, self.size
        try:
            with self._transaction():
                for row in rows:
                    self._replace(row)
                self._trim()
        except BaseException:
            self.rows, self.size = before
            raise
        self._db.execute("PRAGMA incremental_vacuum(256)").fetchall()

    def newest(self, limit: int, before: int | None = None) -> list[Found]:
        """The newest exchanges (of every party but the page, which only adds to them) below a place in the order."""
        query = "SELECT seq, line FROM exchanges WHERE party <> 'page' AND seq < ? ORDER BY seq DESC LIMIT ?"
        return [Found(*row) for row in self._db.execute(query, (before or (1 << 62), limit))]

    def of_id(self, key: str) -> list[bytes]:
        """The lines of one exchange, one a party, in order of arrival."""
        return [row[0] for row in self._db.execute("SELECT line FROM exchanges WHERE id = ? ORDER BY seq", (key,))]

    def all_rows(self) -> Iterator[StoredRow]:
        """Every row, oldest first."""
        for row in self._db.execute(f"SELECT {_COLUMNS}, size, line FROM exchanges ORDER BY seq"):  # noqa: S608
            yield StoredRow(*row)

    def purge(self) -> int:
        """Delete everything, overwrite it in the file, and give the space back; how many rows there were."""
        self._db.execute("PRAGMA secure_delete = ON").fetchall()
        with self._transaction():
            (count,) = self._db.execute("SELECT count(*) FROM exchanges").fetchone()
            self._db.execute("DELETE FROM exchanges")
        self.rows = self.size = 0
        self._db.execute("PRAGMA incremental_vacuum").fetchall()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.execute("PRAGMA secure_delete = FAST").fetchall()
        return int(count)

    def vanished(self) -> bool:
        """Whether the file was deleted or replaced while it was open: what is written now would be lost."""
        try:
            return self._inode is not None and Path(self.path).stat().st_ino != self._inode
        except OSError:
            return True

    def close(self) -> None:
        """Close the file; its write-ahead log is merged."""
        self._db.close()

    def _replace(self, row: StoredRow) -> None:
        old = self._db.execute("SELECT size FROM exchanges WHERE id = ? AND party = ?", row[:2]).fetchone()
        self._db.execute(_INSERT, row)
        if old is None:
            self.rows += 1
        self.size += row.size - (old[0] if old else 0)

    def _trim(self) -> None:
        while self.rows > self._max_rows or (
            self.size + self.rows * ROW_OVERHEAD_BYTES > self._max_bytes and self.rows
        ):
            surplus = max(self.rows - self._max_rows, 1 + self.rows // 50)
            oldest = "(SELECT seq FROM exchanges ORDER BY seq LIMIT ?)"
            (size,) = self._db.execute(
                f"SELECT coalesce(sum(size), 0) FROM exchanges WHERE seq IN {oldest}",  # noqa: S608
                (surplus,),
            ).fetchone()
            gone = self._db.execute(f"DELETE FROM exchanges WHERE seq IN {oldest}", (surplus,)).rowcount  # noqa: S608
            self.rows, self.size = self.rows - gone, self.size - size

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _opened(path: str, migrations: Sequence[str]) -> sqlite3.Connection:
    if path != ":memory:":
        _prepare(Path(path))
    db = sqlite3.connect(path, timeout=2, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = FAST")
        db.execute("PRAGMA journal_size_limit = 16777216").fetchall()
        _migrate(db, path, migrations)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(path: Path) -> None:
    """Make the folder and the file, for the owner alone (SQLite gives its side files the file's mode)."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=True)


def _migrate(db: sqlite3.Connection, path: str, migrations: Sequence[str]) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise StoreUnusable(
            f"{path} is of schema {version}, newer than this unslow knows ({len(migrations)}); "
            "upgrade unslow or set another history file"
        )
    for n in range(version, len(migrations)):
        try:
            db.executescript(f"BEGIN IMMEDIATE; {migrations[n]}; PRAGMA user_version = {n + 1}; COMMIT;")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is no database, or a damaged one."""
    code = getattr(error, "sqlite_errorcode", None)  # absent where the module itself raised
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(path: str, at: float) -> str:
    """Rename a damaged file and its side files so that a new one can be made; the new name."""
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ")
    target, n = f"{path}.corrupt-{stamp}", 1
    while Path(target).exists():
        target, n = f"{path}.corrupt-{stamp}.{n}", n + 1
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(path + suffix).rename(target + suffix)
    Path(path).rename(target)
    return target
