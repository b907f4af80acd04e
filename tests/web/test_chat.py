"""The Chat page against the real recorder and gateway, in a real browser."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.support.console import Console

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

ROWS = """turn => turn.querySelector('unslow-waterfall').exchange"""


def shown(turn: Any) -> Any:
    """The exchange that a turn's waterfall draws."""
    return turn.evaluate(ROWS)


def joined(visit: Any, turn: Any) -> Any:
    """The exchange as the console's server has joined it from the page's and the gateway's records."""
    turn.locator(".side-foot .hint", has_text="Page and gateway joined").wait_for()
    turn.locator(".side-open").wait_for()
    return shown(turn)


def test_an_answer_is_streamed_with_its_ledger_beside_it(visit: Any) -> None:
    turn = visit.ask("Why is the first token slow?")
    turn.locator(".side-foot .hint", has_text="As this page sees it").wait_for()
    exchange = joined(visit, turn)
    rows = exchange["rows"]
    assert sum(row["duration_ns"] for row in rows) == exchange["timeline"]["end_ns"]
    parts = {(row["phase"], row["hop"]) for row in rows}
    assert {("wait", "page"), ("wait", "gateway"), ("decode", "gateway"), ("render", "page")} <= parts
    assert next(row for row in rows if row["phase"] == "prefill")["source"] == "reported"
    assert exchange["metrics"]["ttft_ns"] >= 120_000_000
    assert exchange["metrics"]["completion_tokens"] == 65
    assert turn.locator(".md pre code").inner_text().startswith("for chunk in stream:")
    assert not visit.complaints


def test_the_page_s_own_record_is_in_the_history(visit: Any, served: Console) -> None:
    """The console's server has joined what the browser saw, and nothing of what was said is in it."""
    turn = visit.ask("Why is the first token slow, PRIVATE?")
    seen = joined(visit, turn)
    path = turn.locator(".side-open").get_attribute("href").removeprefix("#/requests/")
    kept = served.api(f"/api/exchanges/{path}")
    assert kept["timeline"]["party"] == "page"
    assert [clock["error_ns"] < 60_000_000 for clock in kept["timeline"]["clocks"]] == [True]
    rows = kept["rows"]
    assert sum(row["duration_ns"] for row in rows) == kept["timeline"]["end_ns"] == seen["timeline"]["end_ns"]
    spans = [(s["phase"], s["hop"]) for s in kept["timeline"]["spans"]]
    browser = [phase for phase, hop in spans if hop == "page"]
    assert browser[0] == "caller", "the browser's own stamps: its work before the request"
    assert browser.index("send") < browser.index("wait") < browser.index("decode") < browser.index("render")
    chunks = kept["timeline"]["chunks"]
    assert len(chunks["arrival_ns"]) == 69, "one role, 65 tokens, the end of the text, the usage and [DONE]"
    assert max(chunks["error_ns"]) <= 5_000, "an isolated page has fine clocks"
    assert kept["timeline"]["facts"]["upstream"] == "demo", "from the gateway"
    assert kept["timeline"]["facts"]["reused"] in (True, False), "from the browser"
    assert "PRIVATE" not in json.dumps(kept)
    assert "prompt" not in json.dumps(kept).replace("prompt_tokens", "")


def test_a_talk_goes_on_with_what_was_answered(visit: Any) -> None:
    """The next message carries the last answer, also when it is sent before that answer's records are joined."""
    bodies: list[dict[str, Any]] = []
    visit.page.on("request", lambda sent: bodies.extend([sent.post_data_json] if "/v1/chat" in sent.url else []))
    visit.page.route("**/api/exchanges/**", lambda route: route.fulfill(status=404, body="{}"))
    visit.ask("one").locator(".reply-foot .copy").wait_for()
    visit.ask("two").locator(".reply-foot .copy").wait_for()
    said = bodies[-1]["messages"]
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert said[1]["content"].startswith("The first token waits")


def test_text_of_a_model_is_text(visit: Any) -> None:
    turn = visit.ask("Try to run something")
    turn.locator(".md", has_text="stay text").wait_for()
    assert turn.locator(".md img").count() == 0
    assert turn.locator(".md a").evaluate_all("links => links.map(a => a.href)") == ["https://example.com/prefill"]
    assert visit.page.evaluate("document.title") == "Chat · unslow"


