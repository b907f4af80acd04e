"""Requests, Connect, and what holds for every page: fit, keys, contrast of text, themes."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
from tests.support.console import TOKEN, Console

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
PAGES = ("chat", "requests", "connect")
CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.body.querySelectorAll('*')) {
    const own = [...node.childNodes].some(c => c.nodeType === 3 && c.data.trim());
    if (!own || !node.checkVisibility() || node.closest('option, noscript, .zoom')) continue;
    const style = getComputedStyle(node);
    const ink = light(rgba(node instanceof SVGElement ? style.fill : style.color)), back = light(behind(node));
    const ratio = (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
    if (ratio < 4.5) bad.push(`${node.outerHTML.slice(0, 80)} ${ratio.toFixed(2)}`);
  }
  return bad;
}"""


def go(visit: Any, served: Console, path: str) -> Any:
    visit.page.goto(f"{served.url}/#/{path}")
    return visit.page


def test_requests_come_in_live_and_open(visit: Any, served: Console) -> None:
    page = go(visit, served, "requests")
    page.locator(".lamp.on").wait_for()
    before = page.locator(".requests tbody tr").count()
    assert served.ask("hello", "live-model") == 200
    row = page.locator(".requests tbody tr", has_text="live-model").first
    row.wait_for()
    assert page.locator(".requests tbody tr").count() == before + 1
    assert row.locator(".mini rect").count() >= 3
    row.locator(".c-when a").press("Enter")
    page.locator("unslow-exchange unslow-waterfall .bar").first.wait_for()
    assert "in all" in page.locator(".verdict").inner_text()
    page.locator("unslow-tokens .tick").first.wait_for()
    page.click(".back")
    row.wait_for()
    assert not visit.complaints


def test_filters(visit: Any, served: Console) -> None:
    assert served.ask("hello", "model-a") == 200
    assert served.ask("please refuse", "model-b") == 429
    page = go(visit, served, "requests")
    rows = page.locator(".requests tbody tr")
    page.locator(".requests tbody tr", has_text="model-b").first.wait_for()
    page.select_option("#filter-status", "bad")
    assert all("model-a" not in text for text in rows.all_inner_texts())
    page.locator(".badge.end-failed", has_text="429").first.wait_for()
    page.select_option("#filter-status", "")
    page.select_option("#filter-model", "model-a")
    assert all("model-a" in text for text in rows.all_inner_texts())
    page.fill("#filter-min", "600000")
    page.locator("text=No loaded request matches this filter.").wait_for()


def test_older_ones_are_loaded_on_demand(visit: Any, served: Console) -> None:
    for _ in range(55):
        served.ask("please refuse", "many")
    page = go(visit, served, "requests")
    page.reload()
    page.locator(".requests tbody tr").nth(49).wait_for()
    assert page.locator(".requests tbody tr").count() == 50
    page.click("button.more")
    page.locator(".requests tbody tr").nth(54).wait_for()


def test_purge_asks_first(visit: Any, served: Console) -> None:
    served.ask("hello")
    page = go(visit, served, "requests")
    page.locator(".requests tbody tr").first.wait_for()
    page.click("button.purge")
    page.click("dialog button[value=no]")
    assert served.api("/api/exchanges")["items"]
    page.click("button.purge")
    page.click("dialog button[value=yes]")
    page.locator("text=No requests yet.").wait_for()
    assert not served.api("/api/exchanges")["items"]


def test_one_that_is_gone_is_said_so(visit: Any, served: Console) -> None:
    page = go(visit, served, "requests/nothing-here")
    page.locator("text=not in the history any more").wait_for()


