"""The recorder's parts on one desk: what happens with each message, and what the API reads.

For each finished exchange: check, redact, then metrics (always), access log and history (bounded queues), events.
Metrics and ledger are derived once and passed to all of them.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from unslow import __version__
from unslow.core.timeline import Timeline, ledger, metrics
from unslow.serve.recorder.events import Hub
from unslow.serve.recorder.history import History, stored_row
from unslow.serve.recorder.logfile import LogFile
from unslow.serve.recorder.meters import Meters
from unslow.serve.recorder.own import Own
from unslow.serve.recorder.payloads import Config, Live, Ready, summary
from unslow.serve.recorder.protocol import Finished, Message, Snapshot
from unslow.serve.recorder.redact import bare_url, redacted, redacted_settings, refused
from unslow.serve.recorder.settings import RecorderSettings
from unslow.serve.recorder.workers import Workers
from unslow.show.export.access_log import Filter, line
from unslow.show.export.prometheus import Family


class Desk:
    """All parts. `take` is called on the event loop and never waits."""

    def __init__(self, settings: RecorderSettings, history: History, access_log: LogFile | None) -> None:
        self.settings, self.history, self.access_log = settings, history, access_log
        self.hub = Hub()
        self.meters = Meters(max_models=settings.metrics_max_models, slo_s=settings.metrics_slo_s)
        self.workers = Workers()
        self.invalid = 0
        self.finished = 0
        self._filter = Filter(
            settings.access_log_min_ms, settings.access_log_errors_only, settings.access_log_sample_ratio
        )

    def take(self, message: Message) -> None:
        """Take one message of a worker."""
        if isinstance(message, Snapshot):
            self.workers.take(message, time.monotonic())
            return
        if refused(message.timeline) is not None:
            self.invalid += 1
            return
        self._finished(message)

    def keep(self, timeline: Timeline) -> None:
        """Put a Timeline into the history only."""
        derived = metrics(timeline)
        self.history.offer(stored_row(timeline, ttft_ns=derived.ttft_ns if derived else None))

    def _finished(self, message: Finished) -> None:
        timeline = redacted(message.timeline)
        derived, rows = metrics(timeline), ledger(timeline)
        assert derived is not None  # a Timeline always knows its own start
        self.finished += 1
        self.meters.observe(timeline, derived, rows)
        self.history.offer(stored_row(timeline, ttft_ns=derived.ttft_ns))
        if self.access_log is not None and self._filter.keeps(timeline, message.sampled):
            text = line(timeline, derived, rows, client=message.client, path=message.path, worker=message.worker)
            self.access_log.offer(text)
        if len(self.hub) and self.hub.admit():
            self.hub.send("exchange", msgspec.json.encode(summary(timeline, derived, rows)))

    async def tell_live(self, every_s: float = 1.0) -> None:
        """Send the `live` event each second, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            skipped = self.hub.refill()
            if len(self.hub):
                live = Live(time.time(), self.workers.now(time.monotonic()), skipped)
                self.hub.send("live", msgspec.json.encode(live))

    def config(self) -> Config:
        """What `/api/config` answers; redacted here again, whoever made the summary."""
        shown = self.settings.config_summary
        upstreams = tuple(msgspec.structs.replace(u, url=bare_url(u.url)) for u in shown.upstreams)
        return Config(
            version=__version__,
            gateway_url=self.settings.gateway_url,
            models=shown.models,
            upstreams=upstreams,
            engine=_hidden(shown.engine) if shown.engine is not None else None,
            history=self.history.state(),
            settings=_hidden(shown.settings),
        )

    def ready(self) -> Ready:
        """What `/readyz` answers: history and access log may be degraded without harm to the rest."""
        lines = []
        if self.history.trouble:
            lines.append(f"history is in memory: {self.history.trouble}")
        if self.access_log is not None and self.access_log.trouble:
            lines.append(f"access log is not written: {self.access_log.trouble}")
        return Ready(True, tuple(lines))

    def families(self) -> list[Family]:
        """Everything that `/metrics` says."""
        return [*self.meters.families(), *self.workers.families(time.monotonic()), *Own(self).families()]


def _hidden(settings: dict[str, object]) -> dict[str, object]:
    return {key: redacted_settings(value, key) for key, value in settings.items()}
