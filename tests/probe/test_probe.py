"""One measured request against scripted endpoints: what becomes of it in the record."""

from __future__ import annotations

import gzip
import json
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable

import pytest
from tests.support.timed_server import (
    DONE,
    Peer,
    Play,
    chat,
    chat_frames,
    closed_port,
    event,
    serving,
    usage_event,
)

from unslow.core.timeline import (
    ChunkKind,
    CountSource,
    End,
    Hop,
    Origin,
    Phase,
    Source,
    Timeline,
    ledger,
    metrics,
    problems,
)
from unslow.measure.probe import Probe, ProbeSettings
from unslow.measure.probe.relayed import durations
from unslow.measure.transport import TransportSettings


def probe(url: str, *, transport: dict[str, object] | None = None, **settings: object) -> Timeline:
    settings.setdefault("model", "m-1")
    made = Probe(ProbeSettings(url=url, **settings), TransportSettings(**(transport or {})))  # type: ignore[arg-type]
    timeline = made.measure()
    made.close()
    assert problems(timeline) == []
    assert sum(row.duration_ns for row in ledger(timeline)) == timeline.end_ns
    return timeline


def measured(play: Play, **settings: object) -> Timeline:
    with serving(play) as server:
        return probe(server.url, **settings)  # type: ignore[arg-type]


def stream_of(*frames: bytes, more: str = "", kind: str = "text/event-stream") -> Play:
    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream(more=more, kind=kind)
        for frame in frames:
            peer.chunk(frame)
        peer.end_stream()

    return play


def test_a_chat_from_end_to_end() -> None:
    timeline = measured(chat(gap_s=0.01))
    assert timeline.outcome.end is End.COMPLETED
    assert timeline.party is Hop.CLIENT
    assert list(timeline.chunks.kind)[:5] == [ChunkKind.ROLE, *[ChunkKind.CONTENT] * 4]
    assert timeline.chunks.kind[-1] is ChunkKind.DONE
    rows = {row.phase: row.duration_ns for row in ledger(timeline)}
    assert rows[Phase.WAIT] >= 18_000_000
    assert rows[Phase.DECODE] >= 28_000_000
    assert None not in rows or rows[None] == 0
    facts = timeline.facts
    assert (facts.status, facts.http_version, facts.model_answered, facts.finish_reason) == (
        200,
        "HTTP/1.1",
        "m-1",
        "stop",
    )
    assert facts.usage is not None
    assert (facts.usage.prompt_tokens, facts.usage.completion_tokens) == (5, 4)
    assert facts.response_bytes == sum(len(f) for f in chat_frames(["Hel", "lo", " there", "."]))
    assert sum(timeline.chunks.size_bytes) == facts.response_bytes
    wire = metrics(timeline, Origin.WIRE)
    assert wire is not None
    assert wire.ttft_ns is not None
    assert wire.ttfb_ns is not None
    assert wire.ttfb_ns <= wire.ttft_ns


def test_stamps_cover_what_the_server_did() -> None:
    with serving(chat(gap_s=0.01)) as server:
        timeline = probe(server.url)
        sent = [at for at, data in server.peers[0].sent if b"data: " in data]
    zero = -timeline.clock.offset_ns
    for at, arrival, error in zip(sent, timeline.chunks.arrival_ns, timeline.chunks.error_ns, strict=True):
        assert at <= zero + arrival + error + 5_000


def test_a_held_up_reader_says_so_and_its_intervals_cover_the_truth() -> None:
    """Our own main thread sleeps in the middle of the answer, as a busy event loop would."""
    previous = signal.signal(signal.SIGUSR1, lambda *_: time.sleep(0.1))
    alarm = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    alarm.start()
    try:
        with serving(chat([f"w{n}" for n in range(20)], gap_s=0.01)) as server:
            timeline = probe(server.url)
            sent = [at for at, data in server.peers[0].sent if b"data: " in data]
    finally:
        alarm.join()
        signal.signal(signal.SIGUSR1, previous)
    zero = -timeline.clock.offset_ns
    for at, arrival, error in zip(sent, timeline.chunks.arrival_ns, timeline.chunks.error_ns, strict=True):
        assert at <= zero + arrival + error + 5_000
        assert zero + arrival - error <= at + 20_000_000  # the server may be held up after its stamp
    assert max(timeline.chunks.error_ns) > 10_000_000
    assert any("held up" in note for note in timeline.facts.notes)


