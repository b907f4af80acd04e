"""One endpoint, asked again and again; each request becomes a Timeline, whatever comes of it."""

from __future__ import annotations

import secrets
from urllib.parse import unquote, urlsplit

import msgspec

from unslow.core.timeline import End, Outcome, Phase, Timeline
from unslow.measure.probe.encodings import OFFERED
from unslow.measure.probe.redact import Redactor
from unslow.measure.probe.run import Asked, Run
from unslow.measure.probe.settings import ProbeSettings
from unslow.measure.probe.target import endpoint, first_model, listing, question, shown_url
from unslow.measure.transport import Request, TransportSettings, session_for

_PLAIN_HEADERS = frozenset(("accept", "accept-encoding", "accept-language", "content-type", "user-agent"))
"""Headers of the user's whose values are no secrets."""


class Probe:
    """Asks one endpoint again and again. Raises LocalProtocolError for settings that cannot be asked at all."""

    def __init__(self, settings: ProbeSettings, transport: TransportSettings | None = None) -> None:
        self.settings, self.transport = settings, transport or TransportSettings()
        self.endpoint = endpoint(settings.url, settings.dialect)
        self.model = settings.model
        private = [value for name, value in settings.headers if name.lower() not in _PLAIN_HEADERS]
        self._redactor = Redactor([settings.api_key or "", *private, *_userinfo(self.transport.proxy)])
        self._session = session_for(self.transport)
        self._session.prepare(self._question("0" * 32, "probe"))

    @property
    def shown_url(self) -> str:
        """The URL as reports show it."""
        return self._redactor.text(shown_url(self.settings.url))

    def find_model(self) -> Timeline | None:
        """Name the model where the settings name none: the first that the endpoint lists. Not measured.

        None when the model is known; else the Timeline of the listing that failed.
        """
        if self.model is not None:
            return None
        session = session_for(self.transport)
        request = listing(self.endpoint, self.settings)
        session.prepare(request)
        asked = Asked(request, self.endpoint.dialect, None, False, secrets.token_hex(16))
        run = Run(session, asked)
        timeline = run.timeline()
        session.close()
        if timeline.outcome.end is not End.COMPLETED:
            return self._named(timeline)
        self.model = first_model(run.body)
        if self.model is not None:
            return None
        why = f"{shown_url(request.url)} lists no model that could be asked: name one with --model"
        outcome = Outcome(End.FAILED, Phase.DRAIN, "no_model", why)
        return self._redactor.timeline(msgspec.structs.replace(timeline, outcome=outcome))

    def measure(self, *, cold: bool = False) -> Timeline:
        """Send one request and measure it. `cold`: on a connection of its own."""
        if cold:
            self._session.close()
        trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
        request = self._question(trace_id, self.model or "", span_id)
        asked = Asked(request, self.endpoint.dialect, self.model, self.settings.stream, trace_id)
        run = Run(self._session, asked)
        return self._redactor.timeline(run.timeline())

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _question(self, trace_id: str, model: str, span_id: str = "0" * 16) -> Request:
        asked = question(self.endpoint, model, self.settings, f"00-{trace_id}-{span_id}-01")
        named = {name.lower() for name, _ in (*asked.headers, *asked.private)}
        if "accept-encoding" in named:
            return asked
        return msgspec.structs.replace(asked, headers=(*asked.headers, ("accept-encoding", OFFERED)))

    def _named(self, timeline: Timeline) -> Timeline:
        """A failed listing, with what to do about it."""
        outcome = timeline.outcome
        if (outcome.kind or "").startswith("http_4") and outcome.kind not in ("http_401", "http_403", "http_429"):
            detail = f"{outcome.detail}; the models cannot be listed, so name one with --model"
            timeline = msgspec.structs.replace(timeline, outcome=msgspec.structs.replace(outcome, detail=detail))
        return self._redactor.timeline(timeline)


def _userinfo(proxy: str | None) -> list[str]:
    if not proxy:
        return []
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return [unquote(parts.password)] if parts.password else []
