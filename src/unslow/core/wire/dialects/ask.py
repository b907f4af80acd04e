"""The smallest request of each dialect: what a probe sends."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from unslow.errors import UnslowError

ANTHROPIC_VERSION = "2023-06-01"
_ANTHROPIC_MAX_TOKENS = 1024
_REASONERS = ("gpt-5", "o1", "o3", "o4")
"""OpenAI's models that refuse `max_tokens` and take `max_completion_tokens` (platform.openai.com, chat, 2025-08)."""


class Ask(NamedTuple):
    """A request without its key: `path` relative to the API's base, `body` JSON."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Question(NamedTuple):
    """What is asked. What a dialect has no field for (a seed in Messages) is left out."""

    model: str
    prompt: str
    max_tokens: int | None
    stream: bool
    system: str | None = None
    seed: int | None = None
    temperature: float | None = None


def ask(
    name: str,
    *,
    model: str,
    prompt: str,
    max_tokens: int | None,
    stream: bool,
    system: str | None = None,
    seed: int | None = None,
    temperature: float | None = None,
) -> Ask:
    """Build a minimal request of a dialect. Raises UnslowError for a dialect that cannot be asked.

    Paths are relative to the base that the dialect's own clients are given: `…/v1` for OpenAI's, without a version
    for Anthropic, Gemini and Ollama (`url_path` joins them, a doubled version left out).
    """
    if name not in _ASKS:
        raise UnslowError(f"no request can be made for the dialect {name!r}; use one of {', '.join(_ASKS)}")
    question = Question(model, prompt, max_tokens, stream, system, seed, temperature)
    path, body = _ASKS[name](question)
    known = {key: value for key, value in body.items() if value is not None}
    accept = ("application/x-ndjson" if name == "ollama" else "text/event-stream") if stream else "application/json"
    headers = [("content-type", "application/json"), ("accept", accept)]
    if name == "anthropic":
        headers.append(("anthropic-version", ANTHROPIC_VERSION))
    return Ask(path, tuple(headers), msgspec.json.encode(known))


def auth_header(name: str, key: str) -> tuple[str, str]:
    """The header that carries a key."""
    if name == "anthropic":
        return "x-api-key", key
    if name == "gemini":
        return "x-goog-api-key", key
    return "authorization", f"Bearer {key}"


def url_path(base_path: str, path: str) -> str:
    """Join a base URL's path and an `Ask`'s; a base that already names the endpoint or its version keeps it once."""
    base = base_path.rstrip("/")
    if base.endswith(path.partition("?")[0]):
        return base + path[len(path.partition("?")[0]) :]
    version, slash, rest = path[1:].partition("/")
    if slash and base.endswith("/" + version):
        return f"{base}/{rest}"
    return base + path


def _messages(question: Question) -> list[dict[str, str]]:
    system = [{"role": "system", "content": question.system}] if question.system is not None else []
    return [*system, {"role": "user", "content": question.prompt}]


def _openai(question: Question) -> tuple[str, dict[str, Any]]:
    limit = "max_completion_tokens" if question.model.startswith(_REASONERS) else "max_tokens"
    return "/chat/completions", {
        "model": question.model,
        "messages": _messages(question),
        limit: question.max_tokens,
        "stream": question.stream,
        "stream_options": {"include_usage": True} if question.stream else None,
        "seed": question.seed,
        "temperature": question.temperature,
    }


def _completions(question: Question) -> tuple[str, dict[str, Any]]:
    prompt = question.prompt if question.system is None else f"{question.system}\n\n{question.prompt}"
    return "/completions", {
        "model": question.model,
        "prompt": prompt,
        "max_tokens": question.max_tokens,
        "stream": question.stream,
        "stream_options": {"include_usage": True} if question.stream else None,
        "seed": question.seed,
        "temperature": question.temperature,
    }


def _responses(question: Question) -> tuple[str, dict[str, Any]]:
    return "/responses", {
        "model": question.model,
        "input": question.prompt,
        "instructions": question.system,
        "max_output_tokens": question.max_tokens,
        "stream": question.stream,
        "temperature": question.temperature,
        "store": False,
    }


def _anthropic(question: Question) -> tuple[str, dict[str, Any]]:
    return "/v1/messages", {
        "model": question.model,
        "messages": [{"role": "user", "content": question.prompt}],
        "system": question.system,
        "max_tokens": question.max_tokens or _ANTHROPIC_MAX_TOKENS,
        "stream": question.stream,
        "temperature": question.temperature,
    }


def _gemini(question: Question) -> tuple[str, dict[str, Any]]:
    call = "streamGenerateContent?alt=sse" if question.stream else "generateContent"
    settings = {
        "maxOutputTokens": question.max_tokens,
        "seed": question.seed,
        "temperature": question.temperature,
    }
    known = {key: value for key, value in settings.items() if value is not None}
    system = None if question.system is None else {"parts": [{"text": question.system}]}
    model = quote(question.model.removeprefix("models/"), safe="")
    return f"/v1beta/models/{model}:{call}", {
        "contents": [{"role": "user", "parts": [{"text": question.prompt}]}],
        "systemInstruction": system,
        "generationConfig": known or None,
    }


def _ollama(question: Question) -> tuple[str, dict[str, Any]]:
    settings = {"num_predict": question.max_tokens, "seed": question.seed, "temperature": question.temperature}
    known = {key: value for key, value in settings.items() if value is not None}
    return "/api/chat", {
        "model": question.model,
        "messages": _messages(question),
        "stream": question.stream,
        "options": known or None,
    }


_ASKS = {
    "openai": _openai,
    "openai-completions": _completions,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}
