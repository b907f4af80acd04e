"""The embedded engine's speed: first token, 8 streams, aborts. `python bench/engine_speed.py [--json FILE]`

Every figure is taken at the HTTP socket, with a client that stamps arrivals as they come. The client shares the
machine's cores with the engine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import selectors
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from unslow.serve.engine.settings import EngineSettings


def start(settings: EngineSettings) -> tuple[subprocess.Popen[bytes], str, float]:
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "unslow.serve.engine"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(settings) + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line.startswith(b"ready "):
        sys.exit("the engine did not start")
    return process, msgspec.json.decode(line[6:])["address"], time.perf_counter() - began


def ask(address: str, path: str, body: dict[str, Any]) -> socket.socket:
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), timeout=120)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    sock.sendall(head.encode() + data)
    return sock


def stream(address: str, prompt: Any, tokens: int) -> socket.socket:
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    return ask(address, "/v1/completions", body)


def whole(sock: socket.socket) -> bytes:
    data = bytearray()
    with sock:
        while piece := sock.recv(1 << 16):
            data += piece
    return bytes(data)


def first_byte_s(address: str, prompt: list[int], tokens: int) -> float:
    began = time.perf_counter()
    with stream(address, prompt, tokens) as sock:
        sock.recv(1)
        return time.perf_counter() - began


def prompt_ids(rng: random.Random, size: int) -> list[int]:
    return [rng.randrange(1_000, 40_000) for _ in range(size)]


def first_tokens(address: str, rng: random.Random) -> dict[str, float]:
    times = sorted(first_byte_s(address, prompt_ids(rng, 20), 4) * 1e3 for _ in range(40))
    return {"p50_ms": statistics.median(times), "p95_ms": times[37], "max_ms": times[-1]}


def eight_streams(address: str, rng: random.Random, tokens: int = 200) -> dict[str, float]:
    """All tokens of 8 streams over the time from the first request to the last byte."""
    began = time.perf_counter()
    socks = [stream(address, prompt_ids(rng, 20), tokens) for _ in range(8)]
    stamps: dict[socket.socket, list[float]] = {sock: [] for sock in socks}
    chunks = 0
    with selectors.DefaultSelector() as selector:
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ, sock)
        while selector.get_map():
            for key, _ in selector.select():
                sock = key.data
                data = sock.recv(1 << 16)
                stamps[sock].append(time.perf_counter())
                chunks += data.count(b'"finish_reason":null')
                if not data:
                    selector.unregister(sock)
                    sock.close()
    took = time.perf_counter() - began
    gaps = sorted(b - a for times in stamps.values() for a, b in itertools.pairwise(times))
    return {
        "tokens_per_s": 8 * tokens / took,
        "slowest_first_token_ms": max(times[0] for times in stamps.values()) * 1e3 - began * 1e3,
        "gap_p50_ms": statistics.median(gaps) * 1e3,
        "gap_p99_ms": gaps[int(len(gaps) * 0.99)] * 1e3,
        "text_chunks": chunks,
    }


def abort_to_next(address: str, rng: random.Random) -> dict[str, float]:
    """With all places taken and one request queued: from closing a stream to the queued one's first byte."""
    running = [stream(address, prompt_ids(rng, 20), 3_000) for _ in range(8)]
    for sock in running:
        sock.recv(1)
    times = []
    for _ in range(30):
        queued = stream(address, prompt_ids(rng, 20), 3_000)
        time.sleep(0.1)
        began = time.perf_counter()
        running.pop(rng.randrange(len(running))).close()
        queued.recv(1)
        times.append((time.perf_counter() - began) * 1e3)
        running.append(queued)
    for sock in running:
        sock.close()
    times.sort()
    return {"p50_ms": statistics.median(times), "p95_ms": times[28], "max_ms": times[-1]}


