"""The HTTP side: an ASGI application with the OpenAI API's paths, and the health check.

The response's head goes out with the first token, so that whatever fails before it is an answer with a status of its
own, which a gateway may try again elsewhere.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

import msgspec

from . import answers, api
from .child import Engine, Left, Lost, State, Stream
from .link import Accepted, Emitted, Refused, Timings, Tokenized
from .refusal import Refusal
from .settings import EngineSettings
from .text import AnswerText

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

_JSON = [(b"content-type", b"application/json")]
_SSE = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


class ClientGone(Exception):
    """Nobody is left to answer."""


class Piece(NamedTuple):
    """Some of an answer: `finish` on the last one."""

    text: str
    tokens: int
    timings: Timings
    finish: str | None


class App:
    """The ASGI application."""

    def __init__(self, engine: Engine, settings: EngineSettings) -> None:
        self._engine, self._settings = engine, settings
        self._created = int(time.time())
        self._hosts = _LOOPBACK | set(settings.allowed_hosts)
        name = settings.model_name
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completion),
            "/tokenize": ("POST", self._tokenize),
            "/v1/models": ("GET", self._models),
            f"/v1/models/{name}": ("GET", self._model),
            "/healthz": ("GET", self._health),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange."""
        try:
            self._check_origin(scope)
            await self._route(scope["method"], scope["path"])(scope, receive, send)
        except Refusal as refusal:
            more = [(b"retry-after", b"1")] if refusal.status == 503 else []
            await _respond(send, refusal.status, refusal.body, more)
        except ClientGone:
            return

    def _check_origin(self, scope: Scope) -> None:
        """On TCP, pages of the web reach us only by tricks (DNS rebinding, simple requests): none is let in."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            raise Refusal(400, "bad_host", "a request needs exactly one Host header")
        if self._settings.socket_path is not None:
            return
        if _without_port(hosts[0]) not in self._hosts:
            raise Refusal(403, "host_refused", f"the host {hosts[0][:100]!r} is not one of ours: see allowed_hosts")
        for name, value in headers:
            origin = value.decode("latin-1")
            if name == b"origin" and _without_port(origin.partition("://")[2]) not in self._hosts:
                raise Refusal(403, "origin_refused", f"pages of {origin[:100]!r} may not ask: see allowed_hosts")

    def _route(self, method: str, path: str) -> Handler:
        if path not in self._routes:
            raise Refusal(404, "not_found", f"the embedded engine has no {path[:200]}")
        allowed, handler = self._routes[path]
        if method != allowed:
            raise Refusal(405, "method_not_allowed", f"{path} takes {allowed}")
        return handler

    async def _health(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        state = self._engine.state
        body = {
            "status": state.value,
            "model": self._settings.model_name,
            "backend": self._engine.loaded.backend,
            "requests": self._engine.open_requests,
            "restarts": self._engine.restarts,
        }
        await _respond(send, 200 if state is State.READY else 503, msgspec.json.encode(body))

    async def _models(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        context = self._ready().loaded.context_tokens
        await _respond(send, 200, answers.model_list(self._settings.model_name, self._created, context))

    async def _model(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        context = self._ready().loaded.context_tokens
        card = answers.model_card(self._settings.model_name, self._created, context)
        await _respond(send, 200, msgspec.json.encode(card))

    async def _tokenize(self, _scope: Scope, receive: Receive, send: Send) -> None:
        prompt = api.tokenize_request(await self._body(receive), self._settings)
        stream = self._ready().tokenize(prompt)
        async with _Watching(receive, stream):
            event = await _next(stream)
        assert isinstance(event, Tokenized)
        size = self._engine.loaded.context_tokens
        await _respond(
            send, 200, msgspec.json.encode({"count": len(event.ids), "max_model_len": size, "tokens": event.ids})
        )

    async def _chat(self, _scope: Scope, receive: Receive, send: Send) -> None:
        received_ns = time.monotonic_ns()
        request = api.chat_request(await self._body(receive), self._settings, secrets.randbits(32))
        await self._answer(request, received_ns, receive, send)

    async def _completion(self, _scope: Scope, receive: Receive, send: Send) -> None:
        received_ns = time.monotonic_ns()
        request = api.completion_request(await self._body(receive), self._settings, secrets.randbits(32))
        await self._answer(request, received_ns, receive, send)

    async def _answer(self, request: api.Request, received_ns: int, receive: Receive, send: Send) -> None:
        stream = self._ready().submit(request.prompt, request.sampling, received_ns)
        async with _Watching(receive, stream):
            accepted = await _next(stream)
            assert isinstance(accepted, Accepted)
            shape = answers.Shape(
                chat=request.chat,
                answer_id=("chatcmpl-" if request.chat else "cmpl-") + secrets.token_hex(12),
                model=self._settings.model_name,
                created=int(time.time()),
                prompt_tokens=accepted.prompt_tokens,
            )
            text = AnswerText(self._engine.loaded.vocab, self._engine.hidden, request.stops)
            pieces = _pieces(stream, text)
            write = _stream if request.stream else _whole
            await write(request, pieces, shape, accepted.prompt_tokens, send)

    def _ready(self) -> Engine:
        if self._engine.state is not State.READY:
            why = f"the embedded engine is {self._engine.state.value}: try again shortly"
            raise Refusal(503, f"engine_{self._engine.state.value}", why)
        return self._engine

    async def _body(self, receive: Receive) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            size += len(message.get("body", b""))
            if size > self._settings.max_body_bytes:
                raise Refusal(413, "body_too_large", f"the body is larger than {self._settings.max_body_bytes} bytes")
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(parts)


class _Watching:
    """While inside, a client that leaves puts `Left` into the stream; at the end the request's place is freed."""

    def __init__(self, receive: Receive, stream: Stream) -> None:
        self._receive, self._stream = receive, stream

    async def __aenter__(self) -> None:
        self._task = asyncio.ensure_future(self._watch())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._stream.close()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._stream.close()
        self._stream.put(Left())


