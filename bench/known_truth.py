"""Is what `unslow check` prints true? A server of known timing, and what two clients make of it.

The server runs in a process of its own, paces by sleep and a short spin, and stamps each send on the monotonic clock
that both processes share; when the request came to it, its kernel says. Those stamps are the truth. Scenarios:

- one:     an early role chunk, then one token a chunk; first after 50 ms, then 5 ms a token
- four:    the same with four tokens a chunk, every 20 ms
- counted: as `four`, each chunk with the usage so far (vLLM's continuous_usage_stats), so that TPOT* can be known
- stall:   as `one`, while our own reader is held up for 50 ms in the middle of the answer
- late:    as `one`, while our own reader is held up from before the first token on

Beside unslow a naive client (the openai SDK, stamps in user space, connection warmed up) measures the same server in
the same run. `python bench/known_truth.py [--runs N] [--json]`
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from unslow.core.timeline import TOKEN_KINDS, Origin, metrics, sent_ns
from unslow.measure.probe import Probe, ProbeSettings
from unslow.measure.transport import stamps
from unslow.measure.transport.clock import map_wall_clock

TTFT_MS, TOKEN_MS, TOKENS = 50.0, 5.0, 40
STALL_S = 0.05
SCENARIOS = {"one": (1, False), "four": (4, False), "counted": (4, True), "stall": (1, False), "late": (1, False)}
STALL_AT_S = {"stall": 0.110, "late": 0.030}
LIMIT_MS, BAR_MS = 1.0, 2.0


# The server.


def serve() -> None:
    """Answer one request at a time, for ever; the truth of each goes to stdout as a JSON line."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamps.enable_rx(sock)
        threading.Thread(target=attend, args=(sock,), daemon=True).start()


def attend(sock: socket.socket) -> None:
    with sock:
        while (asked := read_request(sock)) is not None:
            print(json.dumps(play(sock, *asked)), flush=True)


def read_request(sock: socket.socket) -> tuple[str, int] | None:
    """The model asked for, and when the last segment of the request came (raw monotonic)."""
    held, came = b"", 0
    while True:
        data, ancillary, _, _ = sock.recvmsg(65536, stamps.ANCILLARY_BYTES)
        if not data:
            return None
        wall = stamps.stamp_in(ancillary)
        came = time.perf_counter_ns() if wall is None else wall + map_wall_clock().offset_ns
        held += data
        head, found, body = held.partition(b"\r\n\r\n")
        size = next((int(r[15:]) for r in head.lower().split(b"\r\n") if r.startswith(b"content-length:")), 0)
        if found and len(body) >= size:
            return json.loads(body)["model"], came


def play(sock: socket.socket, model: str, came: int) -> dict[str, Any]:
    """Send the answer on time."""
    each, counted = SCENARIOS[model]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    sock.sendall(head + chunk(frame(model, {"role": "assistant", "content": ""})))
    sent = []
    for n in range(0, TOKENS, each):
        data = chunk(frame(model, {"content": "tok " * each}, usage(n + each) if counted else None))
        sent.append(send_at(sock, data, came + int((TTFT_MS + n * TOKEN_MS) * 1e6)))
    end = chunk(frame(model, {}, None, "stop")) + chunk(frame(model, None, usage(TOKENS))) + chunk(b"data: [DONE]\n\n")
    at = send_at(sock, end + b"0\r\n\r\n", 0)
    return {"came": came, "first": sent[0], "last": sent[-1], "end": at, "each": each}


def send_at(sock: socket.socket, data: bytes, due: int) -> int:
    """Sleep, spin, send; the moment of the send."""
    while (left := due - time.perf_counter_ns()) > 0:
        if left > 400_000:
            time.sleep((left - 300_000) / 1e9)
    at = time.perf_counter_ns()
    sock.sendall(data)
    return at


def usage(n: int) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": n, "total_tokens": 9 + n}


def frame(
    model: str, delta: dict[str, Any] | None, used: dict[str, int] | None = None, end: str | None = None
) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": end}]
    value = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices}
    return b"data: " + json.dumps(value | ({"usage": used} if used else {})).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# The clients. Each gives figure -> (milliseconds, error bar in milliseconds or None).

Figures = dict[str, tuple[float, float | None]]


class Truth(NamedTuple):
    """What the server did, from the arrival of the request (milliseconds)."""

    figures: dict[str, float]


def truth(line: str) -> Truth:
    t = json.loads(line)
    first, last, end = ((t[k] - t["came"]) / 1e6 for k in ("first", "last", "end"))
    per_token = (last - first) / (TOKENS - t["each"])
    figures = {
        "TTFT": first,
        "TTFOT": first,
        "TPOT": (end - first) / (TOKENS - 1),
        "TPOT*": per_token,
        "last token": last,
    }
    return Truth(figures)


