"""The step process: `python -m unslow.serve.engine.step FD SETTINGS`, started by `child` with a socket to it.

One loop: take what was asked, start what may run, compute one batch, tell what came out. It waits only when there is
nothing to compute, and ends when the other side is gone.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from unslow.errors import ConfigError

from .admission import Admission
from .backend import KV_BYTES, Backend, choose, load
from .link import (
    Accepted,
    Cancel,
    Chat,
    Command,
    CommandSocket,
    Emitted,
    Event,
    Fatal,
    Loaded,
    Prompt,
    Refused,
    Sampling,
    Stage,
    Submit,
    Text,
    Timings,
    Tokenize,
    Tokenized,
)
from .memory import available_bytes, needed_bytes
from .model import Card, find_source, prepare
from .prefix import PrefixMirror
from .settings import EngineSettings


@dataclass(slots=True)
class Job:
    """One request between its acceptance and its end. Stamps are on the monotonic clock; 0: not yet."""

    key: int
    ids: list[int]
    sampling: Sampling
    received_ns: int
    started_ns: int = 0
    first_ns: int = 0
    cached_tokens: int = 0
    generated: list[int] = field(default_factory=list)

    def timings(self, now_ns: int) -> Timings:
        """Where its time went until now."""
        first_ns = self.first_ns or now_ns
        return Timings(
            self.started_ns - self.received_ns, first_ns - self.started_ns, now_ns - first_ns, self.cached_tokens
        )


class Stepper:
    """Commands in, events out, with a backend in between; `now_ns` is the clock."""

    def __init__(
        self, backend: Backend, context_tokens: int, settings: EngineSettings, now_ns: Callable[[], int]
    ) -> None:
        self._backend, self._context_tokens, self._now_ns = backend, context_tokens, now_ns
        self._admission = Admission(settings.max_streams, settings.max_queue, settings.kv_tokens)
        self._mirror = PrefixMirror(settings.kv_tokens)
        self._jobs: dict[int, Job] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is to be computed before the next command."""
        return not self._backend.busy()

    def handle(self, command: Command) -> list[Event]:
        """Do what was asked."""
        if isinstance(command, Cancel):
            self._cancel(command.key)
            return []
        try:
            ids = self._encode(command.prompt)
        except ValueError as problem:
            return [Refused(command.key, 400, "invalid_value", str(problem), "prompt")]
        if isinstance(command, Tokenize):
            return [Tokenized(command.key, ids)]
        return [self._offer(command, ids)]

    def start(self) -> list[Event]:
        """Start requests for which there is a place."""
        refused: list[Event] = []
        while (key := self._admission.start()) is not None:
            job = self._jobs[key]
            job.started_ns = self._now_ns()
            job.cached_tokens = self._mirror.cached_tokens(job.ids)
            try:
                self._backend.add(key, job.ids, job.sampling)
            except ValueError as problem:
                self._forget(key)
                refused.append(Refused(key, 400, "invalid_value", str(problem)))
        return refused

    def step(self) -> list[Event]:
        """Compute one batch."""
        outputs = self._backend.step()
        now_ns = self._now_ns()
        emitted: list[Event] = []
        for key, ids, finish in outputs:
            job = self._jobs.get(key)
            if job is None:
                continue
            if ids and not job.first_ns:
                job.first_ns = now_ns
                self._mirror.add(job.ids)
            job.generated += ids
            emitted.append(Emitted(key, ids, job.timings(now_ns), finish))
            if finish:
                self._forget(key)
        return emitted

    def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, Text):
            return self._backend.encode(prompt.text)
        if isinstance(prompt, Chat):
            return self._backend.encode_chat(prompt.messages)
        if max(prompt.ids) >= len(self._backend.vocab):
            raise ValueError(f"the model has no token {max(prompt.ids)}: ids go to {len(self._backend.vocab) - 1}")
        return prompt.ids

    def _offer(self, command: Submit, ids: list[int]) -> Event:
        room = min(self._context_tokens, self._admission.kv_tokens) - len(ids)
        if room < 1:
            limit = min(self._context_tokens, self._admission.kv_tokens)
            why = f"This model's maximum context length is {limit} tokens. Your prompt has {len(ids)}: shorten it."
            return Refused(command.key, 400, "context_length_exceeded", why, "messages")
        if not ids:
            return Refused(command.key, 400, "invalid_value", "the prompt has no tokens", "prompt")
        sampling = msgspec.structs.replace(command.sampling, max_tokens=min(command.sampling.max_tokens, room))
        if not self._admission.offer(command.key, len(ids) + sampling.max_tokens):
            why = f"the embedded engine's queue is full ({self._admission.waiting} waiting): try again shortly"
            return Refused(command.key, 503, "engine_overloaded", why)
        self._jobs[command.key] = Job(command.key, ids, sampling, command.received_ns)
        return Accepted(command.key, len(ids))

    def _cancel(self, key: int) -> None:
        if key in self._jobs:
            self._backend.cancel(key)
            self._forget(key)

    def _forget(self, key: int) -> None:
        job = self._jobs.pop(key)
        self._admission.leave(key)
        if job.first_ns:
            self._mirror.add(job.ids + job.generated[:-1])


def prepare_and_load(settings: EngineSettings, tell: Callable[[str], None]) -> tuple[Backend, Card]:
    """Find, prepare and load the model; `ConfigError` says in one line what is in the way."""
    name = choose(settings)
    file, card = prepare(find_source(settings.model_path), Path(settings.cache_dir).expanduser(), tell)
    kv_bytes = int(settings.kv_tokens * card.elements_per_token * KV_BYTES[settings.precision])
    needed, available = needed_bytes(card.file_bytes, kv_bytes), available_bytes()
    if available is not None and available < needed:
        raise ConfigError(
            f"too little memory: the model needs up to {needed / 1e6:.0f} MB, {available / 1e6:.0f} MB are available; "
            f"free some, or lower engine.kv_tokens (now {settings.kv_tokens})"
        )
    tell(f"loading {file.name} with {name}")
    try:
        return load(name, file, card, settings), card
    except (ImportError, OSError) as problem:
        raise ConfigError(f"{name} does not work on this machine: {problem}", key="engine.backend") from problem
    except (RuntimeError, MemoryError, LookupError, ValueError) as problem:  # C++ exceptions come as any of these
        said = (str(problem).strip() or "out of memory").splitlines()[-1]
        raise ConfigError(f"{name} cannot load {file}: {said}", key="engine.model_path") from problem


def run(link: CommandSocket, stepper: Stepper) -> None:
    """Until the other side is gone."""
    with contextlib.suppress(ConnectionError):
        while (commands := link.receive(wait=stepper.idle)) is not None:
            events = [event for command in commands for event in stepper.handle(command)]
            events += stepper.start()
            link.send(events)
            if not stepper.idle:
                link.send(stepper.step())


def main() -> int:
    """Load, say so, and run. What is in the way of loading goes out as `Fatal`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sock = socket.socket(fileno=int(sys.argv[1]))
    settings = msgspec.json.decode(sys.argv[2], type=EngineSettings)
    link = CommandSocket(sock)
    try:
        backend, card = prepare_and_load(settings, lambda text: link.send([Stage(text)]))
    except ConfigError as problem:
        link.send([Fatal(str(problem))])
        return 1
    link.send([Loaded(backend.name, card.context_tokens, backend.vocab, backend.control)])
    run(link, Stepper(backend, card.context_tokens, settings, time.monotonic_ns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
