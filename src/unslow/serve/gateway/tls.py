"""TLS to upstreams: the system's trust store, 1.2 at least, and resumed sessions.

uvloop makes its TLS objects with `context.wrap_bio(...)` and has no way to hand over a session, so the context does
it: it keeps the last session of each server name and offers it to the next handshake.
"""

from __future__ import annotations

import ssl
from typing import Any

import certifi


class ResumingContext(ssl.SSLContext):
    """A client's context that offers the last session it saw of a server."""

    _sessions: dict[str, ssl.SSLSession]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Wrap as the base class does, with the session kept for this server."""
        kept = session or self._sessions.get(str(server_hostname))
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, kept)

    def remember(self, server_hostname: str, wrapped: Any) -> None:
        """Keep the session of a connection that has carried an answer: TLS 1.3 sends tickets after the handshake."""
        session = getattr(wrapped, "session", None)
        if session is not None and session.has_ticket:
            self._sessions[server_hostname] = session


def client_context(ca_file: str | None = None) -> ResumingContext:
    """A context like `ssl.create_default_context()`'s: verifies, checks names, TLS 1.2 or newer, ALPN http/1.1."""
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context._sessions = {}
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        context.load_verify_locations(ca_file)
        return context
    context.load_default_certs()
    if not context.cert_store_stats()["x509_ca"] and not _has_directory():
        context.load_verify_locations(certifi.where())
    return context


def _has_directory() -> bool:
    """Whether the system keeps its roots in a directory, which OpenSSL reads when it needs one."""
    return ssl.get_default_verify_paths().capath is not None
