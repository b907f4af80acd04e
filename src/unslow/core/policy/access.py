"""Who may ask: the Host allow-list (DNS rebinding), the Origin rule, and clients' keys."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))
WILDCARDS = frozenset(("0.0.0.0", "::", ""))  # noqa: S104 - recognised, not bound


def is_loopback(host: str) -> bool:
    """Whether a listener on this host can be reached from this machine only."""
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_name(authority: str) -> str:
    """The name in `name:port` or `[address]:port`, in lower case."""
    if authority.startswith("["):
        return authority.partition("]")[0].lower() + "]"
    return authority.partition(":")[0].lower().rstrip(".")


class HostRule:
    """Which Host headers are ours.

    A page of another site can make its own name resolve to 127.0.0.1, but then its name stands in Host. A listener
    on all addresses also accepts a plain IP address there: rebinding needs a name.
    """

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        allowed = set(allowed)
        names = {host_name(_authority(name)) for name in (bound, *allowed)} - {""}
        self._any = "*" in allowed
        self._addresses = bound.strip("[]") in WILDCARDS
        self._names = LOOPBACK_NAMES | names
        self._seen: dict[bytes, bool] = {}

    def allows(self, host: bytes) -> bool:
        """Whether a request with this Host header may pass. Answers are remembered for the last few names."""
        known = self._seen.get(host)
        if known is None:
            known = self._judge(host_name(host.decode("latin-1")))
            if len(self._seen) > 64:
                self._seen.clear()
            self._seen[host] = known
        return known

    def _judge(self, name: str) -> bool:
        return self._any or name in self._names or (self._addresses and _is_address(name))


def _authority(name: str) -> str:
    """A name as it stands in a Host header: there an IPv6 address is in brackets."""
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class OriginRule:
    """Which pages may call: none but those listed, and the listener's own origin."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(origin.rstrip("/").encode() for origin in allowed)

    def allows(self, origin: bytes, host: bytes) -> bool:
        """Whether a request with this Origin may pass; `host` is its Host header, already allowed."""
        return origin in self._allowed or origin in (b"http://" + host, b"https://" + host)


class KeyRule:
    """Clients' keys by the SHA-256 of each: comparing digests leaks nothing of a key through its timing."""

    def __init__(self, names_by_sha256: Mapping[str, str]) -> None:
        self._names = {bytes.fromhex(digest): name for digest, name in names_by_sha256.items()}
        self.required = bool(self._names)

    def name(self, credential: bytes) -> str | None:
        """The name of the key in an Authorization or x-api-key header; None for a key we do not know."""
        scheme, space, key = credential.partition(b" ")
        if space and scheme.lower() == b"bearer":
            credential = key.strip()
        return self._names.get(hashlib.sha256(credential).digest())
