from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unslow.serve.supervisor import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [Backoff(min_s=0.5, max_s=3).pause_s(n) for n in range(1, 6)]
    assert pauses == [0.5, 1, 2, 3, 3]


@given(st.integers(1, 10**9))
def test_a_pause_never_leaves_its_bounds(failures: int) -> None:
    assert 0.2 <= Backoff().pause_s(failures) <= 15


def test_a_child_that_ran_long_starts_over() -> None:
    assert Backoff(steady_s=30).failures_after(7, 31) == 1
    assert Backoff(steady_s=30).failures_after(7, 29) == 8