def test_request_carries_trace_prompt_and_limit() -> None:
    with serving(chat()) as server:
        timeline = probe(server.url, prompt="Why?", max_tokens=7)
        line, headers, body = server.requests[0]
    assert line == b"POST /v1/chat/completions HTTP/1.1"
    asked = json.loads(body)
    assert (asked["model"], asked["max_tokens"], asked["stream"]) == ("m-1", 7, True)
    assert asked["messages"][-1]["content"] == "Why?"
    assert headers["traceparent"].split("-")[1] == timeline.trace_id
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("path", "dialect", "line"),
    [
        ("", None, "POST /v1/chat/completions"),
        ("/", None, "POST /v1/chat/completions"),
        ("/v1", None, "POST /v1/chat/completions"),
        ("/v1/", None, "POST /v1/chat/completions"),
        ("/openai/v1", None, "POST /openai/v1/chat/completions"),
        ("/api/paas/v4", None, "POST /api/paas/v4/chat/completions"),
        ("/v1/chat/completions", None, "POST /v1/chat/completions"),
        ("/v1/completions", None, "POST /v1/completions"),
        ("/v1/responses", None, "POST /v1/responses"),
        ("/v1/messages", None, "POST /v1/messages"),
        ("", "anthropic", "POST /v1/messages"),
        ("/v1", "anthropic", "POST /v1/messages"),
        ("", "ollama", "POST /api/chat"),
        ("/api/chat", None, "POST /api/chat"),
        ("", "gemini", "POST /v1beta/models/m-1:streamGenerateContent?alt=sse"),
        ("/v1beta", "gemini", "POST /v1beta/models/m-1:streamGenerateContent?alt=sse"),
    ],
)
def test_every_way_to_write_a_url(path: str, dialect: str | None, line: str) -> None:
    with serving(stream_of(DONE)) as server:
        probe(server.url + path, dialect=dialect)
        assert server.requests[0][0].decode().rpartition(" ")[0] == line


@pytest.mark.parametrize(
    ("dialect", "name", "value"),
    [
        ("openai", "authorization", "Bearer k-canary-1"),
        ("anthropic", "x-api-key", "k-canary-1"),
        ("gemini", "x-goog-api-key", "k-canary-1"),
    ],
)
def test_key_goes_where_the_dialect_wants_it(dialect: str, name: str, value: str) -> None:
    with serving(stream_of(DONE)) as server:
        probe(server.url, dialect=dialect, api_key="k-canary-1")
        assert server.requests[0][1][name] == value


def test_anthropic_gemini_and_ollama_streams() -> None:
    anthropic = [
        b'event: message_start\ndata: {"type":"message_start","message":{"model":"c","usage":{"input_tokens":3}}}\n\n',
        (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
            b'"delta":{"type":"text_delta","text":"Hi"}}\n\n'
        ),
        (
            b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
            b'"usage":{"output_tokens":1}}\n\n'
        ),
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ]
    gemini = [
        (
            b'data: {"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"},"finishReason":"STOP"}],'
            b'"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"totalTokenCount":4}}\r\n\r\n'
        )
    ]
    ollama = [
        b'{"model":"o","message":{"role":"assistant","content":"Hi"},"done":false}\n',
        (
            b'{"model":"o","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",'
            b'"total_duration":9000000,"load_duration":1000000,"prompt_eval_count":3,"prompt_eval_duration":2000000,'
            b'"eval_count":1,"eval_duration":500000}\n'
        ),
    ]
    for dialect, frames, kind in (
        ("anthropic", anthropic, "text/event-stream"),
        ("gemini", gemini, "text/event-stream"),
        ("ollama", ollama, "application/x-ndjson"),
    ):
        timeline = measured(stream_of(*frames, kind=kind), dialect=dialect)
        assert timeline.outcome.end is End.COMPLETED, dialect
        assert ChunkKind.CONTENT in timeline.chunks.kind
        assert timeline.facts.usage is not None
        assert (timeline.facts.usage.prompt_tokens, timeline.facts.usage.completion_tokens) == (3, 1)


