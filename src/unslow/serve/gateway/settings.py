"""What the gateway is told. `cli` fills this from flags, `unslow.toml` and the environment; nobody else reads those."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

KEY_PATHS = (
    "/v1/audio/*",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/images/*",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/v1/models/*",
    "/v1/moderations",
    "/v1/realtime",
    "/v1/rerank",
    "/v1/responses",
    "/v1/responses/*",
)
"""Paths that get the upstream's key unless its settings say otherwise: inference, and nothing that administers."""


class ClientKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key that clients may present: a `name` for logs, and the SHA-256 of the key in hex (never the key)."""

    name: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")]


def client_key(name: str, key: str) -> ClientKey:
    """The entry for a key, which itself is not kept."""
    return ClientKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest())


class UpstreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One upstream.

    name: as routes, headers and logs call it.
    url: the base that clients call `base_url`: http://, https://, or http+unix://%2Fpath%2Fto.sock/v1.
    api_key: the upstream's key, or None to pass on what the client sent.
    key_header: header that carries the key; None: by the API of the path (`authorization: Bearer`, `x-api-key`).
    key_paths: paths that get the key; a trailing `*` stands for anything.
    models: names routed here; a trailing `*` stands for anything; none: whatever no other upstream lists.
    max_active: requests in flight at once, over all workers.
    max_waiting: requests that may wait for a place, over all workers.
    ca_file: PEM file of certificates to trust instead of the system's.
    pass_accept_encoding: let the upstream compress (events in compressed streams are not seen).
    """

    name: str
    url: str
    api_key: str | None = None
    key_header: str | None = None
    key_paths: tuple[str, ...] = KEY_PATHS
    models: tuple[str, ...] = ()
    max_active: int = 4096
    max_waiting: int = 1024
    ca_file: str | None = None
    pass_accept_encoding: bool = False


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One worker of the gateway. Suffixes are units: `_s` seconds, `_bytes` bytes.

    host, port: where to listen; port 0 takes a free one. Several workers share a port.
    upstreams: at least one. recorder_socket: path of the recorder's Unix socket, or None to keep no record.
    worker, workers: which of how many this is. clock_id: the machine's monotonic clock (`monotonic:<boot id>`).
    allowed_hosts: names that the Host header may carry besides loopback's and `host`; `*` for any.
    allowed_origins: origins whose pages may call (exactly, such as `http://127.0.0.1:8081`).
    api_keys: keys that clients must present; none: loopback only.
    ledger_comment: put the ledger into every stream, as a comment before its end.
    header_timeout_s: from a request's first byte to the end of its head.
    body_timeout_s: the longest pause within a request's body.
    idle_timeout_s: a client's connection without a request.
    queue_timeout_s: the wait for a place at the upstream.
    connect_timeout_s: resolving, connecting and TLS together.
    first_byte_timeout_s: from the request sent to the answer's head (the whole generation, if it is not streamed).
    first_token_timeout_s: from the request sent to a stream's first token.
    gap_timeout_s: the longest pause within an answer.
    slow_client_timeout_s: how long a client may leave a full buffer unread.
    drain_timeout_s: after SIGTERM, for requests in flight.
    pool_idle_s: how long an idle upstream connection is kept; below the 5 s at which common servers close.
    dns_ttl_s: how long resolved addresses are used.
    models_timeout_s: for each upstream's part of a merged /v1/models.
    max_header_bytes, max_headers: of a request's head. max_body_bytes: of a request's body.
    routing_body_bytes: how much of a body is held to find its model, or to send it again on a fresh connection.
    max_connections: clients' connections, all workers. max_idle_connections: those without a request.
    max_idle_upstream: idle connections kept for each upstream.
    write_buffer_bytes: unsent bytes of one connection in this process before its source is paused.
    client_send_buffer_bytes, upstream_receive_buffer_bytes: caps of the kernel's buffers.
    kept_chunks: stream events kept one by one in the record; beyond it only sums.
    recorder_buffer_messages: records that may wait for the recorder; beyond it they are dropped and counted.
    """

    upstreams: tuple[UpstreamSettings, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    recorder_socket: str | None = None
    worker: int = 0
    workers: int = 1
    clock_id: str = "unknown"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    api_keys: tuple[ClientKey, ...] = ()
    ledger_comment: bool = False
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    idle_timeout_s: float = 75.0
    queue_timeout_s: float = 60.0
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 600.0
    first_token_timeout_s: float = 600.0
    gap_timeout_s: float = 120.0
    slow_client_timeout_s: float = 300.0
    drain_timeout_s: float = 30.0
    pool_idle_s: float = 4.0
    dns_ttl_s: float = 30.0
    models_timeout_s: float = 3.0
    max_header_bytes: int = 64 << 10
    max_headers: int = 128
    max_body_bytes: int = 64 << 20
    routing_body_bytes: int = 1 << 20
    max_connections: int = 8192
    max_idle_connections: int = 4096
    max_idle_upstream: int = 1024
    write_buffer_bytes: int = 64 << 10
    client_send_buffer_bytes: int = 256 << 10
    upstream_receive_buffer_bytes: int = 256 << 10
    kept_chunks: int = 512
    recorder_buffer_messages: int = 4096
