"""The door: what every request passes before anything is done for it, in this order.

Host (DNS rebinding), Origin, preflights, health, key, path, method, loops. Endpoints of our own are answered here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from unslow.core.wire.http1 import Field, RequestHead
from unslow.serve.gateway.context import Gateway
from unslow.serve.gateway.errors import Refusal
from unslow.serve.gateway.headers import preflight_fields
from unslow.serve.gateway.models import merge_models

if TYPE_CHECKING:
    from unslow.serve.gateway.exchange import Exchange

_NOT_RELAYED = frozenset((b"CONNECT", b"TRACE"))
_AMBIGUOUS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|;|%3b|$)|%2f|%5c|\\|//", re.IGNORECASE)
_JSON: Field = (b"content-type", b"application/json")


def open_door(gateway: Gateway, exchange: Exchange) -> bool:
    """Let a request in (True), answer it here (False), or raise Refusal."""
    known = exchange.known
    if known.may_pass and not gateway.draining:
        exchange.key_name = known.key_name
        return True
    head = exchange.head
    if not gateway.hosts.allows(head.host):
        raise Refusal("host_not_allowed", repr(head.host.decode("latin-1")))
    if _answers_origin(gateway, exchange) or _answers_health(gateway, exchange):
        return False
    if gateway.draining:
        raise Refusal("draining", retry_after_s=1)
    if gateway.keys.required:
        exchange.key_name = _key_name(gateway, head)
    _check_path(exchange)
    if head.method in _NOT_RELAYED:
        raise Refusal("method_not_allowed", head.method.decode("latin-1"))
    if b"via" in head.index and any(name == b"via" and gateway.via in value for name, value in head.fields):
        raise Refusal("loop_detected")
    if _asks_for_all_models(gateway, exchange):
        exchange.run(gateway.loop.create_task(merge_models(gateway, exchange)))
        return False
    if exchange.origin is None:
        known.may_pass, known.key_name = True, exchange.key_name
    return True


def _asks_for_all_models(gateway: Gateway, exchange: Exchange) -> bool:
    head = exchange.head
    if exchange.path != "/v1/models" or head.method != b"GET":
        return False
    return len(gateway.pools) > 1 and b"x-unslow-upstream" not in head.index


def _answers_origin(gateway: Gateway, exchange: Exchange) -> bool:
    """Refuse pages that may not call; answer the preflights of those that may."""
    head = exchange.head
    origin = head.index.get(b"origin")
    if origin is None:
        return False
    if not gateway.origins.allows(origin, head.host):
        raise Refusal("origin_not_allowed", repr(origin[:200].decode("latin-1")))
    exchange.origin = origin
    if head.method != b"OPTIONS" or b"access-control-request-method" not in head.index:
        return False
    exchange.is_preflight = True
    exchange.respond(204, preflight_fields(head), b"")
    return True


def _answers_health(gateway: Gateway, exchange: Exchange) -> bool:
    """`/healthz`: this worker lives. `/readyz`: at least one upstream could be reached when last tried."""
    if exchange.path == "/healthz":
        exchange.respond(200, [_JSON], b'{"status":"ok"}')
        return True
    if exchange.path != "/readyz":
        return False
    known = {
        name: {"reachable": pool.reachable, "trouble": None if pool.reachable else pool.trouble}
        for name, pool in gateway.pools.items()
    }
    ready = not gateway.draining and any(pool.reachable for pool in gateway.pools.values())
    body = msgspec.json.encode({"status": "ready" if ready else "not ready", "upstreams": known})
    exchange.respond(200 if ready else 503, [_JSON], body)
    return True


def _key_name(gateway: Gateway, head: RequestHead) -> str:
    for header in (b"authorization", b"x-api-key", b"api-key"):
        given = head.index.get(header)
        name = gateway.keys.name(given) if given is not None else None
        if name is not None:
            return name
    raise Refusal("invalid_api_key")


def _check_path(exchange: Exchange) -> None:
    path = exchange.path
    if path != "/v1" and not path.startswith("/v1/"):
        raise Refusal("not_found", repr(path[:200]))
    if _AMBIGUOUS.search(path):
        raise Refusal("ambiguous_path")
