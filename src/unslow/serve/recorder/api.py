"""The console's API: what each route answers. `OPERATIONS` describes the routes once, for Starlette and OpenAPI.

Handlers only read the recorder's parts and encode; who may call is settled before (`guard.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from unslow.core.timeline import Hop, Timeline, join, ledger, metrics
from unslow.serve.recorder.bundle import Bundle
from unslow.serve.recorder.desk import Desk
from unslow.serve.recorder.events import Hub, Listener
from unslow.serve.recorder.guard import error_answer
from unslow.serve.recorder.history import HistoryKept
from unslow.serve.recorder.operations import MAX_LIMIT, MAX_PAGE_BYTES, OPERATIONS, openapi
from unslow.serve.recorder.payloads import Accepted, Health, Page, Purged, Summary, summary
from unslow.serve.recorder.redact import of_page, refused
from unslow.show.export.prometheus import OPENMETRICS, TEXT, render, wants_openmetrics
from unslow.show.report.payload import exchange

Handler = Callable[[Request], Awaitable[Response]]


class Refused(Exception):
    """A request that a handler refuses."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def app(desk: Desk, *, cookie: str) -> Starlette:
    """The application, without its guard."""
    api = Api(desk, cookie)
    handlers: dict[str, Handler] = {
        "list_exchanges": api.list_exchanges,
        "get_exchange": api.get_exchange,
        "add_page_timeline": api.add_page_timeline,
        "purge_exchanges": api.purge_exchanges,
        "events": api.events,
        "config": api.config,
        "openapi": api.openapi,
        "metrics": api.metrics,
        "healthz": api.healthz,
        "readyz": api.readyz,
    }
    routes: list[BaseRoute] = [Route(o.path, handlers[o.name], methods=[o.method], name=o.name) for o in OPERATIONS]
    routes.append(Mount("/", Bundle()))
    return Starlette(routes=routes, exception_handlers={Refused: _refused, HTTPException: _http, Exception: _broken})


class Api:
    """The handlers, one an operation."""

    def __init__(self, desk: Desk, cookie: str) -> None:
        self._desk, self._cookie = desk, cookie

    async def list_exchanges(self, request: Request) -> Response:
        """List exchanges, newest first."""
        limit = _int(request, "limit", 50, 1, MAX_LIMIT)
        before = _int(request, "before", 0, 1, 1 << 62) or None
        found = await self._desk.history.newest(limit, before)
        following = str(found[-1][0]) if len(found) == limit else None
        return _json(Page(tuple(_summary(timeline) for _, timeline in found), following))

    async def get_exchange(self, request: Request) -> Response:
        """One exchange, as all parties saw it."""
        timelines = await self._desk.history.of_id(request.path_params["id"])
        if not timelines:
            raise Refused(404, "no_such_exchange", "the history has no such exchange; it may have been dropped as old")
        return _json(exchange(_joined(timelines)))

    async def add_page_timeline(self, request: Request) -> Response:
        """Take the page's own record of an exchange."""
        timeline = _page_timeline(await _body(request, MAX_PAGE_BYTES))
        self._desk.keep(timeline)
        return _json(Accepted(timeline.facts.request_id or ""), 201)

    async def purge_exchanges(self, request: Request) -> Response:
        """Delete the history."""
        try:
            return _json(Purged(await self._desk.history.purge()))
        except HistoryKept as error:
            raise Refused(507, "purge_failed", f"not everything could be deleted: {error}") from error

    async def events(self, request: Request) -> Response:
        """Live events."""
        listener = self._desk.hub.join()
        if listener is None:
            raise Refused(429, "too_many_listeners", "too many pages listen; close one")
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(_stream(self._desk.hub, listener), headers=headers, media_type="text/event-stream")

    async def config(self, request: Request) -> Response:
        """What is configured."""
        return _json(self._desk.config())

    async def openapi(self, request: Request) -> Response:
        """Describe the API."""
        return _json(openapi(self._cookie))

    async def metrics(self, request: Request) -> Response:
        """Answer Prometheus."""
        openmetrics = wants_openmetrics(request.headers.get("accept", ""))
        body = render(self._desk.families(), openmetrics=openmetrics)
        return Response(body, headers={"content-type": OPENMETRICS if openmetrics else TEXT, "vary": "accept"})

    async def healthz(self, request: Request) -> Response:
        """The process answers."""
        return _json(Health(True))

    async def readyz(self, request: Request) -> Response:
        """Ready, and what works in a lesser way."""
        ready = self._desk.ready()
        return _json(ready, 200 if ready.ready else 503)


def _summary(timeline: Timeline) -> Summary:
    derived = metrics(timeline)
    assert derived is not None  # a Timeline always knows its own start
    return summary(timeline, derived, ledger(timeline))


def _joined(timelines: list[Timeline]) -> Timeline:
    """All parties of the gateway's trace (of the first one where the gateway has not told yet)."""
    lead = next((t for t in timelines if t.party is not Hop.PAGE), timelines[0])
    return join(t for t in timelines if t.trace_id == lead.trace_id)


def _page_timeline(body: bytes) -> Timeline:
    try:
        timeline = msgspec.json.decode(body, type=Timeline)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(400, "no_timeline", f"the body is no Timeline: {error}") from error
    if timeline.party is not Hop.PAGE or any(span.hop is not Hop.PAGE for span in timeline.spans):
        raise Refused(400, "not_the_page", "only Timelines of party `page`, with spans of hop `page`, are taken here")
    if not timeline.facts.request_id or len(timeline.facts.request_id) > 128 or len(timeline.trace_id) > 128:
        raise Refused(400, "no_request_id", "facts.request_id must be the x-unslow-id of the exchange")
    if why := refused(timeline):
        raise Refused(400, "invalid_timeline", f"not a valid Timeline: {why}")
    return of_page(timeline)


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise Refused(413, "body_too_large", f"the body is over the limit of {limit} bytes")
    return bytes(body)


async def _stream(hub: Hub, listener: Listener) -> AsyncIterator[bytes]:
    try:
        async for event in listener.events():
            yield event
    finally:
        hub.leave(listener)


def _int(request: Request, name: str, default: int, least: int, most: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 20 and least <= int(given) <= most):
        raise Refused(400, "bad_parameter", f"{name} must be a whole number from {least} to {most}")
    return int(given)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error_answer(error.status, error.code, error.message)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    answer = error_answer(error.status_code, phrase.lower().replace(" ", "_"), f"{request.url.path}: {phrase.lower()}")
    answer.headers.update(error.headers or {})
    return answer


async def _broken(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)
    return error_answer(500, "internal", f"the recorder failed here ({type(error).__name__}); its log says more")
