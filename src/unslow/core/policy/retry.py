"""When a request may be sent once more."""

from __future__ import annotations

MAX_SENDS = 2


def may_resend(*, reused: bool, answer_bytes: int, sends: int, body_held: bool) -> bool:
    """Whether a request whose connection failed may go out again on a fresh one.

    Only the keep-alive race is repaired: the server closed an idle connection while we wrote to it, so it never
    read the request (RFC 9112, section 9.3.1). A byte of an answer, or a fresh connection, means that it may have.
    """
    return reused and not answer_bytes and sends < MAX_SENDS and body_held
