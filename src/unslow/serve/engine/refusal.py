"""The API's own errors: a status and `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import msgspec

from unslow.errors import UnslowError


class Refusal(UnslowError):
    """A request that gets an error in the API's shape."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param

    @property
    def body(self) -> bytes:
        """The error's JSON."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


def unsupported(name: str, why: str = "is not supported by the embedded engine") -> Refusal:
    """400 for a parameter, by name."""
    return Refusal(400, "unsupported_parameter", f"`{name}` {why}", name)


def invalid(message: str, param: str | None) -> Refusal:
    """400 for a value."""
    return Refusal(400, "invalid_value", message, param)
