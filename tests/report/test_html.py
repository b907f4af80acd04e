"""The HTML report: one file, nothing loaded, nothing that comes from outside can break out of its place."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from tests.support.reports import HOSTILE, hostile, made
from tests.support.timelines import failed, known

from unslow.show.report import html, json

LOADS = {"src", "href", "srcset", "action", "formaction", "data", "poster", "background", "srcdoc", "ping", "manifest"}


class Page(HTMLParser):
    """What a parser makes of the file: tags, attributes, and the content of script and style elements."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag in self.raw:
            self._inside = tag
            self.raw[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw[self._inside][-1] += data
        else:
            self.text.append(data)

    def count(self) -> dict[str, int]:
        names = [tag for tag, _ in self.tags]
        return {name: names.count(name) for name in names}

    @property
    def policy(self) -> str:
        (found,) = (a["content"] for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")
        return found

    @property
    def data(self) -> str:
        scripts = [a for t, a in self.tags if t == "script"]
        return self.raw["script"][next(n for n, a in enumerate(scripts) if a.get("id") == "report")]


def digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def test_the_data_is_the_report() -> None:
    shown = made(known(), failed())
    assert json.decode(Page(html.render(shown)).data.encode()) == shown


def test_the_policy_allows_exactly_the_script_and_the_style_of_the_file() -> None:
    page = Page(html.render(made(known())))
    (style,) = page.raw["style"]
    scripts = [s for s in page.raw["script"] if s != page.data]
    rules = dict(part.strip().partition(" ")[::2] for part in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == digest(style)
    assert [rules.get("script-src")] == ([digest(scripts[0])] if scripts else [None])
    assert "unsafe" not in page.policy
    assert "http" not in page.policy


def test_nothing_is_loaded_from_anywhere() -> None:
    page = Page(html.render(made(known(), failed())))
    assert [(t, a) for t, a in page.tags if LOADS & a.keys()] == []
    assert [t for t, _ in page.tags if t in ("link", "iframe", "object", "embed", "base", "form", "img")] == []
    (style,) = page.raw["style"]
    assert "@import" not in style
    assert re.findall(r"url\((?!\s*['\"]?data:)[^)]*\)", style) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_in_its_place(text: str) -> None:
    shown = hostile(text)
    page, calm = Page(html.render(shown)), Page(html.render(hostile("calm")))
    assert page.count() == calm.count()
    assert [sorted(a) for _, a in page.tags] == [sorted(a) for _, a in calm.tags]
    assert json.decode(page.data.encode()) == shown
    block = page.data
    assert "<" not in block
    assert ">" not in block


@pytest.mark.parametrize("text", HOSTILE)
def test_what_people_read_has_no_controls_or_overrides(text: str) -> None:
    readable = re.sub(r"<(script|style).*?</\1>", "", html.render(hostile(text)), flags=re.DOTALL)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", readable)
    assert "alert(1)<" not in readable.replace("&lt;", "")


def test_without_script_the_ledger_can_be_read() -> None:
    text = html.render(made(known(), failed()))
    for said in ("unexplained", "prefill", "500 ms", "connect (lost attempt 1)", "1.76 s in all", "Failed in wait"):
        assert said in text
    assert text.count("<table>") == 2


def test_our_script_cannot_end_its_own_element(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = {"report.js": 'x="</script><!--<SCRIPT>";\r\ny=1', "report.css": "a{color:red}"}
    monkeypatch.setattr(html, "_asset", lambda name: bundle[name].replace("\r\n", "\n"))
    page = Page(html.render(made(known())))
    (script,) = (s for s in page.raw["script"] if s != page.data)
    assert script == 'x="\\x3c/script>\\x3c!--\\x3cSCRIPT>";\ny=1'
    assert digest(script) in page.policy
    assert "unslow-report" in page.count()
    assert "noscript" in page.count()


def test_without_a_built_bundle_the_plain_ledger_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_asset", lambda _name: "")
    page = Page(html.render(made(known())))
    assert "noscript" not in page.count()
    assert "script-src" not in page.policy
    assert page.count()["table"] == 1
