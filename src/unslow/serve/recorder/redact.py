"""What may be kept of a Timeline, whoever sent it: sane numbers, allow-listed headers, addresses without secrets."""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from unslow.core.timeline import Facts, Outcome, Timeline, problems

KEPT_HEADERS = frozenset(
    {
        "age", "alt-svc", "cache-control", "cf-cache-status", "cf-ray", "connection", "content-encoding",
        "content-length", "content-type", "date", "openai-processing-ms", "openai-version", "proxy-status",
        "request-id", "retry-after", "server", "server-timing", "transfer-encoding", "vary", "via", "x-accel-buffering",
        "x-cache", "x-envoy-upstream-service-time", "x-request-id",
    }
)  # fmt: skip
"""Response headers that explain time and carry no secret."""
KEPT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-", "x-unslow-", "x-groq-")
PAGE_FACTS = (
    *("alpn", "finish_reason", "http_version", "method", "model", "model_answered", "request_bytes", "request_id"),
    *("response_bytes", "reused", "status", "stamps", "stream", "url", "usage"),
)
"""What a page may say of an exchange: words and numbers, nothing that a text could hide in."""
MAX_WORD_CHARS = 200
MAX_NS = 1 << 52
_SECRET_KEY = re.compile(r"key|token|secret|password|passwd|authorization|cookie|credential", re.IGNORECASE)
_COUNT_KEY = re.compile(r"_tokens?_(?:limit|count)$|max_tokens|has_key|_env$", re.IGNORECASE)


def refused(timeline: Timeline) -> str | None:
    """Why a Timeline cannot be kept; None where it can."""
    if not (math.isfinite(timeline.started_at) and 0 <= timeline.started_at < 1e11):
        return "started_at is no time"
    if timeline.end_ns > MAX_NS:
        return "end_ns is over the limit"
    if any(not 0 <= value <= MAX_NS for value in _numbers(timeline)):
        return "a number of facts is out of range"
    found = problems(timeline)
    return found[0] if found else None


def redacted(timeline: Timeline) -> Timeline:
    """The same Timeline without header values that are not allow-listed, query strings and user names in URLs."""
    facts = timeline.facts
    url = None if facts.url is None else bare_url(facts.url)
    headers = {k: v for k, v in facts.headers.items() if _kept(k)} if facts.headers else facts.headers
    redirects = tuple(bare_url(r) for r in facts.redirects)
    if url == facts.url and headers == facts.headers and redirects == facts.redirects:
        return timeline
    facts = msgspec.structs.replace(facts, url=url, headers=headers, redirects=redirects)
    return msgspec.structs.replace(timeline, facts=facts)


def of_page(timeline: Timeline) -> Timeline:
    """A page's Timeline with the facts that a page knows, each word bounded: no headers, notes or free text."""
    told = {name: _word(getattr(timeline.facts, name)) for name in PAGE_FACTS}
    outcome = Outcome(timeline.outcome.end, timeline.outcome.phase, _word(timeline.outcome.kind))
    return redacted(msgspec.structs.replace(timeline, facts=Facts(**told), outcome=outcome, clocks=()))


def _word(value: Any) -> Any:
    return value[:MAX_WORD_CHARS] if isinstance(value, str) else value


def bare_url(url: str) -> str:
    """A URL without user name, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def redacted_settings(value: object, key: str = "") -> object:
    """Settings for the eye: a value under a key that sounds like a secret is `(hidden)`."""
    if isinstance(value, dict):
        return {str(k): redacted_settings(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_settings(v, key) for v in value]
    secret = isinstance(value, str) and value and _SECRET_KEY.search(key) and not _COUNT_KEY.search(key)
    return "(hidden)" if secret else value


def _kept(name: str) -> bool:
    lower = name.lower()
    return lower in KEPT_HEADERS or lower.startswith(KEPT_PREFIXES)


def _numbers(timeline: Timeline) -> list[int]:
    facts, usage = timeline.facts, timeline.facts.usage
    values = [facts.status, facts.request_bytes, facts.response_bytes, facts.retries]
    if usage is not None:
        values += [usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens, usage.cached_tokens]
    return [v for v in values if v is not None]
