"""The report as JSON: a round trip, a schema that is published, and the payload's own sums."""

from __future__ import annotations

import json as plain
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.reports import HOSTILE, hostile, made
from tests.support.timelines import failed, known, timelines

from unslow.core.timeline import Timeline, slices
from unslow.errors import EvidenceError
from unslow.show.report import json, schema
from unslow.show.report.payload import exchange

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@settings(deadline=None, max_examples=40)
@given(st.lists(timelines(), max_size=3))
def test_the_round_trip_is_the_identity_and_fits_the_schema(found: list[Timeline]) -> None:
    shown = made(*found)
    body = json.encode(shown)
    assert json.decode(body) == shown
    jsonschema.Draft202012Validator(schema.json_schema()).validate(plain.loads(body))


@settings(deadline=None, max_examples=60)
@given(timelines())
def test_bars_are_the_slices_and_sum_to_their_rows(timeline: Timeline) -> None:
    shown = exchange(timeline)
    assert [(b.start_ns, b.end_ns) for b in shown.bars] == [(s.start_ns, s.end_ns) for s in slices(timeline)]
    for n, row in enumerate(shown.rows):
        assert sum(b.end_ns - b.start_ns for b in shown.bars if b.row == n) == row.duration_ns
    assert sum(row.duration_ns for row in shown.rows) == timeline.end_ns


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_it_was(text: str) -> None:
    assert json.decode(json.encode(hostile(text))) == hostile(text)


def test_indented_json_says_the_same() -> None:
    shown = made(known(), failed())
    pretty = json.encode(shown, indent=2)
    assert pretty.count(b"\n") > 100
    assert json.decode(pretty) == shown
    assert plain.loads(json.encode_exchange(shown.exchanges[0]))["id"] == "req-1"


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"a":' + b"[" * 100_000])
def test_what_is_no_report_says_so(body: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"r\.json: not a report"):
        json.decode(body, file="r.json")


def test_a_newer_report_is_refused() -> None:
    body = plain.dumps({**plain.loads(json.encode(made())), "schema_version": 99}).encode()
    with pytest.raises(EvidenceError, match="upgrade unslow"):
        json.decode(body)


@pytest.mark.parametrize(
    ("name", "generated"),
    [("report.schema.json", schema.json_schema()), ("timeline.schema.json", schema.timeline_schema())],
)
def test_the_published_schema_is_the_generated_one(name: str, generated: dict[str, object]) -> None:
    jsonschema.Draft202012Validator.check_schema(generated)
    published = (REFERENCE / name).read_text(encoding="utf-8")
    assert published == schema.text(generated), f"write schema.text(...) to docs/reference/{name}"


def test_the_schema_refuses_what_is_no_report() -> None:
    body = plain.loads(json.encode(made(known())))
    body["exchanges"][0]["timeline"]["end_ns"] = "soon"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema.json_schema()).validate(body)
