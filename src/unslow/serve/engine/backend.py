"""What an inference backend does for the step process, and which one this machine has."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from unslow.errors import ConfigError

from .link import Finish, Message, Sampling
from .model import INSTALL_ENGINE, Card
from .settings import EngineSettings


class Output(NamedTuple):
    """What one step gave one request."""

    key: int
    ids: list[int]
    finish: Finish | None


class Backend(Protocol):
    """A model in memory. One thread calls it; nothing but `step` may take long."""

    name: str
    vocab: list[bytes]
    control: list[int]

    def encode(self, text: str) -> list[int]:
        """Token ids of raw text, in which control tokens' texts are control tokens."""

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a chat in the model's template, ready for an answer; user text stays text."""

    def add(self, key: int, ids: Sequence[int], sampling: Sampling) -> None:
        """Start a request. Raises ValueError for a sampling the backend refuses."""

    def cancel(self, key: int) -> None:
        """Forget a request; its place is free after the next step."""

    def busy(self) -> bool:
        """Whether `step` has anything to do."""

    def step(self) -> list[Output]:
        """Compute one batch. May wait a moment where there is nothing yet."""


def choose(settings: EngineSettings) -> str:
    """`openvino` or `llamacpp`: what is asked for, or the first that is installed."""
    modules = {"openvino": "openvino_genai", "llamacpp": "xllamacpp"}
    wanted = list(modules) if settings.backend == "auto" else [settings.backend]
    for name in wanted:
        if importlib.util.find_spec(modules[name]) is not None:
            return name
    if settings.backend == "llamacpp":
        raise ConfigError("xllamacpp is not installed: pip install xllamacpp", key="engine.backend")
    raise ConfigError(
        f"no inference library is installed: {INSTALL_ENGINE} (or, without a wheel for it: pip install xllamacpp)"
    )


def load(name: str, file: Path, card: Card, settings: EngineSettings) -> Backend:
    """Load the model. Takes seconds."""
    if name == "openvino":
        from .openvino_backend import OpenVinoBackend

        return OpenVinoBackend(file, card, settings)
    from .llamacpp_backend import LlamaCppBackend

    return LlamaCppBackend(file, card, settings)


KV_BYTES = {"balanced": 1.19, "exact": 4.0}
"""Bytes that a number in the KV cache takes: 8 bits with its scales, or a 32-bit float."""
