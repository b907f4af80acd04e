"""The gateway workers' live state, from their snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from unslow.serve.recorder.protocol import Snapshot
from unslow.show.export.prometheus import Family, Sample

STALE_S = 10.0
MAX_WORKERS = 256


class Workers:
    """The last snapshot of each worker; one that has not told for `STALE_S` is gone."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Snapshot, float]] = {}

    def take(self, snapshot: Snapshot, now_s: float) -> None:
        """Keep a snapshot."""
        if snapshot.worker in self._seen or len(self._seen) < MAX_WORKERS:
            self._seen[snapshot.worker] = (snapshot, now_s)

    def now(self, now_s: float) -> tuple[Snapshot, ...]:
        """Snapshots of the workers that are there."""
        self._seen = {n: pair for n, pair in self._seen.items() if now_s - pair[1] < STALE_S}
        return tuple(pair[0] for _, pair in sorted(self._seen.items()))

    def families(self, now_s: float) -> Iterator[Family]:
        """What is exposed; counters start again with a worker, as Prometheus expects of a restart."""
        here = self.now(now_s)
        for name, kind, text, read in _SHOWN:
            values = ((str(s.worker), read(s)) for s in here)
            yield Family(name, kind, text, [Sample((("worker", n),), v) for n, v in values if v is not None])


_SHOWN: tuple[tuple[str, Literal["counter", "gauge"], str, Callable[[Snapshot], float | None]], ...] = (
    ("unslow_active_requests", "gauge", "Requests in flight.", lambda s: s.active_requests),
    ("unslow_open_connections", "gauge", "Connections from callers.", lambda s: s.open_connections),
    (
        "unslow_idle_upstream_connections", "gauge", "Pooled connections to upstreams that wait.",
        lambda s: s.idle_upstream_connections,
    ),
    ("unslow_worker_requests_total", "counter", "Requests of a worker since its start.", lambda s: s.requests_total),
    (
        "unslow_worker_dropped_timelines_total", "counter",
        "Records that a worker dropped since its start because the recorder was slow or away.",
        lambda s: s.dropped_total,
    ),
    ("unslow_worker_resident_bytes", "gauge", "Resident memory of a worker.", lambda s: s.rss_bytes),
    (
        "unslow_worker_cpu_seconds_total", "counter", "CPU time of a worker since its start.",
        lambda s: None if s.cpu_ns is None else s.cpu_ns / 1e9,
    ),
)  # fmt: skip
