"""What can be said must be documented: commands, settings, and links between the pages."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unslow.cli.config import OURS, SECTIONS, parse
from unslow.core.timeline import Facts, Metrics, Phase, Timeline
from unslow.serve.engine.settings import EngineSettings
from unslow.serve.gateway.settings import GatewaySettings, UpstreamSettings
from unslow.serve.recorder.settings import RecorderSettings

ROOT = Path(__file__).parent.parent.parent
REFERENCE = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "docs/reference").glob("*.md")))
NAMES = set(re.findall(r"`([A-Za-z0-9_\-.*\[\]]+)`", REFERENCE))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]


@pytest.mark.parametrize("settings", [GatewaySettings, UpstreamSettings, RecorderSettings, EngineSettings])
def test_every_setting_is_documented(settings: type[Any]) -> None:
    missing = [f.name for f in msgspec.structs.fields(settings) if f.name not in NAMES]
    assert not missing, f"settings of {settings.__name__} that no page of docs/reference names"


@pytest.mark.parametrize("record", [Timeline, Facts, Metrics])
def test_every_field_of_the_record_is_documented(record: type[Any]) -> None:
    missing = [f.name for f in msgspec.structs.fields(record) if f.name not in NAMES]
    assert not missing, f"fields of {record.__name__} that no page of docs/reference names"


def test_every_phase_is_documented() -> None:
    assert not [phase.value for phase in Phase if phase.value not in NAMES]


def test_the_command_reference_is_what_help_says() -> None:
    page = ROOT / "docs/reference/cli.md"
    made = runpy.run_path(str(ROOT / "docs/make_cli_reference.py"))["text"]()
    assert page.read_text("utf-8") == made, "run: .venv/bin/python docs/make_cli_reference.py"


def test_the_sample_configuration_is_valid_and_whole() -> None:
    text = (ROOT / "docs/reference/config.md").read_text("utf-8")
    sample = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert sample is not None
    config = parse(sample[1], {"BIG_API_KEY": "k", "TEAM_A_KEY": "a", "TEAM_B_KEY": "b"})
    assert {u.name for u in config.upstreams} >= {"big", "small"}
    assert config.gateway["port"]
    assert config.recorder
    assert config.engine
    assert len(config.api_keys) == 2


def test_what_unslow_sets_itself_is_no_setting_of_the_file() -> None:
    assert set(OURS) == set(SECTIONS)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not link.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / link).exists(), f"{link} of {page.name} leads nowhere"


def test_the_translation_has_the_same_parts() -> None:
    english, chinese = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh.md"))
    assert len(re.findall(r"^## ", english, re.MULTILINE)) == len(re.findall(r"^## ", chinese, re.MULTILINE))
    commands = re.compile(r"^\$ (make \w+|\.venv/bin/unslow \w+)", re.MULTILINE)
    assert commands.findall(english) == commands.findall(chinese)
