"""What an exchange waits for, and since when: the question that the wheel asks twice a second."""

from __future__ import annotations

from unslow.core.policy.timeouts import Wait
from unslow.serve.gateway.exchange import Exchange, Stage


def waiting(exchange: Exchange, now_ns: int) -> tuple[Wait, int]:
    """The wait and its start. Connecting has a limit of its own, a tunnel has none."""
    stage, answer, client = exchange.stage, exchange.answer, exchange.client
    if stage is Stage.QUEUED:
        return Wait.QUEUE, exchange.routed_ns
    if stage is Stage.ROUTING:
        return Wait.BODY, exchange.uploaded_ns
    if stage is not Stage.SENT or answer is None:
        return Wait.NOTHING, now_ns
    if exchange.choked_since_ns:
        return Wait.GAP, exchange.choked_since_ns
    if not exchange.body.done and not exchange.head_is_out:
        return Wait.BODY, exchange.uploaded_ns
    if client.choked:
        return Wait.SLOW_CLIENT, client.choked_since_ns
    if not exchange.head_is_out:
        return Wait.FIRST_BYTE, exchange.sent_ns
    if answer.observer is not None and answer.observer.settled().first_token_ns is None:
        return Wait.FIRST_TOKEN, exchange.sent_ns or exchange.uploaded_ns  # it may answer before it has all
    return Wait.GAP, answer.last_ns
