"""Who may speak to the console: the checks that run before any route, as an ASGI layer.

Theory of operation. In this order: exactly one Host header, and one from the allow-list (DNS rebinding); an Origin,
where one is sent, equals the page's own (cross-site requests), and a state-changing request that is authorised by
the cookie must send one; then the token, in a cookie or as a bearer, compared in constant time. `/healthz` and the
page's own files, which are the same for everybody and hold no data, need no token: without one the page asks for it.
`/readyz` and `/metrics` need none from this machine. Every answer gets the security headers. The token's entry,
`GET /?token=T`, sets the cookie and redirects, so that the token does not stay in the address.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unslow.serve.recorder.payloads import ErrorAnswer, ErrorBody
from unslow.serve.recorder.settings import console_hosts
from unslow.show.console import FILES

OPEN_PATHS = frozenset({"/healthz", "/", *(f"/{name}" for name in FILES)})
LOCAL_PATHS = frozenset({"/metrics", "/readyz"})
LOOPBACK = ("127.", "::1", "::ffff:127.")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+")
_SAFE = ("GET", "HEAD")


class Access(NamedTuple):
    """What is let in. `hosts` are values of Host headers; `cookie` is its name, one a port."""

    token: str
    hosts: frozenset[str]
    cookie: str
    csp: str


def access(
    *, token: str, host: str, port: int, allowed_hosts: Iterable[str] = (), gateway_url: str | None = None
) -> Access:
    """What is let in at this address."""
    hosts = console_hosts(host, port, allowed_hosts)
    return Access(token, hosts, f"unslow_console_{port}", csp(gateway_url))


def csp(gateway_url: str | None) -> str:
    """The page's Content-Security-Policy: its own files, and connections to itself and the gateway."""
    connect = " ".join(["'self'", *_origins(gateway_url)])
    return (
        f"default-src 'self'; connect-src {connect}; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def error_answer(status: int, code: str, message: str) -> Response:
    """A refusal."""
    body = msgspec.json.encode(ErrorAnswer(ErrorBody(code, message)))
    return Response(body, status, media_type="application/json")


class Guard:
    """The ASGI layer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        answer = self._refusal(scope) or self._entry(scope) or self._locked(scope)
        await (answer or self._app)(scope, receive, _with_headers(send, self._access.csp))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._access.hosts:
            return error_answer(421, "host_not_allowed", "this Host is not served here; add it to the allowed hosts")
        origins = headers.getlist("origin")
        if any(not self._is_own(origin, hosts[0].lower()) for origin in origins):
            return error_answer(403, "foreign_origin", "requests from other sites are refused")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and scope["path"].startswith("/api/"):
            return error_answer(403, "foreign_origin", "requests from other sites are refused")
        if scope["method"] not in _SAFE and not origins and _bearer(headers) is None:
            return error_answer(403, "origin_missing", "send an Origin header, or the token as a bearer")
        return None

    def _entry(self, scope: Scope) -> Response | None:
        """Answer `GET /?token=T`."""
        if scope["path"] != "/" or scope["method"] != "GET" or b"token=" not in scope["query_string"]:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not _equal(given, self._access.token):
            if "text/html" in Headers(scope=scope).get("accept", ""):
                return RedirectResponse("/#/wrong-key", 303)  # a person: the page says it, and asks again
            return error_answer(
                401, "wrong_token", "this token is not of this run; open the address that unslow printed"
            )
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._access.cookie, given, httponly=True, samesite="strict", path="/")
        return answer

    def _locked(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if path in OPEN_PATHS or (path in LOCAL_PATHS and _is_local(scope)):
            return None
        headers = Headers(scope=scope)
        bearer = _bearer(headers)
        given = bearer if bearer is not None else _cookie(headers, self._access.cookie)
        if given is not None and _equal(given, self._access.token):
            return None
        return error_answer(
            401, "token_needed", "open the address that unslow printed (it carries the token), or send it as a bearer"
        )

    @staticmethod
    def _is_own(origin: str, host: str) -> bool:
        """Whether an Origin is this page's. Behind a TLS proxy that keeps the Host, the scheme is https."""
        return origin.lower() in (f"http://{host}", f"https://{host}")


def _with_headers(send: Send, policy: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = policy
            headers["x-content-type-options"] = "nosniff"
            headers["x-frame-options"] = "DENY"
            headers["referrer-policy"] = "no-referrer"
            headers["cross-origin-resource-policy"] = "same-origin"
            headers["cross-origin-opener-policy"] = "same-origin"
            headers["cross-origin-embedder-policy"] = "require-corp"  # isolated pages get finer clocks (HR Time, 4.4)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sending


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _bearer(headers: Headers) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def _cookie(headers: Headers, name: str) -> str | None:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return morsel.value if morsel else None


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and str(client[0]).startswith(LOOPBACK)


def _origins(url: str | None) -> list[str]:
    if url is None:
        return []
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return [origin] if _ORIGIN.fullmatch(origin) else []
