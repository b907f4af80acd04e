"""The client side of the relay benchmark: open-loop calls and paced streams on raw sockets, as cheap as can be."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from time import perf_counter_ns as now_ns
from typing import cast

import httptools


@dataclass
class Sample:
    """What one phase saw: latencies in nanoseconds, counts, and what went wrong."""

    latency_ns: list[int] = field(default_factory=list)
    events: int = 0
    errors: list[str] = field(default_factory=list)


class Caller(asyncio.Protocol):
    """One keep-alive connection; `call` sends a request and waits for its end."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpResponseParser(self)
        self.events, self.first_ns, self.tail = 0, 0, b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if not self.first_ns and (b" token" in body or b'"message"' in body):
            self.first_ns = now_ns()
        seen = self.tail + body
        self.events += seen.count(b'"delta"')
        self.tail = seen[-6:] if not seen.endswith(b"\n") else b""

    def on_message_complete(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(ConnectionError(f"closed: {exc}"))

    async def call(self, message: bytes, timeout_s: float) -> tuple[int, int]:
        """Send; gives (nanoseconds to the first token or answer, events)."""
        self.events, self.first_ns, self.tail = 0, 0, b""
        self.done = asyncio.get_running_loop().create_future()
        start = now_ns()
        self.transport.write(message)
        await asyncio.wait_for(self.done, timeout_s)
        status = self.parser.get_status_code()
        self.parser = httptools.HttpResponseParser(self)
        if status != 200:
            raise ConnectionError(f"status {status}")
        return (self.first_ns or now_ns()) - start, self.events


def message(*, stream: bool, pace: str = "", host: str = "127.0.0.1") -> bytes:
    """A chat request of about 500 bytes."""
    body = {
        "model": "mock",
        "messages": [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": "How is it going?"}],
        "stream": stream,
        "user": pace or "0",
    }
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer sk-test\r\naccept: */*\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def connect(port: int) -> Caller:
    """A fresh connection."""
    _, caller = await asyncio.get_running_loop().create_connection(Caller, "127.0.0.1", port)
    return caller


async def calls(port: int, *, count: int, rate: float, connections: int = 32) -> Sample:
    """`count` JSON calls at `rate` a second, open loop, over keep-alive connections."""
    sample, idle = Sample(), [await connect(port) for _ in range(connections)]
    msg, loop, tasks = message(stream=False, host=f"127.0.0.1:{port}"), asyncio.get_running_loop(), []
    start = loop.time()

    async def one() -> None:
        caller = idle.pop() if idle else await connect(port)
        try:
            ns, _ = await caller.call(msg, 30)
            sample.latency_ns.append(ns)
            idle.append(caller)
        except (TimeoutError, OSError) as error:
            sample.errors.append(repr(error))

    for n in range(count):
        await asyncio.sleep(max(0.0, start + n / rate - loop.time()))
        tasks.append(asyncio.create_task(one()))
    await asyncio.gather(*tasks)
    for caller in idle:
        caller.transport.close()
    return sample


async def streams(port: int, *, slots: int, events: int, gap_ms: float, repeats: int, spread: bool = True) -> Sample:
    """`slots` streams side by side, each slot `repeats` times in a row; starts spread over one stream, or at once."""
    sample = Sample()
    msg = message(stream=True, pace=f"{events},{gap_ms},0", host=f"127.0.0.1:{port}")
    length_s = events * gap_ms / 1e3

    async def slot(n: int) -> None:
        await asyncio.sleep(n / slots * length_s if spread else 0)
        try:
            caller = await connect(port)
            for _ in range(repeats):
                ns, seen = await caller.call(msg, length_s + 60)
                sample.latency_ns.append(ns)
                sample.events += seen
                if seen < events:
                    sample.errors.append(f"{seen} events of {events}")
            caller.transport.close()
        except (TimeoutError, OSError) as error:
            sample.errors.append(repr(error))

    await asyncio.gather(*(slot(n) for n in range(slots)))
    return sample
