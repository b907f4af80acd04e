"""The history's file: bounds, damage, full disks, versions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
from tests.support.recorder import finished, gateway_timeline, running, until

from unslow.core.timeline import Hop
from unslow.serve.recorder import history as history_module
from unslow.serve.recorder.history import History, stored_row
from unslow.serve.recorder.store import MIGRATIONS, Store, StoredRow, StoreUnusable

BIG = 64 << 20


def row(name: str, party: Hop = Hop.GATEWAY) -> StoredRow:
    return stored_row(msgspec.structs.replace(gateway_timeline(name), party=party), ttft_ns=1)


def ids(store: Store, limit: int = 1000) -> list[str]:
    return [msgspec.json.decode(f.line)["facts"]["request_id"] for f in store.newest(limit)]


def test_rows_are_bounded_and_the_oldest_go(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "h"), max_rows=10, max_bytes=BIG)
    for n in range(7):
        store.write([row(f"{n}-{m}") for m in range(4)])
    assert store.rows == 10
    assert ids(store) == ["6-3", "6-2", "6-1", "6-0", "5-3", "5-2", "5-1", "5-0", "4-3", "4-2"]
    store.close()
    again = Store(str(tmp_path / "h"), max_rows=10, max_bytes=BIG)
    assert (again.rows, again.size) == (store.rows, store.size)
    again.close()


def test_bytes_are_bounded_in_the_file_too(tmp_path: Path) -> None:
    path, limit = tmp_path / "h", 1 << 20
    store = Store(str(path), max_rows=10**6, max_bytes=limit)
    for n in range(30):
        store.write([row(f"{n}-{m}") for m in range(50)])
    assert store.rows < 1500
    assert store.size <= limit
    assert ids(store, 1) == ["29-49"]
    store.close()
    assert path.stat().st_size < 2 * limit


def test_one_row_an_exchange_and_party(tmp_path: Path) -> None:
    store = Store(":memory:", max_rows=100, max_bytes=BIG)
    store.write([row("a"), row("a"), row("a", Hop.PAGE), row("b")])
    assert store.rows == 3
    assert store.size == sum(r.size for r in store.all_rows())
    assert [msgspec.json.decode(line)["party"] for line in store.of_id("a")] == ["gateway", "page"]
    assert ids(store) == ["b", "a"]
    store.close()


def test_a_failed_batch_leaves_nothing_and_counts_nothing() -> None:
    store = Store(":memory:", max_rows=100, max_bytes=BIG)
    store.write([row("a")])
    before = (store.rows, store.size)
    with pytest.raises(sqlite3.IntegrityError):
        store.write([row("b"), row("c")._replace(started_at=float("nan"))])
    assert (store.rows, store.size) == before
    assert ids(store) == ["a"]
    store.close()


def test_an_older_file_is_migrated_and_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "h")
    old = Store(path, max_rows=10, max_bytes=BIG)
    old.write([row("kept")])
    old.close()
    later = (*MIGRATIONS, "ALTER TABLE exchanges ADD COLUMN region TEXT")
    new = Store(path, max_rows=10, max_bytes=BIG, migrations=later)
    assert ids(new) == ["kept"]
    new.close()
    with pytest.raises(StoreUnusable, match="newer than this unslow knows"):
        Store(path, max_rows=10, max_bytes=BIG)
    assert Path(path).exists()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "h")
    Store(path, max_rows=10, max_bytes=BIG).close()
    broken = (*MIGRATIONS, "ALTER TABLE exchanges ADD COLUMN region TEXT; SELECT nothing FROM nowhere")
    with pytest.raises(sqlite3.OperationalError):
        Store(path, max_rows=10, max_bytes=BIG, migrations=broken)
    store = Store(path, max_rows=10, max_bytes=BIG)  # still version 1, still without the column
    store.write([row("a")])
    store.close()


def test_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "new" / "h"), max_rows=10, max_bytes=BIG)
    store.write([row("a")])
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o777 for f in (tmp_path / "new").iterdir()} == {0o600}
    store.close()


@pytest.mark.parametrize("damage", ["no database at all, but long enough " * 200, ""])
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "history.sqlite3"
    path.write_text(damage)
    with running(tmp_path) as recorder:
        recorder.send(finished("a"))
        until(lambda: len(recorder.ask("/api/exchanges").json["items"]) == 1)
        assert recorder.ask("/api/config").json["history"]["where"] == "file"
        _, said = recorder.stop()
    aside = list(tmp_path.glob("history.sqlite3.corrupt-*"))
    if damage:  # an empty file is a new database
        assert [f.read_text() for f in aside] == [damage]
        assert said.count("\n") == 1
        assert "is damaged" in said
        assert str(aside[0]) in said
    else:
        assert not aside
        assert said == ""


def test_a_file_damaged_while_in_use_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    with running(tmp_path, history_max_rows=400) as recorder:
        for part in range(10):
            recorder.send(*(finished(f"a{part}-{n}") for n in range(100)))
            until(lambda part=part: recorder.metric("unslow_recorder_received_total") == 100 * (part + 1))  # type: ignore[misc]
            recorder.ask("/api/exchanges?limit=1")
        with path.open("r+b") as file:
            file.write(b"\xff" * path.stat().st_size)
        recorder.send(*(finished(f"b{n}") for n in range(600)))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 1600)
        assert recorder.ask("/readyz").status == 200
        recorder.ask("/api/exchanges?limit=200")
        recorder.send(finished("after"))
        until(lambda: "after" in [i["id"] for i in recorder.ask("/api/exchanges").json["items"]])
    assert list(tmp_path.glob("history.sqlite3.corrupt-*"))


def test_a_full_disk_turns_to_memory_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with running(tmp_path, limit_file_blocks=256, access_log=str(log)) as recorder:
        recorder.send(*(finished(f"x{n}") for n in range(1000)))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 1000)
        until(lambda: len(recorder.ask("/readyz").json["degraded"]) == 2)
        ready = recorder.ask("/readyz")
        assert ready.status == 200
        assert ready.json["degraded"][0].startswith("history is in memory: ")
        state = recorder.ask("/api/config").json["history"]
        assert (state["where"], state["dropped"]) == ("memory", 0)
        assert "disk" in state["trouble"]
        assert recorder.metric("unslow_history_on_disk") == 0
        assert recorder.metric('unslow_recorder_dropped_total{sink="access_log"}') > 0
        recorder.send(finished("later"))
        until(lambda: recorder.ask("/api/exchanges").json["items"][0]["id"] == "later")
        code, said = recorder.stop()
        assert code == 0
        assert said.count("\n") == 2  # one line for the history, one for the log
    for line in log.read_bytes().splitlines()[:-1]:
        assert msgspec.json.decode(line)["trace_id"]


def test_a_folder_that_cannot_be_made_turns_to_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with running(tmp_path, history_path=str(tmp_path / "file" / "h.sqlite3")) as recorder:
        recorder.send(finished("a"))
        until(lambda: len(recorder.ask("/api/exchanges").json["items"]) == 1)
        assert "file" in recorder.ask("/readyz").json["degraded"][0]


@pytest.mark.skipif(os.name != "posix", reason="users of POSIX")
def test_a_read_only_file_turns_to_memory() -> None:
    async def scenario(path: str) -> None:
        kept = History(path, max_rows=10, max_bytes=BIG)
        kept.offer(row("a"))
        assert [t.facts.request_id for _, t in await kept.newest(10, None)] == ["a"]
        state = kept.state()
        await kept.close()
        assert state.where == "memory"
        assert state.trouble is not None
        assert "Permission denied" in state.trouble or "readonly" in state.trouble

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h"
        Store(str(path), max_rows=10, max_bytes=BIG).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            asyncio.run(scenario(str(path)))
        finally:
            if root:
                os.seteuid(0)
            Path(folder).chmod(0o700)


def test_a_file_deleted_while_in_use_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    with running(tmp_path) as recorder:
        recorder.send(finished("a"))
        until(lambda: recorder.metric("unslow_history_rows") == 1)
        for file in tmp_path.glob("history.sqlite3*"):
            file.unlink()
        recorder.send(finished("b"))
        until(lambda: [i["id"] for i in recorder.ask("/api/exchanges").json["items"]] == ["b"])
        recorder.stop()
    store = Store(str(path), max_rows=10, max_bytes=BIG)
    assert ids(store) == ["b"]
    store.close()


def test_when_the_disk_is_back_memory_moves_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("in the way")

    async def scenario() -> None:
        kept = History(str(tmp_path / "place" / "h"), max_rows=10, max_bytes=BIG, retry_s=0)
        assert kept.state().where == "memory"
        kept.offer(row("a"))
        await kept.flush()
        (tmp_path / "place").unlink()
        kept.offer(row("b"))
        assert [t.facts.request_id for _, t in await kept.newest(10, None)] == ["b", "a"]
        assert (kept.state().where, kept.state().trouble) == ("file", None)
        await kept.close()

    asyncio.run(scenario())


def test_what_does_not_fit_the_queue_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "QUEUE_ROWS", 5)

    async def scenario() -> None:
        kept = History(None, max_rows=100, max_bytes=BIG)
        for n in range(8):
            kept.offer(row(f"{n}"))
        assert kept.dropped == 3
        assert len(await kept.newest(10, None)) == 5
        kept.offer(row("fits again"))
        assert len(await kept.newest(10, None)) == 6
        await kept.close()

    asyncio.run(scenario())


def test_a_row_that_cannot_be_stored_does_no_harm_to_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        kept = History(str(tmp_path / "h"), max_rows=100, max_bytes=BIG)
        kept.offer(row("a")._replace(started_at=float("nan")))
        await kept.flush()
        assert kept.dropped == 1
        kept.offer(row("b"))
        await kept.flush()
        assert (kept.state().where, kept.state().rows) == ("file", 1)
        await kept.close()

    asyncio.run(scenario())
    assert threading.active_count() < 20
