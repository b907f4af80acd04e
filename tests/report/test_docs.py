"""Every field, phase and metric of the record and the report stands in the reference by name."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import msgspec
import pytest

from unslow.core import timeline
from unslow.show.report import payload
from unslow.show.report.canvas import Fill

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def named(page: str) -> set[str]:
    text = re.sub(r"```.*?```", "", (REFERENCE / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"`([^`]+)`", text))


STRUCTS = (
    *(timeline.Timeline, timeline.Span, timeline.Chunks, timeline.Beyond, timeline.Facts, timeline.Usage),
    *(timeline.ServerTimings, timeline.TcpInfo, timeline.Outcome, timeline.Clock, timeline.Metrics),
)
ENUMS = (
    *(timeline.Phase, timeline.Hop, timeline.Source, timeline.ChunkKind, timeline.End, timeline.CountSource),
    timeline.Origin,
)


@pytest.mark.parametrize("struct", STRUCTS)
def test_every_field_of_the_record_is_in_the_reference(struct: type[msgspec.Struct]) -> None:
    assert {field.name for field in msgspec.structs.fields(struct)} - named("timeline.md") == set()


@pytest.mark.parametrize("enum", ENUMS)
def test_every_word_of_the_record_is_in_the_reference(enum: type[StrEnum]) -> None:
    assert {member.value for member in enum} - named("timeline.md") == set()


@pytest.mark.parametrize("struct", [payload.Report, payload.Target, payload.Exchange, payload.LedgerRow, payload.Bar])
def test_every_field_of_the_report_is_in_the_reference(struct: type[msgspec.Struct]) -> None:
    assert {field.name for field in msgspec.structs.fields(struct)} - named("report-schema.md") == set()


def test_every_sign_is_in_the_reference() -> None:
    assert {glyph for fill in Fill for glyph in fill.value[:2]} - named("report-schema.md") == set()


def test_the_reference_names_the_schema_versions() -> None:
    assert f"Schema version: `{timeline.SCHEMA_VERSION}`" in (REFERENCE / "timeline.md").read_text(encoding="utf-8")
    said = f"Schema version: `{payload.REPORT_SCHEMA_VERSION}`"
    assert said in (REFERENCE / "report-schema.md").read_text(encoding="utf-8")
