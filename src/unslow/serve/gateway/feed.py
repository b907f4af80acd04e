"""Records on their way to the recorder: batched, bounded, and never waited for.

Theory of operation. `put` appends to a bounded deque; a full one drops the record and counts it. A tenth of a second
after the first one, what is there is encoded, so many at a time, and written to the recorder's Unix socket while its
buffer has room. With nothing to send nothing runs. Where the recorder is away, connecting is tried again with a
growing pause. No request ever notices.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from unslow.serve.recorder.protocol import Message, Snapshot, encode

FLUSH_S = 0.1
BATCH, BETWEEN_S = 8, 0.005
"""So many records at once, or a sixteenth of what waits, then a pause: what comes meanwhile hardly waits."""
BUFFER_BYTES = 1 << 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


class Feed(asyncio.Protocol):
    """The worker's end of the recorder's socket."""

    def __init__(self, path: str | None, max_messages: int) -> None:
        self._path = path
        self._held: deque[Message | Callable[[], Message]] = deque()
        self._max = max_messages
        self._transport: asyncio.WriteTransport | None = None
        self._ready = self._armed = self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop = cast(asyncio.AbstractEventLoop, None)
        self.dropped = 0

    @property
    def on(self) -> bool:
        """Whether records are wanted at all."""
        return self._path is not None

    def put(self, message: Message | Callable[[], Message]) -> bool:
        """Send it when it can be sent; drop and count it where too many wait. Whether it was taken.

        A callable is called for the message then: making many in a row costs less than making each in its turn. While
        the recorder is away it is called at once, since what it needs (an answer's sample) is larger than its message.
        """
        if self._path is None:
            return False
        if len(self._held) >= self._max:
            self.dropped += not isinstance(message, Snapshot)
            return False
        self._held.append(message() if not self._ready and callable(message) else message)
        if self._ready and not self._armed:
            self._arm(FLUSH_S)
        return True

    def start(self) -> None:
        """Connect, and send from now on."""
        self._loop = asyncio.get_running_loop()
        self._connect()

    async def close(self) -> None:
        """Send what can be sent at once, and stop."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._ready and self._held:
            self._flush()
            await asyncio.sleep(0)
        if self._transport is not None:
            self._transport.close()

    def _connect(self) -> None:
        if self._path is not None and not self._closed:
            self._task = self._loop.create_task(self._connected(self._path))

    async def _connected(self, path: str) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._loop.create_unix_connection(lambda: self, path)
                return
            except OSError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _arm(self, after_s: float) -> None:
        self._armed = True
        self._loop.call_later(after_s, self._flush)

    def _flush(self) -> None:
        self._armed = False
        if self._transport is None or not self._ready or not self._held:
            return
        held = self._held
        batch = [held.popleft() for _ in range(min(max(BATCH, len(held) >> 4), len(held)))]
        self._transport.write(b"".join([encode(one() if callable(one) else one) for one in batch]))
        if held and not self._armed and not self._closed:
            self._arm(BETWEEN_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to send."""
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The recorder went: hold records until it is back."""
        self._transport, self._ready = None, False
        self._connect()

    def pause_writing(self) -> None:
        """It is slow: hold."""
        self._ready = False

    def resume_writing(self) -> None:
        """It caught up."""
        self._ready = True
        if self._held and not self._armed:
            self._arm(FLUSH_S)
