"""The recorder behind a real gateway worker: what a caller's request becomes, and what a dead recorder costs it."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from tests.support.recorder import recorder_settings, running, until

from unslow.serve.gateway.settings import GatewaySettings, UpstreamSettings

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def gateway(socket_path: str) -> Iterator[int]:
    """A gateway worker before a model; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    settings = GatewaySettings(upstreams=(UpstreamSettings(name="one", url=url),), port=0, recorder_socket=socket_path)
    child = subprocess.Popen(
        [sys.executable, "-m", "unslow.serve.gateway"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        yield int(json.loads(child.stdout.readline()[6:])["address"].rpartition(":")[2])
    finally:
        child.terminate()
        child.wait(10)
        child.stdin.close()
        child.stdout.close()
        server.shutdown()
        thread.join()
        server.server_close()


def ask(port: int, flags: str | None = None) -> str:
    """One request; its x-unslow-id."""
    headers = {"content-type": "application/json"}
    if flags is not None:
        headers["traceparent"] = f"00-{TRACE}-00f067aa0ba902b7-{flags}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions?key=SECRET", json.dumps({"model": "m"}), headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        return str(answer.getheader("x-unslow-id"))


def test_a_request_is_recorded_counted_and_logged_as_its_caller_decided(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with (
        running(tmp_path, access_log=str(log), access_log_sample_ratio=0.0) as recorder,
        gateway(recorder.settings.socket_path) as port,
    ):
        ids = [ask(port), ask(port, "00"), ask(port, "01")]
        until(lambda: recorder.metric("unslow_recorder_received_total") == 3)
        shown = recorder.ask(f"/api/exchanges/{ids[2]}").json
        assert shown["timeline"]["trace_id"] == TRACE
        assert shown["metrics"]["completion_tokens"] == 2
        assert sum(row["duration_ns"] for row in shown["rows"]) == shown["timeline"]["end_ns"]
        until(lambda: recorder.metric('unslow_worker_requests_total{worker="0"}') == 3)
        recorder.stop()
    assert [json.loads(line)["id"] for line in log.read_bytes().splitlines()] == [ids[2]]
    assert b"SECRET" not in log.read_bytes()


@pytest.mark.slow
def test_no_request_is_lost_while_the_recorder_dies_and_comes_back(tmp_path: Path) -> None:
    settings = recorder_settings(tmp_path)
    with gateway(settings.socket_path) as port:
        ids = [ask(port)]  # before there is any recorder
        with running(tmp_path) as first:
            until(lambda: first.metric("unslow_recorder_received_total") >= 1)
            ids.append(ask(port))
            until(lambda: first.metric("unslow_history_rows") == 2)
            first.stop(by=signal.SIGKILL)
            ids += [ask(port) for _ in range(20)]
        with running(tmp_path) as second:
            until(lambda: second.metric("unslow_recorder_received_total") >= 20, 15)
            ids.append(ask(port))
            until(lambda: second.ask("/api/exchanges").json["items"][0]["id"] == ids[-1])
            kept = [item["id"] for item in second.ask("/api/exchanges?limit=200").json["items"]]
    assert sorted(kept) == sorted(ids)


def test_promtool_takes_the_metrics(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    with running(tmp_path) as recorder, gateway(recorder.settings.socket_path) as port:
        ask(port)
        until(lambda: recorder.metric("unslow_recorder_received_total") == 1)
        body = recorder.ask("/metrics").body
    done = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
