"""Sockets with kernel stamps, DNS, TLS by MemoryBIO, HTTP/1.1 and HTTP/2; libcurl for HTTP/3."""

from unslow.measure.transport.arrival import Arrival, Stamp
from unslow.measure.transport.failures import DialFailed, ExchangeFailed, TimedOut, Truncated, outcome_of
from unslow.measure.transport.message import Head, Origin, Request, origin_of
from unslow.measure.transport.session import Answer, Session
from unslow.measure.transport.settings import HttpMode, TransportSettings
from unslow.measure.transport.trail import Deadline, Trail

__all__ = [
    "Answer",
    "Arrival",
    "Deadline",
    "DialFailed",
    "ExchangeFailed",
    "Head",
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
]
