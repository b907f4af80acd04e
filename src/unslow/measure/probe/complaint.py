"""What a refusal says, in one line for people."""

from __future__ import annotations

from typing import Any

import msgspec

_LONGEST = 300
_ADVICE = {
    400: "the endpoint refused the request",
    401: "the key is missing or wrong: name its environment variable with --api-key-env",
    403: "the key may not do this: check the key and the model",
    404: "no such endpoint or model: check the URL (with or without /v1) and --model",
    405: "the URL takes no POST: check the path",
    408: "the server gave up waiting",
    413: "the prompt is too large for it",
    422: "the endpoint refused the request",
    429: "too many requests, or no quota left",
    503: "the server is overloaded or not ready",
    529: "the provider is overloaded",
}


def complaint(status: int, body: bytes, retry_after: str | None) -> str:
    """One line: the status, what to do, and what the server said."""
    advice = _ADVICE.get(status, "see the server's logs" if status >= 500 else "check the request")
    said = message_of(body)
    wait = f" (retry after {one_line(retry_after)} s)" if retry_after and status in (429, 503) else ""
    return f"answered {status}: {advice}{wait}" + (f"; it said: {said}" if said else "")


def message_of(body: bytes) -> str:
    """The message of an error body in any of the usual shapes; else its text, unless it is a page."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = body[:4096].decode("utf-8", "replace")
        return "" if text.lstrip()[:1] == "<" else one_line(text)
    return one_line(_message(value))


def one_line(text: str) -> str:
    """Printable characters only, runs of space made one, cut to a length that fits a report."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def _message(value: Any) -> str:
    if isinstance(value, list) and value:  # Gemini streams errors in a list
        value = value[0]
    for key in ("error", "message", "detail", "msg"):
        if isinstance(value, dict) and value.get(key):
            return _message(value[key])
    return value if isinstance(value, str) else ""
