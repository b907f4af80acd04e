from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from unslow.serve.supervisor import Backoff, ChildSpec, Supervisor
from unslow.serve.supervisor.supervisor import StartFailed

pytestmark = pytest.mark.anyio
Said = list[tuple[str, str]]


def spec(kind: str, name: str | None = None, *, settings: bytes = b"{}", stop_timeout_s: float = 5) -> ChildSpec:
    return ChildSpec(
        name=name or kind, module=f"child_{kind}", settings=settings, ready_timeout_s=10, stop_timeout_s=stop_timeout_s
    )


def supervisor(*specs: ChildSpec, said: Said) -> Supervisor:
    return Supervisor(specs, say=lambda name, line: said.append((name, line)), backoff=Backoff(0.05, 0.2, 30))


async def until(true: Callable[[], bool], limit_s: float = 10) -> None:
    async with asyncio.timeout(limit_s):
        while not true():
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def test_settings_go_in_and_what_a_child_is_ready_with_comes_out() -> None:
    running = supervisor(spec("good", settings=b'{"port":7}'), said=[])
    assert await running.start() == {"good": {"port": 7}}
    pids = running.pids()
    await running.stop()
    assert pids
    assert not any(alive(pid) for pid in pids.values())


async def test_a_child_that_refuses_fails_the_start_with_its_last_words_and_leaves_nothing() -> None:
    said: Said = []
    running = supervisor(spec("good"), spec("refuses"), said=said)
    with pytest.raises(StartFailed, match=r"^the port is taken$"):
        await running.start()
    assert running.pids() == {}
    assert ("refuses", "the port is taken") not in said, "the last words are told once, by the error"


async def test_a_child_that_says_nothing_fails_the_start() -> None:
    silent = ChildSpec(name="silent", module="child_silent", settings=b"{}", ready_timeout_s=0.3)
    running = supervisor(silent, said=[])
    with pytest.raises(StartFailed, match=r"not ready within 0\.3 s"):
        await running.start()
    assert running.pids() == {}


async def test_a_killed_child_comes_back_and_the_other_one_never_notices() -> None:
    said: Said = []
    running = supervisor(spec("good", "a"), spec("good", "b"), said=said)
    await running.start()
    before = running.pids()
    for _ in range(2):
        pid = running.pids()["a"]
        os.kill(pid, signal.SIGKILL)
        await until(lambda pid=pid: running.pids().get("a", pid) != pid)  # type: ignore[misc]
    assert running.pids()["b"] == before["b"]
    assert running.restarts == 2
    assert any(name == "a" and "ended with code -9" in line for name, line in said)
    await running.stop()


async def test_a_child_that_ignores_sigterm_is_killed_at_its_limit() -> None:
    said: Said = []
    running = supervisor(spec("stubborn", stop_timeout_s=0.3), said=said)
    await running.start()
    pid = running.pids()["stubborn"]
    await running.stop()
    assert not alive(pid)
    assert any("killed" in line for _, line in said)


async def test_a_huge_line_on_stderr_stops_nothing() -> None:
    said: Said = []
    running = supervisor(spec("talks"), said=said)
    await running.start()
    await until(lambda: ("talks", "still here") in said)
    await running.stop()


async def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    parent = """
import asyncio, sys
from unslow.serve.supervisor import ChildSpec, Supervisor
async def main():
    s = Supervisor([ChildSpec(name="good", module="child_good", settings=b"{}")], say=lambda *_: None)
    await s.start()
    print(s.pids()["good"], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    process.kill()
    await process.wait()
    await until(lambda: not alive(child))
