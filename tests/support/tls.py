"""Certificates of an authority of our own, and server contexts with them."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import NamedTuple

import trustme


class Certificates(NamedTuple):
    """An authority; `file` holds its certificate for clients that trust it."""

    ca: trustme.CA
    file: str

    def context(self, name: str = "localhost", *, alpn: tuple[str, ...] = (), expired: bool = False) -> ssl.SSLContext:
        """A server's context with a certificate for `name`."""
        past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) if expired else None
        certificate = self.ca.issue_cert(name, not_after=past)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context
