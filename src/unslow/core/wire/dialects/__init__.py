"""How each provider speaks: its frames read into kinds of chunks, and the smallest request in its tongue."""

from __future__ import annotations

from unslow.core.wire.dialects.anthropic import Messages
from unslow.core.wire.dialects.ask import Ask, ask, auth_header, url_path
from unslow.core.wire.dialects.bedrock import Converse
from unslow.core.wire.dialects.gemini import Gemini
from unslow.core.wire.dialects.ollama import Ollama
from unslow.core.wire.dialects.openai import OpenAi
from unslow.core.wire.dialects.responses import Responses
from unslow.core.wire.events import Dialect
from unslow.errors import UnslowError

__all__ = ["NAMES", "Ask", "ask", "auth_header", "by_name", "dialect_for", "url_path"]

_DIALECTS: dict[str, Dialect] = {
    "openai": OpenAi(),
    "openai-completions": OpenAi("openai-completions"),
    "openai-responses": Responses(),
    "anthropic": Messages(),
    "gemini": Gemini(),
    "ollama": Ollama(),
    "bedrock": Converse(),
}
NAMES = tuple(_DIALECTS)

_ENDINGS = (
    ("/chat/completions", "openai"),
    ("/completions", "openai-completions"),
    ("/completion", "openai-completions"),
    ("/responses", "openai-responses"),
    ("/messages", "anthropic"),
    ("/messages/count_tokens", "anthropic"),
    (":generateContent", "gemini"),
    (":streamGenerateContent", "gemini"),
    ("/interactions", "gemini"),
    (":rawPredict", "anthropic"),
    (":streamRawPredict", "anthropic"),
    ("/api/chat", "ollama"),
    ("/api/generate", "ollama"),
    ("/converse", "bedrock"),
    ("/converse-stream", "bedrock"),
)
_HOSTS = (
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("aiplatform.googleapis.com", "gemini"),
    ("ollama.com", "ollama"),
)
_OLLAMA_PORT = ":11434"


def by_name(name: str) -> Dialect:
    """A dialect by its name. Raises UnslowError for a name that is none."""
    if name not in _DIALECTS:
        raise UnslowError(f"unknown dialect {name!r}; use one of {', '.join(NAMES)}")
    return _DIALECTS[name]


def dialect_for(path: str, *, host: str | None = None) -> Dialect:
    """The dialect that an endpoint speaks, by its path, else by its host (`name` or `name:port`), else OpenAI's chat.

    `/threads/…/messages` is OpenAI's Assistants API and not Anthropic's. A path below `/v1` or `/openai` on a host
    that also has an API of its own (Ollama, Gemini) is its OpenAI-compatible one.
    """
    plain = path.partition("?")[0].partition("#")[0].rstrip("/")
    for ending, name in _ENDINGS:
        if plain.endswith(ending) and not (name == "anthropic" and "/threads/" in plain):
            return _DIALECTS[name]
    return _DIALECTS[_by_host((host or "").lower(), plain)]


def _by_host(host: str, path: str) -> str:
    if path.endswith(("/openai", "/openai/v1")):
        return "openai"
    bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = next((name for end, name in _HOSTS if bare == end or bare.endswith("." + end)), "openai")
    if name == "openai" and host.endswith(_OLLAMA_PORT):
        name = "ollama"
    return "openai" if name == "ollama" and path.endswith("/v1") else name
