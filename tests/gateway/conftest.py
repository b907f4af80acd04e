"""Tests of the relay run on asyncio, against real workers and real sockets.

Most tests start a worker with settings of their own. Those that need none share one a module: `plain`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from tests.support.gateway import Plain, relay
from tests.support.records import Records
from tests.support.tls import Certificates
from tests.support.upstream import Upstream, chat


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def _plain() -> AsyncIterator[Plain]:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        yield Plain(upstream, gateway)


@pytest.fixture
def plain(_plain: Plain) -> Plain:
    """The module's worker, with a chat API behind it that has not been asked yet. It has to outlive every test."""
    _plain.upstream.script = chat
    _plain.upstream.calls.clear()
    assert _plain.gateway.alive
    return _plain


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    """A recorder's socket. Whatever a test does, each record that comes has to be a valid one."""
    async with Records(str(tmp_path / "r")) as listening:
        yield listening
    listening.check()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority that only we trust."""
    ca = trustme.CA()
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    return Certificates(ca, str(file))
