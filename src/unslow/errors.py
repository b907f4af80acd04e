"""The exception tree of unslow.

```
UnslowError
├ ConfigError(file, key, line)
├ ProtocolError(status_hint)
│  ├ LocalProtocolError      we, or our caller, broke the protocol
│  └ RemoteProtocolError     the other side broke it
├ UpstreamError(phase)
│  ├ ConnectFailed
│  ├ PhaseTimeout(limit_ns)
│  ├ UpstreamStatus(status)
│  └ StreamTruncated
├ AdmissionRejected(reason, retry_after_s)
└ EvidenceError(file, offset, why)
```

Library errors are mapped to these at the shell that met them, in one place, with the cause kept. The text of
each is one line that says what, where, and what to do.
"""

from __future__ import annotations


class UnslowError(Exception):
    """Whatever unslow raises on purpose."""


class ConfigError(UnslowError):
    """A setting cannot be used. Names the file, the key and, where known, the line."""

    def __init__(self, why: str, *, file: str = "", key: str = "", line: int | None = None) -> None:
        where = ":".join(str(part) for part in (file, line) if part)
        named = f"{key}: {why}" if key else why
        super().__init__(f"{where}: {named}" if where else named)
        self.why, self.file, self.key, self.line = why, file, key, line


class ProtocolError(UnslowError):
    """Bytes that break the protocol; `status_hint` is the HTTP status that says so best."""

    def __init__(self, why: str, *, status_hint: int = 400) -> None:
        super().__init__(why)
        self.status_hint = status_hint


class LocalProtocolError(ProtocolError):
    """We, or the caller of ours, asked for something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side sent something the protocol does not allow."""


class UpstreamError(UnslowError):
    """The upstream failed in `phase` (a value of `unslow.core.timeline.Phase`)."""

    def __init__(self, why: str, *, phase: str) -> None:
        super().__init__(why)
        self.phase = phase


class ConnectFailed(UpstreamError):
    """No connection: refused, unreachable, name unknown, or a failed handshake."""


class PhaseTimeout(UpstreamError):
    """A phase took longer than its limit."""

    def __init__(self, why: str, *, phase: str, limit_ns: int) -> None:
        super().__init__(why, phase=phase)
        self.limit_ns = limit_ns


class UpstreamStatus(UpstreamError):
    """The upstream answered with a status that is no success."""

    def __init__(self, why: str, *, phase: str, status: int) -> None:
        super().__init__(why, phase=phase)
        self.status = status


class StreamTruncated(UpstreamError):
    """The answer ended before its own end mark."""


class AdmissionRejected(UnslowError):
    """We refused to start the request. `retry_after_s` says when to come back, if that is known."""

    def __init__(self, reason: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.retry_after_s = reason, retry_after_s


class EvidenceError(UnslowError):
    """A recorded file cannot be read: where (`offset`: byte or line, as `unit` says) and why."""

    def __init__(self, why: str, *, file: str = "", offset: int | None = None, unit: str = "line") -> None:
        at = file if offset is None else f"{file or 'input'}, {unit} {offset}"
        super().__init__(f"{at}: {why}" if at else why)
        self.why, self.file, self.offset = why, file, offset
