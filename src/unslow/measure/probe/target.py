"""From what a user types as URL to the endpoint that is asked, in the dialect that it speaks."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from unslow import __version__
from unslow.core.wire.dialects import by_name, dialect_for
from unslow.core.wire.dialects.ask import ANTHROPIC_VERSION, Ask, ask, auth_header, url_path
from unslow.errors import LocalProtocolError
from unslow.measure.probe.settings import ProbeSettings
from unslow.measure.transport import Request, origin_of

_AGENT = f"unslow/{__version__}"
ASKABLE = ("openai", "openai-completions", "openai-responses", "anthropic", "gemini", "ollama")
_ENDPOINTS = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/v1/messages",
    "/messages",
    "/api/chat",
    "/api/generate",
)
_LISTS = {"anthropic": "/v1/models", "gemini": "/v1beta/models", "ollama": "/api/tags"}


class Endpoint(NamedTuple):
    """Where to ask, in which dialect. `base` is the path of the API's base."""

    url: str
    dialect: str
    base: str


def endpoint(url: str, dialect: str | None = None) -> Endpoint:
    """Read a URL. Raises LocalProtocolError for one that cannot be asked."""
    origin = origin_of(url)
    path = urlsplit(url).path
    named = dialect or _guess(path, origin.host, origin.port)
    if named not in ASKABLE:
        raise LocalProtocolError(f"the dialect {named!r} cannot be asked: use one of {', '.join(ASKABLE)}")
    base = _base(path)
    if named.startswith("openai") and base == "":
        base = "/v1"
    return Endpoint(url, by_name(named).name, base)


def question(endpoint: Endpoint, model: str, settings: ProbeSettings, traceparent: str) -> Request:
    """The request to measure."""
    asked = ask(
        endpoint.dialect, model=model, prompt=settings.prompt, max_tokens=settings.max_tokens, stream=settings.stream
    )
    url = _with_path(endpoint.url, _path_of(endpoint, asked))
    headers = (*asked.headers, ("user-agent", _AGENT), ("traceparent", traceparent))
    return Request(
        url=url, headers=_without(headers, settings.headers), private=_private(endpoint, settings), body=asked.body
    )


def listing(endpoint: Endpoint, settings: ProbeSettings) -> Request:
    """The request that lists the models of an endpoint."""
    path = _LISTS.get(endpoint.dialect)
    full = endpoint.base + "/models" if path is None else url_path(endpoint.base, path)
    headers: tuple[tuple[str, str], ...] = (("accept", "application/json"), ("user-agent", _AGENT))
    if endpoint.dialect == "anthropic":
        headers = (*headers, ("anthropic-version", ANTHROPIC_VERSION))
    return Request(
        url=_with_path(endpoint.url, full), method="GET", headers=_without(headers, settings.headers),
        private=_private(endpoint, settings),
    )  # fmt: skip


class _Listed(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    methods: list[str] | None = msgspec.field(default=None, name="supportedGenerationMethods")


class _Listing(msgspec.Struct):
    data: list[_Listed] | None = None
    models: list[_Listed] | None = None


def first_model(body: bytes) -> str | None:
    """The first model of a listing that can generate text; None for none, or for what is no listing."""
    try:
        found = msgspec.json.decode(body, type=_Listing)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    for model in found.data or found.models or ():
        usable = model.methods is None or "generateContent" in model.methods
        if usable and (name := model.id or model.name):
            return name.removeprefix("models/")
    return None


def shown_url(url: str) -> str:
    """A URL as reports show it: without credentials, and with the values of its query hidden."""
    parts = urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2]
    query = urlencode([(name, value if name == "alt" else "***") for name, value in parse_qsl(parts.query)], safe="*")
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


def _guess(path: str, host: str, port: int) -> str:
    return dialect_for(path, host=f"{host}:{port}").name


def _base(path: str) -> str:
    bare = path.rstrip("/")
    for end in _ENDPOINTS:
        if bare.endswith(end):
            return bare.removesuffix(end)
    head, models, _ = bare.partition("/models/")
    return head if models else bare


def _path_of(endpoint: Endpoint, asked: Ask) -> str:
    given = urlsplit(endpoint.url).path.rstrip("/")
    if given.endswith(("/api/generate", "/messages", asked.path.partition("?")[0])):
        return given + asked.path[len(asked.path.partition("?")[0]) :]
    return url_path(endpoint.base, asked.path)


def _with_path(url: str, path: str) -> str:
    """The URL's origin and query with another path (which may bring a query of its own)."""
    parts = urlsplit(url)
    bare, _, own = path.partition("?")
    query = "&".join(part for part in (own, parts.query) if part)
    return urlunsplit((parts.scheme, parts.netloc, bare, query, ""))


def _private(endpoint: Endpoint, settings: ProbeSettings) -> tuple[tuple[str, str], ...]:
    given = settings.headers
    if settings.api_key is None:
        return given
    name, value = auth_header(endpoint.dialect, settings.api_key)
    return given if any(n.lower() == name for n, _ in given) else (*given, (name, value))


def _without(headers: tuple[tuple[str, str], ...], given: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    names = {name.lower() for name, _ in given}
    return tuple((name, value) for name, value in headers if name.lower() not in names)
