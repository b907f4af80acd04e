"""The record: one exchange as one party saw it.

Theory of operation. A party (`Hop`) notes what it saw of an exchange as *spans* (who spent the time, in which
phase, and how we know) and *chunks* (what came back and when). `started_at` is the one wall-clock value; all else
is an integer offset in nanoseconds from that moment, taken from a monotonic clock. Nothing here is computed twice:
latencies and the ledger are derived (`metrics.py`, `ledger.py`), never stored. Unknown is `None`, never 0.
"""

from __future__ import annotations

import itertools
import math
from enum import StrEnum

import msgspec

from unslow.core.timeline.facts import Facts

SCHEMA_VERSION = 1


class Phase(StrEnum):
    """What the time was spent on, in the order in which an exchange passes through.

    `wait` is what a client can measure between its last byte sent and the first token back (two spans where a first
    byte came earlier); `queue` and `prefill` divide it when somebody reports or an experiment infers them. `drain`
    is delivery of what was already generated: a body without token stamps, or what follows the frame that says that
    the answer is over.
    """

    CALLER = "caller"
    DNS = "dns"
    CONNECT = "connect"
    PROXY = "proxy"
    TLS = "tls"
    SEND = "send"
    WAIT = "wait"
    QUEUE = "queue"
    PREFILL = "prefill"
    THINKING = "thinking"
    DECODE = "decode"
    DRAIN = "drain"
    RENDER = "render"


class Hop(StrEnum):
    """A party that an exchange passes through, from the outside in."""

    PAGE = "page"
    CALLER = "caller"
    RESOLVER = "resolver"
    CLIENT = "client"
    PROXY = "proxy"
    EDGE = "edge"
    GATEWAY = "gateway"
    ENGINE = "engine"
    PROVIDER = "provider"


class Source(StrEnum):
    """How we know: a client cannot measure a server's queue, so the type says so."""

    MEASURED = "measured"
    REPORTED = "reported"
    INFERRED = "inferred"


class ChunkKind(StrEnum):
    """What a chunk carried. Only `reasoning`, `content` and `tool` are generated tokens."""

    ROLE = "role"
    REASONING = "reasoning"
    CONTENT = "content"
    TOOL = "tool"
    USAGE = "usage"
    DONE = "done"
    ERROR = "error"
    KEEPALIVE = "keepalive"


TOKEN_KINDS = frozenset((ChunkKind.REASONING, ChunkKind.CONTENT, ChunkKind.TOOL))
"""Kinds that carry generated tokens: the first of them is TTFT."""

OUTPUT_KINDS = frozenset((ChunkKind.CONTENT, ChunkKind.TOOL))
"""Kinds that a reader of the answer sees: the first of them is TTFOT."""


class Clock(msgspec.Struct, frozen=True):
    """A clock, and how to map its readings onto the Timeline's axis: `offset = reading + offset_ns`.

    `error_ns` is the most by which a mapped value can be wrong. Two Timelines with the same clock `id` share the
    clock, and their mapping is exact.
    """

    id: str
    offset_ns: int = 0
    error_ns: int = 0


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """`hop` spent [start_ns, end_ns) on `phase`; `attempt` tells retries, hedges and address families apart.

    `won` is False for an attempt whose result was not used. Spans of one hop, attempt and source never overlap.
    """

    phase: Phase
    hop: Hop
    start_ns: int
    end_ns: int
    source: Source = Source.MEASURED
    attempt: int = 0
    won: bool = True

    @property
    def duration_ns(self) -> int:
        """Length in nanoseconds."""
        return self.end_ns - self.start_ns


