"""Relays side by side in one run: CPU a call and a relayed event, added TTFT, memory, start.

    python bench/relay/run.py [--peers DIR] [--rounds 5] [--only unslow,nginx] [--json FILE]

Each target relays to the same mock; rounds are interleaved, so that drift of the machine hits all alike. CPU is from
/proc/PID/task/*/schedstat (nanoseconds on a CPU), the recorder's apart. Peers are started by a script that takes
`start NAME --port P --upstream U`; without one only unslow and the direct way are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics as st
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))
from bench.relay import load  # noqa: E402

GENTLE = {"litellm"}  # saturates at a fraction of the others' load
PEERS = ("nginx", "envoy", "smg", "vllm-router", "litellm")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def children(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in (task / "children").read_text().split():
            found += children(int(child))
    return found


def cpu_ns(pids: list[int]) -> int:
    """Nanoseconds on a CPU so far, all threads."""
    total = 0
    for pid in pids:
        for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(stat.read_text().split()[0])
    return total


def rss_mb(pids: list[int]) -> float:
    """Resident memory in MB."""
    kb = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                kb += int(line.split()[1])
    return kb / 1024


@dataclass
class Target:
    """One relay under test and what was seen of it."""

    name: str
    port: int
    process: subprocess.Popen[bytes] | None = None
    ready_s: float | None = None
    figures: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def pids(self, *, recorder: bool = False) -> list[int]:
        """Processes whose CPU counts; for unslow the worker, or the recorder."""
        if self.process is None:
            return []
        alive = children(self.process.pid)
        if self.name != "unslow":
            return alive
        want = b"unslow.serve.recorder" if recorder else b"unslow.serve.gateway"
        return [pid for pid in alive if want in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def add(self, figure: str, value: float) -> None:
        self.figures.setdefault(figure, []).append(value)

    def median(self, figure: str) -> float | None:
        return st.median(self.figures[figure]) if self.figures.get(figure) else None


def start(name: str, upstream: int, peers: Path | None) -> Target:
    """Start a relay and wait until it answers."""
    port = free_port()
    if name == "unslow":
        unslow = str(ROOT / ".venv/bin/unslow")
        log = os.environ.get("BENCH_ACCESS_LOG", "/tmp/unslow-bench-access.log")
        cmd = [unslow, "serve", "--upstream", f"http://127.0.0.1:{upstream}/v1", "--port", str(port)]
        cmd += ["--console-port", str(free_port()), "--access-log", log]
    else:
        assert peers is not None
        cmd = ["python3", str(peers), "start", name, "--port", str(port), "--upstream", str(upstream)]
    began = time.perf_counter()
    process = subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    target = Target(name, port, process)
    limit_s = 90 if name in GENTLE else 20
    while time.perf_counter() - began < limit_s:
        try:
            with socket.create_connection(("127.0.0.1", port), 0.2) as s:
                s.settimeout(5)
                s.sendall(
                    b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer sk-test\r\n\r\n" % port
                )
                if s.recv(100).startswith(b"HTTP/1.1 200"):
                    target.ready_s = time.perf_counter() - began
                    return target
        except OSError:
            pass
        time.sleep(0.01)
    stop(target)
    raise SystemExit(f"{name} did not answer within {limit_s} s")


def stop(target: Target) -> None:
    """End a relay and all below it (its own process group)."""
    if target.process is None:
        return
    os.killpg(target.process.pid, signal.SIGTERM)
    try:
        target.process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(target.process.pid, signal.SIGKILL)
        target.process.wait(10)


def quantile(values: list[int], q: float) -> float:
    """Nearest rank, in milliseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] / 1e6


async def one_round(t: Target, *, calls: int, rate: float, slots: int, repeats: int, spread: bool = True) -> None:
    """A JSON phase and a stream phase on one target."""
    if t.name in GENTLE:
        calls, rate, slots, repeats = calls // 10, rate / 10, slots // 5, 1
    await load.calls(t.port, count=50, rate=200)  # pools warm
    await load.streams(t.port, slots=5, events=5, gap_ms=5, repeats=1)
    await asyncio.sleep(0.3)
    for phase in ("call", "event"):
        before, rec = cpu_ns(t.pids()), cpu_ns(t.pids(recorder=True)) if t.name == "unslow" else 0
        if phase == "call":
            sample = await load.calls(t.port, count=calls, rate=rate)
            n = len(sample.latency_ns)
        else:
            sample = await load.streams(t.port, slots=slots, events=100, gap_ms=20, repeats=repeats, spread=spread)
            n = sample.events
        await asyncio.sleep(0.3)
        t.errors += sample.errors
        if not n:
            continue
        if t.process is not None:
            t.add(f"{phase}_cpu_us", (cpu_ns(t.pids()) - before) / n / 1e3)
        if t.name == "unslow":
            t.add(f"{phase}_recorder_us", (cpu_ns(t.pids(recorder=True)) - rec) / n / 1e3)
        t.add(f"{phase}_p50_ms", quantile(sample.latency_ns, 0.5))
        t.add(f"{phase}_p99_ms", quantile(sample.latency_ns, 0.99))


async def hold(t: Target, slots: int) -> None:
    """Many streams at once: errors, and memory while they run."""
    running = asyncio.create_task(load.streams(t.port, slots=slots, events=60, gap_ms=200, repeats=1))
    await asyncio.sleep(12 - 1)  # all have started, the first ends at 12 s
    t.add("hold_rss_mb", rss_mb(t.pids()))
    sample = await running
    t.errors += sample.errors
    t.add("hold_errors", len(sample.errors))
    t.add("hold_done", len(sample.latency_ns))


