"""TLS over a stamped socket by `ssl.MemoryBIO`, so that a plaintext byte carries its record's arrival.

A record can be read only when its last byte is there, so what it holds came all at once, with the record's end.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from unslow.core.timeline import Phase
from unslow.measure.transport.arrival import Arrival, Units
from unslow.measure.transport.failures import DialFailed, ExchangeFailed
from unslow.measure.transport.link import Link
from unslow.measure.transport.settings import TransportSettings
from unslow.measure.transport.trail import Deadline, Trail

_HEADER_BYTES = 5
_LONGEST_RECORD = _HEADER_BYTES + 16384 + 2048
_ALPN = {"auto": ["h2", "http/1.1"], "1.1": ["http/1.1"], "2": ["h2"], "3": []}


def context_for(settings: TransportSettings) -> ssl.SSLContext:
    """The system's trust store (certifi's where the system has none), TLS 1.2 or better."""
    context = ssl.create_default_context(cafile=settings.ca_file)
    if settings.ca_file is None and not _system_trust(context):
        import certifi

        context.load_verify_locations(certifi.where())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_ALPN[settings.http])
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _system_trust(context: ssl.SSLContext) -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(context.cert_store_stats()["x509_ca"] or paths.cafile or paths.capath)


class TlsChannel:
    """The TLS side of a connection. Make it with `secure`."""

    def __init__(self, link: Link, context: ssl.SSLContext, host: str, session: ssl.SSLSession | None) -> None:
        self._link = link
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host, session=session)
        self._units = Units(_HEADER_BYTES, _record_length, _LONGEST_RECORD)
        self._ready: list[Arrival] = []
        self._eof = False

    @property
    def eof(self) -> bool:
        """Whether the other side has closed (with or without its close_notify)."""
        return self._eof and not self._ready

    @property
    def session(self) -> ssl.SSLSession | None:
        """What a later connection can resume."""
        return self._tls.session

    def handshake(self, deadline: Deadline) -> None:
        """Shake hands. Raises ssl.SSLError, OSError and TimedOut."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush(deadline.until_ns)
                self._feed_handshake(deadline)
            else:
                self._flush(deadline.until_ns)
                return

    def send(self, data: bytes, until_ns: int) -> bool:
        """Encrypt and send all; False when the time is up before."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        return self._flush(until_ns)

    def receive(self, until_ns: int) -> list[Arrival]:
        """Wait for plaintext."""
        while not self._ready and not self._eof:
            arrivals = self._link.receive(until_ns)
            if not arrivals:
                self._eof = self._link.eof
                break
            for arrival in arrivals:
                self._ready += self._decrypt(arrival)
        ready, self._ready = self._ready, []
        return ready

    def facts(self) -> dict[str, object]:
        """What was negotiated, as fields of `Facts`."""
        cipher = self._tls.cipher()
        certificate = self._tls.getpeercert() or {}
        return {
            "tls_version": (self._tls.version() or "").replace("TLSv", "TLS ") or None,
            "tls_cipher": cipher[0] if cipher else None,
            "tls_resumed": self._tls.session_reused,
            "tls_issuer": _issuer(certificate),
            "alpn": self._tls.selected_alpn_protocol(),
        }

    def _feed_handshake(self, deadline: Deadline) -> None:
        arrivals = self._link.receive(deadline.until_ns)
        if not arrivals and not self._link.eof:
            raise deadline.error()
        if self._link.eof:
            self._incoming.write_eof()
        for arrival in arrivals:
            for record in self._split(arrival):
                self._incoming.write(record.data)

    def _split(self, arrival: Arrival) -> list[Arrival]:
        try:
            return self._units.split(arrival)
        except ValueError as error:
            why = "the port does not speak TLS: use an http:// URL, or the right port"
            raise DialFailed(why, phase=Phase.TLS, kind="not_tls") from error

    def _decrypt(self, arrival: Arrival) -> list[Arrival]:
        out = []
        for record in self._split(arrival):
            self._incoming.write(record.data)
            if plain := self._plain():
                out.append(record._replace(data=plain))
        self._flush(arrival.at_ns + 1_000_000_000)
        return out

    def _plain(self) -> bytes:
        parts = []
        while True:
            try:
                part = self._tls.read(65536)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._eof = True
                break
            if not part:
                self._eof = True
                break
            parts.append(part)
        return b"".join(parts)

    def _flush(self, until_ns: int) -> bool:
        data = self._outgoing.read()
        return self._link.send(data, until_ns) if data else True


def secure(
    link: Link, context: ssl.SSLContext, host: str, trail: Trail, deadline: Deadline, session: ssl.SSLSession | None
) -> TlsChannel:
    """Shake hands over a connected link. Raises DialFailed and TimedOut."""
    try:
        channel = TlsChannel(link, context, host, session)
        channel.handshake(deadline)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(error, host) from error
    except ssl.SSLError as error:
        raise _broken(error, host) from error
    except OSError as error:
        why = f"the connection to {host} broke in the TLS handshake ({error.strerror or error}): is it a TLS port?"
        raise DialFailed(why, phase=Phase.TLS, kind="tls_reset") from error
    trail.facts |= channel.facts()
    return channel


def read_failed(error: ssl.SSLError, phase: Phase) -> ExchangeFailed:
    """A TLS error in the middle of an exchange."""
    return ExchangeFailed(f"TLS broke off: {_reason(error)}", phase=phase, kind="tls_broken")


def _record_length(header: bytes) -> int:
    if header[0] not in (20, 21, 22, 23, 24) or header[1] != 3:
        raise ValueError("no TLS record")
    return int.from_bytes(header[3:5], "big")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> DialFailed:
    message = error.verify_message.lower()
    if "expired" in message:
        kind, advice = "certificate_expired", "the server's owner must renew it"
    elif "mismatch" in message or "not valid for" in message:
        kind, advice = "certificate_wrong_name", "check the host name in the URL"
    else:
        kind, advice = "certificate_untrusted", "trust its issuer with --ca-file, or measure anyway with --insecure"
    return DialFailed(f"certificate of {host} refused ({message}): {advice}", phase=Phase.TLS, kind=kind)


def _broken(error: ssl.SSLError, host: str) -> DialFailed:
    reason = _reason(error)
    if reason in ("wrong version number", "http request", "record layer failure") or "packet length" in reason:
        why = f"{host} does not speak TLS on this port: use an http:// URL, or the right port"
        return DialFailed(why, phase=Phase.TLS, kind="not_tls")
    why = f"the TLS handshake with {host} failed ({reason}): see what the server offers"
    return DialFailed(why, phase=Phase.TLS, kind="tls_failed")


def _issuer(certificate: Mapping[str, object]) -> str | None:
    rows = certificate.get("issuer")
    names = {k: v for row in rows for k, v in row} if isinstance(rows, tuple) else {}
    return names.get("organizationName") or names.get("commonName")
