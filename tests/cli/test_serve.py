"""`unslow serve` as a user runs it: real processes, real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ANSWER = (
    b'{"id":"1","object":"chat.completion","model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b'{"object":"list","data":[{"id":"m","object":"model"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        time.sleep(float(self.headers.get("x-delay", "0")))
        self._answer(ANSWER)

    def _answer(self, body: bytes) -> None:
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.paths = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Serve:
    """A running `unslow serve`."""

    def __init__(self, tmp: Path, *arguments: str) -> None:
        env = {**os.environ, "XDG_DATA_HOME": str(tmp), "XDG_RUNTIME_DIR": str(tmp), "XDG_CONFIG_HOME": str(tmp)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "unslow", "serve", "--port", "0", "--json", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.facts: dict[str, Any] = json.loads(self.process.stdout.readline() or self._failed())

    def _failed(self) -> str:
        assert self.process.stderr is not None
        raise AssertionError(self.process.stderr.read())

    def children(self) -> dict[str, int]:
        found = {}
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            found[Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").rpartition(".")[2]] = int(pid)
        return found

    def get(self, url: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        headers = {"content-type": "application/json", **headers}
        with contextlib.closing(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            urllib.request.Request(url, body, headers), timeout=10
        )) as answer:  # fmt: skip
            return answer.status, answer.read()

    def chat(self, **headers: str) -> tuple[int, bytes]:
        return self.get(self.facts["base_url"] + "/chat/completions", b'{"model":"m","messages":[]}', **headers)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=15)
        return self.process.returncode, err


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    started: list[Serve] = []

    def start(*arguments: str) -> Serve:
        started.append(Serve(tmp_path, *arguments))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate(timeout=10)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("base", ["", "/v1", "/v1/"])
def test_a_base_url_may_end_in_v1_or_not(upstream: ThreadingHTTPServer, serve: Any, base: str) -> None:
    running = serve("--upstream", f"http://127.0.0.1:{upstream.server_port}{base}", "--no-console")
    status, body = running.chat()
    assert (status, body) == (200, ANSWER)
    assert "/v1/chat/completions" in upstream.paths  # type: ignore[attr-defined]
    assert not [p for p in upstream.paths if "/v1/v1" in p]  # type: ignore[attr-defined]


def test_what_was_relayed_stands_in_the_console_and_in_the_metrics(upstream: ThreadingHTTPServer, serve: Any) -> None:
    running = serve("--upstream", f"http://127.0.0.1:{upstream.server_port}", "--console-port", "0")
    running.chat()
    base, _, token = running.facts["console"].partition("/?token=")
    until = time.monotonic() + 10
    items: list[Any] = []
    while not items and time.monotonic() < until:
        items = json.loads(running.get(f"{base}/api/exchanges", authorization=f"Bearer {token}")[1])["items"]
        time.sleep(0.05)
    assert items[0]["status"] == 200
    assert sum(row["duration_ns"] for row in items[0]["rows"]) == items[0]["e2e_ns"]
    assert b"unslow" in running.get(f"{base}/metrics")[1]
    with pytest.raises(urllib.error.HTTPError):
        running.get(f"{base}/api/exchanges")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_leaves_nothing_behind(upstream: ThreadingHTTPServer, serve: Any, number: int, tmp_path: Path) -> None:
    running = serve("--upstream", f"http://127.0.0.1:{upstream.server_port}", "--console-port", "0")
    pids = running.children()
    assert set(pids) == {"gateway", "recorder"}
    code, err = running.stop(number)
    assert code == 0, err
    assert not any(alive(pid) for pid in pids.values())
    assert not list(tmp_path.glob("unslow-*")), "the run directory is gone"


def test_a_request_in_flight_is_finished_before_the_end(upstream: ThreadingHTTPServer, serve: Any) -> None:
    running = serve("--upstream", f"http://127.0.0.1:{upstream.server_port}", "--no-console")
    answers: list[tuple[int, bytes]] = []
    caller = threading.Thread(target=lambda: answers.append(running.chat(**{"x-delay": "1"})))
    caller.start()
    time.sleep(0.3)
    assert running.stop()[0] == 0
    caller.join()
    assert answers == [(200, ANSWER)]


def test_a_killed_recorder_costs_no_request_and_comes_back(upstream: ThreadingHTTPServer, serve: Any) -> None:
    running = serve("--upstream", f"http://127.0.0.1:{upstream.server_port}", "--console-port", "0")
    first = running.children()["recorder"]
    os.kill(first, signal.SIGKILL)
    for _ in range(20):
        assert running.chat()[0] == 200
    base = running.facts["console"].partition("/?")[0]
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if running.get(f"{base}/healthz")[0] == 200:
                break
        time.sleep(0.1)
    assert running.children()["recorder"] != first


def test_workers_share_the_port(upstream: ThreadingHTTPServer, serve: Any) -> None:
    running = serve("--upstream", f"http://127.0.0.1:{upstream.server_port}", "--no-console", "--workers", "2")
    listed = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    assert len(listed) == 2
    assert {running.chat()[0] for _ in range(20)} == {200}
