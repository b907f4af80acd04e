"""Find the top-level `model` of a request's body in as few bytes as it takes.

Theory of operation. A body may be 64 MB while its model stands in the first hundred bytes, so the body is scanned
as it comes. One regular expression walks JSON by tokens (strings whole, brackets singly, runs of anything else), and
the scan stops at the first `"model": "…"` at depth 1. It resumes where it stopped, never goes back over a byte, and
does not judge the JSON: the upstream does. A multipart form (audio) is searched for its field instead. What is found
does not depend on how the bytes were cut.
"""

from __future__ import annotations

import re

import msgspec

_STRING_REST = rb'[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rb'(?:[^"{}\[\]]++|"' + _STRING_REST + rb")"
_SHALLOW = re.compile(rb'"' + _STRING_REST + rb'|[{}\[\]:,]|[^"{}\[\]:,]++', re.DOTALL)
_DEEP = re.compile(rb"\{" + _FLAT + rb"*+\}|\[" + _FLAT + rb"*+\]|" + _FLAT + rb"++|[{}\[\]]", re.DOTALL)
_REST = re.compile(_STRING_REST, re.DOTALL)
_LONG_BYTES = 1024
"""A string longer than this is no model's name."""
_FORM_FIELD = re.compile(rb'name="model"\r\n(?:[^\r\n]{1,256}+\r\n){0,4}+\r\n([^\r\n]{1,256}+)\r\n')
_FORM_FIELD_BYTES = 2048
"""More than a form's field may take, so that a search which fails looks at few bytes more than once."""


class ModelScan:
    """The scan of one body. `model` is what was found; `over` says that it was not in what is not yet fed."""

    __slots__ = ("_after_key", "_depth", "_form", "_held", "_in_string", "_is_key", "model", "over")

    def __init__(self, content_type: bytes = b"") -> None:
        self.model: str | None = None
        self.over = False
        self._form = content_type[:19].lower() == b"multipart/form-data"
        self._in_string = False
        self._held, self._depth, self._is_key, self._after_key = b"", 0, False, False

    def feed(self, data: bytes) -> bool:
        """Scan on; True once the answer is known (`model`, or None for a body that has none)."""
        if self.over:
            return True
        data, self._held = self._held + data, b""
        if self._form:
            self._search_form(data)
        else:
            self._walk(data)
        return self.over

    def _search_form(self, data: bytes) -> None:
        found = _FORM_FIELD.search(data)
        if found is None:
            self._held = data[-_FORM_FIELD_BYTES:]
        else:
            self.model, self.over = found[1].decode("utf-8", "replace"), True

    def _walk(self, data: bytes) -> None:
        at = self._skip_string(data) if self._in_string else 0
        while not self.over and at < len(data):
            found = (_SHALLOW if self._depth <= 1 else _DEEP).match(data, at)
            if found is None:  # a string that goes on
                self._hold(data, at)
                return
            token, at = found[0], found.end()
            self._step(token)

    def _hold(self, data: bytes, at: int) -> None:
        """Keep the start of a string; of a long one only where it stands, so that no byte is read twice."""
        self._in_string = len(data) - at > _LONG_BYTES
        if self._in_string:
            self._is_key = self._after_key = False
            self.over = not self._depth
            self._skip_string(data[at + 1 :])
        else:
            self._held = data[at:]

    def _skip_string(self, data: bytes) -> int:
        found = _REST.match(data)
        if found is not None:
            self._in_string = False
            return found.end()
        slashes = len(data) - len(data.rstrip(b"\\"))
        self._held = b"\\" if slashes % 2 else b""
        return len(data)

    def _step(self, token: bytes) -> None:
        first = token[0]
        if first in b"{[":
            if token[-1] in b"}]" and len(token) > 1:
                return  # an inner object or list without any of its own
            self._depth += 1
            self._is_key, self._after_key = self._depth == 1 and first == 0x7B, False
            self.over = self._depth == 1 and first == 0x5B
        elif first in b"}]":
            self._depth -= 1
            self.over = self._depth <= 0
        elif self._depth == 1:
            self._member(token, first)
        elif not self._depth and token.strip():
            self.over = True

    def _member(self, token: bytes, first: int) -> None:
        if first == 0x2C:
            self._is_key, self._after_key = True, False
        elif first == 0x22:
            self._string(token)

    def _string(self, token: bytes) -> None:
        if len(token) - 1 > _LONG_BYTES:  # as if it had come in two parts
            self._is_key = self._after_key = False
        elif self._is_key:
            self._is_key, self._after_key = False, token == b'"model"' or _is_model(token)
        elif self._after_key:
            self.over = True
            self.model = _text(token)


def _is_model(key: bytes) -> bool:
    """Whether a key is `model` once its escapes are read."""
    return b"\\" in key and _text(key) == "model"


def _text(token: bytes) -> str | None:
    try:
        return msgspec.json.decode(token, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
