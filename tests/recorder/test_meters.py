"""What `/metrics` counts, from records that are known to the millisecond."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.exposition import Read, read
from tests.support.recorder import finished, gateway_timeline, running, until
from tests.support.timelines import timelines

from unslow.core.timeline import End, Outcome, Timeline, ledger, metrics
from unslow.serve.recorder.meters import LATENCY_S, PHASE_S, TOKEN_S, Meters
from unslow.serve.recorder.protocol import Snapshot
from unslow.show.export.prometheus import OPENMETRICS, TEXT, render


def counted(*seen: Timeline, meters: Meters | None = None) -> Read:
    meters = meters or Meters()
    for timeline in seen:
        derived = metrics(timeline)
        assert derived is not None
        meters.observe(timeline, derived, ledger(timeline))
    return read(render(meters.families(), openmetrics=True), openmetrics=True)


def test_known_latencies_fall_on_their_sides_of_the_bounds() -> None:
    got = counted(gateway_timeline("a"))
    who = {"upstream": "main", "model": "m-1"}
    ttft = "unslow_time_to_first_token_seconds_bucket"
    assert got.value(ttft, le="1.0", **who) == 1  # exactly 1 s: within the SLO of 1 s
    assert got.value(ttft, le="0.8", **who) == 0
    assert got.value("unslow_time_to_first_output_token_seconds_sum", **who) == 1.2
    assert got.value("unslow_request_duration_seconds_sum", **who) == 1.76
    assert got.value("unslow_inter_chunk_latency_seconds_count", **who) == 69
    assert got.value("unslow_time_per_output_token_seconds_count", **who) == 1
    tokens = {t: got.value("unslow_tokens_total", type=t, **who) for t in ("input", "output", "cached", "reasoning")}
    assert tokens == {"input": 10, "output": 5, "cached": 4, "reasoning": 2}
    assert got.value("unslow_bytes_total", direction="out", **who) == 900
    assert got.value("openai_token_throughput_total", model="m-1", type="output") == 5


def test_phases_sum_to_durations() -> None:
    got = counted(gateway_timeline("a"), gateway_timeline("b"))
    phases = sum(s.value for s in got.series if s.name == "unslow_phase_duration_seconds_sum")
    assert phases == pytest.approx(2 * 1.76)
    assert got.value("unslow_phase_duration_seconds_sum", phase="prefill", source="reported") == pytest.approx(1.0)
    assert got.value("unslow_phase_duration_seconds_sum", phase="unexplained") == pytest.approx(0.02)


def test_customary_bounds_stand_exactly() -> None:
    for bound in (0.1, 0.3, 0.5, 0.8, 1.0, 5.0, 8.0, 10.0, 15.0):
        assert bound in LATENCY_S
    for bound in (0.05, 0.12, 0.15):
        assert bound in TOKEN_S
    for bounds in (LATENCY_S, TOKEN_S, PHASE_S):
        assert list(bounds) == sorted(set(bounds))
    got = counted(gateway_timeline("a"), meters=Meters(slo_s=(1.234,)))
    assert got.value("unslow_time_to_first_output_token_seconds_bucket", le="1.234") == 1


def test_outcomes_and_the_customary_error_counter() -> None:
    aborted = msgspec.structs.replace(gateway_timeline("c"), outcome=Outcome(End.ABORTED, kind="client_closed"))
    got = counted(gateway_timeline("a"), gateway_timeline("b", status=429), aborted)
    assert got.value("unslow_requests_total", status_class="4xx", kind="http_429", model="m-1") == 1
    assert got.value("unslow_requests_total", end="aborted") == 1
    assert got.value("openai_request_errors_total", error="http_429") == 1
    assert got.value("openai_request_errors_total", error="client_closed") == 1
    assert sum(s.value for s in got.series if s.name == "openai_request_errors_total") == 2
    assert got.value("openai_request_duration_seconds_count", model="m-1") == 3


def test_a_callers_made_up_models_take_no_slot() -> None:
    meters = Meters(max_models=2)
    counted(*(gateway_timeline("a", model=f"made-up-{n}", status=404) for n in range(50)), meters=meters)
    got = counted(*(gateway_timeline("a", model=f"real-{n}") for n in range(5)), meters=meters)
    models = {s.labels["model"] for s in got.series if "model" in s.labels}
    assert models == {"real-0", "real-1", "other"}
    assert got.value("openai_request_duration_seconds_count", model="other") == 53


def test_failure_kinds_are_bounded() -> None:
    base = gateway_timeline("a")
    seen = [msgspec.structs.replace(base, outcome=Outcome(End.FAILED, kind=f"kind-{n}")) for n in range(500)]
    got = counted(*seen)
    assert len([s for s in got.series if s.name == "unslow_requests_total"]) <= 65


@settings(deadline=None, max_examples=60)
@given(st.lists(timelines(), min_size=1, max_size=5))
def test_any_records_make_a_valid_exposition(seen: list[Timeline]) -> None:
    got = counted(*seen)
    requests = sum(s.value for s in got.series if s.name == "unslow_requests_total")
    durations = sum(s.value for s in got.series if s.name == "unslow_request_duration_seconds_count")
    assert requests == durations == len(seen)


def test_both_formats_of_a_running_recorder(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        recorder.send(finished("a"), finished('b"\n\\'), Snapshot(0, 1, 1.0, rss_bytes=5, cpu_ns=10**9))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 2)
        plain = recorder.ask("/metrics")
        assert plain.headers["content-type"] == TEXT
        got = read(plain.body)
        assert got.value("unslow_worker_cpu_seconds_total", worker="0") == 1
        assert got.value("unslow_build_info") == 1
        assert got.value("unslow_recorder_cpu_seconds_total") > 0
        open_ = recorder.ask("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert open_.headers["content-type"] == OPENMETRICS
        exemplars = [s.exemplar for s in read(open_.body, openmetrics=True).series if s.exemplar]
        assert {e[0]["trace_id"] for e in exemplars} == {"0af7651916cd43dd8448eb211c80319c"}
