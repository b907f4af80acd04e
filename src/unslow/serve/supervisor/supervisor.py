"""Keeps children running.

Theory of operation. `start` starts all children side by side and waits until each has said that it is ready; one
that ends before that makes the start fail, with its last words. From then on each child has a task of its own that
waits for its end and starts it again after a pause; no child's end touches another. `stop` asks all to drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from unslow.errors import UnslowError
from unslow.serve.supervisor.backoff import Backoff
from unslow.serve.supervisor.child import Child, ChildSpec, Say


class StartFailed(UnslowError):
    """A child ended, or stayed silent, before it was ready."""


class Supervisor:
    """Runs children until it is told to stop."""

    def __init__(self, specs: Iterable[ChildSpec], *, say: Say, backoff: Backoff | None = None) -> None:
        self._specs, self._say, self._backoff = tuple(specs), say, backoff or Backoff()
        self._children: dict[str, Child] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self.restarts = 0

    async def start(self) -> dict[str, dict[str, Any]]:
        """Start all; gives what each said when it was ready. Raises StartFailed, with nothing left running."""
        try:
            ready = await asyncio.gather(*(self._first(spec) for spec in self._specs))
        except BaseException:
            await self.stop(at_once=True)
            raise
        self._keepers = [asyncio.create_task(self._keep(spec)) for spec in self._specs]
        return dict(zip((spec.name for spec in self._specs), ready, strict=True))

    async def stop(self, *, at_once: bool = False) -> None:
        """End all children: drained, or at once."""
        self._stopping.set()
        await asyncio.gather(*(child.stop(at_once=at_once) for child in self._children.values()))
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    def pids(self) -> dict[str, int]:
        """Process ids of the running children."""
        found = ((name, child.process) for name, child in self._children.items())
        return {name: process.pid for name, process in found if process is not None and process.returncode is None}

    async def _first(self, spec: ChildSpec) -> dict[str, Any]:
        child = self._children[spec.name] = Child(spec, self._say)
        await child.start()
        if self._stopping.is_set():
            await child.stop(at_once=True)
        ended = asyncio.create_task(child.ended())
        await asyncio.wait((ended, child.ready), timeout=spec.ready_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if child.ready.done() and not child.ready.cancelled():
            ended.cancel()
            return child.ready.result()
        if ended.done():
            await asyncio.sleep(0)
            raise StartFailed(child.last_words or f"{spec.name} ended with code {ended.result()} before it was ready")
        ended.cancel()
        raise StartFailed(f"{spec.name} was not ready within {spec.ready_timeout_s:g} s")

    async def _keep(self, spec: ChildSpec) -> None:
        loop, failures, began = asyncio.get_running_loop(), 0, asyncio.get_running_loop().time()
        while True:
            code = await self._children[spec.name].ended()
            if self._stopping.is_set():
                return
            failures = self._backoff.failures_after(failures, loop.time() - began)
            pause = self._backoff.pause_s(failures)
            self._say(spec.name, f"ended with code {code}; starting it again in {pause:g} s (failure {failures})")
            await asyncio.sleep(pause)
            child = self._children[spec.name] = Child(spec, self._say)
            began = loop.time()
            self.restarts += 1
            await child.start()
            if self._stopping.is_set():
                await child.stop(at_once=True)
