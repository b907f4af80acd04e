"""Timelines as JSON lines, one a line, each with its schema version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from unslow.core.timeline.record import SCHEMA_VERSION, Timeline, problems
from unslow.errors import EvidenceError

_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder(Timeline)


class _Versioned(msgspec.Struct):
    schema_version: int = SCHEMA_VERSION


_version = msgspec.json.Decoder(_Versioned)


def dump_line(timeline: Timeline) -> bytes:
    """One Timeline as one line, without the newline. The schema version is always written."""
    body = _encoder.encode(timeline)
    if timeline.schema_version == SCHEMA_VERSION:  # a default, so the encoder left it out
        return b'{"schema_version":%d,%b' % (SCHEMA_VERSION, body[1:])
    return body


def load_line(line: bytes, *, file: str = "", number: int | None = None) -> Timeline:
    """Read one line. Raises EvidenceError for what is no valid Timeline of a version that we know."""
    try:
        version = _version.decode(line).schema_version
        if version > SCHEMA_VERSION:
            why = f"schema version {version} is newer than this unslow reads ({SCHEMA_VERSION}); upgrade unslow"
            raise EvidenceError(why, file=file, offset=number)
        timeline = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise EvidenceError(f"not a Timeline: {error}", file=file, offset=number) from error
    except UnicodeDecodeError as error:
        raise EvidenceError("not UTF-8 text", file=file, offset=number) from error
    except RecursionError as error:
        raise EvidenceError("not a Timeline: nested too deep", file=file, offset=number) from error
    if found := problems(timeline):
        raise EvidenceError(f"not a valid Timeline: {found[0]}", file=file, offset=number)
    return timeline


def load_lines(lines: Iterable[bytes], *, file: str = "") -> Iterator[Timeline]:
    """Read many lines; blank ones are skipped."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield load_line(line, file=file, number=number)
