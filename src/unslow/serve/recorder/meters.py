"""From finished Timelines to the series of `/metrics`, for all workers together.

Theory of operation. Every exchange is counted once, under its upstream and model; latencies come from
`core.timeline.metrics` and phases from its ledger, so `/metrics` says what every other surface says, and the phases'
sums add up to the durations' sum. The number of series is bounded: upstreams are configured, models and failure
kinds take one of a limited number of slots (`Names`), all other labels are closed sets.

Bounds. The customary figures of the field stand exactly on a bound (0.1, 0.3 and 1 s classes, 0.8 s to first
token, 8 s client time-out, 5/10/15 s proxy time-outs; 120 ms between tokens, a 150 ms batching target), so "share
under the SLO" is exact; neighbours are at most a factor 2 apart, mostly 1.5. `slo_s` adds a user's own thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unslow.core.timeline import End, Metrics, Row, Timeline, icl_ns
from unslow.serve.recorder.instruments import Counter, Histogram, Names
from unslow.show.export.prometheus import Family, Sample

LATENCY_S = (
    0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0,
    6.5, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0,
)  # fmt: skip
TOKEN_S = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3,
    0.5, 0.8, 1.0, 2.0, 5.0,
)  # fmt: skip
PHASE_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WHO = ("upstream", "model")
_KINDS = 64
_TRACE_CHARS = 64  # an exemplar's labels may be 128 characters (OpenMetrics 1.0), the name included
_UPSTREAMS = 64


class Meters:
    """All instruments that grow with finished exchanges."""

    def __init__(self, *, max_models: int = 50, slo_s: Iterable[float] = ()) -> None:
        slo = tuple(slo_s)
        self._models, self._kinds, self._upstreams = Names(max_models), Names(_KINDS), Names(_UPSTREAMS)
        self.requests = Counter(
            "unslow_requests_total", "Exchanges by how they ended.", (*WHO, "end", "kind", "status_class", "stream")
        )
        self.duration = _latency("unslow_request_duration_seconds", "Start to end of an exchange.", slo)
        self.ttft = _latency("unslow_time_to_first_token_seconds", "Start to the first generated token.", slo)
        self.ttfot = _latency("unslow_time_to_first_output_token_seconds", "Start to the first visible token.", slo)
        self.icl = Histogram(
            "unslow_inter_chunk_latency_seconds", "Gaps between chunks that carry tokens.", WHO, (*TOKEN_S, *slo)
        )
        self.tpot = Histogram(
            "unslow_time_per_output_token_seconds", "(end - first token)/(tokens - 1).", WHO, (*TOKEN_S, *slo)
        )
        self.phases = Histogram(
            "unslow_phase_duration_seconds",
            "Ledger rows: where the time of an exchange went; `unexplained` is what nothing accounts for.",
            ("upstream", "hop", "phase", "source"),
            (*PHASE_S, *slo),
        )
        self.tokens = Counter(
            "unslow_tokens_total",
            "Tokens; `cached` is part of `input`, `reasoning` part of `output`.",
            (*WHO, "type"),
        )
        self.size = Counter("unslow_bytes_total", "Body bytes: `in` from callers, `out` to them.", (*WHO, "direction"))
        self.retries = Counter("unslow_retries_total", "Attempts after the first.", WHO)

    def observe(self, timeline: Timeline, derived: Metrics, rows: Iterable[Row]) -> None:
        """Count one exchange; `derived` and `rows` are its metrics and ledger."""
        facts = timeline.facts
        ok = succeeded(timeline)
        model = facts.model or facts.model_answered
        key = (self._upstreams.label(facts.upstream), self._models.label(model, proven=ok))
        self._count(key, timeline)
        self._latencies(key, derived, timeline)
        for row in rows:
            phase = row.phase.value if row.phase else "unexplained"
            self.phases.observe((key[0], row.hop or "", phase, row.source or ""), row.duration_ns / 1e9)

    def families(self) -> Iterator[Family]:
        """What is exposed, the customary names included."""
        for counter in (self.requests, self.tokens, self.size, self.retries):
            yield counter.family()
        for histogram in (self.duration, self.ttft, self.ttfot, self.icl, self.tpot, self.phases):
            yield histogram.family()
        yield self.duration.merged(
            "openai_request_duration_seconds", "The customary name: duration by model.", ("model",)
        )
        yield self._throughput()
        yield self._errors()

    def _count(self, key: tuple[str, str], timeline: Timeline) -> None:
        facts, outcome = timeline.facts, timeline.outcome
        status = f"{facts.status // 100}xx" if facts.status is not None and 100 <= facts.status < 600 else ""
        stream = "" if facts.stream is None else str(facts.stream).lower()
        self.requests.add((*key, outcome.end.value, self._kinds.label(outcome.kind), status, stream))
        usage = facts.usage
        if usage is not None:
            counts = (("input", usage.prompt_tokens), ("output", usage.completion_tokens))
            parts = (("cached", usage.cached_tokens), ("reasoning", usage.reasoning_tokens))
            for name, amount in (*counts, *parts):
                if amount is not None and amount >= 0:
                    self.tokens.add((*key, name), amount)
        for direction, size in (("in", facts.request_bytes), ("out", facts.response_bytes)):
            if size is not None and size >= 0:
                self.size.add((*key, direction), size)
        if facts.retries is not None and facts.retries > 0:
            self.retries.add(key, facts.retries)

    def _latencies(self, key: tuple[str, str], derived: Metrics, timeline: Timeline) -> None:
        at = timeline.started_at
        trace = timeline.trace_id if len(timeline.trace_id) <= _TRACE_CHARS else ""
        self.duration.observe(key, derived.e2e_ns / 1e9, trace_id=trace, at=at)
        if derived.ttft_ns is not None:
            self.ttft.observe(key, derived.ttft_ns / 1e9, trace_id=trace, at=at)
        if derived.ttfot_ns is not None:
            self.ttfot.observe(key, derived.ttfot_ns / 1e9, trace_id=trace, at=at)
        if derived.tpot_ns is not None:
            self.tpot.observe(key, derived.tpot_ns / 1e9)
        if gaps := icl_ns(timeline):
            self.icl.observe_all(key, [gap / 1e9 for gap in gaps])

    def _throughput(self) -> Family:
        sums: dict[tuple[str, str], float] = {}
        for (_, model, kind), value in self.tokens.values.items():
            if kind in ("input", "output"):
                sums[model, kind] = sums.get((model, kind), 0) + value
        samples = [Sample((("model", m), ("type", kind)), value) for (m, kind), value in sorted(sums.items())]
        return Family("openai_token_throughput_total", "counter", "The customary name: tokens by model.", samples)

    def _errors(self) -> Family:
        sums: dict[tuple[str, str], float] = {}
        for (_, model, end, kind, status, _), value in self.requests.values.items():
            if end != End.COMPLETED or status not in ("2xx", ""):
                name = kind or (f"http_{status}" if end == End.COMPLETED else end)
                sums[model, name] = sums.get((model, name), 0) + value
        samples = [Sample((("model", m), ("error", name)), value) for (m, name), value in sorted(sums.items())]
        return Family("openai_request_errors_total", "counter", "The customary name: failures by model.", samples)


def succeeded(timeline: Timeline) -> bool:
    """Whether an exchange completed with a status of 200 to 299 (or none that is known)."""
    status = timeline.facts.status
    return timeline.outcome.end is End.COMPLETED and (status is None or 200 <= status < 300)


def _latency(name: str, text: str, slo_s: tuple[float, ...]) -> Histogram:
    return Histogram(name, text, WHO, (*LATENCY_S, *slo_s))