class Beyond(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sums over the chunks that were seen but not kept (a gateway keeps a bounded number).

    `max_gap_ns` is the widest gap between any two chunks beyond the kept ones, the one to the last kept included.
    `first_token_ns`, `first_output_ns` and `last_token_ns` are of chunks beyond; None where no such chunk was there.
    """

    count: int
    size_bytes: int
    kinds: dict[ChunkKind, int]
    last_ns: int
    last_token_ns: int | None = None
    max_gap_ns: int = 0
    tokens: int | None = None
    first_token_ns: int | None = None
    first_output_ns: int | None = None


class Chunks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Columns of equal length, one entry a chunk (one wire event), in order of arrival.

    `tokens` is the number of tokens a chunk is known to carry (None: unknown). The true arrival lies within
    `arrival_ns` ± `error_ns`; an empty `error_ns` column means that no stamp error is known.
    """

    arrival_ns: tuple[int, ...] = ()
    size_bytes: tuple[int, ...] = ()
    kind: tuple[ChunkKind, ...] = ()
    tokens: tuple[int | None, ...] = ()
    error_ns: tuple[int, ...] = ()
    beyond: Beyond | None = None

    def __len__(self) -> int:
        """Chunks kept."""
        return len(self.arrival_ns)

    def __bool__(self) -> bool:
        """Whether any chunk was seen."""
        return bool(self.arrival_ns) or self.beyond is not None

    @property
    def seen(self) -> int:
        """Chunks seen, kept or not."""
        return len(self.arrival_ns) + (self.beyond.count if self.beyond else 0)


class End(StrEnum):
    """How an exchange ended."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    FAILED = "failed"


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How it ended; a failure names its phase and a stable kind such as `connect_timeout` or `http_429`.

    `detail` is one line for people and never carries a secret.
    """

    end: End = End.COMPLETED
    phase: Phase | None = None
    kind: str | None = None
    detail: str | None = None


class Timeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """One exchange as `party` saw it. Timelines with one `trace_id` make the whole (`join`).

    `started_at` is seconds since the epoch, UTC: the wall-clock time of offset 0. `end_ns` is the last thing that
    the exchange did. `scheduled_ns` (≤ 0) is when a load test meant to start it. `clock` is the party's own clock:
    `clock.offset_ns` maps its readings onto this Timeline's axis. `clocks` are the foreign ones already mapped in.
    """

    trace_id: str
    party: Hop
    started_at: float
    end_ns: int
    spans: tuple[Span, ...] = ()
    chunks: Chunks = Chunks()
    facts: Facts = Facts()
    outcome: Outcome = Outcome()
    clock: Clock = Clock("unknown")
    clocks: tuple[Clock, ...] = ()
    scheduled_ns: int | None = None
    schema_version: int = SCHEMA_VERSION


def problems(timeline: Timeline) -> list[str]:
    """What makes a Timeline invalid, one line each; empty for a valid one."""
    found = []
    if not 1 <= timeline.schema_version <= SCHEMA_VERSION:
        found.append(f"schema_version {timeline.schema_version} is not known")
    if not math.isfinite(timeline.started_at):
        found.append("started_at is not finite")
    if timeline.end_ns < 0:
        found.append("end_ns is negative")
    if (timeline.scheduled_ns or 0) > 0:
        found.append("scheduled_ns is after the start")
    found += [f"{s.phase} of {s.hop} ends before it starts" for s in timeline.spans if s.end_ns < s.start_ns]
    if any(s.attempt < 0 for s in timeline.spans):
        found.append("an attempt is negative")
    found += _overlaps(timeline.spans)
    found += _column_problems(timeline.chunks)
    return found


def _overlaps(spans: tuple[Span, ...]) -> list[str]:
    """Spans of one hop, attempt and source that share time; a span without length shares none."""
    found = []
    ordered = sorted((s for s in spans if s.end_ns > s.start_ns), key=lambda s: (*_series(s), s.start_ns, s.end_ns))
    for a, b in itertools.pairwise(ordered):
        if _series(a) == _series(b) and b.start_ns < a.end_ns:
            found.append(f"{a.phase} and {b.phase} of {a.hop} overlap (attempt {a.attempt}, {a.source})")
    return found


def _series(span: Span) -> tuple[Hop, int, Source]:
    return (span.hop, span.attempt, span.source)


def _column_problems(chunks: Chunks) -> list[str]:
    found = []
    n = len(chunks)
    columns = (("size_bytes", chunks.size_bytes), ("kind", chunks.kind), ("tokens", chunks.tokens))
    found += [f"column {name} has {len(column)} entries, not {n}" for name, column in columns if len(column) != n]
    if chunks.error_ns and len(chunks.error_ns) != n:
        found.append(f"column error_ns has {len(chunks.error_ns)} entries, not {n}")
    if any(b < a for a, b in itertools.pairwise(chunks.arrival_ns)):
        found.append("chunks are not in order of arrival")
    counts = [*chunks.size_bytes, *chunks.tokens, *chunks.error_ns]
    if chunks.beyond is not None:
        counts += [chunks.beyond.count, chunks.beyond.size_bytes, *chunks.beyond.kinds.values()]
    if any((count or 0) < 0 for count in counts):
        found.append("a count, size or error of chunks is negative")
    return found
