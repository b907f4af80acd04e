"""A recorder's end of the socket: what workers tell it, in the order in which it came."""

from __future__ import annotations

import asyncio
from types import TracebackType

from unslow.core.timeline import ledger, problems
from unslow.serve.recorder.protocol import Finished, FrameDecoder, Message, Snapshot


class Records:
    """Listens on a Unix socket and keeps every message."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.finished: list[Finished] = []
        self.snapshots: list[Snapshot] = []
        self._came = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Records:
        await self.start()
        return self

    async def start(self) -> None:
        """Listen, again perhaps."""
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """Go away."""
        self._server.close()
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            for message in decoder.feed(data):
                self._take(message)
                self._came.set()

    def _take(self, message: Message) -> None:
        if isinstance(message, Finished):
            self.finished.append(message)
        else:
            self.snapshots.append(message)

    def check(self) -> None:
        """Every record is a valid one, and its ledger sums to its wall time."""
        for one in self.finished:
            timeline = one.timeline
            assert problems(timeline) == [], timeline
            assert sum(row.duration_ns for row in ledger(timeline)) == timeline.end_ns, timeline

    async def wait(self, count: int = 1, within_s: float = 15) -> list[Finished]:
        """So many finished exchanges."""
        async with asyncio.timeout(within_s):
            while len(self.finished) < count:
                self._came.clear()
                await self._came.wait()
        return self.finished
