"""docs/reference/gateway.md says what the gateway does: its codes, its defaults, its key paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unslow.core.policy.timeouts import Wait
from unslow.serve.gateway.errors import CODES, Refusal
from unslow.serve.gateway.settings import KEY_PATHS, GatewaySettings, UpstreamSettings

PAGE = (Path(__file__).parents[2] / "docs/reference/gateway.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def test_every_code_has_its_status_and_no_other_is_listed() -> None:
    listed = {row[1].strip("`"): int(row[0]) for row in ROWS if row[0].isdigit() and len(row) == 3}
    assert listed == {code: status for code, (status, _, _) in CODES.items()}


def test_every_message_says_what_to_do() -> None:
    for code in CODES:
        message = Refusal(code, "why").message
        assert message[0].isupper()
        assert message.endswith(".")
        assert len(message) < 200


def test_waits_end_in_codes() -> None:
    silent = {Wait.IDLE, Wait.SLOW_CLIENT, Wait.LINGER, Wait.NOTHING}
    assert {wait.value for wait in Wait} - {wait.value for wait in silent} <= set(CODES)


def test_key_paths_are_listed() -> None:
    sentence = re.search(r"Default `key_paths`: (.*)\.\n", PAGE)
    assert sentence is not None
    assert re.findall(r"`([^`]+)`", sentence[1]) == list(KEY_PATHS)


def _defaults(settings: type[Any]) -> dict[str, Any]:
    return {f.name: f.default for f in msgspec.structs.fields(settings) if isinstance(f.default, (int, float))}


@pytest.mark.parametrize("settings", [GatewaySettings, UpstreamSettings])
def test_every_default_that_is_a_number_is_the_one_listed(settings: type[Any]) -> None:
    said: dict[str, str] = {}
    for row in ROWS:
        names = re.findall(r"`([a-z_]+)`", row[0])
        values = [value.strip() for value in row[1].split(",")] if len(row) > 2 else []
        said |= dict(zip(names, values * len(names) if len(values) == 1 else values, strict=False))
    unset = {"worker"}  # unslow sets it itself
    for name, default in _defaults(settings).items():
        if name in unset:
            continue
        number, _, unit = said[name].partition(" ")
        if isinstance(default, bool):
            assert number == str(default).lower(), name
        else:
            assert float(number) * UNITS.get(unit, 1) == default, name
