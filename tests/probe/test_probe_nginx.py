"""The probe against a real nginx in front of a scripted endpoint: TLS, HTTP/2, gzip, buffering."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.support.timed_server import chat, closed_port, serving

from unslow.core.timeline import ChunkKind, End, Phase, Timeline, ledger, metrics
from unslow.measure.probe import Probe, ProbeSettings
from unslow.measure.transport import TransportSettings

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed (apt install nginx)")

CONFIG = """
daemon off; pid {home}/pid; error_log {home}/error.log; worker_processes 1;
events {{}}
http {{
  access_log off; gzip on; gzip_types text/event-stream; gzip_min_length 1;
  client_body_temp_path {home}/1; proxy_temp_path {home}/2; fastcgi_temp_path {home}/3;
  uwsgi_temp_path {home}/4; scgi_temp_path {home}/5;
  server {{
    listen 127.0.0.1:{port} ssl http2; ssl_certificate {home}/chain.pem; ssl_certificate_key {home}/key.pem;
    location / {{
      proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering {buffering};
    }}
  }}
}}
"""


@contextlib.contextmanager
def nginx(home: Path, upstream: int, *, buffering: str) -> Iterator[str]:
    ca = trustme.CA(organization_name="Lab")
    issued, port = ca.issue_cert("localhost"), closed_port()
    ca.cert_pem.write_to_path(str(home / "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(str(home / "chain.pem"))
    issued.private_key_pem.write_to_path(str(home / "key.pem"))
    (home / "nginx.conf").write_text(CONFIG.format(home=home, port=port, upstream=upstream, buffering=buffering))
    command = ["nginx", "-p", str(home), "-e", str(home / "error.log"), "-c", str(home / "nginx.conf")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            yield f"https://localhost:{port}"
        finally:
            process.terminate()
            process.wait(10)


def wait_for(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError("nginx did not start")


def measure(home: Path, *, http: str, buffering: str = "off") -> Timeline:
    with serving(chat(gap_s=0.03)) as server, nginx(home, server.port, buffering=buffering) as url:
        transport = TransportSettings(http=http, ca_file=str(home / "ca.pem"))  # type: ignore[arg-type]
        made = Probe(ProbeSettings(url=url, model="m"), transport)
        timeline = made.measure()
        made.close()
    assert timeline.outcome.end is End.COMPLETED, timeline.outcome
    assert sum(row.duration_ns for row in ledger(timeline)) == timeline.end_ns
    assert timeline.chunks.kind.count(ChunkKind.CONTENT) == 4
    return timeline


@pytest.mark.parametrize(("http", "version"), [("auto", "HTTP/2"), ("2", "HTTP/2"), ("1.1", "HTTP/1.1")])
def test_tokens_keep_their_pace(tmp_path: Path, http: str, version: str) -> None:
    timeline = measure(tmp_path, http=http)
    facts = timeline.facts
    assert (facts.http_version, facts.content_encoding, facts.tls_issuer) == (version, "gzip", "Lab")
    stamps = [
        t for t, k in zip(timeline.chunks.arrival_ns, timeline.chunks.kind, strict=True) if k is ChunkKind.CONTENT
    ]
    assert stamps[-1] - stamps[0] >= 45_000_000  # of 90: nothing came in a burst
    assert {Phase.TLS, Phase.SEND, Phase.WAIT, Phase.DECODE} <= {s.phase for s in timeline.spans}


def test_a_buffering_proxy_shows(tmp_path: Path) -> None:
    buffered = metrics(measure(tmp_path, http="1.1", buffering="on"))
    assert buffered is not None
    assert buffered.ttft_ns is not None
    assert buffered.ttft_ns >= 60_000_000  # all frames were waited for
    assert buffered.icl_p50_ns is not None
    assert buffered.icl_p50_ns < 5_000_000  # and came in a burst