def test_reported_times_divide_the_wait() -> None:
    timings = {"queue_ms": 4.0, "prompt_ms": 6.0, "predicted_ms": 5.0, "prompt_n": 5, "predicted_n": 1}

    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream()
        time.sleep(0.02)
        peer.chunk(event({"content": "x"}))
        peer.chunk(event({}, "stop") + usage_event(5, 1, timings=timings) + DONE)
        peer.end_stream()

    timeline = measured(play)
    reported = [s for s in timeline.spans if s.source is Source.REPORTED]
    assert [(s.phase, s.duration_ns) for s in reported] == [
        (Phase.QUEUE, 4_000_000),
        (Phase.PREFILL, 6_000_000),
        (Phase.DECODE, 5_000_000),  # one token: all of its generation was before it came
    ]
    assert timeline.facts.server is not None
    assert timeline.facts.server.decode_ns == 5_000_000
    assert {s.hop for s in reported} == {Hop.ENGINE}  # on this very machine


@pytest.mark.parametrize("ours", [True, False])
def test_what_our_gateway_says_of_its_own_time(ours: bool) -> None:
    timing = "Server-Timing: gw;dur=3.000, connect;dur=5.5, up;dur=9.1\r\n" + ("X-Unslow-Id: u-1\r\n" if ours else "")

    def play(peer: Peer) -> None:
        peer.request()
        time.sleep(0.02)
        peer.begin_stream(more=timing)
        peer.chunk(event({"content": "x"}, "stop") + DONE)
        peer.end_stream()

    timeline = measured(play)
    said = [(s.phase, s.duration_ns) for s in timeline.spans if s.hop is Hop.GATEWAY and s.source is Source.REPORTED]
    assert said == ([(Phase.QUEUE, 3_000_000), (Phase.CONNECT, 5_500_000)] if ours else [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a;dur=1, b;dur=0.5", {"a": 1_000_000, "b": 500_000}),
        ('a;desc="x, y";dur=1', {}),
        ("a;dur=1.2.3, b;dur=x, c, ;dur=4", {}),
        ("a; dur=2 ; desc=z,b;dur=3", {"a": 2_000_000, "b": 3_000_000}),
        ("", {}),
    ],
)
def test_server_timing(value: str, expected: dict[str, int]) -> None:
    assert durations(value) == expected


def test_processing_time_header() -> None:
    timeline = measured(
        stream_of(event({"content": "x"}), event({}, "stop"), DONE, more="openai-processing-ms: 41\r\n")
    )
    assert timeline.facts.server is not None
    assert timeline.facts.server.total_ns == 41_000_000


def test_tokens_are_counted_again_only_where_nobody_counted() -> None:
    frames = (event({"content": "Hello"}), event({"content": " world"}), event({}, "stop"), DONE)
    timeline = measured(stream_of(*(f.replace(b'"m-1"', b'"gpt-4o"') for f in frames)), model="gpt-4o")
    assert timeline.facts.usage is not None
    assert timeline.facts.usage.source is CountSource.RETOKENISED
    assert timeline.facts.usage.completion_tokens == 2


@pytest.mark.parametrize("encode", [gzip.compress, zlib.compress, lambda b: zlib.compress(b)[2:-4]])
def test_compressed_bodies(encode: Callable[[bytes], bytes]) -> None:
    name = "gzip" if encode is gzip.compress else "deflate"
    packed = encode(b"".join(chat_frames(["a", "b"])))
    timeline = measured(stream_of(packed[:20], packed[20:], more=f"Content-Encoding: {name}\r\n"))
    assert timeline.outcome.end is End.COMPLETED
    assert timeline.chunks.kind.count(ChunkKind.CONTENT) == 2
    assert timeline.facts.content_encoding == name


def test_gzip_flushed_per_event_keeps_each_arrival() -> None:
    packer = zlib.compressobj(wbits=31)

    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream(more="Content-Encoding: gzip\r\n")
        for frame in chat_frames(["a", "b", "c"]):
            time.sleep(0.01)
            peer.chunk(packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH))
        peer.chunk(packer.flush())
        peer.end_stream()

    timeline = measured(play)
    stamps = [
        t for t, k in zip(timeline.chunks.arrival_ns, timeline.chunks.kind, strict=True) if k is ChunkKind.CONTENT
    ]
    assert stamps[2] - stamps[0] >= 18_000_000


