"""Scripted children: small modules that keep or break the contract of a child process."""

from __future__ import annotations

from pathlib import Path

import pytest

CHILDREN = {
    "good": """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", sys.stdin.readline().strip(), flush=True)
sys.stdin.read()
print("lifeline cut", file=sys.stderr, flush=True)
""",
    "refuses": """
import sys
print("the port is taken", file=sys.stderr)
sys.exit(2)
""",
    "silent": "import time; time.sleep(60)",
    "stubborn": """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready {}", flush=True)
time.sleep(60)
""",
    "talks": """
import sys
sys.stdin.readline()
print("warming up", file=sys.stderr, flush=True)
print("ready {}", flush=True)
print("x" * 3_000_000, file=sys.stderr, flush=True)
print("still here", file=sys.stderr, flush=True)
sys.stdin.read()
""",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in CHILDREN.items():
        (tmp_path / f"child_{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
