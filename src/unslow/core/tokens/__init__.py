"""Token counts: what was reported, in order of trust, and counting offline where nobody reported any."""

from unslow.core.tokens.counting import MAX_CHARS, TokenCount, count, encoding_of
from unslow.core.tokens.settle import settle

__all__ = ["MAX_CHARS", "TokenCount", "count", "encoding_of", "settle"]
