"""What the recorder is told of each exchange, and what it costs a request when the recorder is away, slow or back."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from tests.support.gateway import ask, becomes, connected, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Call,
    Upstream,
    chat,
    chunk,
    completion,
    delta,
    json_answer,
    last_delta,
)

from unslow.core.timeline import ChunkKind, End, Hop, Phase, Source
from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio

MS = 1_000_000


def phases(timeline: object, source: Source = Source.MEASURED) -> list[Phase]:
    spans = [span for span in timeline.spans if span.source is source and span.end_ns > span.start_ns]  # type: ignore[attr-defined]
    return [span.phase for span in sorted(spans, key=lambda span: span.start_ns)]


async def test_a_call_is_recorded(records: Records) -> None:
    async def script(call: Call) -> None:
        await asyncio.sleep(0.03)
        await call.send(json_answer(completion("hello"), extra="x-request-id: theirs\r\nserver: x\r\nx-other: y\r\n"))

    began = time.time()
    async with Upstream(script) as upstream, relay(upstream.url, recorder_socket=records.path, worker=3) as gateway:
        await say(gateway.port, ask())
        reply = await say(gateway.port, request("POST", "/v1/chat/completions?key=SECRET", b'{"model": "m"}'))
        message = (await records.wait(2))[1]
    timeline, facts = message.timeline, message.timeline.facts
    assert (message.worker, message.client, message.path) == (3, None, "/v1/chat/completions")
    assert timeline.party is Hop.GATEWAY
    assert began - 1 < timeline.started_at < time.time()
    assert timeline.outcome.end is End.COMPLETED
    assert timeline.outcome.kind is None
    assert (facts.method, facts.status, facts.stream, facts.upstream) == ("POST", 200, False, "up0")
    assert (facts.model, facts.model_answered, facts.finish_reason) == ("m", "mock", "stop")
    assert facts.url == upstream.url.removeprefix("http://")
    assert (facts.request_id, facts.retries, facts.reused) == (reply.headers["x-unslow-id"], 0, True)
    assert (facts.request_bytes, facts.response_bytes) == (14, len(reply.body))
    assert facts.usage is not None
    assert (facts.usage.prompt_tokens, facts.usage.completion_tokens) == (3, 2)
    assert facts.headers == {"x-request-id": "theirs", "server": "x"}
    assert facts.content_type == "application/json"
    assert Phase.WAIT in phases(timeline)
    assert next(s for s in timeline.spans if s.phase is Phase.WAIT).duration_ns > 25 * MS


async def test_a_stream_is_recorded(records: Records) -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta(role="assistant")))
        for text in ("a", "b", "c"):
            await heard.wait()
            heard.clear()
            await asyncio.sleep(0.02)
            await call.send(chunk(delta(text)))
        await call.send(chunk(b": ping\n\n") + chunk(last_delta(7, 3)))
        await asyncio.sleep(0.02)
        await call.send(chunk(DONE) + LAST_CHUNK)

    heard, got = asyncio.Event(), b""
    async with (
        Upstream(script) as upstream,
        relay(upstream.url, recorder_socket=records.path) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(ask(stream=True))
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readuntil(b"\r\n"), 16):
            got += (await reader.readexactly(size + 2))[:-2]
            heard.set()
        timeline = (await records.wait())[0].timeline
    kinds = ["role", "content", "content", "content", "keepalive", "role", "usage", "done"]
    assert [kind.value for kind in timeline.chunks.kind] == kinds
    assert sum(timeline.chunks.size_bytes) == len(got)
    assert timeline.facts.response_bytes == len(got)
    first, *_, last = (at for at, k in zip(timeline.chunks.arrival_ns, kinds, strict=True) if k == "content")
    assert last - first >= 35 * MS
    assert timeline.facts.stream
    assert timeline.facts.finish_reason == "stop"
    assert timeline.facts.usage is not None
    assert timeline.facts.usage.completion_tokens == 3
    assert phases(timeline)[-2:] == [Phase.DECODE, Phase.DRAIN], phases(timeline)


async def test_what_the_engine_reports_stands_beside_what_was_measured(records: Records) -> None:
    timings = {"prompt_n": 3, "prompt_ms": 10.0, "predicted_n": 2, "predicted_ms": 20.0, "cache_n": 0}

    async def script(call: Call) -> None:
        await asyncio.sleep(0.05)
        await call.send(SSE_HEAD + chunk(delta("a")))
        await asyncio.sleep(0.03)
        end = delta("b").replace(b'"model"', b'"timings": %b, "model"' % str(timings).replace("'", '"').encode())
        await call.send(chunk(end) + chunk(DONE) + LAST_CHUNK)

    async with Upstream(script) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        await say(gateway.port, ask(stream=True))
        timeline = (await records.wait())[0].timeline
    reported = [span for span in timeline.spans if span.source is Source.REPORTED]
    assert Phase.PREFILL in {span.phase for span in reported}
    assert {span.hop for span in reported} == {Hop.ENGINE}, "it runs on this machine"


async def test_waiting_and_connecting_are_recorded(records: Records) -> None:
    async def script(call: Call) -> None:
        await asyncio.sleep(0.1)
        await chat(call)

    async with Upstream(script) as upstream:
        one = UpstreamSettings(name="one", url=upstream.url, max_active=1)
        async with relay(one, recorder_socket=records.path, pool_idle_s=0.0) as gateway:
            replies = await asyncio.gather(*(say(gateway.port, ask()) for _ in range(2)))
            first, second = [one.timeline for one in await records.wait(2)]
    assert Phase.QUEUE not in phases(first)
    assert phases(second)[:2] == [Phase.SEND, Phase.QUEUE]
    assert Phase.CONNECT in phases(second)
    assert next(s for s in second.spans if s.phase is Phase.QUEUE).duration_ns > 80 * MS
    timing = [reply.headers["server-timing"] for reply in replies]
    slowest = max(float(one.split("gw;dur=")[1].split(",")[0]) for one in timing)
    assert slowest > 80, "the wait for a place stands in Server-Timing"


async def test_server_timing_says_where_the_time_went() -> None:
    async def script(call: Call) -> None:
        await asyncio.sleep(0.05)
        await call.send(json_answer({}))

    async with Upstream(script) as upstream, relay(upstream.url, pool_idle_s=0.0) as gateway:
        began = time.monotonic()
        reply = await say(gateway.port, ask())
        took_ms = (time.monotonic() - began) * 1e3
    parts = dict(part.strip().split(";dur=") for part in reply.headers["server-timing"].split(","))
    assert list(parts) == ["gw", "connect", "up"]
    assert float(parts["up"]) >= 48
    assert float(parts["connect"]) > 0
    assert sum(map(float, parts.values())) <= took_ms


async def test_traces_and_sampling_are_the_caller_s(records: Records) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with Upstream(chat) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        for flags in ("01", "00", "03"):
            await say(gateway.port, ask(traceparent=f"00-{trace}-b7ad6b7169203331-{flags}"))
        await say(gateway.port, ask())
        await say(gateway.port, ask(traceparent="junk"))
        messages = await records.wait(5)
    assert [one.sampled for one in messages] == [True, False, True, None, None]
    assert [one.timeline.trace_id for one in messages[:3]] == [trace] * 3
    ours = [one.timeline.trace_id for one in messages[3:]]
    assert ours == [call.headers["traceparent"].split("-")[1] for call in upstream.calls[3:]]
    assert len(set(ours)) == 2


async def test_ids_are_unique_over_workers() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as one, relay(upstream.url) as two:
        replies = [await say(gateway.port, ask()) for gateway in (one, two) for _ in range(5)]
    assert len({reply.headers["x-unslow-id"] for reply in replies}) == 10
    assert len({call.headers["traceparent"] for call in upstream.calls}) == 10


async def test_failures_of_ours_are_recorded_too(records: Records) -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        await say(gateway.port, request("GET", "/nothing" + "x" * 1000, None))
        await say(gateway.port, ask(host="evil.example"))
        await say(gateway.port, ask(x_unslow_upstream="nobody"))
        messages = await records.wait(3)
    assert [one.timeline.outcome.kind for one in messages] == ["not_found", "host_not_allowed", "upstream_not_found"]
    assert [one.timeline.facts.status for one in messages] == [404, 403, 404]
    assert [len(one.path or "") for one in messages] == [256, 20, 20]
    assert {one.timeline.outcome.end for one in messages} == {End.FAILED}


async def test_long_streams_keep_a_bounded_number_of_events(records: Records) -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(b"".join(delta(str(n)) for n in range(300)) + DONE) + LAST_CHUNK)

    settings = {"recorder_socket": records.path, "kept_chunks": 10}
    async with Upstream(script) as upstream, relay(upstream.url, **settings) as gateway:
        reply = await say(gateway.port, ask(stream=True))
        chunks = (await records.wait())[0].timeline.chunks
    assert (len(chunks), chunks.seen) == (10, 301)
    assert chunks.beyond is not None
    assert chunks.beyond.kinds == {ChunkKind.CONTENT: 290, ChunkKind.DONE: 1}
    assert sum(chunks.size_bytes) + chunks.beyond.size_bytes == len(reply.body)


# -- a recorder that is away, slow, or back


async def test_a_recorder_that_comes_late_gets_what_waited(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "r"))
    async with Upstream(chat) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        ids = [(await say(gateway.port, ask(stream=n % 2 == 0))).headers["x-unslow-id"] for n in range(30)]
        async with records:
            seen = [one.timeline.facts.request_id for one in await records.wait(30)]
    assert seen == ids, "all of them, in order"
    records.check()


async def test_what_there_is_no_room_for_is_dropped_and_counted(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "r"))
    settings = {"recorder_socket": records.path, "recorder_buffer_messages": 7}
    async with Upstream(chat) as upstream, relay(upstream.url, **settings) as gateway:
        for _ in range(30):
            assert (await say(gateway.port, ask())).status == 200
        async with records:
            await records.wait(1)
            await becomes(lambda: bool(records.snapshots) and records.snapshots[-1].dropped_total > 0)
            last = records.snapshots[-1]
            kept = len(records.finished)
            assert 1 <= kept <= 7
            assert (last.dropped_total, last.requests_total) == (30 - kept, 30)
            await say(gateway.port, ask())
            await records.wait(kept + 1)


async def test_a_recorder_that_dies_and_comes_back_costs_no_request(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "r"))
    async with Upstream(chat) as upstream, relay(upstream.url, recorder_socket=records.path) as gateway:
        await records.start()
        await say(gateway.port, ask())
        await records.wait(1)
        await records.stop()
        await asyncio.sleep(0.1)
        for _ in range(10):
            assert (await say(gateway.port, ask())).status == 200
        Path(records.path).unlink(missing_ok=True)
        await records.start()
        assert len(await records.wait(11)) == 11
        await records.stop()


@pytest.mark.parametrize("on", [True, False])
async def test_a_recorder_that_does_not_read_slows_nobody(on: bool, tmp_path: Path) -> None:
    """Its socket and our buffer fill up; then records are dropped, and requests go on as before. So without one."""

    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(events) + LAST_CHUNK)

    events = b"".join(delta(str(n)) for n in range(300)) + DONE
    path = str(tmp_path / "r")
    settings = {"recorder_socket": path if on else None, "recorder_buffer_messages": 20}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()  # it takes the connection, and nothing else
        async with (
            Upstream(script) as upstream,
            relay(upstream.url, **settings) as gateway,
            connected(gateway.port) as (reader, writer),
        ):
            slowest, before = 0.0, 0
            for n in range(300):
                began = time.monotonic()
                writer.write(ask(stream=True))
                assert (await read_reply(reader)).body == events
                slowest = max(slowest, time.monotonic() - began)
                if n == 150:
                    before = gateway.rss_bytes()
            assert slowest < 1
            assert gateway.rss_bytes() - before < 4 << 20