def by_unslow(url: str, model: str) -> Callable[[], Figures]:
    probe = Probe(ProbeSettings(url=url, model=model))

    def measure() -> Figures:
        timeline = probe.measure()
        wire, sent = metrics(timeline, Origin.WIRE), sent_ns(timeline)
        chunks = timeline.chunks
        last = max(t for t, k in zip(chunks.arrival_ns, chunks.kind, strict=True) if k in TOKEN_KINDS)
        assert wire is not None, timeline.outcome
        assert wire.ttft_ns is not None, timeline.outcome
        assert wire.ttfot_ns is not None
        assert wire.tpot_ns is not None
        assert sent is not None
        first_bar, last_bar = (wire.ttft_error_ns or 0) / 1e6, (wire.last_token_error_ns or 0) / 1e6
        figures: Figures = {
            "TTFT": (wire.ttft_ns / 1e6, first_bar),
            "TTFOT": (wire.ttfot_ns / 1e6, first_bar),
            "TPOT": (wire.tpot_ns / 1e6, first_bar / (TOKENS - 1)),
            "last token": ((last - sent) / 1e6, last_bar),
        }
        if wire.tpot_star_ns is not None:
            figures["TPOT*"] = (wire.tpot_star_ns / 1e6, (first_bar + last_bar) / (TOKENS - 4))
        return figures

    return measure


def by_openai(url: str, model: str) -> Callable[[], Figures] | None:
    try:
        import openai
    except ImportError:
        return None
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")

    def measure() -> Figures:
        start = time.perf_counter_ns()
        seen = []
        asked = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}], stream=True)
        for part in asked:
            if part.choices and part.choices[0].delta.content:
                seen.append((time.perf_counter_ns() - start) / 1e6)
        end = (time.perf_counter_ns() - start) / 1e6
        per = (end - seen[0]) / (TOKENS - 1)
        return {"TTFT": (seen[0], None), "TTFOT": (seen[0], None), "TPOT": (per, None), "last token": (seen[-1], None)}

    measure()  # first use: imports, connection pool
    return measure


@contextmanager
def held_up(model: str) -> Iterator[None]:
    """Hold this process' main thread up once, in the scenarios that say so."""
    at = STALL_AT_S.get(model)
    if at is None:
        yield
        return
    signal.signal(signal.SIGALRM, lambda *_: time.sleep(STALL_S))
    signal.setitimer(signal.ITIMER_REAL, at)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# The comparison.


class Row(NamedTuple):
    scenario: str
    figure: str
    truth_ms: float
    ours_error_ms: float
    bar_ms: float
    naive_error_ms: float | None
    holds: bool


def compare(url: str, lines: Iterator[str], runs: int) -> list[Row]:
    rows = []
    for model in SCENARIOS:
        ours = repeated(by_unslow(url, model), model, lines, runs)
        naive_client = by_openai(url, model)
        if naive_client is not None:
            next(lines)  # its first use
        naive = repeated(naive_client, model, lines, runs) if naive_client else []
        rows += [row_of(model, figure, ours, naive) for figure in ours[0][1]]
    return rows


def repeated(
    measure: Callable[[], Figures], model: str, lines: Iterator[str], runs: int
) -> list[tuple[Truth, Figures]]:
    out = []
    for _ in range(runs):
        with held_up(model):
            figures = measure()
        out.append((truth(next(lines)), figures))
    return out


def row_of(model: str, figure: str, ours: list[tuple[Truth, Figures]], naive: list[tuple[Truth, Figures]]) -> Row:
    """The worst of all runs; every single one must hold."""
    errors = [(f[figure][0] - t.figures[figure], f[figure][1] or 0.0) for t, f in ours]
    worst, bar = max(errors, key=lambda e: abs(e[0]))
    holds = all(abs(e) <= LIMIT_MS or abs(e) <= b for e, b in errors)
    others = [abs(f[figure][0] - t.figures[figure]) for t, f in naive if figure in f]
    true_ms = statistics.median(t.figures[figure] for t, _ in ours)
    return Row(model, figure, true_ms, worst, bar, max(others) if others else None, holds)


def table(rows: list[Row]) -> str:
    out = [f"{'scenario':9} {'figure':11} {'truth ms':>9} {'unslow off':>11} {'± bar':>8} {'SDK off':>8} {'ratio':>8}"]
    for r in rows:
        naive = "-" if r.naive_error_ms is None else f"{r.naive_error_ms:.3f}"
        ratio = "-" if r.naive_error_ms is None else f"{r.naive_error_ms / max(abs(r.ours_error_ms), 1e-4):.0f} x"
        out.append(
            f"{r.scenario:9} {r.figure:11} {r.truth_ms:9.3f} {r.ours_error_ms:+11.4f} {r.bar_ms:8.4f} {naive:>8} "
            f"{ratio:>8}  {verdict(r)}"
        )
    return "\n".join(out)


def verdict(row: Row) -> str:
    """Within a millisecond, or an error bar that covers the truth; a wide one is that of a reader held up."""
    if not row.holds:
        return "MISSED"
    wide = row.bar_ms > BAR_MS and abs(row.ours_error_ms) > LIMIT_MS
    return "covered: our reader was held up" if wide else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve()
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            rows = compare(f"http://127.0.0.1:{port}", iter(server.stdout), options.runs)
        finally:
            server.kill()
    print(json.dumps([r._asdict() for r in rows]) if options.json else table(rows))
    return 0 if all(r.holds for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
