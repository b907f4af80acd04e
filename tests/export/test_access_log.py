"""Access-log lines and which exchanges get one."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from tests.support.timelines import failed, known, timelines

from unslow.core.timeline import End, Outcome, Timeline, ledger, metrics
from unslow.show.export.access_log import Filter, Line, chosen, line


def logged(timeline: Timeline, **more: Any) -> dict[str, Any]:
    derived = metrics(timeline)
    assert derived is not None
    text = line(timeline, derived, ledger(timeline), **more)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    read: dict[str, Any] = json.loads(text)
    return read


def test_what_a_line_says() -> None:
    said = logged(known(), client="team-a", path="/v1/chat/completions?user=bob#x", worker=1)
    assert said["time"] == "2023-11-14T22:13:20.000Z"
    assert said["path"] == "/v1/chat/completions"
    assert (said["ttft_ms"], said["ttfot_ms"], said["duration_ms"]) == (1000.0, 1200.0, 1760.0)
    assert (said["prompt_tokens"], said["completion_tokens"], said["cached_tokens"]) == (20, 70, 16)
    assert said["phases"]["client.connect (lost attempt 1)"] == 250.0
    assert sum(said["phases"].values()) == pytest.approx(1760.0)


def test_what_is_unknown_is_left_out() -> None:
    said = logged(failed())
    assert set(said) == {"time", "id", "trace_id", "end", "duration_ms", "phases"} | {
        key for key in ("kind", "failed_phase", "model", "status") if key in said
    }
    assert "ttft_ms" not in said


@settings(deadline=None)
@given(timelines())
def test_any_record_gives_one_line_of_json_whose_phases_sum_to_its_duration(timeline: Timeline) -> None:
    said = logged(timeline, path="/a\nb?c")
    assert set(said) <= set(Line.__struct_fields__)
    assert sum(said.get("phases", {}).values()) == pytest.approx(said["duration_ms"], abs=1e-4)


def sized(ms: int, status: int | None = 200, end: End = End.COMPLETED) -> Timeline:
    base = known()
    facts = msgspec.structs.replace(base.facts, status=status)
    return msgspec.structs.replace(base, end_ns=ms * 1_000_000, facts=facts, outcome=Outcome(end))


@pytest.mark.parametrize(
    ("given_filter", "timeline", "kept"),
    [
        (Filter(), sized(1), True),
        (Filter(min_ms=500), sized(499), False),
        (Filter(min_ms=500), sized(500), True),
        (Filter(min_ms=500), sized(1, status=503), True),
        (Filter(min_ms=500), sized(1, end=End.ABORTED), True),
        (Filter(errors_only=True), sized(9999), False),
        (Filter(errors_only=True), sized(1, status=304), True),
        (Filter(errors_only=True), sized(1, status=None, end=End.FAILED), True),
        (Filter(sample_ratio=0.0), sized(9999), False),
        (Filter(sample_ratio=0.0), sized(1, status=500), True),
    ],
)
def test_which_are_kept(given_filter: Filter, timeline: Timeline, kept: bool) -> None:
    assert given_filter.keeps(timeline) is kept


def test_the_callers_decision_wins_over_the_share() -> None:
    assert Filter(sample_ratio=0.0).keeps(sized(1), sampled=True)
    assert not Filter(sample_ratio=0.99).keeps(sized(1), sampled=False)
    assert Filter().keeps(sized(1), sampled=False)  # no sampling was asked for


def test_a_share_of_traces_is_chosen_by_their_low_64_bits() -> None:
    draw = random.Random(7)
    ids = [f"{draw.getrandbits(128):032x}" for _ in range(20_000)]
    assert 0.08 < sum(chosen(i, 0.1) for i in ids) / len(ids) < 0.12
    assert all(chosen(i, 0.5) for i in ids if chosen(i, 0.1))  # a larger share holds the smaller one
    assert chosen("f" * 16 + "0" * 16, 0.001)
    assert not chosen("0" * 16 + "f" * 16, 0.999)
    assert chosen("no hex", 0.0)
