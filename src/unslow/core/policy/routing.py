"""Which upstream serves a request, by the model it asks for.

An exact name wins over a pattern (`gpt-*`), a longer pattern over a shorter one, and an upstream that lists no
models takes what is left. A request that names no model goes to that one, or else to the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_V1 = re.compile(r"/v1(?=[/?]|\Z)")


class Routes:
    """A routing table: names of upstreams with the models they list."""

    def __init__(self, upstreams: Iterable[tuple[str, Sequence[str]]]) -> None:
        self._exact: dict[str, str] = {}
        self._patterns: list[tuple[str, str]] = []
        self._rest: str | None = None
        self._names: list[str] = []
        for name, models in upstreams:
            self._names.append(name)
            self._add(name, models)
        self._patterns.sort(key=lambda pattern: -len(pattern[0]))

    def _add(self, name: str, models: Sequence[str]) -> None:
        if not models and self._rest is None:
            self._rest = name
        for model in models:
            if model.endswith("*"):
                self._patterns.append((model[:-1], name))
            else:
                self._exact.setdefault(model, name)

    @property
    def single(self) -> bool:
        """Whether there is nothing to choose: one upstream, which takes every model."""
        return len(self._names) == 1 and self._rest is not None

    def by_model(self, model: str) -> str | None:
        """The upstream for a model; None where nobody lists it."""
        found = self._exact.get(model)
        if found is not None:
            return found
        return next((name for prefix, name in self._patterns if model.startswith(prefix)), self._rest)

    def without_model(self) -> str:
        """The upstream for a request that names no model."""
        return self._rest or self._names[0]

    @property
    def rest(self) -> str | None:
        """The upstream that takes models nobody lists."""
        return self._rest

    def known(self) -> list[str]:
        """What is listed, for an error message."""
        return sorted(self._exact) + sorted(prefix + "*" for prefix, _ in self._patterns)


def path_listed(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path is in a list whose entries may end in `*`."""
    return any(path == p or (p.endswith("*") and path.startswith(p[:-1])) for p in patterns)


def join_target(base_path: str, target: str) -> str:
    """Where a client's `/v1/x` goes: base + `/x`, so that a base ending in /v1 has it once.

    `base_path` is the path of the upstream's URL without a slash at its end.
    """
    return base_path + (target[3:] if _V1.match(target) else target)
