"""Heads as they go on: rebuilt from validated fields, never spliced.

To the upstream: hop-by-hop fields and those that Connection names are left out, so is whatever claims to know where
a request came from (X-Forwarded-*), and credentials where ours go along. To the client: the upstream's hop-by-hop
and CORS fields are left out, ours are added.
"""

from __future__ import annotations

from unslow.core.wire.http1 import HOP_BY_HOP, Field, RequestHead, ResponseHead, reason, write_fields
from unslow.serve.gateway.known import AnswerHead, Known
from unslow.serve.gateway.way import Way

MAX_SENT = 8
"""Ways that a known head is kept ready for."""
_DROP = HOP_BY_HOP | {
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
    b"timing-allow-origin",
}
_DROP_KEYED = _DROP | {b"set-cookie"}
_EXPOSED = b"server-timing, x-unslow-id, x-unslow-upstream, x-request-id, retry-after"


def request_head(known: Known, way: Way, *, gateway_key: bool) -> bytes:
    """The head of a request as the upstream gets it, but for the lines about body, connection and trace, and its end.

    `gateway_key` says that clients must present a key of ours: then what they sent as one stays here.
    """
    ready = known.sent.get(way)
    if ready is None:
        ready = _request_head(known.head, way, gateway_key=gateway_key)
        if len(known.sent) < MAX_SENT:
            known.sent[way] = ready
    return ready


def _request_head(head: RequestHead, way: Way, *, gateway_key: bool) -> bytes:
    drop = way.drop_credentials if gateway_key else way.drop
    _, mark, query = head.target.partition(b"?")
    first = head.method + b" " + way.path + mark + query + b" HTTP/1.1\r\n"
    return first + way.lines + write_fields(head.fields, drop=drop, named=head.named)


def answer_head(answer: AnswerHead, *, keyed: bool, lines: bytes) -> bytes:
    """The head of an answer as the client gets it; `lines` are our field lines."""
    kept = answer.kept.get(keyed)
    if kept is None:
        kept = answer.kept[keyed] = _answer_head(answer.head, keyed=keyed)
    date = b"" if b"date" in answer.head.named else answer.date
    return b"%b%b%b\r\n" % (kept, date, lines)


def _answer_head(head: ResponseHead, *, keyed: bool) -> bytes:
    phrase = head.phrase or reason(head.status)
    first = b"HTTP/1.1 %d %b\r\n" % (head.status, phrase)
    return first + write_fields(head.fields, drop=_DROP_KEYED if keyed else _DROP, named=head.named)


def cors_fields(origin: bytes | None) -> list[Field]:
    """What lets the page of an allowed origin read the answer, and its browser's own stamps (Resource Timing, 4.5)."""
    if origin is None:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"timing-allow-origin", origin),
        (b"vary", b"Origin"),
    ]


def preflight_fields(head: RequestHead) -> list[Field]:
    """What a preflight of an allowed origin is told beside that (Fetch, section 3.2.2)."""
    fields = [
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"),
        (b"access-control-max-age", b"600"),
    ]
    asked = head.index.get(b"access-control-request-headers")
    if asked is not None:
        fields.append((b"access-control-allow-headers", asked))
    if head.index.get(b"access-control-request-private-network") == b"true":
        fields.append((b"access-control-allow-private-network", b"true"))
    return fields
