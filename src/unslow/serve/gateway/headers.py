"""Heads as they go on: rebuilt from validated fields, never spliced.

To the upstream: hop-by-hop fields and those that Connection names are left out, so is whatever claims to know where
a request came from (X-Forwarded-*), and credentials where ours go along. To the client: the upstream's hop-by-hop
and CORS fields are left out, ours are added.
"""

from __future__ import annotations

from unslow.core.wire.dialects import auth_header, dialect_for
from unslow.core.wire.http1 import HOP_BY_HOP, Field, RequestHead, ResponseHead, end_to_end, reason, write_fields
from unslow.serve.gateway.pool import Pool

CREDENTIALS = frozenset((b"authorization", b"cookie", b"x-api-key", b"api-key", b"x-goog-api-key"))
"""Never forwarded beside a key of ours."""

_CLAIMS = frozenset(
    (
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-forwarded-prefix",
        b"x-forwarded-server",
        b"x-real-ip",
        b"x-client-ip",
        b"true-client-ip",
        b"cf-connecting-ip",
    )
)
_OURS = frozenset((b"host", b"content-length", b"expect", b"origin", b"via", b"x-unslow-ledger", b"x-unslow-upstream"))
_DROP_UP = HOP_BY_HOP | _CLAIMS | _OURS
_DROP_UP_ENCODING = _DROP_UP | {b"accept-encoding"}
_DROP_DOWN = HOP_BY_HOP | {
    b"content-length",
    b"alt-svc",
    b"strict-transport-security",
    b"x-unslow-id",
    b"x-unslow-upstream",
    b"access-control-allow-origin",
    b"access-control-allow-credentials",
    b"access-control-allow-headers",
    b"access-control-allow-methods",
    b"access-control-expose-headers",
    b"access-control-max-age",
}
_DROP_DOWN_KEYED = _DROP_DOWN | {b"set-cookie"}
_EXPOSED = b"server-timing, x-unslow-id, x-unslow-upstream, x-request-id, retry-after"


def upstream_fields(
    head: RequestHead, pool: Pool, path: str, *, via: bytes, traceparent: bytes | None, gateway_key: bool
) -> list[Field]:
    """Fields of the request as the upstream gets it, without those that frame the body.

    `gateway_key` says that clients must present a key of ours: then what they sent in its place stays here.
    """
    injects = pool.injects(path)
    drop = _DROP_UP if pool.settings.pass_accept_encoding else _DROP_UP_ENCODING
    if injects or gateway_key:
        drop = drop | CREDENTIALS
    fields = [(b"host", pool.target.authority), *end_to_end(head.fields, head.named, drop), (b"via", via)]
    if injects:
        fields.append(_key_field(pool, path))
    if not pool.settings.pass_accept_encoding:
        fields.append((b"accept-encoding", b"identity"))
    if traceparent is not None:
        fields.append((b"traceparent", traceparent))
    return fields


def _key_field(pool: Pool, path: str) -> Field:
    key = pool.settings.api_key or ""
    named = pool.settings.key_header
    if named is not None:
        value = f"Bearer {key}" if named.lower() == "authorization" else key
        return named.lower().encode(), value.encode()
    name, value = auth_header(dialect_for(path, host=pool.target.host).name, key)
    return name.lower().encode(), value.encode()


def request_line(head: RequestHead, pool: Pool) -> bytes:
    """The request line for the upstream."""
    return b"%b %b HTTP/1.1\r\n" % (head.method, pool.target_of(head.target.decode("latin-1")))


def answer_head(answer: ResponseHead, *, keyed: bool, ours: list[Field], framing: bytes) -> bytes:
    """The head of an answer as the client gets it; `framing` is its field lines about body and connection."""
    kept = end_to_end(answer.fields, answer.named, _DROP_DOWN_KEYED if keyed else _DROP_DOWN)
    phrase = answer.phrase or reason(answer.status)
    lines = write_fields(kept), write_fields(ours), framing
    return b"HTTP/1.1 %d %b\r\n%b%b%b\r\n" % (answer.status, phrase, *lines)


def cors_fields(origin: bytes | None) -> list[Field]:
    """What lets the page of an allowed origin read the answer."""
    if origin is None:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    ]


def preflight_fields(head: RequestHead, origin: bytes) -> list[Field]:
    """The answer to a preflight of an allowed origin (Fetch, section 3.2.2)."""
    fields = [
        *cors_fields(origin),
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"),
        (b"access-control-max-age", b"600"),
    ]
    asked = head.get(b"access-control-request-headers")
    if asked is not None:
        fields.append((b"access-control-allow-headers", asked))
    if head.get(b"access-control-request-private-network") == b"true":
        fields.append((b"access-control-allow-private-network", b"true"))
    return fields
