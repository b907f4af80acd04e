"""What real parties record: the gateway in every kind of end, and the probe and the gateway of one exchange joined."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from tests.support.gateway import Relay, ask, relay, say
from tests.support.upstream import DONE, SSE_HEAD, Call, Upstream, chat, chunk, delta, json_answer

from unslow.core.timeline import (
    Clock,
    End,
    Hop,
    Phase,
    Timeline,
    dump_line,
    join,
    ledger,
    load_line,
    metrics,
    problems,
)
from unslow.measure.probe import Probe, ProbeSettings
from unslow.measure.transport.clock import own_clock
from unslow.serve.recorder.protocol import Finished, FrameDecoder

CLOCK = own_clock(0)


class Listener:
    """The recorder's end of the gateway's socket."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._found: asyncio.Queue[Timeline] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for message in self._decoder.feed(data):
                    if isinstance(message, Finished):
                        self._found.put_nowait(message.timeline)
        writer.close()

    async def next(self) -> Timeline:
        return await asyncio.wait_for(self._found.get(), 10)


@contextlib.asynccontextmanager
async def listened(path: Path, *urls: str) -> AsyncIterator[tuple[Relay, Listener]]:
    listener = Listener()
    server = await asyncio.start_unix_server(listener.serve, path / "r.sock")
    async with relay(*urls, recorder_socket=str(path / "r.sock"), clock_id=CLOCK.id) as running:
        yield running, listener
    server.close()


def check(timeline: Timeline) -> None:
    assert problems(timeline) == []
    assert sum(row.duration_ns for row in ledger(timeline)) == timeline.end_ns
    assert load_line(dump_line(timeline)) == timeline


def recorded(script: Callable[[Call], Awaitable[None]], path: Path, data: bytes) -> Timeline:
    async def run() -> Timeline:
        async with Upstream(script) as up, listened(path, up.url) as (running, listener):
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await say(running.port, data)
            return await listener.next()

    timeline = asyncio.run(run())
    check(timeline)
    return timeline


def test_a_stream(tmp_path: Path) -> None:
    timeline = recorded(chat, tmp_path, ask(stream=True))
    assert timeline.outcome.end is End.COMPLETED
    phases = {row.phase for row in ledger(timeline)}
    assert {Phase.CONNECT, Phase.SEND, Phase.WAIT} <= phases
    m = metrics(timeline)
    assert m is not None
    assert m.ttft_ns is not None


def test_a_whole_answer(tmp_path: Path) -> None:
    timeline = recorded(chat, tmp_path, ask())
    assert timeline.outcome.end is End.COMPLETED
    assert timeline.facts.usage is not None
    assert metrics(timeline).ttft_ns is None  # type: ignore[union-attr]


async def refuse(call: Call) -> None:
    await call.send(json_answer({"error": {"message": "no"}}, "500 Internal Server Error"))


def test_an_error_of_the_upstream(tmp_path: Path) -> None:
    assert recorded(refuse, tmp_path, ask()).facts.status == 500


async def break_off(call: Call) -> None:
    await call.send(SSE_HEAD + chunk(delta("a")))
    await asyncio.sleep(0.05)
    await call.send(chunk(delta("b")))
    await asyncio.sleep(0.1)
    call.reset()


def test_a_stream_that_stalls_and_breaks_off_was_decoding_until_then(tmp_path: Path) -> None:
    timeline = recorded(break_off, tmp_path, ask(stream=True))
    assert timeline.outcome.end is End.FAILED
    rows = {row.phase: row.duration_ns for row in ledger(timeline)}
    assert rows[Phase.DECODE] >= 140_000_000
    assert Phase.DRAIN not in rows


async def close_at_once(call: Call) -> None:
    call.close()


def test_an_upstream_that_closes_without_a_word(tmp_path: Path) -> None:
    timeline = recorded(close_at_once, tmp_path, ask())
    assert timeline.outcome.end is End.FAILED
    assert metrics(timeline).ttfb_ns is None  # type: ignore[union-attr]


def test_a_client_that_goes_away(tmp_path: Path) -> None:
    async def slow(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")))
        await call.until_closed()

    async def run() -> Timeline:
        async with Upstream(slow) as up, listened(tmp_path, up.url) as (running, listener):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(ask(stream=True))
            await reader.readuntil(b'"a"')
            writer.close()
            return await listener.next()

    timeline = asyncio.run(run())
    check(timeline)
    assert timeline.outcome.end is End.ABORTED


async def slow_chat(call: Call) -> None:
    await asyncio.sleep(0.05)
    await call.send(SSE_HEAD)
    for word in ("a", "b", "c"):
        await call.send(chunk(delta(word)))
        await asyncio.sleep(0.02)
    await call.send(chunk(DONE) + b"0\r\n\r\n")


def test_the_probe_and_the_gateway_of_one_exchange_join_exactly(tmp_path: Path) -> None:
    async def run() -> tuple[Timeline, Timeline]:
        async with Upstream(slow_chat) as up, listened(tmp_path, up.url) as (running, listener):
            probe = Probe(ProbeSettings(url=running.url, model="mock"))
            ours = await asyncio.to_thread(probe.measure)
            await asyncio.to_thread(probe.close)
            return ours, await listener.next()

    ours, theirs = asyncio.run(run())
    check(ours)
    check(theirs)
    assert ours.trace_id == theirs.trace_id
    joined = join([theirs, ours])
    check(joined)
    assert (joined.party, joined.end_ns) == (Hop.CLIENT, ours.end_ns)
    assert Clock(theirs.clock.id, ours.clock.offset_ns, 0) in joined.clocks
    # the gateway's own work lies inside what the client saw, to the nanosecond of one clock
    inner = [s for s in joined.spans if s.hop is Hop.GATEWAY]
    sends = [s.start_ns for s in ours.spans if s.phase is Phase.SEND]
    assert min(s.start_ns for s in inner) >= min(sends)
    rows = {(row.phase, row.hop): row.duration_ns for row in ledger(joined)}
    assert rows[Phase.WAIT, Hop.GATEWAY] >= 40_000_000
    assert rows.get((Phase.WAIT, Hop.CLIENT), 0) < rows[Phase.WAIT, Hop.GATEWAY]