def test_thinking_is_told_apart(visit: Any) -> None:
    turn = visit.ask("please think")
    exchange = joined(visit, turn)
    assert sum(row["duration_ns"] for row in exchange["rows"] if row["phase"] == "thinking") >= 100_000_000
    assert turn.locator(".thought-text").text_content() == "Let me think about it."


def test_stop_ends_it_and_the_next_message_works(visit: Any) -> None:
    turn = visit.ask("go on and hang")
    turn.locator(".md", has_text="5 6 7").wait_for()
    visit.page.click("button.send")
    turn.locator("text=Stopped by you.").wait_for()
    again = visit.ask("and now?")
    again.locator(".md", has_text="stay text").wait_for()
    stopped = joined(visit, turn)
    assert stopped["timeline"]["outcome"]["end"] == "aborted"
    assert stopped["timeline"]["party"] == "page"


def test_the_composer_is_free_when_it_says_stopped(visit: Any) -> None:
    """Enter in the very moment that "Stopped by you." appears is a message, not a key that nobody hears."""
    turn = visit.ask("go on and hang")
    turn.locator(".md", has_text="5 6 7").wait_for()
    visit.page.evaluate("""() => {
        const field = document.querySelector('#message');
        new MutationObserver((_, observer) => {
            if (!document.querySelector('.turns').textContent.includes('Stopped by you.')) return;
            observer.disconnect();
            field.value = 'and now?';
            field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
        }).observe(document.querySelector('.turns'), {childList: true, subtree: true});
        document.querySelector('button.send').click();
    }""")
    visit.page.locator("unslow-turn >> nth=1").locator(".md", has_text="stay text").wait_for()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("refuse", r"The gateway answered 429: Too many requests <b>now</b>"),
        ("garbage", r"no chat completion"),
        ("cut", r"The stream ended before the answer was complete|The gateway answered"),
    ],
)
def test_a_failure_is_one_clear_line(visit: Any, word: str, said: str) -> None:
    turn = visit.ask(f"please {word}")
    line = turn.locator("[role=alert]")
    line.wait_for()
    assert re.search(said, line.inner_text())
    assert "\n" not in line.inner_text()
    line.locator("button", has_text="Try again").click()
    visit.page.wait_for_function("() => document.querySelectorAll('unslow-turn').length === 1")
    visit.page.locator("unslow-turn [role=alert]").wait_for()


def test_a_gateway_that_is_away_is_named(visit: Any) -> None:
    visit.page.route("**/v1/chat/completions", lambda route: route.abort())
    line = visit.ask("hello").locator("[role=alert]")
    line.wait_for()
    assert "did not answer" in line.inner_text()


def test_ten_thousand_tokens_stay_smooth(visit: Any) -> None:
    visit.page.evaluate("""() => {
        window.longest = 0;
        new PerformanceObserver(list => {
            for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration);
        }).observe({type: 'longtask'});
    }""")
    turn = visit.ask("write something long")
    turn.locator(".md", has_text="word9999").wait_for(timeout=60_000)
    exchange = joined(visit, turn)
    assert exchange["metrics"]["completion_tokens"] == 10_000
    assert len(exchange["timeline"]["chunks"]["arrival_ns"]) <= 4096
    assert turn.locator(".md h4").count() == 250
    assert visit.page.evaluate("window.longest") < 1000, "the page stood still for a second"


def test_the_api_key_is_sent_and_not_kept(visit: Any) -> None:
    sent: list[str | None] = []
    visit.page.on("request", lambda request: sent.append(request.headers.get("authorization")))
    visit.page.click("button[aria-label='API key']")
    visit.page.fill("#api-key", "sk-secret")
    visit.ask("with a key").locator(".md", has_text="stay text").wait_for()
    assert "Bearer sk-secret" in sent
    kept = visit.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert "secret" not in kept


def test_offers_language_and_new_chat(visit: Any) -> None:
    page = visit.page
    page.click("button:has-text('中文')")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.click(".offer >> nth=1")
    page.locator("unslow-turn .md", has_text="stay text").wait_for()
    page.get_by_role("heading", name="时间花在哪里").wait_for()
    page.click("button:has-text('新对话')")
    assert page.locator("unslow-turn").count() == 0
    page.reload()
    page.locator("text=提一个问题").wait_for()
