"""Time-outs by phase. A connection says what it waits for and since when; one coarse wheel asks `overdue`.

Nothing is armed per chunk: a stream's wait is simply restarted by the stamp of its last read.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Wait(StrEnum):
    """What a connection may be waiting for; the values are the codes of the errors that end the wait."""

    HEADER = "header_timeout"
    BODY = "body_timeout"
    IDLE = "idle_timeout"
    QUEUE = "queue_timeout"
    CONNECT = "connect_timeout"
    FIRST_BYTE = "first_byte_timeout"
    FIRST_TOKEN = "first_token_timeout"  # noqa: S105
    GAP = "gap_timeout"
    SLOW_CLIENT = "slow_client_timeout"
    LINGER = "linger_timeout"
    NOTHING = "none"


class Limits(msgspec.Struct, frozen=True):
    """The limit of each wait, in nanoseconds; a wait that is not listed has none."""

    by_wait: dict[Wait, int]

    def overdue(self, wait: Wait, since_ns: int, now_ns: int) -> bool:
        """Whether a wait has passed its limit."""
        limit = self.by_wait.get(wait)
        return limit is not None and now_ns - since_ns > limit
