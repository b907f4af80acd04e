"""What unslow's own gateway says of an answer's way: its `Server-Timing` (W3C) as reported spans of the gateway.

`gw` is the time from the request's head to its admission, `connect` what a connection to the upstream took (next to
nothing for a kept one). Both begin when the request is there, one after the other, and lie in the client's wait.
"""

from __future__ import annotations

import re

from unslow.core.timeline import Hop, Phase, Source, Span
from unslow.measure.transport import Head

_METRIC = re.compile(r"(?:^|,)\s*([\w-]+)\s*;\s*dur=([0-9.]{1,20})(?=\s*(?:[,;]|$))")
_PHASES = (("gw", Phase.QUEUE), ("connect", Phase.CONNECT))
_NS_PER_MS = 1_000_000


def gateway_spans(head: Head, *, sent_ns: int, first_byte_ns: int) -> tuple[Span, ...]:
    """Spans of the gateway, cut at the first byte; none where another server answered."""
    if head.header("x-unslow-id") is None:
        return ()
    said = durations(head.header("server-timing") or "")
    spans, at = [], sent_ns
    for name, phase in _PHASES:
        end = min(first_byte_ns, at + said.get(name, 0))
        if end > at:
            spans.append(Span(phase, Hop.GATEWAY, at, end, Source.REPORTED))
            at = end
    return tuple(spans)


def durations(value: str) -> dict[str, int]:
    """`dur` of each metric of a Server-Timing header, in nanoseconds; what cannot be read is left out."""
    found = {}
    for name, number in _METRIC.findall(value):
        try:
            found[name] = int(float(number) * _NS_PER_MS)
        except ValueError:
            continue
    return found