@pytest.mark.parametrize(("name", "kind"), [("gzip", "bad_encoding"), ("zstd", "unknown_encoding")])
def test_encodings_that_cannot_be_undone(name: str, kind: str) -> None:
    timeline = measured(stream_of(b"not packed", more=f"Content-Encoding: {name}\r\n"))
    assert (timeline.outcome.end, timeline.outcome.kind) == (End.FAILED, kind)


def test_answer_in_one_piece() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    message = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"id": "c", "model": "m-1", "choices": [message], "usage": usage}).encode()

    def play(peer: Peer) -> None:
        peer.request()
        time.sleep(0.01)
        peer.answer(body)

    timeline = measured(play, stream=False)
    assert timeline.outcome.end is End.COMPLETED
    assert not timeline.chunks
    assert timeline.facts.usage is not None
    assert timeline.facts.usage.completion_tokens == 2
    surprised = measured(play)
    assert surprised.outcome.end is End.COMPLETED
    assert "asked for a stream, answered in one piece" in surprised.facts.notes


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            "401 Unauthorized",
            b'{"error":{"message":"Incorrect API key provided"}}',
            ["--api-key-env", "Incorrect API key"],
        ),
        ("429 Too Many Requests", b'{"error":{"message":"slow down"}}', ["retry after 7 s", "slow down"]),
        ("404 Not Found", b'{"detail":"Not Found"}', ["/v1", "Not Found"]),
        ("500 Internal Server Error", b"<html>boom</html>", ["logs"]),
        ("503 Service Unavailable", b"\x1b[31mred\r\nlines", ["overloaded"]),
        ("400 Bad Request", b'[{"error":{"message":"gemini style"}}]', ["gemini style"]),
    ],
)
def test_refusals_are_data_with_the_servers_words(status: str, body: bytes, words: list[str]) -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(body, status=status, more="Retry-After: 7\r\n")

    timeline = measured(play)
    outcome = timeline.outcome
    assert (outcome.end, outcome.kind) == (End.FAILED, f"http_{status[:3]}")
    assert outcome.detail is not None
    assert outcome.detail.isprintable()
    for word in words:
        assert word in outcome.detail
    assert timeline.facts.status == int(status[:3])


def test_a_page_instead_of_an_answer() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(b"<html>welcome</html>", kind="text/html")

    assert measured(play, stream=False).outcome.kind == "not_an_answer"
    outcome = measured(play).outcome
    assert outcome.kind == "not_an_answer"
    assert "text/html" in (outcome.detail or "")


@pytest.mark.parametrize("stream", [True, False])
def test_json_that_is_no_answer(stream: bool) -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(b'{"hello":"world"}')

    assert measured(play, stream=stream).outcome.kind == "not_an_answer"


def test_stream_where_one_piece_was_asked_for() -> None:
    timeline = measured(chat(), stream=False)
    assert timeline.outcome.end is End.COMPLETED
    assert ChunkKind.CONTENT in timeline.chunks.kind
    assert "asked for one piece, answered as a stream" in timeline.facts.notes


def test_port_closed_in_the_middle_of_the_answer() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream()
        peer.chunk(event({"content": "half"}))
        time.sleep(0.02)

    timeline = measured(play)
    assert (timeline.outcome.end, timeline.outcome.kind) == (End.FAILED, "truncated")
    assert timeline.chunks.kind == (ChunkKind.CONTENT,)


def test_stream_that_ends_without_its_end_mark() -> None:
    outcome = measured(stream_of(event({"content": "half"}))).outcome
    assert (outcome.end, outcome.kind, outcome.phase) == (End.FAILED, "truncated", Phase.DECODE)


def test_error_frame_in_the_stream() -> None:
    outcome = measured(stream_of(event({"content": "x"}), b'data: {"error":{"message":"overloaded"}}\n\n')).outcome
    assert (outcome.end, outcome.kind) == (End.FAILED, "stream_error")
    assert "overloaded" in (outcome.detail or "")


