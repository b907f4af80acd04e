"""What an exchange negotiated and what the other side said of itself. Unknown is `None`, never 0."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CountSource(StrEnum):
    """Where a token count came from, best first."""

    USAGE_DELTA = "usage_delta"
    USAGE_TOTAL = "usage_total"
    RETOKENISED = "retokenised"


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts of one exchange, and where they came from.

    `cached_tokens` is the part of `prompt_tokens` that a prefix cache served; `reasoning_tokens` is the part of
    `completion_tokens` that the reader does not see.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    source: CountSource = CountSource.USAGE_TOTAL


class ServerTimings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Durations that a provider or engine reported of its own work, in nanoseconds."""

    queue_ns: int | None = None
    load_ns: int | None = None
    prefill_ns: int | None = None
    thinking_ns: int | None = None
    decode_ns: int | None = None
    total_ns: int | None = None


class TcpInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kernel's view of the connection when the exchange ended (Linux TCP_INFO)."""

    rtt_ns: int | None = None
    rttvar_ns: int | None = None
    min_rtt_ns: int | None = None
    retransmits: int | None = None
    cwnd_segments: int | None = None
    mss_bytes: int | None = None


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that was negotiated or said, in named fields.

    `headers` holds response headers from an allow-list (never cookies or keys); `notes` are single lines about what
    the party itself did (a retry, a repaired head). `addresses` are all that the name resolved to, in the order tried.
    """

    url: str | None = None
    method: str | None = None
    status: int | None = None
    stream: bool | None = None
    dialect: str | None = None
    upstream: str | None = None
    model: str | None = None
    model_answered: str | None = None
    http_version: str | None = None
    tls_version: str | None = None
    tls_cipher: str | None = None
    tls_resumed: bool | None = None
    tls_issuer: str | None = None
    alpn: str | None = None
    reused: bool | None = None
    proxy: str | None = None
    local_address: str | None = None
    remote_address: str | None = None
    addresses: tuple[str, ...] = ()
    resolver: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    request_bytes: int | None = None
    response_bytes: int | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    server: ServerTimings | None = None
    tcp: TcpInfo | None = None
    retries: int | None = None
    redirects: tuple[str, ...] = ()
    request_id: str | None = None
    stamps: str | None = None
    headers: dict[str, str] = {}
    notes: tuple[str, ...] = ()