async def _next(stream: Stream) -> Accepted | Emitted | Tokenized:
    """The next event that goes on with the answer; the others are raised."""
    event = await stream.next()
    if isinstance(event, Left):
        raise ClientGone
    if isinstance(event, Lost):
        raise Refusal(503, "engine_crashed", f"the embedded engine {event.why} during this request: try again")
    if isinstance(event, Refused):
        raise Refusal(event.status, event.code, event.message, event.param)
    return event


async def _pieces(stream: Stream, text: AnswerText) -> AsyncIterator[Piece]:
    """An answer's text, a token at a time, up to its end or a stop string."""
    tokens = 0
    while True:
        event = await _next(stream)
        assert isinstance(event, Emitted)
        if event.finish == "error":
            raise Refusal(503, "engine_failed", "the embedded engine gave this request up: try again")
        for token in event.ids:
            tokens += 1
            ready = text.feed(token)
            if text.stopped:
                yield Piece(ready, tokens, event.timings, "stop")
                return
            if ready:
                yield Piece(ready, tokens, event.timings, None)
        if event.finish:
            rest = text.close()
            yield Piece(rest, tokens, event.timings, "stop" if text.stopped else event.finish)
            return


async def _whole(
    _request: api.Request, pieces: AsyncIterator[Piece], shape: answers.Shape, prompt_tokens: int, send: Send
) -> None:
    texts = []
    async for piece in pieces:
        texts.append(piece.text)
        if piece.finish:
            times = answers.timings(piece.timings, prompt_tokens, piece.tokens)
            await _respond(send, 200, shape.whole("".join(texts), piece.finish, piece.tokens, times))


async def _stream(
    request: api.Request, pieces: AsyncIterator[Piece], shape: answers.Shape, prompt_tokens: int, send: Send
) -> None:
    started = False
    try:
        async for piece in pieces:
            if not started:
                await send({"type": "http.response.start", "status": 200, "headers": _SSE})
                await _send_part(send, shape.role())
                started = True
            await _send_part(send, shape.text(piece.text) if piece.text else b"")
            if piece.finish:
                await _send_part(send, _ending(request, piece, shape, prompt_tokens))
    except Refusal as refusal:
        if not started:
            raise
        await _send_part(send, b"data: " + refusal.body + b"\n\n")
    await send({"type": "http.response.body", "body": b""})


def _ending(request: api.Request, piece: Piece, shape: answers.Shape, prompt_tokens: int) -> bytes:
    times = answers.timings(piece.timings, prompt_tokens, piece.tokens)
    usage = shape.usage(piece.tokens, piece.timings.cached_tokens) if request.include_usage else b""
    return shape.finish(piece.finish or "stop", times) + usage + answers.DONE


async def _send_part(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _respond(send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [*_JSON, (b"content-length", b"%d" % len(body)), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and (port.isdigit() or not port) else host).lower()
