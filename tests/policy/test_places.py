"""Admission to an upstream: never more than its places, in order of arrival, nobody lost."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from unslow.core.policy.admission import Admission
from unslow.errors import AdmissionRejected

S = 10**9


def test_places_then_the_queue_then_a_refusal() -> None:
    admission: Admission[str] = Admission(2, 2)
    assert [admission.offer(name) for name in "abcd"] == [True, True, False, False]
    with pytest.raises(AdmissionRejected) as refused:
        admission.offer("e")
    assert (refused.value.reason, refused.value.retry_after_s) == ("queue_full", 1.0)
    assert (admission.active, list(admission.waiting)) == (2, ["c", "d"])


def test_a_place_goes_to_who_waits_longest() -> None:
    admission: Admission[str] = Admission(1, 3)
    for name in "abcd":
        admission.offer(name)
    admission.withdraw("c")
    assert [admission.release(S) for _ in range(3)] == ["b", "d", None]
    assert (admission.active, list(admission.waiting)) == (0, [])


def test_nobody_overtakes_the_queue() -> None:
    admission: Admission[str] = Admission(1, 3)
    admission.offer("a")
    admission.offer("b")
    assert admission.release(S) == "b"
    assert not admission.offer("c")
    assert admission.release(S) == "c"
    assert admission.release(S) is None
    assert admission.active == 0
    assert admission.offer("d")


def test_who_does_not_wait_cannot_be_withdrawn() -> None:
    admission: Admission[str] = Admission(1, 1)
    admission.offer("a")
    admission.withdraw("a")
    admission.withdraw("x")
    assert (admission.active, list(admission.waiting)) == (1, [])


def test_without_a_queue_all_the_rest_is_refused() -> None:
    admission: Admission[str] = Admission(1, 0)
    assert admission.offer("a")
    with pytest.raises(AdmissionRejected):
        admission.offer("b")


def test_when_to_come_back_follows_the_pace() -> None:
    admission: Admission[int] = Admission(2, 100)
    assert admission.retry_after_s() == 1.0, "nothing is known yet"
    admission.offer(0)
    admission.release(8 * S)
    assert admission.retry_after_s() == 4.0, "two places of 8 s each: one every 4 s"
    for n in range(5):
        admission.offer(n)
    assert admission.retry_after_s() == 16.0, "three wait already"
    for _ in range(200):
        admission.offer(9)
        admission.release(0)
    assert admission.retry_after_s() == 1.0, "the pace changed"


@given(st.integers(1, 5), st.integers(0, 5), st.lists(st.integers(0, 10**12), max_size=20))
def test_when_to_come_back_is_never_at_once(limit: int, queue: int, held_ns: list[int]) -> None:
    admission: Admission[int] = Admission(limit, queue)
    for ns in held_ns:
        admission.offer(0)
        admission.release(ns)
    assert 1.0 <= admission.retry_after_s() <= max(1.0, max(held_ns, default=0) / S)


class Places(RuleBasedStateMachine):
    """Requests come, leave the queue and end in any order."""

    @initialize(limit=st.integers(1, 4), max_waiting=st.integers(0, 4))
    def begin(self, limit: int, max_waiting: int) -> None:
        self.admission: Admission[int] = Admission(limit, max_waiting)
        self.active: set[int] = set()
        self.queue: deque[int] = deque()
        self.came = 0

    @rule()
    def comes(self) -> None:
        self.came += 1
        full = len(self.active) == self.admission.limit
        if full and len(self.queue) == self.admission.max_waiting:
            with pytest.raises(AdmissionRejected):
                self.admission.offer(self.came)
        elif self.admission.offer(self.came):
            assert not full
            self.active.add(self.came)
        else:
            assert full
            self.queue.append(self.came)

    @precondition(lambda self: self.active)
    @rule(data=st.data(), held_ns=st.integers(0, 10**12))
    def ends(self, data: st.DataObject, held_ns: int) -> None:
        self.active.remove(data.draw(st.sampled_from(sorted(self.active))))
        following = self.admission.release(held_ns)
        assert following == (self.queue.popleft() if self.queue else None)
        if following is not None:
            self.active.add(following)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.queue)))
        self.queue.remove(gone)
        self.admission.withdraw(gone)

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def leaves_with_a_place(self, data: st.DataObject) -> None:
        self.admission.withdraw(data.draw(st.sampled_from(sorted(self.active))))

    @invariant()
    def the_places_are_right(self) -> None:
        if not hasattr(self, "admission"):
            return
        assert self.admission.active == len(self.active) <= self.admission.limit
        assert list(self.admission.waiting) == list(self.queue)
        assert len(self.queue) <= self.admission.max_waiting
        assert not self.queue or len(self.active) == self.admission.limit, "a place is free, yet one waits"


Places.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPlaces = Places.TestCase
