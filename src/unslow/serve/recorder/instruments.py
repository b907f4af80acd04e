"""Counters and histograms that grow by observations and stay bounded in the number of their series."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from unslow.show.export.prometheus import Buckets, Exemplar, Family, Labels, Sample

OTHER = "other"


class Names:
    """Names that get a label of their own, up to `limit`; the rest are `other`.

    A slot is taken only by a name that is `proven` (a successful answer bore it), so that a caller who sends
    made-up names cannot push real ones out.
    """

    def __init__(self, limit: int, *, max_chars: int = 128) -> None:
        self._limit, self._max_chars = limit, max_chars
        self._known: set[str] = set()

    def label(self, name: str | None, *, proven: bool = True) -> str:
        """The label's value for a name; an unknown name (None) is an empty label."""
        if name is None:
            return ""
        if name in self._known:
            return name
        if not proven or len(self._known) >= self._limit or len(name) > self._max_chars:
            return OTHER
        self._known.add(name)
        return name


class Counter:
    """A counter by label values."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self.values: dict[tuple[str, ...], float] = defaultdict(float)

    def add(self, key: tuple[str, ...], amount: float = 1) -> None:
        """Add to the series of these label values."""
        self.values[key] += amount

    def family(self) -> Family:
        """What is exposed."""
        samples = [Sample(_labels(self.labels, key), value) for key, value in sorted(self.values.items())]
        return Family(self.name, "counter", self.text, samples)


class _Series:
    __slots__ = ("counts", "exemplars", "sum")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.exemplars: list[Exemplar | None] = [None] * size
        self.sum = 0.0


class Histogram:
    """A histogram by label values; observations in seconds. A value at a bound counts in that bound's bucket."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Iterable[float]) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self.bounds = tuple(sorted(set(bounds)))
        self.series: dict[tuple[str, ...], _Series] = {}

    def observe(self, key: tuple[str, ...], value: float, *, trace_id: str = "", at: float = 0.0) -> None:
        """Count one value, and keep it as its bucket's exemplar where a trace id is given."""
        series, n = self._series(key), bisect_left(self.bounds, value)
        series.counts[n] += 1
        series.sum += value
        if trace_id:
            series.exemplars[n] = Exemplar(trace_id, value, at)

    def observe_all(self, key: tuple[str, ...], values: Iterable[float]) -> None:
        """Count many values of one series."""
        series, bounds = self._series(key), self.bounds
        counts = series.counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            series.sum += value

    def family(self) -> Family:
        """What is exposed."""
        return Family(self.name, "histogram", self.text, histograms=self._buckets(self.labels, self.series))

    def merged(self, name: str, text: str, keep: Sequence[str]) -> Family:
        """The same observations under another name, summed over all labels but those to keep."""
        places = [self.labels.index(label) for label in keep]
        sums: dict[tuple[str, ...], _Series] = {}
        for key, series in self.series.items():
            into = sums.setdefault(tuple(key[n] for n in places), _Series(len(self.bounds) + 1))
            into.counts = [a + b for a, b in zip(into.counts, series.counts, strict=True)]
            into.sum += series.sum
        return Family(name, "histogram", text, histograms=self._buckets(tuple(keep), sums))

    def _series(self, key: tuple[str, ...]) -> _Series:
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = _Series(len(self.bounds) + 1)
        return series

    def _buckets(self, names: tuple[str, ...], series: dict[tuple[str, ...], _Series]) -> list[Buckets]:
        return [
            Buckets(_labels(names, key), self.bounds, s.counts, s.sum, s.exemplars) for key, s in sorted(series.items())
        ]


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> Labels:
    return tuple(zip(names, values, strict=True))
