"""Sockets with kernel stamps, DNS, TLS by MemoryBIO, HTTP/1.1 and HTTP/2; libcurl for HTTP/3."""

from unslow.measure.transport.arrival import Arrival, Stamp
from unslow.measure.transport.failures import DialFailed, ExchangeFailed, TimedOut, Truncated, outcome_of
from unslow.measure.transport.http3 import Http3Answer, Http3Session
from unslow.measure.transport.message import Head, Origin, Request, origin_of
from unslow.measure.transport.session import Answer, Session
from unslow.measure.transport.settings import HttpMode, TransportSettings
from unslow.measure.transport.trail import Deadline, Trail


def session_for(settings: TransportSettings) -> Session | Http3Session:
    """A session that speaks what the settings say. Raises LocalProtocolError for what is not installed."""
    return Http3Session(settings) if settings.http == "3" else Session(settings)


__all__ = [
    "Answer",
    "Arrival",
    "Deadline",
    "DialFailed",
    "ExchangeFailed",
    "Head",
    "Http3Answer",
    "Http3Session",
    "HttpMode",
    "Origin",
    "Request",
    "Session",
    "Stamp",
    "TimedOut",
    "Trail",
    "TransportSettings",
    "Truncated",
    "origin_of",
    "outcome_of",
    "session_for",
]
