"""The recorder as a child process: start, stop, lifeline, death and return, overload."""

from __future__ import annotations

import json
import signal
import socket
import stat
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.support.recorder import TOKEN, Recorder, finished, recorder_settings, running, spawn, until

from unslow.serve.recorder.protocol import Snapshot, encode


def start_fails(line: bytes) -> tuple[int, str]:
    process = spawn()
    out, said = process.communicate(line, timeout=10)
    assert out == b""
    return process.returncode, said.decode()


def test_takes_reports_of_several_workers_and_answers(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        mode = Path(recorder.settings.socket_path).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        recorder.send(finished("a"))
        recorder.send(finished("b"), Snapshot(1, 42, time.time(), active_requests=3))
        until(lambda: len(recorder.ask("/api/exchanges").json["items"]) == 2)
        assert recorder.metric('unslow_active_requests{worker="1"}') == 3
        code, said = recorder.stop()
        assert (code, said) == (0, "")
        assert not Path(recorder.settings.socket_path).exists()


def test_what_was_taken_before_sigterm_is_in_the_history_after_it(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        recorder.send(*(finished(f"x{n}") for n in range(50)))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 50)
        recorder.stop()
    with running(tmp_path) as recorder:
        assert len(recorder.ask("/api/exchanges?limit=200").json["items"]) == 50


def test_end_of_stdin_stops_it(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        assert recorder.process.stdin is not None
        recorder.process.stdin.close()
        assert recorder.process.wait(10) == 0


def test_ctrl_c_is_the_supervisors_business(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        recorder.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert recorder.ask("/healthz").status == 200


def test_killed_and_started_again_while_a_worker_keeps_sending(tmp_path: Path) -> None:
    sent: list[str] = []
    done = threading.Event()
    path = tmp_path / "r.sock"

    def work() -> None:  # as a gateway does: never waits long, connects again when it can
        worker: socket.socket | None = None
        while not done.is_set():
            try:
                if worker is None:
                    worker = socket.socket(socket.AF_UNIX)
                    worker.connect(str(path))
                name = f"r{len(sent)}"
                worker.sendall(encode(finished(name)))
                sent.append(name)
            except OSError:
                if worker is not None:
                    worker.close()
                worker = None
            time.sleep(0.002)
        if worker is not None:
            worker.close()

    with running(tmp_path) as first:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            until(lambda: first.metric("unslow_history_rows") > 20)
            first.stop(by=signal.SIGKILL)
            before = len(sent)
            assert path.exists()  # stale: a killed process cannot remove it
            with running(tmp_path) as second:
                until(lambda: second.metric("unslow_recorder_received_total") > 20)
                names = [item["id"] for item in second.ask("/api/exchanges?limit=200").json["items"]]
                assert any(int(name[1:]) > before for name in names)
                more = second.ask("/api/exchanges?limit=200").json
                while more["next"]:
                    more = second.ask(f"/api/exchanges?limit=200&before={more['next']}").json
                    names += [item["id"] for item in more["items"]]
                assert "r0" in names  # from before the kill
        finally:
            done.set()
            thread.join()


def test_a_bad_frame_closes_its_connection_only(tmp_path: Path) -> None:
    with running(tmp_path) as recorder, recorder.connected() as bad, recorder.connected() as good:
        good.sendall(encode(finished("a")))
        bad.sendall(encode(finished("before the bad one")) + b"\x00\x00\x00\x05hello")
        assert bad.recv(1) == b""
        good.sendall(encode(finished("b")))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 3)
        with recorder.connected() as huge:
            huge.sendall(b"\xff\xff\xff\xff")
            assert huge.recv(1) == b""
        code, said = recorder.stop()
        assert code == 0
        assert said.count("\n") == 2
        assert "a worker's connection is closed" in said


def test_an_invalid_record_is_counted_and_left_out(tmp_path: Path) -> None:
    good = finished("a")
    timeless = msgspec.structs.replace(good.timeline, started_at=float("nan"))
    endless = msgspec.structs.replace(good.timeline, end_ns=1 << 60)
    with running(tmp_path) as recorder:
        recorder.send(*(msgspec.structs.replace(good, timeline=t) for t in (timeless, endless)), good)
        until(lambda: recorder.metric("unslow_recorder_received_total") == 1)
        assert recorder.metric("unslow_recorder_invalid_total") == 2
        assert recorder.ask("/api/config").json["history"]["trouble"] is None


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    assert start_fails(b"") == (1, "unslow recorder: the recorder's settings: Input data was truncated\n")
    code, said = start_fails(b'{"socket_path": "/x", "console_token": "' + TOKEN.encode() + b'", "colour": 1}\n')
    assert code == 1
    assert "colour" in said
    code, said = start_fails(b'{"socket_path": "/x", "console_token": "short"}\n')
    assert code == 1
    assert "console_token" in said
    assert "Traceback" not in said


def test_a_socket_path_that_is_too_long(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(recorder_settings(tmp_path), socket_path=str(tmp_path / ("x" * 120)))
    code, said = start_fails(msgspec.json.encode(settings) + b"\n")
    assert code == 1
    assert "longer than" in said
    assert "socket_path" in said
    assert said.count("\n") == 1


def test_a_socket_in_a_folder_that_others_can_write(tmp_path: Path) -> None:
    settings = recorder_settings(tmp_path)
    tmp_path.chmod(0o777)
    code, said = start_fails(msgspec.json.encode(settings) + b"\n")
    assert code == 1
    assert "others can write" in said
    tmp_path.chmod(0o700)


def test_a_file_in_the_sockets_place_is_left_alone(tmp_path: Path) -> None:
    settings = recorder_settings(tmp_path)
    Path(settings.socket_path).write_text("mine")
    code, said = start_fails(msgspec.json.encode(settings) + b"\n")
    assert code == 1
    assert "is no socket" in said
    assert Path(settings.socket_path).read_text() == "mine"


def test_a_second_recorder_on_the_same_socket_or_port_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        code, said = start_fails(msgspec.json.encode(recorder.settings) + b"\n")
        assert (code, "another recorder listens" in said) == (2, True)
        other = msgspec.structs.replace(
            recorder.settings, socket_path=str(tmp_path / "o.sock"), console_port=recorder.port
        )
        code, said = start_fails(msgspec.json.encode(other) + b"\n")
        assert (code, "cannot listen on 127.0.0.1" in said, said.count("\n")) == (2, True, 1)
        recorder.send(finished("a"))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 1)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_flood_is_taken_or_dropped_within_bounded_memory(tmp_path: Path) -> None:
    one = encode(finished("flood"))
    with running(tmp_path, history_max_rows=2000, access_log=str(tmp_path / "a.log")) as recorder:
        with recorder.connected() as worker:
            start = time.monotonic()
            worker.settimeout(30)
            for n in range(100):
                worker.sendall(one * 100)
                if n == 30:
                    early = recorder.metric("unslow_recorder_resident_bytes")
            rate = 10_000 / (time.monotonic() - start)
        until(lambda: recorder.metric("unslow_recorder_received_total") == 10_000, 30)
        late = recorder.metric("unslow_recorder_resident_bytes")
        assert late < early + (64 << 20), f"{early} → {late} bytes at {rate:.0f}/s"
        until(lambda: not recorder_behind(recorder))


def recorder_behind(recorder: Recorder) -> bool:
    """Whether lines are neither written nor counted as dropped yet."""
    log = Path(str(recorder.settings.access_log)).read_bytes().splitlines()
    return len(log) + recorder.metric('unslow_recorder_dropped_total{sink="access_log"}') < 10_000


def test_no_settings_are_echoed(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        assert TOKEN not in json.dumps(recorder.ask("/api/config").json)
        _, said = recorder.stop()
        assert TOKEN not in said
