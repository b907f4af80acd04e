"""The committed bundle: complete, small, safe, and what the sources build."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from unslow.show import console

STATIC = Path(str(resources.files("unslow.show.console"))) / "static"
REPORT = Path(str(resources.files("unslow.show.report"))) / "static"
LIMIT_BYTES = 60_000


def test_every_file_is_there_and_named() -> None:
    assert {path.name for path in STATIC.iterdir()} == set(console.FILES)
    for name in console.FILES:
        assert console.read(name)
    with pytest.raises(FileNotFoundError):
        console.read("../__init__.py")


def test_the_scripts_are_small() -> None:
    for script in (STATIC / "app.js", REPORT / "report.js"):
        assert len(gzip.compress(script.read_bytes())) <= LIMIT_BYTES, script.name


def test_nothing_inline_and_nothing_from_elsewhere() -> None:
    """What the console's Content-Security-Policy forbids is not in its page."""
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert "<style" not in page
    assert not re.search(r"\son\w+=|\sstyle=|https?://", page)


def test_the_sources_build_no_nodes_from_text(web: Path) -> None:
    for source in (web / "src").rglob("*.ts"):
        code = re.sub(r"//.*", "", source.read_text())
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", code), (
            source
        )


def test_the_lock_names_no_registry(web: Path) -> None:
    lock = (web / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "registry" not in lock


def test_the_lock_is_whole(web: Path) -> None:
    """`npm ci` refuses a lock that lacks anything that a package in it names, optional ones too."""
    packages = json.loads((web / "package-lock.json").read_text())["packages"]
    lacking = [
        f"{where or 'package.json'} names {name}"
        for where, package in packages.items()
        for kind in ("dependencies", "devDependencies", "optionalDependencies")
        for name in package.get(kind, {})
        if not _found(packages, where, name)
    ]
    assert lacking == []


def _found(packages: dict[str, object], where: str, name: str) -> bool:
    """Whether a package's dependency stands beside it or in a folder around it, as Node looks it up."""
    parts = where.split("/node_modules/") if where else []
    around = ["/node_modules/".join(parts[:n]) for n in range(len(parts) + 1)]
    return any(f"{folder}/node_modules/{name}".lstrip("/") in packages for folder in around)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_fresh_build_equals_the_committed_one(web: Path) -> None:
    _needs_node(web)
    done = subprocess.run(["sh", "check.sh"], cwd=web, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_s_own_tests_pass(web: Path) -> None:
    _needs_node(web)
    done = subprocess.run(["npx", "vitest", "run"], cwd=web, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _needs_node(web: Path) -> None:
    if shutil.which("npx") is None:
        pytest.skip("needs Node 20 or newer")
    if not (web / "node_modules").is_dir():
        pytest.skip("needs the page's build tools: npm ci in web/")
