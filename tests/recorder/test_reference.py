"""The reference names everything that there is."""

from __future__ import annotations

from pathlib import Path

from tests.support.recorder import TOKEN, running

from unslow.serve.recorder.meters import LATENCY_S, PHASE_S, TOKEN_S
from unslow.serve.recorder.operations import OPERATIONS
from unslow.serve.recorder.payloads import Config, Summary
from unslow.serve.recorder.settings import ConfigSummary, RecorderSettings
from unslow.show.export.access_log import Line

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def unnamed(names: tuple[str, ...], text: str) -> list[str]:
    return [name for name in names if f"`{name}`" not in text]


def test_every_setting_is_named() -> None:
    settings = (*RecorderSettings.__struct_fields__, *ConfigSummary.__struct_fields__)
    assert not unnamed(settings, page("recorder"))


def test_every_field_of_the_log_is_named() -> None:
    assert not unnamed(Line.__struct_fields__, page("access-log"))


def test_every_endpoint_and_field_is_named() -> None:
    text = page("console-api")
    assert not unnamed(tuple(f"{o.method} {o.path}" for o in OPERATIONS), text)
    assert not unnamed((*Summary.__struct_fields__, *Config.__struct_fields__), text)


def test_every_code_of_a_refusal_is_named() -> None:
    import re

    source = Path(__file__).parents[2] / "src/unslow/serve/recorder"
    files = [(source / name).read_text(encoding="utf-8") for name in ("api.py", "guard.py", "bundle.py")]
    codes = {c for text in files for c in re.findall(r'(?:Refused|error_answer)\(\s*\d+, "(\w+)"', text)}
    assert len(codes) > 10
    assert not unnamed(tuple(sorted(codes - {"internal"})), page("console-api"))


def test_every_metric_and_bound_is_named(tmp_path: Path) -> None:
    text = page("metrics")
    with running(tmp_path) as recorder:
        parts = recorder.ask("/metrics", token=TOKEN).body.decode()
    from unslow.serve.recorder.meters import Meters
    from unslow.serve.recorder.workers import Workers

    names = [f.name for f in (*Meters().families(), *Workers().families(0.0))]
    names += [line.split(" ")[2] for line in parts.splitlines() if line.startswith("# TYPE")]
    assert len(names) > 30
    assert not unnamed(tuple(names), text)
    for bounds in (LATENCY_S, TOKEN_S, PHASE_S):
        assert ", ".join(f"{bound:g}" for bound in bounds) in text
