"""The HTML report in a real browser: it draws, it loads nothing, and no hostile text runs or stands out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.reports import HOSTILE, hostile, made
from tests.support.timelines import failed, known

from unslow.show.report import html

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(90),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(not html._asset("report.js"), reason="the page's bundle is not built"),
]


class Visit:
    """One page, and what it did besides."""

    def __init__(self, browser: object) -> None:
        self.page = browser.new_page()  # type: ignore[attr-defined]
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.said.append(f"loads {request.url}"))

    def _dismiss(self, dialog: Any) -> None:
        self.said.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def open(self, file: Path) -> None:
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("unslow-report main")
        self.said.remove(f"loads {file.as_uri()}")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture
def visit(browser: object) -> Iterator[Visit]:
    opened = Visit(browser)
    yield opened
    opened.page.close()


def test_the_report_draws_every_row_and_loads_nothing(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(html.render(made(known(), failed())), encoding="utf-8")
    visit.open(file)
    text = visit.page.inner_text("unslow-report")
    for said in ("api.example.com", "prefill", "500 ms", "unexplained", "lost attempt"):
        assert said in text
    assert visit.said == []


def test_without_javascript_the_ledger_can_be_read(browser: object, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(html.render(made(known())), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto(file.as_uri())
    assert "prefill" in page.inner_text("main.plain")
    context.close()


def test_no_hostile_text_runs_loads_or_makes_elements(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    for text in HOSTILE:
        file.write_text(html.render(hostile(text)), encoding="utf-8")
        visit.open(file)
        assert visit.said == []
        strange = "iframe, img, svg[onload], unslow-report script, [onerror], [onload], [onmouseover]"
        assert visit.page.query_selector_all(strange) == []
        assert visit.page.query_selector_all("body > *") != []


def test_a_script_put_into_the_page_does_not_run(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    attack = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    file.write_text(html.render(made(known())).replace("<body>", "<body>" + attack), encoding="utf-8")
    visit.open(file)
    assert visit.page.title() != "owned"
    assert any("Content Security Policy" in line for line in visit.said)
