"""Tests of the relay run on asyncio, against real workers and real sockets."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
