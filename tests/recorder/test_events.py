"""Listeners to live events: bounded, let go when slow, ended at the end."""

from __future__ import annotations

import asyncio

from unslow.serve.recorder.events import EXCHANGES_PER_S, MAX_LISTENERS, QUEUE, Hub, Listener


async def heard(listener: Listener) -> list[bytes]:
    return [event async for event in listener.events(keepalive_s=5)]


def test_a_slow_listener_is_let_go_and_the_others_are_not() -> None:
    async def scenario() -> None:
        hub = Hub()
        slow, quick = hub.join(), hub.join()
        assert slow is not None
        assert quick is not None
        stream = quick.events()
        await anext(stream)
        for n in range(QUEUE + 1):
            hub.send("exchange", b"%d" % n)
            assert await anext(stream) == b"event: exchange\ndata: %d\n\n" % n
        assert (len(hub), hub.let_go) == (1, 1)
        got = await asyncio.wait_for(heard(slow), 5)  # what it has, and then its end
        assert len(got) == 1 + QUEUE
        hub.close()
        assert [event async for event in stream] == []

    asyncio.run(scenario())


def test_a_silent_stream_is_kept_open_by_comments() -> None:
    async def scenario() -> None:
        hub = Hub()
        listener = hub.join()
        assert listener is not None
        stream = listener.events(keepalive_s=0.01)
        assert (await anext(stream)).startswith(b"retry: ")
        assert await anext(stream) == b": keep-alive\n\n"
        hub.send("live", b"{}")
        assert await anext(stream) == b"event: live\ndata: {}\n\n"
        await stream.aclose()

    asyncio.run(scenario())


def test_listeners_and_events_are_bounded() -> None:
    hub = Hub()
    joined = [hub.join() for _ in range(MAX_LISTENERS)]
    assert all(joined)
    assert hub.join() is None
    assert joined[0] is not None
    hub.leave(joined[0])
    assert hub.join() is not None
    assert [hub.admit() for _ in range(EXCHANGES_PER_S + 3)] == [True] * EXCHANGES_PER_S + [False] * 3
    assert hub.refill() == 3
    assert hub.admit()
    hub.close()
    assert hub.join() is None
