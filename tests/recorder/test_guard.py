"""What the guard makes of settings: hosts, policy; and of secrets in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unslow.serve.recorder.guard import access, csp
from unslow.serve.recorder.redact import bare_url, redacted_settings

TOKEN = "t" * 20


def test_hosts_of_an_address() -> None:
    assert access(token=TOKEN, host="127.0.0.1", port=9).hosts == {"127.0.0.1:9", "localhost:9", "[::1]:9"}
    assert "[fd00::2]:9" in access(token=TOKEN, host="fd00::2", port=9).hosts
    everywhere = access(token=TOKEN, host="0.0.0.0", port=9, allowed_hosts=("Box.example", "a.example:443"))
    assert "0.0.0.0:9" not in everywhere.hosts
    assert {"box.example", "box.example:9", "a.example:443"} <= everywhere.hosts
    assert "a.example:9" not in everywhere.hosts
    assert "localhost" in access(token=TOKEN, host="127.0.0.1", port=80).hosts


@pytest.mark.parametrize(
    "url", ["http://x; script-src *", "javascript:alert(1)", "http://a b/", "data:text/html,x", "http://x'/", "//x"]
)
def test_a_gateway_url_cannot_widen_the_policy(url: str) -> None:
    assert "connect-src 'self';" in csp(url)


def test_the_policy_names_the_gateway_without_its_user() -> None:
    assert "connect-src 'self' https://gw.example:8443;" in csp("https://me:pass@gw.example:8443/v1?k=1")


def test_settings_that_sound_secret_are_hidden() -> None:
    shown = redacted_settings(
        {"api_key": "a", "Authorization": "b", "nested": [{"client_secret": "c", "max_tokens": 5}], "api_key_env": "E",
         "has_key": True, "keys": ["d"], "empty_token": ""}
    )  # fmt: skip
    assert shown == {
        "api_key": "(hidden)", "Authorization": "(hidden)", "nested": [{"client_secret": "(hidden)", "max_tokens": 5}],
        "api_key_env": "E", "has_key": True, "keys": ["(hidden)"], "empty_token": "",
    }  # fmt: skip


@given(st.text(alphabet=st.characters(exclude_characters="S")))
def test_a_bare_url_has_no_query_and_no_user(text: str) -> None:
    shown = bare_url(f"http://user:SECRET@host/{text}?key=SECRET#SECRET")
    assert "?" not in shown
    assert "SECRET" not in shown