def test_server_that_does_not_end_the_message_after_done() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream()
        for frame in chat_frames(["a"]):
            peer.chunk(frame)
        peer.sock.recv(1)

    timeline = measured(play)
    assert timeline.outcome.end is End.COMPLETED
    assert any("did not end" in note for note in timeline.facts.notes)
    assert timeline.end_ns < 900_000_000  # what we waited for in vain is not the answer's


def endless(peer: Peer) -> None:
    peer.request()
    peer.begin_stream()
    while True:
        peer.chunk(event({"content": "more "}) * 20)
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("limits", "kind"), [({"max_seconds": 0.1}, "max_seconds"), ({"max_bytes": 20_000}, "max_bytes")]
)
def test_endless_streams_are_cut(limits: dict[str, object], kind: str) -> None:
    timeline = measured(endless, transport=limits)
    assert (timeline.outcome.end, timeline.outcome.kind) == (End.ABORTED, kind)
    assert ChunkKind.CONTENT in timeline.chunks.kind


def test_total_and_idle_limits() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream()
        peer.chunk(event({"content": "x"}))
        peer.sock.recv(1)

    assert measured(play, transport={"total_timeout_s": 0.1}).outcome.kind == "total_timeout"
    idle = measured(play, transport={"idle_timeout_s": 0.1}).outcome
    assert (idle.kind, idle.phase) == ("decode_timeout", Phase.DECODE)


def test_one_huge_line_stays_bounded() -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.begin_stream()
        peer.chunk(b"data: ")
        for _ in range(300):
            peer.chunk(b"x" * 65536)
        peer.chunk(b"\n\n" + DONE)
        peer.end_stream()

    timeline = measured(play)
    assert timeline.facts.response_bytes is not None
    assert timeline.facts.response_bytes > 19_000_000


def test_nothing_listens_and_the_ledger_still_sums() -> None:
    timeline = probe(f"http://127.0.0.1:{closed_port()}")
    assert (timeline.outcome.kind, timeline.outcome.phase) == ("connection_refused", Phase.CONNECT)
    assert timeline.facts.status is None
    assert timeline.end_ns > 0


def test_model_is_found_where_none_is_named() -> None:
    with serving(chat()) as server:
        made = Probe(ProbeSettings(url=server.url))
        assert made.find_model() is None
        assert made.model == "m-1"
        timeline = made.measure()
        made.close()
        assert server.requests[0][0] == b"GET /v1/models HTTP/1.1"
        assert json.loads(server.requests[1][2])["model"] == "m-1"
    assert timeline.facts.reused is False


@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [
        ("anthropic", b"/v1/models", {"data": [{"id": "x"}]}),
        ("ollama", b"/api/tags", {"models": [{"name": "x"}]}),
        (
            "gemini",
            b"/v1beta/models",
            {
                "models": [
                    {"name": "models/embed", "supportedGenerationMethods": ["embedContent"]},
                    {"name": "models/x", "supportedGenerationMethods": ["generateContent"]},
                ]
            },
        ),
    ],
)
def test_models_of_other_dialects(dialect: str, path: bytes, body: object) -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(json.dumps(body).encode())

    with serving(play) as server:
        made = Probe(ProbeSettings(url=server.url, dialect=dialect))
        assert made.find_model() is None
        assert made.model == "x"
        assert server.requests[0][0].split()[1] == path
        made.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((b'{"data":[]}', "200 OK"), "no_model"),
        ((b"nonsense", "200 OK"), "no_model"),
        ((b"{}", "404 Not Found"), "http_404"),
        ((b"{}", "401 Unauthorized"), "http_401"),
    ],
)
def test_listing_that_gives_no_model(answer: tuple[bytes, str], kind: str) -> None:
    def play(peer: Peer) -> None:
        peer.request()
        peer.answer(answer[0], status=answer[1])

    with serving(play) as server:
        made = Probe(ProbeSettings(url=server.url))
        failed = made.find_model()
        made.close()
    assert failed is not None
    assert failed.outcome.kind == kind
    assert ("--model" in (failed.outcome.detail or "")) == (kind != "http_401")


def test_cold_and_warm() -> None:
    with serving(chat()) as server:
        made = Probe(ProbeSettings(url=server.url, model="m-1"))
        reused = [made.measure(cold=cold).facts.reused for cold in (False, False, True)]
        made.close()
        assert reused == [False, True, False]
        assert server.connections == 2