def test_connect_has_ready_code(visit: Any, served: Console) -> None:
    page = go(visit, served, "connect")
    page.locator(f".address code:has-text('{served.gateway}/v1')").wait_for()
    code = page.locator("#snippet code")
    for name in ("curl", "Python", "JavaScript", "LangChain", "Environment"):
        page.click(f"[role=tab]:has-text('{name}')")
        assert f"{served.gateway}/v1" in code.inner_text()
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#snippet .copy")
    page.locator("#snippet .copy", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("export OPENAI_BASE_URL=")
    assert page.locator(".configured", has_text="key set").count() == 1
    compile(_python(page, code), "snippet", "exec")
    page.locator(".set summary").click()
    assert page.locator(".set", has_text="gateway.workers").count() == 1, "by their own names"


def _python(page: Any, code: Any) -> str:
    page.click("[role=tab]:has-text('Python')")
    return str(code.inner_text())


def test_a_session_that_ended_is_said_so(visit: Any, served: Console) -> None:
    visit.context.clear_cookies()
    visit.page.evaluate("location.hash = '#/connect'")
    visit.page.locator("unslow-connect").wait_for()
    visit.page.evaluate("document.querySelector('unslow-connect').config = null")
    visit.page.evaluate("document.querySelector('unslow-connect').load()")
    visit.page.locator("unslow-connect [role=alert]", has_text="session is not valid any more").wait_for()
    assert TOKEN not in visit.page.content()


def test_without_a_key_the_page_asks_for_it(browser: Any, served: Console) -> None:
    """A person who opens the bare address, or one of an earlier run, is told what to do, and can do it there."""
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    page.goto(served.url)
    page.locator("h1", has_text="This console is locked").wait_for()
    assert page.locator("nav").is_hidden()
    page.goto(f"{served.url}/?token=of-an-earlier-run")
    page.locator("[role=alert]", has_text="not of this run").wait_for()
    page.fill("#token", f"  {served.entry} ")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Ask something").wait_for()
    assert "token" not in page.url
    context.close()


@pytest.mark.parametrize(
    "visit",
    [{"viewport": {"width": w, "height": 844}, "color_scheme": c} for w in (1440, 390) for c in ("light", "dark")],
    indirect=True,
    ids=str,
)
def test_every_page_fits_and_is_readable(visit: Any, served: Console) -> None:
    """No sideways scrolling, and text at WCAG 2.2 AA contrast (1.4.3), at both widths and in both themes."""
    page = visit.page
    visit.ask("fill the page").locator("text=Page and gateway joined").wait_for()
    for name in PAGES:
        go(visit, served, name)
        page.locator(f"unslow-{name} h1, unslow-{name} unslow-turn").first.wait_for()
        if name == "requests":
            page.locator(".requests tbody tr").first.wait_for()
        assert visit.width() <= page.viewport_size["width"], name
        assert page.evaluate(CONTRAST) == [], name
    assert not visit.complaints


def test_the_waterfall_by_keyboard(visit: Any, served: Console) -> None:
    page = visit.page
    turn = visit.ask("draw it")
    turn.locator("text=Page and gateway joined").wait_for()
    page.wait_for_timeout(1500)  # the history's ledger replaces the comment's
    seen = "() => { const v = document.querySelector('unslow-waterfall').view; return [v.start, v.end, v.total] }"
    turn.locator(".wf-body").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    start, end, total = page.evaluate(seen)
    assert 0 < start < end < total
    page.keyboard.press("0")
    assert page.evaluate(seen) == [0, total, total]
    page.keyboard.press("Tab")
    page.locator("unslow-waterfall .tip:not([hidden])", has_text="caller").wait_for()
    turn.locator("unslow-waterfall summary").press("Enter")
    assert turn.locator("unslow-waterfall table tfoot").inner_text().endswith("100%")
    turn.locator(".tk-body").focus()
    page.keyboard.press(".")
    page.locator("unslow-tokens .tip:not([hidden])", has_text="role").wait_for()


def test_drag_zooms_both_plots_and_the_theme_is_kept(visit: Any, served: Console) -> None:
    page = visit.page
    turn = visit.ask("draw it")
    turn.locator("text=Page and gateway joined").wait_for()
    page.wait_for_timeout(1500)
    turn.locator("unslow-tokens .plot").scroll_into_view_if_needed()
    box = turn.locator("unslow-tokens .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=4)
    page.mouse.up()
    views = page.evaluate(
        "['waterfall', 'tokens'].map(n => document.querySelector('unslow-' + n).view).map(v => v.span / v.total)"
    )
    assert views[0] == views[1] == pytest.approx(0.25, abs=0.03)
    page.click("button[aria-label='Switch between light and dark']")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_model_is_known_though_the_body_came_late_and_preflights_are_no_requests(served: Console) -> None:
    body = json.dumps({"model": "late", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
    ask = "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\naccess-control-request-method: POST\r\n"
    host, port = served.gateway.removeprefix("http://").split(":")
    for first, rest in (
        (f"{head}connection: close\r\n\r\n", body),
        (f"{ask}origin: {served.url}\r\nconnection: close\r\n\r\n", b""),
    ):
        with socket.create_connection((host, int(port)), 10) as sent:
            sent.sendall(first.encode())
            time.sleep(0.1)  # so that the head is read alone
            sent.sendall(rest)
            while sent.recv(65536):
                pass
    for _ in range(100):
        items = served.api("/api/exchanges")["items"]
        if any(item["model"] == "late" for item in items):
            break
        time.sleep(0.05)
    assert "late" in [item["model"] for item in items]
    assert 204 not in [item["status"] for item in items]
