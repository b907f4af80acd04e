"""Every failure of ours as clients see it: a status and an OpenAI-shaped body with a code and what to do."""

from __future__ import annotations

import msgspec

from unslow.core.wire.http1 import Field, reason, write_fields

_encoder = msgspec.json.Encoder()
INVALID = "invalid_request_error"
AUTH = "authentication_error"
LIMIT = "rate_limit_error"
UPSTREAM = "upstream_error"
TIMEOUT = "timeout_error"
GATEWAY = "gateway_error"

CODES: dict[str, tuple[int, str, str]] = {
    "bad_request": (400, INVALID, "The request breaks HTTP/1.1: {why}. Fix the client, or a proxy before it."),
    "ambiguous_path": (400, INVALID, "The path holds dot segments or encoded slashes. Send it in its plain form."),
    "model_beyond_bound": (400, INVALID, 'No "model" in the first {why} bytes. Put it before the long members.'),
    "model_required": (400, INVALID, 'The body names no "model", and several upstreams are configured. Add one.'),
    "invalid_api_key": (401, AUTH, "No valid key of this gateway in Authorization or x-api-key. Use one of its keys."),
    "host_not_allowed": (403, INVALID, "The Host header names {why}. Call loopback, or add it to allowed_hosts."),
    "origin_not_allowed": (403, INVALID, "Pages of {why} may not call. Add that origin to allowed_origins."),
    "not_found": (404, INVALID, "Nothing is served at {why}. Use paths under /v1, /healthz or /readyz."),
    "model_not_found": (404, INVALID, "No upstream lists the model {why}."),
    "upstream_not_found": (404, INVALID, "No upstream is named {why}. See x-unslow-upstream of other answers."),
    "method_not_allowed": (405, INVALID, "The method {why} is not relayed. Use the API's own methods."),
    "header_timeout": (408, TIMEOUT, "The head of the request took longer than {why}. Send it at once."),
    "body_timeout": (408, TIMEOUT, "The body of the request paused for longer than {why}. Send it without pauses."),
    "body_too_large": (413, INVALID, "The body is over {why} bytes. Shorten it, or raise max_body_bytes."),
    "expectation_failed": (417, INVALID, "{why}. Leave Expect out."),
    "queue_full": (429, LIMIT, "As many requests as may wait for upstream {why} do. Try again after Retry-After."),
    "header_too_large": (431, INVALID, "The head of the request is over a limit: {why}. Send fewer, shorter headers."),
    "not_implemented": (501, INVALID, "{why}. Send Content-Length or exactly Transfer-Encoding: chunked."),
    "connect_failed": (502, UPSTREAM, "Upstream {why}. Check that it runs and that its url is right."),
    "upstream_lost": (502, UPSTREAM, "Upstream {why} closed the connection before it answered. Try again."),
    "upstream_protocol": (502, UPSTREAM, "Upstream {why}. Check that its url points at an HTTP/1.1 API."),
    "draining": (503, GATEWAY, "The gateway is shutting down. Try again."),
    "too_many_connections": (503, LIMIT, "As many connections as allowed are open. Close some, or try again later."),
    "queue_timeout": (503, LIMIT, "No place at the upstream for {why}. Try again later, or raise max_active."),
    "connect_timeout": (504, TIMEOUT, "No connection to upstream {why}. Check that it runs and can be reached."),
    "first_byte_timeout": (504, TIMEOUT, "The upstream sent nothing for {why}. Ask for less, or stream the answer."),
    "first_token_timeout": (504, TIMEOUT, "The upstream's stream had no token for {why}."),
    "gap_timeout": (504, TIMEOUT, "The upstream's answer paused for longer than {why}."),
    "version_not_supported": (505, INVALID, "{why}. Use HTTP/1.1."),
    "loop_detected": (508, GATEWAY, "The request has passed this gateway before. An upstream's url points back at it."),
}
"""Code → status, type, and the message with its `{why}`."""

_BY_HINT = {
    400: "bad_request",
    417: "expectation_failed",
    431: "header_too_large",
    501: "not_implemented",
    505: "version_not_supported",
}


class Refusal(Exception):
    """A failure of ours on its way to the client; `code` is a key of `CODES`."""

    def __init__(self, code: str, why: str = "", *, retry_after_s: float | None = None) -> None:
        self.code, self.why, self.retry_after_s = code, why, retry_after_s
        self.status, self.kind, text = CODES[code]
        self.message = text.format(why=why)
        self.message = self.message[:1].upper() + self.message[1:]
        super().__init__(self.message)

    def body(self) -> bytes:
        """The JSON body, in the shape that OpenAI clients read."""
        param = "model" if self.code.startswith("model_") else None
        error = {"message": self.message, "type": self.kind, "code": self.code, "param": param}
        return _encoder.encode({"error": error})

    def fields(self) -> list[Field]:
        """Header fields that belong to this failure."""
        fields = [(b"content-type", b"application/json")]
        if self.retry_after_s is not None:
            fields.append((b"retry-after", b"%d" % max(1, round(self.retry_after_s))))
        if self.status == 401:
            fields.append((b"www-authenticate", b"Bearer"))
        return fields


def by_hint(status_hint: int, why: str) -> Refusal:
    """The refusal for a ProtocolError of a client's request."""
    return Refusal(_BY_HINT.get(status_hint, "bad_request"), why)


def write_answer(status: int, fields: list[Field], body: bytes, *, keep: bool, head_only: bool = False) -> bytes:
    """A whole answer of our own. 204 carries no Content-Length (RFC 9110, section 8.6)."""
    if status != 204:
        fields = [*fields, (b"content-length", b"%d" % len(body))]
    if not keep:
        fields = [*fields, (b"connection", b"close")]
    head = b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason(status), write_fields(fields))
    return head if head_only else head + body
