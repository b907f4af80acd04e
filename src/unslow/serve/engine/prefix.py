"""How many prompt tokens the prefix cache probably served. The backend does not tell, so its blocks are mirrored.

OpenVINO keeps computed KV in blocks of 32 tokens and finds them again by a hash of all tokens up to the block's end.
The mirror keeps the same hashes with least-recently-used eviction. It is an estimate (`inferred`): the backend's
eviction differs in detail, and it always computes the last token of a prompt anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

BLOCK_TOKENS = 32


class PrefixMirror:
    """Hashes of the token blocks that were computed and not yet evicted."""

    def __init__(self, kv_tokens: int, block_tokens: int = BLOCK_TOKENS) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._limit, self._size = max(1, kv_tokens // block_tokens), block_tokens

    def cached_tokens(self, ids: Sequence[int]) -> int:
        """Leading tokens of a prompt that are in the cache: whole blocks, and never the last token."""
        known = 0
        for chain in self._chains(ids):
            if chain not in self._blocks:
                break
            self._blocks.move_to_end(chain)
            known += self._size
        return max(0, min(known, len(ids) - 1))

    def add(self, ids: Sequence[int]) -> None:
        """These tokens were computed."""
        for chain in self._chains(ids):
            self._blocks[chain] = None
            self._blocks.move_to_end(chain)
        while len(self._blocks) > self._limit:
            self._blocks.popitem(last=False)

    def _chains(self, ids: Sequence[int]) -> Iterator[int]:
        chain = 0
        for start in range(0, len(ids) - self._size + 1, self._size):
            chain = hash((chain, *ids[start : start + self._size]))
            yield chain
