"""A report as JSON, and back. The shape is published: `schema.py`, `docs/reference/report.schema.json`."""

from __future__ import annotations

import msgspec

from unslow.errors import EvidenceError
from unslow.show.report.payload import REPORT_SCHEMA_VERSION, Exchange, Report

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Report)


def encode(report: Report, *, indent: int = 0) -> bytes:
    """The report as UTF-8 JSON, ending in a newline; `indent` spaces a level, 0 for one line."""
    body = _encoder.encode(report)
    return (msgspec.json.format(body, indent=indent) if indent else body) + b"\n"


def encode_exchange(shown: Exchange) -> bytes:
    """One exchange as UTF-8 JSON, without a newline (what the console's API answers)."""
    return _encoder.encode(shown)


def decode(body: bytes, *, file: str = "") -> Report:
    """Read a report that `encode` wrote. Raises EvidenceError for anything else, or for a newer schema."""
    try:
        report = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"not a report: {error}", file=file) from error
    if report.schema_version > REPORT_SCHEMA_VERSION:
        newer = f"schema version {report.schema_version} is newer than this unslow reads ({REPORT_SCHEMA_VERSION})"
        raise EvidenceError(f"{newer}; upgrade unslow", file=file)
    return report
