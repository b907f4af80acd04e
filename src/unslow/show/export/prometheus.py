"""Prometheus text exposition: families of samples as text, in format 0.0.4 or OpenMetrics 1.0.

Theory of operation. A `Family` is a name, a kind, a help text and its series; `render` writes it. The two formats
differ in three things: OpenMetrics names a counter's family without `_total`, ends with `# EOF`, and may carry
exemplars (a trace id beside a histogram's bucket). Numbers are written so that they read back exactly.
Sources: prometheus.io/docs/instrumenting/exposition_formats, OpenMetrics 1.0 (prometheus/OpenMetrics).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One series of a counter or gauge."""

    labels: Labels
    value: float


class Exemplar(NamedTuple):
    """An observation that stands for its bucket: its trace, its value in seconds, when (seconds since the epoch)."""

    trace_id: str
    value: float
    at: float


class Buckets(NamedTuple):
    """One series of a histogram: `counts` has one entry a bound and one more for what lies above the last."""

    labels: Labels
    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float
    exemplars: Sequence[Exemplar | None] = ()


class Family(NamedTuple):
    """A metric with its series. A counter's `name` ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[Sample] = ()
    histograms: Sequence[Buckets] = ()


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header names OpenMetrics with a weight that is not 0 (RFC 9110, 12.5.1)."""
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if media == "application/openmetrics-text":
            return not any(p.startswith("q=") and _is_zero(p[2:]) for p in parameters)
    return False


def render(families: Iterable[Family], *, openmetrics: bool = False) -> bytes:
    """The text of these families; a family without series is left out."""
    lines: list[str] = []
    for family in families:
        if family.samples or family.histograms:
            lines += _family(family, openmetrics)
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _family(family: Family, openmetrics: bool) -> Iterator[str]:
    name = family.name
    if openmetrics and family.kind == "counter":
        name = name.removesuffix("_total")
    yield f"# HELP {name} {_help(family.help, openmetrics)}"
    yield f"# TYPE {name} {family.kind}"
    for sample in family.samples:
        yield f"{family.name}{_labels(sample.labels)} {number(sample.value)}"
    for series in family.histograms:
        yield from _histogram(family.name, series, openmetrics)


def _histogram(name: str, series: Buckets, openmetrics: bool) -> Iterator[str]:
    write = _canonical if openmetrics else number
    bounds = [*(write(b) for b in series.bounds), "+Inf"]
    totals = list(itertools.accumulate(series.counts))
    exemplars = series.exemplars if openmetrics and series.exemplars else [None] * len(bounds)
    for bound, total, exemplar in zip(bounds, totals, exemplars, strict=True):
        yield f"{name}_bucket{_labels((*series.labels, ('le', bound)))} {total}{_exemplar(exemplar)}"
    yield f"{name}_sum{_labels(series.labels)} {number(series.sum)}"
    yield f"{name}_count{_labels(series.labels)} {totals[-1]}"


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    return f" # {_labels((('trace_id', exemplar.trace_id),))} {number(exemplar.value)} {exemplar.at:.3f}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels) + "}"


def escape(value: str) -> str:
    """Escape a label's value: backslash, quote and line feed; a lone surrogate is replaced so that it is UTF-8."""
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _help(text: str, openmetrics: bool) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if openmetrics else escaped


def number(value: float) -> str:
    """A number as both formats read it: whole numbers without a fraction, others exactly."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(float(value))


def _canonical(bound: float) -> str:
    """A bucket's bound in OpenMetrics: always with a fraction (`1.0`)."""
    return repr(float(bound))


def _is_zero(text: str) -> bool:
    return text.rstrip("0") in ("", "0.", ".")
