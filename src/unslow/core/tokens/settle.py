"""Which token count holds: usage delta > usage total > the whole text counted again."""

from __future__ import annotations

import msgspec

from unslow.core.timeline import CountSource, Usage
from unslow.core.tokens.counting import count


def settle(reported: Usage | None, *, text: str, model: str | None, whole: bool = True) -> Usage | None:
    """What is known of an exchange's tokens.

    What was reported holds as it is. Where nobody counted the completion, `text` (everything generated that was seen,
    in one piece) is counted, if the count is exact for the model. Pass `whole=False` where part of what was generated
    is not in the text (hidden reasoning, a call's framing, an answer cut off from us): then unknown stays unknown.
    """
    if reported is not None and reported.completion_tokens is not None:
        return reported
    counted = count(text, model) if whole and text else None
    if counted is None or not counted.exact:
        return reported
    return msgspec.structs.replace(reported or Usage(), completion_tokens=counted.n, source=CountSource.RETOKENISED)
