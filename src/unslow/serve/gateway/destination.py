"""Where a request goes, as soon as enough of it is there to tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unslow.serve.gateway.context import Gateway
from unslow.serve.gateway.errors import Refusal

if TYPE_CHECKING:
    from unslow.serve.gateway.exchange import Exchange

_MODEL_PATH = "/v1/models/"


def destination(gateway: Gateway, exchange: Exchange) -> str | None:
    """The upstream's name; None while its model may still come. Raises Refusal.

    `x-unslow-upstream` decides, else the model; a body whose model does not show within `routing_body_bytes` goes to
    the upstream that lists no models, or is refused where there is none.
    """
    routes, body = gateway.routes, exchange.body
    named = exchange.head.index.get(b"x-unslow-upstream")
    if named is not None:
        name = named.decode("utf-8", "replace")
        if name not in gateway.pools:
            raise Refusal("upstream_not_found", repr(name[:100]))
        return name
    if routes.single:
        return routes.without_model()
    exchange.model = body.model
    if exchange.path.startswith(_MODEL_PATH):
        exchange.model = exchange.path[len(_MODEL_PATH) :]
    if exchange.model is not None:
        return _by_model(gateway, exchange.model)
    if body.done or body.model_known:
        return _rest(gateway, "model_required") if body.size_bytes else routes.without_model()
    if body.size_bytes >= gateway.settings.routing_body_bytes:
        return _rest(gateway, "model_beyond_bound")
    return None


def _rest(gateway: Gateway, code: str) -> str:
    if gateway.routes.rest is None:
        raise Refusal(code, str(gateway.settings.routing_body_bytes))
    return gateway.routes.rest


def _by_model(gateway: Gateway, model: str) -> str:
    name = gateway.routes.by_model(model)
    if name is None:
        known = ", ".join(gateway.routes.known()[:20])
        raise Refusal("model_not_found", f"{model[:100]!r}; known: {known}")
    return name
