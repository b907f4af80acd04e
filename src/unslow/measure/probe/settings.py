"""What a probe asks."""

from __future__ import annotations

import msgspec

DEFAULT_PROMPT = "Write one short paragraph about the sea."


class ProbeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one probe.

    - `url`: the API's base (as its clients call it) or a full endpoint. It carries no credentials.
    - `dialect`: how the endpoint speaks; None: guessed from the URL.
    - `model`: None: the first that the endpoint lists.
    - `api_key`: sent only to the origin of `url`. `headers`: more of them, as private as the key.
    - `max_tokens`: the most tokens to generate; None: the provider's own limit.
    """

    url: str
    dialect: str | None = None
    model: str | None = None
    api_key: str | None = None
    prompt: str = DEFAULT_PROMPT
    max_tokens: int | None = 128
    stream: bool = True
    headers: tuple[tuple[str, str], ...] = ()
