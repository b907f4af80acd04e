"""The published JSON Schemas (2020-12) of the record and of the report, made from the types themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from unslow.core.timeline import SCHEMA_VERSION, Timeline
from unslow.show.report.payload import REPORT_SCHEMA_VERSION, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The name of JSON Schema 2020-12; an identifier, nothing is fetched from it."""


def json_schema() -> dict[str, Any]:
    """The schema of a report, as `unslow check --json` prints it."""
    return _schema(Report, f"urn:unslow:report:{REPORT_SCHEMA_VERSION}", "unslow report")


def timeline_schema() -> dict[str, Any]:
    """The schema of one Timeline, as a line of JSONL holds it."""
    return _schema(Timeline, f"urn:unslow:timeline:{SCHEMA_VERSION}", "unslow timeline")


def text(schema: dict[str, Any]) -> str:
    """A schema as the published file holds it."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _schema(root: type, urn: str, title: str) -> dict[str, Any]:
    (reference,), parts = msgspec.json.schema_components((root,), ref_template="#/$defs/{name}")
    for part in parts.values():
        for name, field in part.get("properties", {}).items():
            _say_unit(name, field)
    return {"$schema": DIALECT, "$id": urn, "title": title, **reference, "$defs": dict(sorted(parts.items()))}


_UNITS = {"_ns": "In nanoseconds.", "_bytes": "In bytes.", "_at": "In seconds since the epoch, UTC."}


def _say_unit(name: str, field: dict[str, Any]) -> None:
    """A field's unit, as its suffix has it."""
    unit = next((said for suffix, said in _UNITS.items() if name.endswith(suffix)), None)
    if unit and "$ref" not in field:
        field.setdefault("description", unit)
