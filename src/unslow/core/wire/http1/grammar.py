"""Field lines of a head, strictly as RFC 9112, section 5 has them.

Theory of operation. One regular expression accepts a whole block of field lines or none of it: names are tokens
with no space before the colon, lines end in CRLF, and values hold no CR, LF, NUL or other control but the tab. So
a bare LF, a folded line (obs-fold) or a NUL cannot get past it, and what does get past means the same to every
other parser. Each alternative starts with a byte that the one before it excludes: matching takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Field = tuple[bytes, bytes]
"""A field's name in lower case, and its value without the white space around it."""

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_BLOCK = re.compile(rb"(?:" + TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*")
_LINE = re.compile(rb"([^:\r\n]+):([^\r\n]*)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
"""Fields that concern one connection and are never passed on (RFC 9110, section 7.6.1)."""


def read_fields(block: bytes) -> list[Field] | None:
    """Fields of a block of complete lines, in order; None for a block that breaks the grammar."""
    if _BLOCK.fullmatch(block) is None:
        return None
    return [(name.lower(), value.strip(b" \t")) for name, value in _LINE.findall(block)]


def read_length(value: bytes) -> int | None:
    """The number that a Content-Length states; None for anything but 1 to 18 digits."""
    return int(value) if _LENGTH.fullmatch(value) else None


def tokens(value: bytes) -> list[bytes]:
    """Members of a comma-separated list, in lower case, empty ones left out (RFC 9110, section 5.6.1)."""
    return [part for part in (piece.strip(b" \t").lower() for piece in value.split(b",")) if part]


def write_fields(
    fields: Iterable[Field], *, drop: frozenset[bytes] = frozenset(), named: Iterable[bytes] = ()
) -> bytes:
    """Field lines, each with its CRLF, without those in `drop` and those that Connection names."""
    if named:
        drop = drop.union(named)
    return b"".join([name + b": " + value + b"\r\n" for name, value in fields if name not in drop])
