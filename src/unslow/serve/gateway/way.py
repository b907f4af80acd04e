"""The way of a path through an upstream: what all its requests have in common, worked out once."""

from __future__ import annotations

import msgspec

from unslow.core.policy.routing import join_target, path_listed
from unslow.core.wire.dialects import auth_header, dialect_for
from unslow.core.wire.http1 import HOP_BY_HOP, Field, write_fields
from unslow.serve.gateway.settings import UpstreamSettings
from unslow.serve.gateway.target import Target

CREDENTIALS = frozenset((b"authorization", b"cookie", b"x-api-key", b"api-key", b"x-goog-api-key"))
"""Never forwarded beside a key of ours."""

_CLAIMS = frozenset(
    (
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-forwarded-prefix",
        b"x-forwarded-server",
        b"x-real-ip",
        b"x-client-ip",
        b"true-client-ip",
        b"cf-connecting-ip",
    )
)
_OURS = frozenset((b"host", b"content-length", b"expect", b"origin", b"via", b"x-unslow-ledger", b"x-unslow-upstream"))
_DROP = HOP_BY_HOP | _CLAIMS | _OURS


class Way(msgspec.Struct, frozen=True, eq=False):
    """`path` is the upstream's; `lines` are the field lines that we add; `drop` are the client's that stay here.

    `keyed` says that a key of ours goes along, and `drop_keyless` is what is dropped where the client's credentials
    belong to the gateway.
    """

    path: bytes
    lines: bytes
    drop: frozenset[bytes]
    drop_credentials: frozenset[bytes]
    keyed: bool


def make_way(settings: UpstreamSettings, target: Target, path: str) -> Way:
    """Work out the way of a path."""
    keyed = settings.api_key is not None and path_listed(path, settings.key_paths)
    drop = _DROP if settings.pass_accept_encoding else _DROP | {b"accept-encoding"}
    fields: list[Field] = [(b"host", target.authority)]
    if not settings.pass_accept_encoding:
        fields.append((b"accept-encoding", b"identity"))
    if keyed:
        field = _key_field(settings, target, path)
        fields.append(field)
        drop = drop | CREDENTIALS | {field[0]}
    joined = join_target(target.base_path, path).encode("latin-1")
    return Way(joined, write_fields(fields), drop, drop | CREDENTIALS, keyed)


def _key_field(settings: UpstreamSettings, target: Target, path: str) -> Field:
    key, named = settings.api_key or "", settings.key_header
    if named is not None:
        value = f"Bearer {key}" if named.lower() == "authorization" else key
        return named.lower().encode(), value.encode()
    name, value = auth_header(dialect_for(path, host=target.host).name, key)
    return name.lower().encode(), value.encode()