COLUMNS = (
    ("call_cpu_us", "CPU-µs/call"), ("call_recorder_us", "(recorder)"), ("call_p50_ms", "call p50 ms"),
    ("call_p99_ms", "p99"), ("event_cpu_us", "CPU-µs/event"), ("event_recorder_us", "(recorder)"),
    ("event_p50_ms", "TTFT p50 ms"), ("event_p99_ms", "p99"), ("hold_rss_mb", "RSS MB @ hold"),
    ("hold_errors", "hold errors"),
)  # fmt: skip


def table(targets: list[Target]) -> str:
    """The figures as a Markdown table: medians over the rounds."""
    lines = ["| | " + " | ".join(title for _, title in COLUMNS) + " | ready s |", "|" + "---|" * (len(COLUMNS) + 2)]
    for t in targets:
        cells = [t.median(key) for key, _ in COLUMNS]
        shown = ["–" if v is None else f"{v:.2f}" for v in cells]
        lines.append(f"| {t.name} | " + " | ".join(shown) + f" | {'–' if t.ready_s is None else f'{t.ready_s:.2f}'} |")
    return "\n".join(lines)


def verdicts(targets: list[Target]) -> list[str]:
    """The bounds of the relay, each with its ratio in this run."""
    by = {t.name: t for t in targets}
    ours, direct, out = by.get("unslow"), by["direct"], []

    def ratio(a: Target | None, b: Target | None, key: str, limit: float, words: str) -> None:
        if a is None or b is None or a.median(key) is None or b.median(key) is None:
            return
        value = a.median(key) / b.median(key)  # type: ignore[operator]
        out.append(f"{'PASS' if value <= limit else 'MISS'} {words}: {value:.2f} (limit {limit})")

    if ours is None:
        return out
    ratio(ours, by.get("nginx"), "event_cpu_us", 1.5, "CPU an event against nginx")
    ratio(ours, by.get("nginx"), "call_cpu_us", 2.5, "CPU a call against nginx")
    ratio(ours, by.get("envoy"), "event_cpu_us", 1.0, "CPU an event against Envoy")
    ratio(ours, by.get("envoy"), "call_cpu_us", 1.0, "CPU a call against Envoy")
    ratio(ours, by.get("envoy"), "event_p99_ms", 1.0, "TTFT p99 against Envoy")
    added = (ours.median("event_p50_ms") or 0) - (direct.median("event_p50_ms") or 0)
    out.append(f"{'PASS' if added <= 1 else 'MISS'} TTFT p50 over direct: {added:.2f} ms (limit 1)")
    for key, limit, words in (("hold_rss_mb", 80, "RSS MB at the hold"), ("hold_errors", 0, "errors at the hold")):
        if (value := ours.median(key)) is not None:
            out.append(f"{'PASS' if value <= limit else 'MISS'} {words}: {value:.0f} (limit {limit})")
    return out


def ready_times(upstream: int, n: int = 5) -> list[float]:
    """Seconds from exec of `unslow serve` to its first answer."""
    found = []
    for _ in range(n):
        t = start("unslow", upstream, None)
        found.append(t.ready_s or 0.0)
        stop(t)
    return found


def options() -> argparse.Namespace:
    """What to measure."""
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--peers", type=Path, help="script that starts peers")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--calls", type=int, default=3000)
    a.add_argument("--rate", type=float, default=500)
    a.add_argument("--slots", type=int, default=100)
    a.add_argument("--repeats", type=int, default=2)
    a.add_argument("--together", action="store_true", help="start all streams at once, not spread over one's length")
    a.add_argument("--hold", type=int, default=1000, help="streams held at once; 0: skip")
    a.add_argument("--only", default="unslow," + ",".join(PEERS))
    a.add_argument("--json", type=Path)
    return a.parse_args()


def measure(o: argparse.Namespace, targets: list[Target]) -> None:
    """Interleaved rounds over all targets, the hold, and the start."""
    for n in range(o.rounds):
        for t in targets:
            uvloop.run(
                one_round(t, calls=o.calls, rate=o.rate, slots=o.slots, repeats=o.repeats, spread=not o.together)
            )
            print(f"round {n + 1} {t.name}: { {k: round(v[-1], 2) for k, v in t.figures.items()} }", file=sys.stderr)
    for t in targets:
        if o.hold and t.name in ("unslow", "nginx", "envoy"):
            uvloop.run(hold(t, o.hold))
        if t.name == "unslow":
            t.ready_s = st.median(ready_times(targets[0].port))


def main() -> None:
    """Run it and print the table, the verdicts and what went wrong."""
    o = options()
    upstream = free_port()
    mock = subprocess.Popen([sys.executable, HERE / "mock.py", str(upstream)], stdout=subprocess.PIPE)
    assert mock.stdout is not None
    mock.stdout.readline()
    targets = [Target("direct", upstream)]
    try:
        for name in o.only.split(","):
            if name == "unslow" or o.peers:
                targets.append(start(name, upstream, o.peers))
        measure(o, targets)
    finally:
        for t in targets:
            stop(t)
        mock.terminate()
        mock.wait(5)
    print(table(targets))
    print("\n".join(verdicts(targets)))
    for t in targets:
        if t.errors:
            print(f"{t.name}: {len(t.errors)} errors, e.g. {t.errors[0]}")
    if o.json:
        o.json.write_text(json.dumps({t.name: t.figures for t in targets}, indent=1))


if __name__ == "__main__":
    main()
