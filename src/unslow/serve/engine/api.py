"""Request bodies of the OpenAI API, checked: what we do is taken, what we do not do is refused by name.

A parameter that is null counts as absent. A parameter we do not do is let through where its value asks for nothing
(`n: 1`, `tools: []`, `logprobs: false`), since clients and frameworks send such defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from .link import Chat, Ids, Message, Prompt, Sampling, Text
from .refusal import Refusal, invalid, unsupported
from .settings import EngineSettings

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": (),
    "web_search_options": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
_IGNORED = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_MAX_STOPS = 16
_MAX_STOP_CHARACTERS = 1_000


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`stream_options`."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What both endpoints share. Ranges are the API's."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None


class ChatBody(Body, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/chat/completions`."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None


class CompletionBody(Body, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`."""

    prompt: str | list[Any]


class TokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /tokenize`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None


class Request(NamedTuple):
    """A checked request."""

    chat: bool
    prompt: Prompt
    sampling: Sampling
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool


def chat_request(body: bytes, settings: EngineSettings, seed: int) -> Request:
    """Check a chat body. `seed` is used where the request names none."""
    parsed = _convert(_object(body), ChatBody)
    assert isinstance(parsed, ChatBody)
    if parsed.max_completion_tokens is not None and parsed.max_tokens is not None:
        raise invalid("give `max_tokens` or `max_completion_tokens`, not both", "max_completion_tokens")
    most = parsed.max_tokens if parsed.max_completion_tokens is None else parsed.max_completion_tokens
    limit = settings.default_max_tokens if most is None else most
    name = "max_tokens" if parsed.max_completion_tokens is None else "max_completion_tokens"
    return _request(parsed, settings, Chat(messages(parsed.messages)), _positive(limit, name), seed)


def completion_request(body: bytes, settings: EngineSettings, seed: int) -> Request:
    """Check a completions body. `max_tokens` is 16 where none is named, as in the API."""
    parsed = _convert(_object(body), CompletionBody)
    assert isinstance(parsed, CompletionBody)
    limit = 16 if parsed.max_tokens is None else parsed.max_tokens
    return _request(parsed, settings, _prompt(parsed.prompt), _positive(limit, "max_tokens"), seed)


def tokenize_request(body: bytes, settings: EngineSettings) -> Prompt:
    """Check a body of `/tokenize`: the prompt, or the chat with its template."""
    parsed = _convert(_object(body), TokenizeBody)
    assert isinstance(parsed, TokenizeBody)
    _check_model(parsed.model, settings)
    if (parsed.prompt is None) == (parsed.messages is None):
        raise invalid("give `prompt` or `messages`", "prompt")
    return Text(parsed.prompt) if parsed.prompt is not None else Chat(messages(parsed.messages or []))


def messages(raw: list[dict[str, Any]]) -> list[Message]:
    """The turns of a chat; text parts are joined."""
    if not raw:
        raise invalid("`messages` is empty", "messages")
    return [_message(item, f"messages[{index}]") for index, item in enumerate(raw)]


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Refusal(400, "invalid_json", f"the body is not JSON: {problem}") from problem
    if not isinstance(data, dict):
        raise Refusal(400, "invalid_json", "the body is not a JSON object")
    return {key: value for key, value in data.items() if value is not None and not _asks_for_nothing(key, value)}


def _asks_for_nothing(key: str, value: object) -> bool:
    """Whether a parameter may be left out; raises for one that we do not do and that asks for something."""
    if key not in _NEUTRAL:
        return key in _IGNORED
    if any(value == neutral and type(value) is type(neutral) for neutral in _NEUTRAL[key]):
        return True
    raise unsupported(key)


def _convert(data: dict[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    unknown = next((key for key in data if key not in kind.__struct_fields__), None)
    if unknown is not None:
        raise Refusal(400, "unknown_parameter", f"unknown parameter `{unknown[:100]}`", unknown[:100])
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as problem:
        at = re.search(r"`\$\.([^`]*)`$", str(problem)) or re.search(r"field `([^`]*)`", str(problem))
        raise Refusal(400, "invalid_type", str(problem), at[1] if at else None) from problem


def _message(item: dict[str, Any], at: str) -> Message:
    for key, value in item.items():
        if key not in ("role", "content") and value not in (None, [], ""):
            raise unsupported(f"{at}.{key}"[:100])
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid(f"`{at}.role` must be one of {', '.join(_ROLES)}", f"{at}.role")
    if isinstance(content, list):
        content = "".join(_part(part, f"{at}.content[{index}]") for index, part in enumerate(content))
    if not isinstance(content, str):
        raise invalid(f"`{at}.content` must be a string or a list of text parts", f"{at}.content")
    return Message(_ROLES[role], content)


def _part(part: object, at: str) -> str:
    if not isinstance(part, dict):
        raise invalid(f"`{at}` must be an object", at)
    if part.get("type") != "text":
        raise unsupported(f"{at}.type", "must be `text`: the embedded model reads nothing else")
    if not isinstance(part.get("text"), str):
        raise invalid(f"`{at}.text` must be a string", f"{at}.text")
    return str(part["text"])


def _prompt(prompt: str | list[Any]) -> Prompt:
    if isinstance(prompt, list):
        if len(prompt) == 1 and isinstance(prompt[0], str):
            return _prompt(prompt[0])
        if not prompt or not all(type(item) is int and 0 <= item < 1 << 31 for item in prompt):
            raise invalid("`prompt` must be one string, or one list of token ids", "prompt")
        return Ids(prompt)
    if not prompt:
        raise invalid("`prompt` is empty", "prompt")
    return Text(prompt)


def _request(body: Body, settings: EngineSettings, prompt: Prompt, max_tokens: int, seed: int) -> Request:
    _check_model(body.model, settings)
    sampling = Sampling(
        max_tokens,
        _within(body.temperature, settings.temperature, 0.0, 2.0, "temperature"),
        _within(body.top_p, settings.top_p, 0.0, 1.0, "top_p"),
        int(_within(body.top_k, 0, -1, 1 << 20, "top_k")),
        _seed(seed if body.seed is None else body.seed),
        _within(body.presence_penalty, 0.0, -2.0, 2.0, "presence_penalty"),
        _within(body.frequency_penalty, 0.0, -2.0, 2.0, "frequency_penalty"),
        bool(body.ignore_eos),
    )
    stream = bool(body.stream)
    if body.stream_options is not None and not stream:
        raise invalid("`stream_options` needs `stream: true`", "stream_options")
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    return Request(isinstance(body, ChatBody), prompt, sampling, _stops(body.stop), stream, usage)


def _check_model(model: str | None, settings: EngineSettings) -> None:
    if model is not None and model != settings.model_name:
        why = f"the model `{model[:100]}` does not exist; the embedded engine serves `{settings.model_name}`"
        raise Refusal(404, "model_not_found", why, "model")


def _within(value: float | None, default: float, low: float, high: float, name: str) -> float:
    if value is None:
        return default
    if not low <= value <= high:
        raise invalid(f"`{name}` must be from {low:g} to {high:g}", name)
    return value


def _positive(value: int, name: str) -> int:
    if value < 1:
        raise invalid(f"`{name}` must be at least 1", name)
    return min(value, 1 << 31)


def _seed(seed: int) -> int:
    """The backend takes 32 bits without a sign; other seeds are folded into them."""
    return (seed ^ (seed >> 32)) & 0xFFFF_FFFF if seed >= 0 else _seed(-seed * 2 + 1)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > _MAX_STOPS:
        raise invalid(f"`stop` takes at most {_MAX_STOPS} strings", "stop")
    if not all(0 < len(text) <= _MAX_STOP_CHARACTERS for text in stops):
        raise invalid(f"`stop` strings must have 1 to {_MAX_STOP_CHARACTERS} characters", "stop")
    return stops
