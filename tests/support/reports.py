"""Reports for tests: of exchanges known by hand, and of one whose every text is hostile."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support.timelines import known

from unslow.core.timeline import Facts, Outcome, Phase, Timeline
from unslow.core.timeline.record import End
from unslow.show.report.payload import Report, Target, report

TARGET = Target("https://api.example.com/v1", "smollm2-135m", "openai")

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]></style><svg onload=alert(1)>",
    "</noscript><iframe src=https://evil.example/>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x1b[H",
    "\x9b31m \x90secret\x9c \x1bP1;2q\x1b\\",
    "\u202egnp.exe\u2066 \u200b\u200f\ufeff",
    "line\r\nbreak\u2028and\u2029more\x00\x07\x08",
    '"onmouseover="alert(1)" {{7*7}} ${7*7} `id`',
    "漢字かな한글🙂" * 12,
    "a\u0300" * 40,
)


def made(*timelines: Timeline) -> Report:
    """A report of these."""
    return report(TARGET, timelines, version="0.1.0", created_at=1_700_000_000.0)


def hostile(text: str) -> Report:
    """A report in which every text that comes from outside is `text`."""
    texts: dict[str, Any] = {}
    for field in msgspec.structs.fields(Facts):
        if field.type == (str | None):
            texts[field.name] = text
    facts = msgspec.structs.replace(
        known().facts, **texts, addresses=(text,), redirects=(text,), headers={text: text}, notes=(text, text)
    )
    timeline = msgspec.structs.replace(
        known(), trace_id=text, facts=facts, outcome=Outcome(End.FAILED, Phase.DECODE, text, text)
    )
    return report(Target(text, text, text), (timeline, known()), version=text, created_at=0.0)
