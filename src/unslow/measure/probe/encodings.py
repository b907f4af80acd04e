"""Content encodings undone piece by piece, so that what is decoded keeps its arrival (RFC 9110 8.4)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

OFFERED = "gzip, deflate"


class BadEncoding(ValueError):
    """The body is not in the encoding that its head names."""


class Inflate:
    """gzip or deflate; deflate with or without its zlib header, as servers send both."""

    def __init__(self, name: str) -> None:
        self._deflate = name == "deflate"
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16) if name == "gzip" else None

    def decode(self, data: bytes, limit_bytes: int) -> bytes:
        """Decode the next bytes. Raises BadEncoding, also for more than `limit_bytes` out of one read."""
        if self._inner is None:
            if not data:
                return b""
            raw = data[0] & 0x0F != 8 or (len(data) > 1 and (data[0] << 8 | data[1]) % 31)
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS)
        try:
            out = self._inner.decompress(data, limit_bytes)
        except zlib.error as error:
            raise BadEncoding(str(error)) from error
        if self._inner.unconsumed_tail:
            raise BadEncoding(f"one read unpacks to more than {limit_bytes} bytes")
        return out


def decoder(name: str | None) -> Callable[[bytes, int], bytes] | None:
    """How to undo an encoding; None for one that is not known here."""
    plain = (name or "identity").strip().lower()
    if plain in ("", "identity"):
        return lambda data, _limit: data
    if plain in ("gzip", "x-gzip", "deflate"):
        return Inflate("deflate" if plain == "deflate" else "gzip").decode
    if plain == "br":
        return _brotli()
    return None


def _brotli() -> Callable[[bytes, int], bytes] | None:
    try:
        import brotli  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    inner = brotli.Decompressor()

    def decode(data: bytes, limit_bytes: int) -> bytes:
        try:
            out = bytes(inner.process(data))
        except brotli.error as error:
            raise BadEncoding(str(error)) from error
        if len(out) > limit_bytes:
            raise BadEncoding(f"one read unpacks to more than {limit_bytes} bytes")
        return out

    return decode
