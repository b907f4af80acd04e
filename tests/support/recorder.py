"""A real recorder process, and a scripted worker that reports to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.support.timelines import known

from unslow.core.timeline import Hop, Outcome, Timeline, Usage
from unslow.serve.recorder.protocol import Finished, Message, encode
from unslow.serve.recorder.settings import RecorderSettings

TOKEN = "recorder-test-token-0123456789"


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Recorder:
    """A started recorder."""

    def __init__(self, settings: RecorderSettings, limit_file_blocks: int | None = None) -> None:
        self.settings = settings
        self.process = spawn(limit_file_blocks)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(settings) + b"\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        assert said.startswith(b"ready "), self.process.communicate()
        self.address: str = json.loads(said[6:])["address"]
        self.port = int(self.address.rpartition(":")[2])

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        body: bytes | None = None,
        token: str | None = TOKEN,
        headers: dict[str, str] | None = None,
    ) -> Got:
        """One request; `token` goes as a bearer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Got(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def send(self, *messages: Message) -> None:
        """Report as a worker on a connection of its own."""
        with self.connected() as worker:
            worker.sendall(b"".join(encode(m) for m in messages))

    def connected(self) -> socket.socket:
        """A worker's connection."""
        worker = socket.socket(socket.AF_UNIX)
        worker.settimeout(10)
        worker.connect(self.settings.socket_path)
        return worker

    def metric(self, name: str) -> float:
        """The value of one series, or 0."""
        for text in self.ask("/metrics").body.decode().splitlines():
            if text.startswith((name + " ", name + "{")):
                return float(text.rpartition(" ")[2])
        return 0.0

    def stop(self, *, by: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End the process: its exit code and what it said on stderr."""
        self.process.send_signal(by)
        assert self.process.stderr is not None
        code = self.process.wait(10)
        return code, self.process.stderr.read().decode()


def spawn(limit_file_blocks: int | None = None) -> subprocess.Popen[bytes]:
    """The bare process; no file of it may grow over the limit (1 KiB blocks), as on a full disk."""
    command = [sys.executable, "-m", "unslow.serve.recorder"]
    if limit_file_blocks is not None:
        command = ["bash", "-c", f'ulimit -f {limit_file_blocks}; exec "$@"', "bash", *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


@contextlib.contextmanager
def running(folder: Path, *, limit_file_blocks: int | None = None, **settings: Any) -> Iterator[Recorder]:
    """A recorder with its files in `folder`."""
    recorder = Recorder(recorder_settings(folder, **settings), limit_file_blocks)
    try:
        yield recorder
    finally:
        if recorder.process.poll() is None:
            recorder.process.kill()
        recorder.process.wait()
        for pipe in (recorder.process.stdin, recorder.process.stdout, recorder.process.stderr):
            if pipe is not None:
                pipe.close()


def recorder_settings(folder: Path, **settings: Any) -> RecorderSettings:
    """Settings with files in `folder`."""
    given: dict[str, Any] = {"history_path": str(folder / "history.sqlite3")} | settings
    folder.chmod(0o700)
    return RecorderSettings(socket_path=str(folder / "r.sock"), console_token=TOKEN, **given)


def until(true: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait for something that must become true."""
    limit = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < limit, "did not become true"
        time.sleep(0.02)


def gateway_timeline(name: str, *, model: str = "m-1", status: int = 200, trace: str | None = None) -> Timeline:
    """A gateway's record of an exchange, with everything in it that must not get out."""
    base = known(name=name)
    facts = msgspec.structs.replace(
        base.facts,
        request_id=name,
        url="http://user:pass@up.example/v1/chat/completions?api_key=SECRET",
        upstream="main",
        model=model,
        status=status,
        usage=Usage(10, 5, 2, 4),
        request_bytes=100,
        response_bytes=900,
        headers={"server": "x", "set-cookie": "SECRET=1"},
    )
    outcome = Outcome() if status < 400 else Outcome(kind=f"http_{status}")
    spans = (msgspec.structs.replace(s, hop=Hop.GATEWAY) if s.hop is Hop.CLIENT else s for s in base.spans)
    seen: dict[str, Any] = {"party": Hop.GATEWAY, "spans": tuple(spans), "trace_id": trace or base.trace_id}
    return msgspec.structs.replace(base, facts=facts, outcome=outcome, **seen)


def finished(name: str, **more: Any) -> Finished:
    """A message of worker 0."""
    return Finished(gateway_timeline(name, **more), 0, "key-a", "/v1/chat/completions?key=SECRET")
