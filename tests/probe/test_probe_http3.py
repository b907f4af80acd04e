"""The whole probe over HTTP/3."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme
from tests.support.h3_server import H3Peer, serving_h3
from tests.support.timed_server import chat_frames

from unslow.core.timeline import ChunkKind, End, Phase, ledger, problems
from unslow.measure.probe import Probe, ProbeSettings
from unslow.measure.transport import TransportSettings
from unslow.measure.transport.http3 import available

pytestmark = pytest.mark.skipif(not available(), reason="pycurl with HTTP/3 is not installed (extra [http3])")


async def chat(peer: H3Peer, number: int) -> None:
    peer.begin(number, content_type="text/event-stream")
    for frame in chat_frames(["a", "b", "c"]):
        await asyncio.sleep(0.01)
        peer.data(number, frame)
    peer.data(number, b"", end=True)


def test_a_chat_over_http3(tmp_path: Path) -> None:
    ca = trustme.CA()
    issued = ca.issue_cert("localhost")
    names = [tmp_path / name for name in ("ca.pem", "chain.pem", "key.pem")]
    ca.cert_pem.write_to_path(str(names[0]))
    issued.cert_chain_pems[0].write_to_path(str(names[1]))
    issued.private_key_pem.write_to_path(str(names[2]))
    with serving_h3(chat, names[1], names[2]) as server:
        made = Probe(ProbeSettings(url=server.url, model="m"), TransportSettings(http="3", ca_file=str(names[0])))
        cold, warm = made.measure(), made.measure()
        made.close()
    for timeline in (cold, warm):
        assert timeline.outcome.end is End.COMPLETED, timeline.outcome
        assert problems(timeline) == []
        assert sum(row.duration_ns for row in ledger(timeline)) == timeline.end_ns
        assert timeline.chunks.kind.count(ChunkKind.CONTENT) == 3
        assert min(timeline.chunks.error_ns) > 0
        assert (timeline.facts.http_version, timeline.facts.stamps) == ("HTTP/3", "user")
    assert [t.facts.reused for t in (cold, warm)] == [False, True]
    assert Phase.CONNECT in {s.phase for s in cold.spans}
    assert Phase.CONNECT not in {s.phase for s in warm.spans}
