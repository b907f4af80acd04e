"""The operations of the console's API, described once."""

from __future__ import annotations

from typing import Any

from unslow import __version__
from unslow.core.timeline import Timeline
from unslow.serve.recorder.payloads import Accepted, Config, ErrorAnswer, Health, Page, Purged, Ready
from unslow.show.export.openapi import Answer, Operation, Parameter, document
from unslow.show.export.prometheus import TEXT
from unslow.show.report.payload import Exchange

MAX_LIMIT = 200
MAX_PAGE_BYTES = 1 << 20

_LIMIT = Parameter("limit", "query", "At most so many.", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT})
_BEFORE = Parameter("before", "query", "The `next` of the page before.", {"type": "string", "pattern": "^[0-9]+$"})
_ID = Parameter("id", "path", "The exchange's id (`x-unslow-id`).", {"type": "string"})

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", "/api/exchanges", "list_exchanges", "Past exchanges, newest first.",
        [Answer(200, "A page of them.", Page)], [_LIMIT, _BEFORE],
    ),
    Operation(
        "GET", "/api/exchanges/{id}", "get_exchange", "One exchange, joined from all parties that recorded it.",
        [Answer(200, "The exchange.", Exchange)], [_ID],
    ),
    Operation(
        "POST", "/api/exchanges", "add_page_timeline",
        "Add the page's own record of an exchange (party `page`), of the trace that it sent in `traceparent`.",
        [Answer(201, "Taken.", Accepted)], takes=Timeline,
    ),
    Operation(
        "DELETE", "/api/exchanges", "purge_exchanges", "Delete the history.",
        [Answer(200, "Deleted.", Purged), Answer(507, "The file could not be written.", ErrorAnswer)],
    ),
    Operation(
        "GET", "/api/events", "events", "Live events: `exchange` (Summary), and each second `live` (Live).",
        [Answer(200, "A stream of server-sent events.", media="text/event-stream")],
    ),
    Operation("GET", "/api/config", "config", "What is configured.", [Answer(200, "The configuration.", Config)]),
    Operation("GET", "/openapi.json", "openapi", "This document.", [Answer(200, "OpenAPI 3.1.")]),
    Operation(
        "GET", "/metrics", "metrics", "Prometheus text, or OpenMetrics where the Accept header asks for it.",
        [Answer(200, "The metrics.", media=TEXT)], open=True,
    ),
    Operation("GET", "/healthz", "healthz", "Whether the process answers.",
        [Answer(200, "It does.", Health)], open=True),
    Operation(
        "GET", "/readyz", "readyz", "Whether it takes records, and what works in a lesser way.",
        [Answer(200, "It does.", Ready), Answer(503, "It does not.", Ready)], open=True,
    ),
)  # fmt: skip


def openapi(cookie: str) -> dict[str, Any]:
    """The OpenAPI document."""
    return document(
        OPERATIONS,
        title="unslow console API",
        version=__version__,
        text="The recorder's API: past exchanges, live events, configuration, metrics. `GET /?token=T` opens the page.",
        refusal=ErrorAnswer,
        cookie=cookie,
    )
