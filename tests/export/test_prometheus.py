"""The exposition: exact text, read back by a strict parser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.exposition import read

from unslow.show.export.prometheus import (
    Buckets,
    Exemplar,
    Family,
    Sample,
    number,
    render,
    wants_openmetrics,
)

LATENCY = Family(
    "x_seconds",
    "histogram",
    'Has a "quote", a \\ and\na line.',
    histograms=[Buckets((("m", 'a"b\\c\nd'),), (0.3, 1.0), (1, 2, 3), 6.5, (Exemplar("t1", 0.25, 1.5), None, None))],
)


def test_the_text_is_exact() -> None:
    assert render([LATENCY, Family("y_total", "counter", "Y.", [Sample((), 3)])]).decode() == (
        '# HELP x_seconds Has a "quote", a \\\\ and\\na line.\n'
        "# TYPE x_seconds histogram\n"
        'x_seconds_bucket{m="a\\"b\\\\c\\nd",le="0.3"} 1\n'
        'x_seconds_bucket{m="a\\"b\\\\c\\nd",le="1"} 3\n'
        'x_seconds_bucket{m="a\\"b\\\\c\\nd",le="+Inf"} 6\n'
        'x_seconds_sum{m="a\\"b\\\\c\\nd"} 6.5\n'
        'x_seconds_count{m="a\\"b\\\\c\\nd"} 6\n'
        "# HELP y_total Y.\n"
        "# TYPE y_total counter\n"
        "y_total 3\n"
    )


def test_openmetrics_differs_where_it_must() -> None:
    text = render([LATENCY, Family("y_total", "counter", "Y.", [Sample((), 3)])], openmetrics=True).decode()
    assert text.endswith("# TYPE y counter\ny_total 3\n# EOF\n")
    assert 'le="0.3"} 1 # {trace_id="t1"} 0.25 1.500\n' in text
    assert 'le="1.0"} 3\n' in text
    assert 'Has a \\"quote\\"' in text


def test_a_family_without_series_is_left_out() -> None:
    assert render([Family("x", "gauge", "X.")]) == b""
    assert render([Family("x", "gauge", "X.")], openmetrics=True) == b"# EOF\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1 + 0.2, "0.30000000000000004"), (3.0, "3"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (1e300, "1e+300")],
)
def test_numbers_read_back(value: float, text: str) -> None:
    assert number(value) == text
    assert float(text) == value


def test_not_a_number() -> None:
    assert number(math.nan) == "NaN"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", True),
        ("text/plain, Application/OpenMetrics-Text", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.000", False),
    ],
)
def test_negotiation(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(), st.floats(min_value=0)), unique_by=lambda pair: pair[0].encode("utf-8", "replace")),
    st.booleans(),
)
def test_any_label_and_value_reads_back(pairs: list[tuple[str, float]], openmetrics: bool) -> None:
    family = Family("z_total", "counter", "Z.", [Sample((("a", text), ("b", "")), value) for text, value in pairs])
    found = read(render([family], openmetrics=openmetrics) or b"# HELP a a\n", openmetrics=openmetrics)
    said = [(text.encode("utf-8", "replace").decode(), value) for text, value in pairs]
    assert [(s.labels["a"], s.value) for s in found.series] == said


@pytest.mark.parametrize(
    "text",
    [
        "x 1",  # no end of line
        "x 1\n",  # no TYPE
        "# HELP x X.\n# TYPE x gauge\nx 1\nx 2\n",
        "# HELP x X.\n# TYPE x gauge\ny 1\n",
        '# HELP x X.\n# TYPE x gauge\nx{a="b"c"} 1\n',
        '# HELP x X.\n# TYPE x gauge\nx{a="\\q"} 1\n',
        "# HELP x X.\n# TYPE x gauge\nx one\n",
        '# HELP x X.\n# TYPE x histogram\nx_bucket{le="1"} 2\nx_bucket{le="+Inf"} 1\nx_sum 1\nx_count 1\n',
        '# HELP x X.\n# TYPE x histogram\nx_bucket{le="1"} 2\nx_sum 1\nx_count 2\n',
    ],
)
def test_the_parser_is_strict(text: str) -> None:
    with pytest.raises(AssertionError):
        read(text.encode())
