"""The report as one HTML file that needs no network: data, style and script inside, a plain ledger for readers without.

Theory of operation. The file's Content-Security-Policy allows exactly one script and one style sheet, each by its
SHA-256 (CSP3, 2.3), and nothing else: no fetch, no image from elsewhere, no frame, no form. The data stands in a block
of type `application/json`, which browsers do not run, with `<` written as \\u003c so that nothing in it can end the
block (HTML 4.12.1.3). What a person reads without script is escaped text that has passed through `words.clean`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from importlib import resources

from unslow.show.report import json, words
from unslow.show.report.payload import Exchange, LedgerRow, Report

_PLAIN_STYLE = """
.plain{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
.plain table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.plain th,.plain td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8884}
.plain .n{text-align:right}
.plain h2{font-size:1.05rem;margin:1.5rem 0 .5rem}
"""


def render(report: Report) -> str:
    """The whole file."""
    style, script = _style(), _script()
    body = _plain(report)
    if script:
        body = f"<unslow-report></unslow-report>\n<noscript>{body}</noscript>"
    return _PAGE.format(
        policy=_policy(style, script),
        title=_text(f"unslow: {report.target.url}"),
        style=style,
        body=body,
        data=data_block(report),
        script=f"<script>{script}</script>" if script else "",
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="report">{data}</script>
{script}
</body>
</html>
"""


def data_block(report: Report) -> str:
    """The report as JSON that can stand inside a script element, whatever strings it holds."""
    return json.encode(report).decode().strip().translate(_INERT)


_INERT = {ord(ch): f"\\u{ord(ch):04x}" for ch in "<>&\u2028\u2029"}


def _policy(style: str, script: str) -> str:
    allowed = f"script-src {_hash(script)}; " if script else ""
    return f"default-src 'none'; {allowed}style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _style() -> str:
    return _asset("report.css").replace("</", "<\\/") + _PLAIN_STYLE


def _script() -> str:
    """Our bundle, with what could end or confuse its element written another way (HTML 4.12.1.3)."""
    return re.sub(r"<(?=/script|script|!--)", r"\\x3c", _asset("report.js"), flags=re.IGNORECASE)


def _asset(name: str) -> str:
    """A built file of `static/`; empty where the bundle was not built, so the plain ledger is shown."""
    file = resources.files("unslow.show.report") / "static" / name
    return file.read_text(encoding="utf-8").replace("\r\n", "\n") if file.is_file() else ""


def _text(value: str) -> str:
    return escape(words.clean(value))


def _plain(report: Report) -> str:
    """The report for readers without script, and for grep: a sentence and a table an exchange."""
    target = " ".join(part for part in (report.target.url, report.target.model) if part)
    parts = [f'<main class="plain"><h1>{_text(target)}</h1>']
    parts += [_plain_exchange(n, shown) for n, shown in enumerate(report.exchanges, 1)]
    return "\n".join([*parts, "</main>"])


def _plain_exchange(n: int, shown: Exchange) -> str:
    rows = "\n".join(_plain_row(row, shown.timeline.end_ns) for row in shown.rows)
    head = '<tr><th>phase</th><th>hop</th><th>source</th><th class="n">time</th><th class="n">share</th></tr>'
    table = f"<table>\n{head}\n{rows}\n</table>"
    return f"<h2>#{n} {_text(shown.id)}</h2>\n<p>{escape(words.headline(shown))}</p>\n{table}"


def _plain_row(row: LedgerRow, whole_ns: int) -> str:
    named = "".join(f"<td>{_text(str(part or ''))}</td>" for part in (row.label, row.hop, row.source))
    numbers = (words.duration(row.duration_ns), words.share(row.duration_ns, whole_ns))
    return f"<tr>{named}" + "".join(f'<td class="n">{escape(part)}</td>' for part in numbers) + "</tr>"
