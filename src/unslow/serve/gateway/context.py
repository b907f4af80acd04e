"""What all connections of one worker share."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from unslow.core.policy.access import HostRule, KeyRule, OriginRule
from unslow.core.policy.routing import Routes
from unslow.core.policy.timeouts import Limits, Wait
from unslow.core.timeline import Clock
from unslow.errors import ConfigError
from unslow.serve.gateway.feed import Feed
from unslow.serve.gateway.known import AnswerHeads, Heads
from unslow.serve.gateway.pool import Pool
from unslow.serve.gateway.settings import GatewaySettings
from unslow.serve.gateway.wheel import Wheel

if TYPE_CHECKING:
    from unslow.serve.gateway.client import ClientConnection


class Gateway:
    """One worker: its settings, upstreams, rules, counters and open connections."""

    def __init__(self, settings: GatewaySettings, loop: asyncio.AbstractEventLoop) -> None:
        if not settings.upstreams:
            raise ConfigError("no upstream is configured; add one", key="upstreams")
        self.settings, self.loop = settings, loop
        self.pools = {upstream.name: Pool(upstream, settings) for upstream in settings.upstreams}
        if len(self.pools) < len(settings.upstreams):
            raise ConfigError("two upstreams have the same name", key="upstreams")
        self.routes = Routes((upstream.name, upstream.models) for upstream in settings.upstreams)
        self.hosts = HostRule(settings.host, settings.allowed_hosts)
        self.origins = OriginRule(settings.allowed_origins)
        self.keys = KeyRule({key.sha256: key.name for key in settings.api_keys})
        self.limits = read_limits(settings)
        self.wheel = Wheel(loop)
        self.feed = Feed(settings.recorder_socket, settings.recorder_buffer_messages)
        self.heads, self.answer_heads = Heads(settings.max_headers), AnswerHeads()
        self.clients: set[ClientConnection] = set()
        share = max(1, settings.workers)
        self.max_clients = max(1, settings.max_connections // share)
        self.max_idle_clients = max(1, settings.max_idle_connections // share)
        self.clock = Clock(settings.clock_id)
        self.instance = os.urandom(4).hex()
        """Makes requests' ids unique over workers and restarts."""
        self.via = b"1.1 unslow-" + self.instance.encode()
        self.via_line = b"via: " + self.via + b"\r\n"
        self._trace = b"traceparent: 00-" + os.urandom(8).hex().encode()
        self._trace_seed = int.from_bytes(os.urandom(8))
        self.requests_total = 0
        self.active = 0
        self.draining = False
        self.empty = asyncio.Event()
        """Set when the last client is gone while draining."""

    def trace_line(self) -> bytes:
        """A `traceparent` line for the newest request (W3C Trace Context).

        Half of the trace's id is this worker's; the other half walks through all 64-bit numbers in an order that
        spreads them evenly, as samplers that go by the id expect.
        """
        number = (self._trace_seed + self.requests_total * _STEP) & _MASK
        return b"%b%016x-%016x-01\r\n" % (self._trace, number, number | 1)

    @property
    def idle_upstream(self) -> int:
        """Idle upstream connections of all pools."""
        return sum(len(pool.idle) for pool in self.pools.values())


def read_limits(settings: GatewaySettings) -> Limits:
    """The settings' time-outs as limits of waits."""
    seconds = {
        Wait.HEADER: settings.header_timeout_s,
        Wait.BODY: settings.body_timeout_s,
        Wait.IDLE: settings.idle_timeout_s,
        Wait.QUEUE: settings.queue_timeout_s,
        Wait.FIRST_BYTE: settings.first_byte_timeout_s,
        Wait.FIRST_TOKEN: settings.first_token_timeout_s,
        Wait.GAP: settings.gap_timeout_s,
        Wait.SLOW_CLIENT: settings.slow_client_timeout_s,
        Wait.LINGER: LINGER_S,
    }
    return Limits({wait: int(value * 1e9) for wait, value in seconds.items()})


_STEP, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
"""The golden ratio of 2**64, which is odd: its multiples meet every number once (Knuth, TAOCP 3, section 6.4)."""
LINGER_S = 2.0
"""How long bytes of a refused request are read and thrown away, so that the refusal is not lost to a reset."""
