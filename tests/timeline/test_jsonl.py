"""Timelines as lines: what goes out comes back, and what is no Timeline says so."""

from __future__ import annotations

import contextlib
import json

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.timelines import known, timelines

from unslow.core.timeline import SCHEMA_VERSION, Timeline, dump_line, load_line, load_lines
from unslow.errors import EvidenceError
from unslow.show.report.schema import timeline_schema

VALID = json.loads(dump_line(known()))


@settings(deadline=None, max_examples=100)
@given(timelines())
def test_the_round_trip_is_the_identity(timeline: Timeline) -> None:
    line = dump_line(timeline)
    assert b"\n" not in line
    assert load_line(line) == timeline


@settings(deadline=None, max_examples=40)
@given(timelines())
def test_a_line_fits_the_published_schema(timeline: Timeline) -> None:
    jsonschema.Draft202012Validator(timeline_schema()).validate(json.loads(dump_line(timeline)))


def test_every_line_says_its_schema_version() -> None:
    assert json.loads(dump_line(known()))["schema_version"] == SCHEMA_VERSION


def test_a_newer_schema_is_refused_with_what_to_do() -> None:
    line = json.dumps({**VALID, "schema_version": SCHEMA_VERSION + 1, "spans": "changed"}).encode()
    with pytest.raises(EvidenceError, match=r"x\.jsonl, line 7: schema version 2 is newer .* upgrade unslow"):
        load_line(line, file="x.jsonl", number=7)


def test_fields_that_we_do_not_know_are_left_out() -> None:
    assert load_line(json.dumps({**VALID, "colour": {"deep": [1, 2]}}).encode()) == known()


WRONG: dict[str, list[object]] = {
    "end_ns": [-1, 1.5, "1", None],
    "party": ["nobody", 3],
    "started_at": ["now", None],
    "schema_version": [0, -1, "1"],
    "scheduled_ns": [5],
    "spans": [
        {},
        [{"phase": "wait", "hop": "client", "start_ns": 5, "end_ns": 1}],
        [{"phase": "wait", "hop": "client", "start_ns": 0, "end_ns": 9, "attempt": -1}],
        [{"phase": "nap", "hop": "client", "start_ns": 0, "end_ns": 1}],
        [
            {"phase": "wait", "hop": "client", "start_ns": 0, "end_ns": 100},
            {"phase": "send", "hop": "client", "start_ns": 5, "end_ns": 5},
            {"phase": "decode", "hop": "client", "start_ns": 50, "end_ns": 60},
        ],
    ],
    "chunks": [
        {"arrival_ns": [1]},
        {"arrival_ns": [2, 1], "size_bytes": [1, 1], "kind": ["role", "done"], "tokens": [None, None]},
        {"arrival_ns": [2], "size_bytes": [-1], "kind": ["role"], "tokens": [None]},
        {"arrival_ns": [2], "size_bytes": [1], "kind": ["role"], "tokens": [None], "error_ns": [1, 2]},
        {"arrival_ns": [2], "size_bytes": [1], "kind": ["poem"], "tokens": [None]},
        {"beyond": {"count": -1, "size_bytes": 0, "kinds": {}, "last_ns": 0}},
    ],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in WRONG.items() for v in values])
def test_an_invalid_field_is_named(field: str, value: object) -> None:
    with pytest.raises(EvidenceError, match=r"not a (valid )?Timeline"):
        load_line(json.dumps({**VALID, field: value}).encode())


@given(st.binary(max_size=300))
@example(b"")
@example(b"null")
@example(b"[]")
@example(b"\xff\xfe")
@example(b'{"trace_id":"\xc3\x28","party":"client"}')
@example(b'{"a":' + b"[" * 100_000)
@example(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
@example(b'{"started_at":1e999,"trace_id":"t","party":"client","end_ns":1}')
@example(b'{"started_at":NaN,"trace_id":"t","party":"client","end_ns":1}')
@example(b'{"started_at":0,"trace_id":"\\ud800","party":"client","end_ns":1}')
@settings(deadline=None)
def test_hostile_lines_are_evidence_errors(line: bytes) -> None:
    with pytest.raises(EvidenceError):
        load_line(line)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_damaged_line_is_an_error_or_still_a_timeline(data: st.DataObject) -> None:
    line = bytearray(dump_line(known()))
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(EvidenceError):
        assert isinstance(load_line(bytes(line)), Timeline)


def test_lines_are_numbered_and_blank_ones_skipped() -> None:
    good = dump_line(known())
    assert list(load_lines([good, b"", b"  \n", good])) == [known(), known()]
    with pytest.raises(EvidenceError, match=r"run\.jsonl, line 3"):
        list(load_lines([good, b"\n", b"{}"], file="run.jsonl"))
