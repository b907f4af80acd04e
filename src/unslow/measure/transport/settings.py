"""What a measured request may do and how long each phase may take."""

from __future__ import annotations

from typing import Literal

import msgspec

HttpMode = Literal["auto", "1.1", "2", "3"]


class TransportSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one session. Times are seconds, sizes bytes.

    - `http`: `auto` offers HTTP/2 and HTTP/1.1 by ALPN; `2` on a plain port means prior knowledge (RFC 9113 3.3).
    - `proxy`: `http://[user:password@]host:port`, or None.
    - `insecure`: do not verify certificates. `ca_file`: trust these instead of the system's store.
    - `tls_resume`: offer the last session's ticket on a new connection.
    - `kernel_stamps`: ask the kernel for arrival and departure stamps where it has them (Linux).
    - `nameservers`: ask these (`ip` or `ip:port`) instead of the system's.
    - `first_byte_timeout_s`: from the last byte sent to the first byte back; `idle_timeout_s`: between two reads.
    - `max_seconds`: stop reading an answer after that long (it is cut, not failed); `max_bytes`: or after so much.
    """

    http: HttpMode = "auto"
    proxy: str | None = None
    insecure: bool = False
    ca_file: str | None = None
    tls_resume: bool = False
    kernel_stamps: bool = True
    nameservers: tuple[str, ...] = ()
    max_redirects: int = 5
    max_header_bytes: int = 65536
    dns_timeout_s: float = 10.0
    connect_timeout_s: float = 10.0
    proxy_timeout_s: float = 15.0
    tls_timeout_s: float = 15.0
    send_timeout_s: float = 60.0
    first_byte_timeout_s: float = 300.0
    idle_timeout_s: float = 120.0
    total_timeout_s: float = 600.0
    max_seconds: float = 300.0
    max_bytes: int = 64 * 1024 * 1024
