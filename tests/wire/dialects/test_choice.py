"""Which dialect an endpoint speaks, and the smallest request of each."""

from __future__ import annotations

import json

import pytest

from unslow.core.wire.dialects import NAMES, ask, auth_header, by_name, dialect_for, url_path
from unslow.errors import UnslowError


@pytest.mark.parametrize(
    ("path", "host", "name"),
    [
        ("/v1/chat/completions", None, "openai"),
        ("/openai/v1/chat/completions", "api.groq.com", "openai"),
        ("/openai/deployments/d/chat/completions?api-version=2024-10-21", "x.openai.azure.com", "openai"),
        ("/v1beta/openai/chat/completions", "generativelanguage.googleapis.com", "openai"),
        ("/v1/completions", None, "openai-completions"),
        ("/completion", "localhost:8080", "openai-completions"),
        ("/v1/responses", None, "openai-responses"),
        ("/v1/messages", None, "anthropic"),
        ("/v1/messages?beta=true", "gateway.example", "anthropic"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict", None, "anthropic"),
        ("/v1/threads/t_1/messages", "api.openai.com", "openai"),
        ("/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", None, "gemini"),
        ("/v1beta/models/gemini-2.5-flash:generateContent", None, "gemini"),
        ("/v1beta/interactions", "generativelanguage.googleapis.com", "gemini"),
        ("/api/chat", "localhost:11434", "ollama"),
        ("/api/generate", None, "ollama"),
        ("/model/anthropic.claude/converse-stream", None, "bedrock"),
        ("", "api.anthropic.com", "anthropic"),
        ("/v1", "api.anthropic.com:443", "anthropic"),
        ("/", "generativelanguage.googleapis.com", "gemini"),
        ("/v1beta/openai/", "generativelanguage.googleapis.com", "openai"),
        ("/", "127.0.0.1:11434", "ollama"),
        ("/v1", "127.0.0.1:11434", "openai"),
        ("/v1", "127.0.0.1:8000", "openai"),
        ("", None, "openai"),
        ("/v1", "notapi.anthropic.com.example", "openai"),
    ],
)
def test_dialect_for(path: str, host: str | None, name: str) -> None:
    assert dialect_for(path, host=host).name == name


def test_names() -> None:
    assert [by_name(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(UnslowError, match="unknown dialect 'x'; use one of openai, "):
        by_name("x")


ASKED = ("openai", "openai-completions", "openai-responses", "anthropic", "gemini", "ollama")


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_names_its_dialect_by_its_path_and_asks_what_was_asked(name: str, stream: bool) -> None:
    asked = ask(name, model="m", prompt="why?", max_tokens=7, stream=stream, system="be brief", temperature=0.5)
    assert dialect_for("/v1" + asked.path if asked.path.startswith("/c") else asked.path).name == name
    text = asked.body.decode()
    assert "why?" in text
    assert "be brief" in text
    assert ":7" in text
    assert "null" not in text
    assert dict(asked.headers)["content-type"] == "application/json"
    assert not {"authorization", "x-api-key"} & set(dict(asked.headers))
    wants = dict(asked.headers)["accept"]
    assert wants == (
        "application/json" if not stream else "application/x-ndjson" if name == "ollama" else "text/event-stream"
    )


def test_openai_asks_for_usage_only_in_a_stream() -> None:
    streamed = json.loads(ask("openai", model="m", prompt="p", max_tokens=1, stream=True, seed=3).body)
    plain = json.loads(ask("openai", model="m", prompt="p", max_tokens=None, stream=False).body)
    assert streamed == {
        "model": "m",
        "messages": [{"role": "user", "content": "p"}],
        "max_tokens": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 3,
    }
    assert plain == {"model": "m", "messages": [{"role": "user", "content": "p"}], "stream": False}


@pytest.mark.parametrize(("model", "field"), [("gpt-5-mini", "max_completion_tokens"), ("o3", "max_completion_tokens"),
                                              ("gpt-4o", "max_tokens"), ("olmo-7b", "max_tokens")])  # fmt: skip
def test_reasoning_models_take_another_limit(model: str, field: str) -> None:
    assert json.loads(ask("openai", model=model, prompt="p", max_tokens=9, stream=True).body)[field] == 9


def test_anthropic_needs_a_limit_and_a_version() -> None:
    asked = ask("anthropic", model="m", prompt="p", max_tokens=None, stream=True)
    assert json.loads(asked.body)["max_tokens"] > 0
    assert ("anthropic-version", "2023-06-01") in asked.headers


def test_gemini_has_the_model_in_its_path_quoted() -> None:
    assert ask("gemini", model="models/g", prompt="p", max_tokens=None, stream=True).path == (
        "/v1beta/models/g:streamGenerateContent?alt=sse"
    )
    assert ask("gemini", model="a b?c", prompt="p", max_tokens=None, stream=False).path == (
        "/v1beta/models/a%20b%3Fc:generateContent"
    )


def test_what_cannot_be_asked_says_so() -> None:
    with pytest.raises(UnslowError, match="no request can be made for the dialect 'bedrock'"):
        ask("bedrock", model="m", prompt="p", max_tokens=1, stream=True)


def test_auth_headers() -> None:
    assert auth_header("openai", "k") == ("authorization", "Bearer k")
    assert auth_header("anthropic", "k") == ("x-api-key", "k")
    assert auth_header("gemini", "k") == ("x-goog-api-key", "k")


@pytest.mark.parametrize(
    ("base", "path", "joined"),
    [
        ("/v1", "/chat/completions", "/v1/chat/completions"),
        ("/v1/", "/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions", "/chat/completions", "/v1/chat/completions"),
        ("", "/v1/messages", "/v1/messages"),
        ("/v1", "/v1/messages", "/v1/messages"),
        ("/v1/messages", "/v1/messages", "/v1/messages"),
        ("/proxy", "/v1/messages", "/proxy/v1/messages"),
        ("/v1beta", "/v1beta/models/g:streamGenerateContent?alt=sse", "/v1beta/models/g:streamGenerateContent?alt=sse"),
        ("/api", "/api/chat", "/api/chat"),
        ("", "/api/chat", "/api/chat"),
    ],
)
def test_url_path(base: str, path: str, joined: str) -> None:
    assert url_path(base, path) == joined
