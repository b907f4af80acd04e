"""The console as users have it: the real recorder and a real gateway worker in front of a model that plays a script."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from unslow.serve.gateway.settings import GatewaySettings, UpstreamSettings
from unslow.serve.recorder.settings import ConfigSummary, RecorderSettings, UpstreamSummary

TOKEN = "console-test-token-0123456789"
FIRST_TOKEN_S = 0.12
TOKEN_S = 0.006
THOUGHT_S = 0.1
"""Long enough that no busy machine reads all thoughts and the answer at once."""
ANSWER = """The first token waits for the **whole prompt** to be read. Each later one needs only `one step`.

1. The request crosses the network.
2. It waits for a free place in the *queue*.
3. The model reads the prompt: [prefill](https://example.com/prefill).

```python
for chunk in stream:
    print(chunk, end="")
```

<img src=x onerror="document.title='run'"> and [a bad link](javascript:alert(1)) stay text.
"""


class Console(NamedTuple):
    """A running console."""

    url: str
    gateway: str

    @property
    def entry(self) -> str:
        """The address that unslow prints, with the token."""
        return f"{self.url}/?token={TOKEN}"

    def api(self, path: str) -> Any:
        """An answer of the console's API."""
        host = self.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("GET", path, headers={"authorization": f"Bearer {TOKEN}"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def ask(self, text: str, model: str = "demo-1b") -> int:
        """One request through the gateway; its status."""
        connection = http.client.HTTPConnection(self.gateway.removeprefix("http://"), timeout=20)
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        with contextlib.suppress(http.client.IncompleteRead):  # a script may cut its answer
            answer.read()
        connection.close()
        return answer.status


@contextlib.contextmanager
def console(folder: Path) -> Iterator[Console]:
    """Start everything; stopped at the end. The last word of a prompt chooses the script (see `_Model`)."""
    port = _free_port()
    with _model() as upstream, contextlib.ExitStack() as stack:
        models = ("demo-1b", "demo-8b-instruct-with-a-long-name")
        recorder = RecorderSettings(
            socket_path=str(folder / "r.sock"),
            console_token=TOKEN,
            gateway_url=f"http://127.0.0.1:{port}",
            config_summary=ConfigSummary(
                models=models,
                upstreams=(UpstreamSummary(name="demo", url=upstream, has_key=True),),
                engine={"model": "demo-1b", "device": "CPU", "threads": 2},
                settings={"gateway": {"workers": 1}},
            ),
        )
        address = stack.enter_context(_child("unslow.serve.recorder", recorder))
        gateway = GatewaySettings(
            upstreams=(UpstreamSettings(name="demo", url=upstream),),
            port=port,
            recorder_socket=recorder.socket_path,
            allowed_origins=(f"http://{address}",),
        )
        stack.enter_context(_child("unslow.serve.gateway", gateway))
        yield Console(f"http://{address}", f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def _child(module: str, settings: msgspec.Struct) -> Iterator[str]:
    """A child of the contract; its address once it is ready."""
    child = subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        assert line.startswith(b"ready "), f"{module} said {line!r}"
        yield str(json.loads(line[6:])["address"])
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _model() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Model(BaseHTTPRequestHandler):
    """Scripts by the prompt's last word: `refuse`, `cut`, `hang`, `think`, `long` (10,000 tokens), `garbage`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        word = str(body["messages"][-1]["content"]).split()[-1]
        with contextlib.suppress(OSError):
            self._play(word, str(body["model"]))

    def _play(self, word: str, model: str) -> None:
        if word == "refuse":
            self._plain(429, {"error": {"message": "Too many requests <b>now</b>", "code": "rate_limit"}})
            return
        if word == "garbage":
            self._plain(200, {"hello": "world"})
            return
        self._head(200, "text/event-stream")
        self._event(model, {"role": "assistant", "content": ""})
        time.sleep(FIRST_TOKEN_S)
        if word == "think":
            for piece in ("Let me ", "think ", "about it."):
                self._event(model, {"reasoning_content": piece})
                time.sleep(THOUGHT_S)
        pieces = list(_pieces(word))
        for piece in pieces:
            self._event(model, {"content": piece})
            time.sleep(0 if word == "long" else TOKEN_S)
        if word == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._event(model, {}, finish_reason="stop")
        usage = {"prompt_tokens": 21, "completion_tokens": len(pieces), "total_tokens": 21 + len(pieces)}
        times = {"queue_ms": 14.0, "prompt_ms": 88.0, "predicted_ms": 260.0, "prompt_n": 21, "predicted_n": len(pieces)}
        self._chunk(b"data: " + json.dumps({"model": model, "choices": [], "usage": usage, "timings": times}).encode())
        self._chunk(b"data: [DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, model: str, delta: dict[str, str], finish_reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        body = {"id": "c1", "object": "chat.completion.chunk", "model": model, "choices": [choice]}
        self._chunk(b"data: " + json.dumps(body).encode())

    def _chunk(self, event: bytes) -> None:
        data = event + b"\n\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _plain(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self._head(status, "application/json", len(data))
        self.wfile.write(data)

    def _head(self, status: int, kind: str, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        if length is None:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class names it so
        """Quiet."""


def _pieces(word: str) -> Iterator[str]:
    if word == "long":
        for n in range(10_000):
            yield f"word{n} " if n % 40 else f"\n\n## Part {n}\n\n- item "
    elif word == "hang":
        for n in range(100_000):
            yield f"{n} "
    else:
        for line in ANSWER.splitlines(keepends=True):
            for part in line.split(" "):
                yield part if part.endswith("\n") else part + " "
