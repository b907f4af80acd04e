"""When a request goes out again, and when a wait is over."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unslow.core.policy.retry import MAX_SENDS, may_resend
from unslow.core.policy.timeouts import Limits, Wait


@pytest.mark.parametrize(
    ("reused", "answer_bytes", "sends", "body_held"),
    list(itertools.product((True, False), (0, 1, 4096), (1, 2, 3), (True, False))),
)
def test_only_the_keep_alive_race_is_repaired(reused: bool, answer_bytes: int, sends: int, body_held: bool) -> None:
    may = may_resend(reused=reused, answer_bytes=answer_bytes, sends=sends, body_held=body_held)
    assert may is ((reused, answer_bytes, sends, body_held) == (True, 0, 1, True))


def test_a_request_goes_out_twice_at_most() -> None:
    sends = 1
    while may_resend(reused=True, answer_bytes=0, sends=sends, body_held=True):
        sends += 1
    assert sends == MAX_SENDS == 2


@given(st.sampled_from(Wait), st.integers(0, 10**12), st.integers(0, 10**15), st.integers(-(10**12), 2 * 10**12))
def test_a_wait_is_overdue_once_it_is_longer_than_its_limit(wait: Wait, limit: int, since: int, waited: int) -> None:
    limits = Limits({wait: limit})
    assert limits.overdue(wait, since, since + waited) is (waited > limit)
    for other in set(Wait) - {wait}:
        assert not limits.overdue(other, since, since + waited), "a wait that is not listed has no limit"


def test_a_wait_for_nothing_never_ends() -> None:
    assert not Limits({other: 0 for other in Wait if other is not Wait.NOTHING}).overdue(Wait.NOTHING, 0, 10**18)
