"""The access log of a running recorder: redaction, filters, rotation, disks that do not take it."""

from __future__ import annotations

import json
import resource
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
from tests.support.recorder import Recorder, finished, gateway_timeline, running, until

from unslow.serve.recorder.logfile import LogFile
from unslow.serve.recorder.protocol import Finished, encode


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def received(recorder: Recorder, count: int) -> None:
    until(lambda: recorder.metric("unslow_recorder_received_total") == count)


def test_a_line_an_exchange_without_secrets(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with running(tmp_path, access_log=str(log)) as recorder:
        recorder.send(finished("a"))
        until(lambda: log.exists() and bool(log.read_bytes()))
        recorder.stop()
    assert b"SECRET" not in log.read_bytes()
    (line,) = lines(log)
    assert line["id"] == "a"
    assert line["path"] == "/v1/chat/completions"
    assert (line["client"], line["duration_ms"], line["ttft_ms"]) == ("key-a", 1760.0, 1000.0)
    assert round(sum(line["phases"].values()), 6) == 1760.0
    assert log.stat().st_mode & 0o007 == 0


def test_only_slow_ones_and_failures(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    fast = msgspec.structs.replace(gateway_timeline("fast"), end_ns=1_745_000_000)
    with running(tmp_path, access_log=str(log), access_log_min_ms=1750) as recorder:
        recorder.send(Finished(fast), finished("slow"), finished("failed", status=429))
        received(recorder, 3)
        recorder.stop()
    assert [line["id"] for line in lines(log)] == ["slow", "failed"]


def test_errors_only_and_the_callers_decision_to_sample(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with running(tmp_path, access_log=str(log), access_log_errors_only=True) as recorder:
        recorder.send(finished("good"), finished("bad", status=500))
        received(recorder, 2)
        recorder.stop()
    assert [line["id"] for line in lines(log)] == ["bad"]
    sampled = tmp_path / "b.log"
    with running(tmp_path, access_log=str(sampled), access_log_sample_ratio=0.0) as recorder:
        yes = msgspec.structs.replace(finished("yes"), sampled=True)
        recorder.send(finished("no"), yes, finished("bad", status=500))
        received(recorder, 3)
        recorder.stop()
    assert [line["id"] for line in lines(sampled)] == ["yes", "bad"]


def test_a_hangup_reopens_the_file(tmp_path: Path) -> None:
    log, rotated = tmp_path / "a.log", tmp_path / "a.log.1"
    with running(tmp_path, access_log=str(log)) as recorder:
        recorder.send(finished("before"))
        until(lambda: log.exists() and bool(log.read_bytes()))
        log.rename(rotated)
        recorder.process.send_signal(signal.SIGHUP)
        until(log.exists)
        recorder.send(finished("after"))
        until(lambda: bool(log.read_bytes()))
        recorder.stop()
    assert [line["id"] for line in lines(rotated)] == ["before"]
    assert [line["id"] for line in lines(log)] == ["after"]


def test_a_hangup_without_a_log_is_harmless(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        recorder.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        assert recorder.ask("/healthz").status == 200


def test_stderr(tmp_path: Path) -> None:
    with running(tmp_path, access_log="-") as recorder:
        recorder.send(finished("a"))
        received(recorder, 1)
        _, said = recorder.stop()
    assert json.loads(said)["id"] == "a"


def test_a_reader_that_never_reads_stops_nobody(tmp_path: Path) -> None:
    """A full pipe on stderr holds the log's thread; records, metrics and the API go on, and drops are counted."""
    with running(tmp_path, access_log="-") as recorder:
        with recorder.connected() as worker:
            one = encode(finished("x"))
            for _ in range(100):
                worker.sendall(one * 100)
        until(lambda: recorder.metric("unslow_recorder_received_total") == 10_000, 15)
        assert recorder.metric('unslow_recorder_dropped_total{sink="access_log"}') > 0
        assert recorder.ask("/readyz").status == 200


def test_a_place_that_cannot_be_written_is_told_and_tried_again(tmp_path: Path) -> None:
    log = tmp_path / "later" / "a.log"
    writer = LogFile(str(log), retry_s=0)
    until(lambda: writer.trouble is not None)
    writer.offer(b"lost\n")
    until(lambda: writer.dropped == 1)
    log.parent.mkdir()
    writer.offer(b"kept\n")
    until(lambda: log.exists() and log.read_bytes() == b"kept\n")
    until(lambda: writer.trouble is None)
    writer.close()


def test_no_line_is_torn_by_a_write_that_ended_inside_one(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_050, hard))  # as a full disk: a short write, then an error
    try:
        writer = LogFile(str(log), retry_s=0)
        for n in range(5000):
            writer.offer(b"%d %b\n" % (n, b"x" * 90))
        until(lambda: writer.dropped > 0)
        until(lambda: writer.trouble is not None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for n in range(5000, 5003):
        writer.offer(b"%d %b\n" % (n, b"x" * 90))
    writer.close()
    got = log.read_bytes().split(b"\n")
    whole = [line for line in got if line.endswith(b" " + b"x" * 90)]
    assert len(whole) + writer.dropped == 5003
    assert [line.split(b" ")[0] for line in whole[-3:]] == [b"5000", b"5001", b"5002"]
    assert writer.trouble is None
