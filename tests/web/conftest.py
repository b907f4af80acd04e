from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console import Console, console

CHROMIUM = shutil.which("chromium")
ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One a module: while Playwright's synchronous API is open, no other event loop can run in this thread."""
    if CHROMIUM is None:
        pytest.skip("needs Debian's chromium (apt install chromium)")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with console(tmp_path_factory.mktemp("console")) as running:
        yield running


class Visit:
    """A page with the session's cookie, and what it complained about.

    What `wait_for_function` waits for must be a function: an expression is evaluated anew in the page, which the page's
    Content-Security-Policy forbids as soon as the first look was not enough.
    """

    def __init__(self, browser: Any, served: Console, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(served.entry)
        self.page.wait_for_function("() => document.querySelector('#model')?.value")

    def _heard(self, said: Any) -> None:
        if said.type == "error":
            self.complaints.append(said.text)

    def ask(self, text: str) -> Any:
        """Send a message; its turn."""
        before = self.page.locator("unslow-turn").count()
        self.page.fill("#message", text)
        self.page.keyboard.press("Enter")
        return self.page.locator("unslow-turn").nth(before)

    def width(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


@pytest.fixture
def visit(browser: Any, served: Console, request: pytest.FixtureRequest) -> Iterator[Visit]:
    opened = Visit(browser, served, **getattr(request, "param", {}))
    yield opened
    opened.context.close()


@pytest.fixture(scope="session")
def web() -> Path:
    return Path(__file__).parents[2] / "web"
