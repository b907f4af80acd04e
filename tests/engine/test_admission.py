from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from unslow.serve.engine.admission import Admission
from unslow.serve.engine.prefix import PrefixMirror


def test_first_come_first_served_within_the_places() -> None:
    admission = Admission(max_streams=2, max_queue=2, kv_tokens=1_000)
    assert [admission.offer(key, 10) for key in range(5)] == [True, True, True, True, False]
    assert [admission.start(), admission.start(), admission.start()] == [0, 1, None]
    assert (admission.running, admission.waiting) == (2, 2)
    assert admission.leave(0)
    assert admission.start() == 2


def test_a_request_waits_for_room_in_the_cache_and_nobody_overtakes_it() -> None:
    admission = Admission(max_streams=4, max_queue=4, kv_tokens=100)
    admission.offer(1, 80)
    admission.offer(2, 50)
    admission.offer(3, 10)
    assert [admission.start(), admission.start()] == [1, None]
    admission.leave(1)
    assert [admission.start(), admission.start()] == [2, 3]


def test_one_that_waits_can_leave() -> None:
    admission = Admission(max_streams=1, max_queue=1, kv_tokens=100)
    admission.offer(1, 1)
    admission.start()
    admission.offer(2, 1)
    assert not admission.offer(3, 1)
    assert not admission.leave(2)
    assert admission.offer(3, 1)


@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(0, 4))
@settings(deadline=None)
def test_limits_hold_and_every_place_comes_back(seed: int, streams: int, queue: int) -> None:
    rng, admission = random.Random(seed), Admission(streams, queue, 100)
    running: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for key in range(40):
        sizes[key] = rng.randint(1, 100)
        admission.offer(key, sizes[key])
        while (started := admission.start()) is not None:
            running[started] = sizes[started]
        assert sum(running.values()) <= 100
        assert len(running) <= streams
        if running and rng.random() < 0.5:
            over = rng.choice(list(running))
            del running[over]
            assert admission.leave(over)
    for key in sizes:
        admission.leave(key)
    assert (admission.running, admission.waiting) == (0, 0)
    assert admission.offer(99, 100)
    assert admission.start() == 99


def test_whole_blocks_are_found_again_but_never_the_last_token() -> None:
    mirror = PrefixMirror(kv_tokens=64, block_tokens=4)
    ids = list(range(12))
    assert mirror.cached_tokens(ids) == 0
    mirror.add(ids)
    assert mirror.cached_tokens(ids) == 11
    assert mirror.cached_tokens([*ids[:9], 99, 98, 97]) == 8
    assert mirror.cached_tokens([99, *ids[1:]]) == 0


def test_the_least_recently_used_block_goes_first() -> None:
    mirror = PrefixMirror(kv_tokens=8, block_tokens=4)
    for start in (0, 100):
        mirror.add([start] * 4)
    mirror.cached_tokens([0] * 5)
    mirror.add([200] * 4)
    assert [mirror.cached_tokens([start] * 5) for start in (0, 100, 200)] == [4, 0, 4]
