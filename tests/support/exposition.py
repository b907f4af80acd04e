"""A small strict reader of the Prometheus text format 0.0.4 and of OpenMetrics 1.0: it refuses what is not exact."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_VALUE = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|Inf)|NaN")
_UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Key = tuple[tuple[str, str], ...]


class Series(NamedTuple):
    """One line: its name, labels and value; and its exemplar's labels and value."""

    name: str
    labels: dict[str, str]
    value: float
    exemplar: tuple[dict[str, str], float] | None = None


class Read(NamedTuple):
    """Types by family, and all series in order."""

    types: dict[str, str]
    series: list[Series]

    def value(self, name: str, **labels: str) -> float:
        """The one series with these labels among its own."""
        (found,) = [s for s in self.series if s.name == name and labels.items() <= s.labels.items()]
        return found.value


def read(body: bytes, *, openmetrics: bool = False) -> Read:
    """Read a whole exposition, or raise AssertionError."""
    text = body.decode("utf-8")
    assert text.endswith("\n"), "the last line has no end"
    lines = text[:-1].split("\n")
    if openmetrics:
        assert lines.pop() == "# EOF", "OpenMetrics ends with # EOF"
    types: dict[str, str] = {}
    helps: set[str] = set()
    series: list[Series] = []
    family = ""
    for line in lines:
        assert line, "an empty line"
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helps, f"a second HELP for {name}"
            helps.add(name)
        elif line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert _NAME.fullmatch(family), family
            assert family not in types, f"family {family} comes twice"
            assert family in helps, f"{family}: no HELP before TYPE"
            types[family] = kind
        else:
            assert not line.startswith("#"), line
            one = _series(line, openmetrics)
            _fits(one, family, types.get(family, ""), openmetrics)
            series.append(one)
    keys = [(s.name, tuple(sorted(s.labels.items()))) for s in series]
    assert len(keys) == len(set(keys)), "a series comes twice"
    for name, kind in types.items():
        if kind == "histogram":
            _histogram(name, [s for s in series if s.name.startswith(name + "_")])
    return Read(types, series)


def _series(line: str, openmetrics: bool) -> Series:
    match = _NAME.match(line)
    assert match, line
    labels, rest = _labels(line[match.end() :])
    assert rest.startswith(" "), line
    value, _, more = rest[1:].partition(" ")
    exemplar = None
    if more:
        assert openmetrics, f"nothing may follow a value: {line}"
        assert more.startswith("# "), line
        names, after = _labels(more[2:])
        number, _, at = after[1:].partition(" ")
        assert sum(len(k) + len(v) for k, v in names.items()) <= 128, "an exemplar's labels are over 128 characters"
        assert not at or _VALUE.fullmatch(at), line
        exemplar = (names, _number(number))
    return Series(match.group(), labels, _number(value), exemplar)


def _labels(text: str) -> tuple[dict[str, str], str]:
    if not text.startswith("{"):
        return {}, text
    at, found = 1, dict[str, str]()
    while True:
        match = _LABEL.match(text, at)
        assert match, f"no label at {text[at:]!r}"
        name = match.group(1)
        assert name not in found, f"label {name} comes twice"
        found[name] = re.sub(r"\\.", lambda m: _UNESCAPED[m.group()], match.group(2))
        at = match.end()
        if text[at] == "}":
            return found, text[at + 1 :]
        assert text[at] == ",", text
        at += 1


def _number(text: str) -> float:
    assert _VALUE.fullmatch(text), f"{text!r} is no number"
    return float(text)


def _fits(one: Series, family: str, kind: str, openmetrics: bool) -> None:
    if kind == "histogram":
        allowed = {f"{family}_bucket", f"{family}_sum", f"{family}_count"}
    elif kind == "counter":
        allowed = {f"{family}_total" if openmetrics else family}
        assert one.value >= 0, one
    else:
        assert kind == "gauge", f"{one.name} comes before its TYPE"
        allowed = {family}
    assert one.name in allowed, f"{one.name} stands under {family}"
    assert one.exemplar is None or one.name.endswith("_bucket"), one


def _histogram(name: str, series: list[Series]) -> None:
    groups: dict[Key, list[tuple[float, float]]] = {}
    for one in series:
        if one.name == f"{name}_bucket":
            key = tuple(sorted((k, v) for k, v in one.labels.items() if k != "le"))
            groups.setdefault(key, []).append((_number(one.labels["le"]), one.value))
    for key, buckets in groups.items():
        bounds, totals = [b for b, _ in buckets], [t for _, t in buckets]
        assert bounds == sorted(set(bounds)), f"{name}: bounds out of order"
        assert bounds[-1] == math.inf, f"{name}: no +Inf"
        assert totals == sorted(totals), f"{name}: buckets are not cumulative"
        by_name = {s.name: s.value for s in series if tuple(sorted(s.labels.items())) == key}
        assert by_name[f"{name}_count"] == totals[-1], f"{name}: count is not +Inf's"
        assert f"{name}_sum" in by_name, f"{name}: no sum"