def abort_in_prefill(address: str, rng: random.Random) -> dict[str, float]:
    """As above, but what is closed is a request whose 1,500-token prompt is being computed."""
    running = [stream(address, prompt_ids(rng, 20), 3_000) for _ in range(7)]
    for sock in running:
        sock.recv(1)
    times = []
    for _ in range(20):
        long = stream(address, prompt_ids(rng, 1_500), 10)
        queued = stream(address, prompt_ids(rng, 20), 10)
        time.sleep(0.1)
        began = time.perf_counter()
        long.close()
        queued.recv(1)
        times.append((time.perf_counter() - began) * 1e3)
        whole(queued)
    for sock in running:
        sock.close()
    times.sort()
    return {"p50_ms": statistics.median(times), "p95_ms": times[18], "max_ms": times[-1]}


def random_aborts(address: str, rng: random.Random, count: int) -> dict[str, Any]:
    """Streams that end after a random time, up to 12 at once, some prompts long; then: is it as before?"""
    reference = greedy(address)
    live: list[tuple[float, socket.socket]] = []
    for _ in range(count):
        size = rng.choice((8, 20, 200, 900))
        live.append((time.perf_counter() + rng.expovariate(10), stream(address, prompt_ids(rng, size), 400)))
        while len(live) >= 12 or (live and live[0][0] < time.perf_counter()):
            live.sort(key=lambda item: item[0])
            due, sock = live.pop(0)
            time.sleep(max(0.0, due - time.perf_counter()))
            sock.close()
    for _, sock in live:
        sock.close()
    end = time.perf_counter() + 60
    while (health := get_health(address))["requests"] and time.perf_counter() < end:
        time.sleep(0.05)
    same = greedy(address) == reference
    return {"aborts": count, "left": health["requests"], "restarts": health["restarts"], "same_answer": same}


def greedy(address: str) -> str:
    turns = [{"role": "user", "content": "What is the capital of France?"}]
    body = {"messages": turns, "temperature": 0, "max_tokens": 20}
    data = whole(ask(address, "/v1/chat/completions", body)).partition(b"\r\n\r\n")[2]
    return str(json.loads(data)["choices"][0]["message"]["content"])


def get_health(address: str) -> dict[str, Any]:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        answer: dict[str, Any] = json.loads(whole(sock).partition(b"\r\n\r\n")[2])
    return answer


def processes(pid: int) -> dict[str, int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {"http": pid, "step": int(children[0])}


def resources(pids: dict[str, int]) -> dict[str, float]:
    out = {}
    for name, pid in pids.items():
        status = Path(f"/proc/{pid}/status").read_text()
        out[f"{name}_rss_mb"] = int(status.split("VmRSS:")[1].split()[0]) / 1024
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        out[f"{name}_cpu_s"] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--aborts", type=int, default=500)
    parser.add_argument("--cache-dir", default="~/.cache/unslow")
    parser.add_argument("--precision", default="balanced")
    options = parser.parse_args()
    settings = EngineSettings(cache_dir=options.cache_dir, precision=options.precision)
    cold, _, cold_s = start(settings)
    cold.terminate()
    cold.wait()
    process, address, warm_s = start(settings)
    rng = random.Random(1)
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    figures["start_s"] = {"first": cold_s, "second": warm_s}
    pids = processes(process.pid)
    try:
        figures["first_token_20_tokens"] = first_tokens(address, rng)
        before = resources(pids)
        figures["eight_streams"] = eight_streams(address, rng)
        after = resources(pids)
        figures["http_cpu_us_per_token"] = (after["http_cpu_s"] - before["http_cpu_s"]) / 1_600 * 1e6
        figures["abort_to_next_first_byte"] = abort_to_next(address, rng)
        figures["abort_in_prefill_to_next_first_byte"] = abort_in_prefill(address, rng)
        figures["random_aborts"] = random_aborts(address, rng, options.aborts)
        figures["resources"] = resources(pids)
    finally:
        process.terminate()
        process.wait()
    text = json.dumps(figures, indent=1)
    print(text)
    if options.json:
        Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
