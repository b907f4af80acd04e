"""The step loop as a conversation: commands in, events out, with a scripted backend."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

import msgspec
import pytest

from unslow.serve.engine.backend import Output
from unslow.serve.engine.link import (
    Accepted,
    Cancel,
    Chat,
    Command,
    CommandSocket,
    Emitted,
    Ids,
    Message,
    Refused,
    Sampling,
    Submit,
    Text,
    Tokenize,
    Tokenized,
    events,
    frame,
    frame_length,
)
from unslow.serve.engine.settings import EngineSettings
from unslow.serve.engine.step import Stepper, run

SAMPLING = Sampling(100, 0.0, 1.0, 0, 0, 0.0, 0.0, ignore_eos=False)


class Scripted:
    """A backend that counts: every step gives each request its next number, up to its limit."""

    name = "scripted"

    def __init__(self) -> None:
        self.vocab = [bytes([value]) for value in range(128)]
        self.control: list[int] = []
        self.live: dict[int, Sampling] = {}
        self.given: dict[int, int] = {}

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        if messages[0].role == "system":
            raise ValueError("no system turns here")
        return self.encode(messages[0].content)

    def add(self, key: int, ids: Sequence[int], sampling: Sampling) -> None:
        if sampling.top_k == 7:
            raise ValueError("top_k 7 is unlucky")
        self.live[key], self.given[key] = sampling, 0

    def cancel(self, key: int) -> None:
        self.live.pop(key, None)

    def busy(self) -> bool:
        return bool(self.live)

    def step(self) -> list[Output]:
        outputs = []
        for key, sampling in list(self.live.items()):
            self.given[key] += 1
            over = self.given[key] >= sampling.max_tokens
            outputs.append(Output(key, [self.given[key]], "length" if over else None))
            if over:
                del self.live[key]
        return outputs


class Talk:
    """A stepper with a clock that ticks 10 ns a step."""

    def __init__(self, **settings: int) -> None:
        self.now_ns = 1_000
        self.backend = Scripted()
        self.stepper = Stepper(self.backend, 64, EngineSettings(**settings), lambda: self.now_ns)  # type: ignore[arg-type]

    def say(self, *commands: Submit | Cancel | Tokenize) -> list[object]:
        said: list[object] = [event for command in commands for event in self.stepper.handle(command)]
        return said + list(self.stepper.start())

    def step(self) -> list[tuple[int, list[int], str | None]]:
        self.now_ns += 10
        return [(e.key, e.ids, e.finish) for e in self.stepper.step() if isinstance(e, Emitted)]


def submit(key: int, text: str = "abc", **more: int) -> Submit:
    return Submit(key, Text(text), msgspec.structs.replace(SAMPLING, **more), 900)


def test_a_request_from_submit_to_end() -> None:
    talk = Talk()
    assert talk.say(submit(1, max_tokens=2)) == [Accepted(1, 3)]
    assert talk.step() == [(1, [1], None)]
    talk.now_ns += 10
    (last,) = talk.stepper.step()
    assert isinstance(last, Emitted)
    assert last.finish == "length"
    assert (last.timings.queue_ns, last.timings.prefill_ns, last.timings.decode_ns) == (100, 10, 10)
    assert talk.stepper.idle


def test_places_are_kept_and_the_next_follows() -> None:
    talk = Talk(max_streams=1, max_queue=1)
    talk.say(submit(1, max_tokens=2), submit(2, max_tokens=1))
    (full,) = talk.say(submit(3))
    assert isinstance(full, Refused)
    assert (full.status, full.code) == (503, "engine_overloaded")
    assert talk.step() == [(1, [1], None)]
    assert talk.step() == [(1, [2], "length")]
    assert talk.say() == []
    assert talk.step() == [(2, [1], "length")]


def test_cancel_frees_the_place_queued_or_running() -> None:
    talk = Talk(max_streams=1, max_queue=2)
    talk.say(submit(1), submit(2), submit(3, max_tokens=1))
    talk.step()
    assert talk.say(Cancel(2), Cancel(1), Cancel(99)) == []
    assert talk.step() == [(3, [1], "length")]
    assert talk.say(Cancel(3)) == []


def test_the_context_bounds_prompt_and_answer() -> None:
    talk = Talk()
    (refused,) = talk.say(submit(1, "x" * 64))
    assert isinstance(refused, Refused)
    assert (refused.status, refused.code) == (400, "context_length_exceeded")
    talk.say(submit(2, "x" * 60))
    assert talk.backend.live[2].max_tokens == 4


def test_a_small_cache_bounds_the_prompt_too() -> None:
    (refused,) = Talk(kv_tokens=32).say(submit(1, "x" * 40))
    assert isinstance(refused, Refused)
    assert "32 tokens" in refused.message


def test_what_the_backend_refuses_is_refused_and_its_place_is_free() -> None:
    talk = Talk(max_streams=1)
    said = talk.say(submit(1, top_k=7), submit(2, max_tokens=1))
    assert [type(event) for event in said] == [Accepted, Accepted, Refused]
    assert talk.step() == [(2, [1], "length")]


@pytest.mark.parametrize(
    ("prompt", "why"),
    [(Ids([500]), "no token 500"), (Chat([Message("system", "x")]), "no system turns"), (Text(""), "no tokens")],
)
def test_prompts_that_cannot_be(prompt: Text | Ids | Chat, why: str) -> None:
    (refused,) = Talk().say(Submit(1, prompt, SAMPLING, 0))
    assert isinstance(refused, Refused)
    assert why in refused.message


def test_tokenize() -> None:
    assert Talk().say(Tokenize(4, Text("ab"))) == [Tokenized(4, [97, 98])]


def test_the_second_asking_finds_its_blocks() -> None:
    talk = Talk()
    text = "y" * 40
    talk.say(submit(1, text, max_tokens=1))
    talk.step()
    talk.say(submit(2, text, max_tokens=1))
    talk.now_ns += 10
    (event,) = talk.stepper.step()
    assert isinstance(event, Emitted)
    assert event.timings.cached_tokens == 32


def test_over_a_socket_until_the_other_side_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        loop = threading.Thread(target=run, args=(CommandSocket(theirs), Talk().stepper))
        loop.start()
        commands: list[Command] = [submit(1, max_tokens=1 << 20), Tokenize(2, Text("a"))]
        data = frame(commands)
        ours.sendall(data[:7])
        ours.sendall(data[7:])
        said = [event for _ in range(3) for event in events(_frame(ours))]
        assert said[:2] == [Accepted(1, 3), Tokenized(2, [97])]
        assert isinstance(said[2], Emitted)
        ours.sendall(frame([Cancel(1)]))
        ours.close()
        loop.join(10)
        assert not loop.is_alive()


def _frame(sock: socket.socket) -> bytes:
    size = frame_length(sock.recv(4, socket.MSG_WAITALL))
    return sock.recv(size, socket.MSG_WAITALL)
