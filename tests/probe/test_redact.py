"""No secret, and no part of one that is long enough to matter, stays in a text."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.timed_server import Peer, serving

from unslow.core.timeline import dump_line
from unslow.measure.probe import Probe, ProbeSettings, shown_url
from unslow.measure.probe.redact import Redactor

KEY = "sk-canary-0123456789abcdef"


@given(st.text(max_size=30), st.text(alphabet="abcdefgh", min_size=8, max_size=20), st.text(max_size=30))
@settings(deadline=None)
def test_secret_is_gone_wherever_it_stands(before: str, secret: str, after: str) -> None:
    clean = Redactor([secret]).text(before + secret + after)
    assert secret not in clean


@given(st.text(alphabet="xyz ", max_size=50))
@settings(deadline=None)
def test_other_text_is_left_alone(text: str) -> None:
    assume("abcdef" not in text)
    assert Redactor(["abcdefgh"]).text(text) == text


@pytest.mark.parametrize("echo", [KEY, KEY[:12] + "****" + KEY[-4:], "..." + KEY[8:], "Bearer " + KEY])
def test_echoes_are_masked(echo: str) -> None:
    clean = Redactor([KEY]).text(f"bad key {echo} here")
    assert clean.startswith("bad key ")
    assert clean.endswith(" here")
    assert not any(KEY[n : n + 6] in clean for n in range(len(KEY) - 5))


def test_a_server_that_echoes_the_key_everywhere() -> None:
    def play(peer: Peer) -> None:
        _, headers, _ = peer.request()
        key = headers["authorization"]
        body = f'{{"error":{{"message":"Incorrect API key provided: {key[:20]}*** ({key})"}}}}'.encode()
        peer.answer(body, status="401 Unauthorized", more=f"X-Request-Id: {key}\r\nServer: {key}\r\n")

    with serving(play) as server:
        made = Probe(ProbeSettings(url=server.url, model="m", api_key=KEY, headers=(("X-Mine", "other-canary-9"),)))
        line = dump_line(made.measure())
        made.close()
    assert b"http_401" in line
    assert b"canary" not in line
    assert KEY[6:14].encode() not in line


def test_urls_are_shown_without_credentials_and_query_values() -> None:
    assert shown_url("https://u:p@h:1/x?key=AIza&alt=sse") == "https://h:1/x?key=***&alt=sse"
    assert shown_url("http://[::1]:9/v1") == "http://[::1]:9/v1"


@pytest.mark.parametrize("word", ["ollama", "none", "EMPTY", "prod", "1", ""])
def test_placeholders_are_words_and_stay(word: str) -> None:
    assert Redactor([word]).text(f"http://{word}:11434 is 1 host") == f"http://{word}:11434 is 1 host"
