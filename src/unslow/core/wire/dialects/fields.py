"""Fields of JSON that a stranger sent: each reader gives the value of the type asked for, or nothing.

A provider may send anything; a dialect degrades and never raises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

Object = dict[str, Any]

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding bytes of a stranger can raise."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

_ERROR_CHARS = 300
_MOST_TOKENS = 1 << 40
_LONGEST_NS = 1 << 60
_decode = msgspec.json.Decoder().decode


def parse(data: bytes) -> Any:
    """The JSON value, or None where it is none."""
    try:
        return _decode(data)
    except UNREADABLE:
        return None


def an_object(value: object) -> Object:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> Iterable[Object]:
    """The objects of a list; whatever else is in it is passed over."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def a_text(value: object) -> str:
    """The string, or an empty one."""
    return value if isinstance(value, str) else ""


def a_name(value: object) -> str | None:
    """A string that names something (a model, a finish reason): None where it is empty."""
    return value if isinstance(value, str) and value else None


def a_count(value: object) -> int | None:
    """A number of tokens: a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 <= value < _MOST_TOKENS or value != int(value):
        return None
    return int(value)


def first_count(*values: object) -> int | None:
    """The first that is a count."""
    return next((count for value in values if (count := a_count(value)) is not None), None)


def a_duration_ns(value: object, unit_ns: int = 1) -> int | None:
    """A duration in units of `unit_ns`, as whole nanoseconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return round(value * unit_ns) if 0 <= value < _LONGEST_NS / unit_ns else None


def error_line(value: object) -> str:
    """An error as providers shape it (a string, or an object with a message and a code), as one line."""
    if isinstance(value, str):
        return _line(value) or "error"
    found = an_object(value)
    message = a_text(found.get("message")) or a_text(found.get("detail")) or a_text(found.get("error"))
    code = next((str(v) for k in ("code", "type", "status") if (v := found.get(k)) and isinstance(v, (str, int))), "")
    return _line(f"{code}: {message}" if code and message else message or code) or "error"


def _line(text: str) -> str:
    return " ".join(text.split())[:_ERROR_CHARS]
