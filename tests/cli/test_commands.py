from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from unslow.cli.main import COMMANDS

UNSLOW = [sys.executable, "-m", "unslow"]


def run(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UNSLOW, *arguments],
        check=False, capture_output=True, text=True, timeout=15, stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})}, cwd=cwd,
    )  # fmt: skip


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1 and "Traceback" not in text


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda c: " ".join(c) or "unslow")
def test_every_command_answers_help(command: list[str]) -> None:
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Usage: unslow" in done.stdout


@pytest.mark.parametrize("command", [[], ["check"], ["serve"], ["up"], ["doctor"]], ids=str)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """What makes `--help` slow is what it imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "unslow", *command, "--help"],
        check=False,
        capture_output=True,
        text=True,
        timeout=15,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    heavy = {"asyncio", "rich", "starlette", "uvicorn", "h2", "dns", "ssl", "numpy", "uvloop", "openvino_genai"}
    assert not imported & heavy


def test_version() -> None:
    from unslow import __version__

    assert run("--version").stdout == f"unslow {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command"),
        (["serve", "--nonsense"], "No such option"),
        (["serve", "--port", "99999"], "99999"),
        (["serve", "--upstream", "ftp://x"], "is no [NAME=]URL"),
        (["serve", "--upstream", "a=http://x", "--upstream", "a=http://y"], "named twice"),
        (["check"], "Missing argument"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_wrong_usage_is_one_line_and_64(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 64
    assert words in done.stderr
    assert one_line(done.stderr)
    assert done.stdout == ""


def test_no_upstream_says_what_to_do(tmp_path: Path) -> None:
    done = run("serve", cwd=tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 2
    assert "name one with --upstream URL" in done.stderr
    assert one_line(done.stderr)


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        done = run("serve", "--upstream", "http://127.0.0.1:1", "--port", str(port))
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert one_line(done.stderr)


def test_other_machines_are_let_in_only_with_keys() -> None:
    done = run("serve", "--upstream", "http://127.0.0.1:1", "--host", "0.0.0.0", "--port", "0", "--no-console")
    assert done.returncode == 2
    assert "api_keys" in done.stderr
    assert one_line(done.stderr)


def test_a_bad_file_names_file_line_and_key(tmp_path: Path) -> None:
    (tmp_path / "unslow.toml").write_text("[gateway]\nprot = 1\n")
    done = run("serve", "--config", "unslow.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("unslow: unslow.toml:2: gateway.prot: ")


def test_doctor_says_what_is_here() -> None:
    done = run("doctor", "--json")
    found = {item["what"]: item for item in json.loads(done.stdout)}
    assert found["relay"]["state"] == "ok"
    assert set(found) >= {"unslow", "kernel stamps", "HTTP/3", "engine", "model", "memory", "disk", "ports"}
    assert done.returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = run("completion", shell)
    assert done.stdout.startswith("# ")
    assert "_UNSLOW_COMPLETE" in done.stdout


def test_completion_knows_the_commands() -> None:
    env = {"_UNSLOW_COMPLETE": "bash_complete", "COMP_WORDS": "unslow ch", "COMP_CWORD": "1"}
    assert "check" in run(env=env).stdout


def test_purge_deletes_what_is_kept_and_only_that(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for kept in ("data/unslow/history.sqlite", "data/unslow/history.sqlite-wal", "cache/unslow/m.gguf", "data/other"):
        (tmp_path / kept).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / kept).write_bytes(b"x")
    assert run("purge", "--history", env=env).returncode == 130, "nobody there to say yes"
    assert run("purge", "--history", "--yes", env=env).returncode == 0
    assert not list((tmp_path / "data/unslow").iterdir())
    assert (tmp_path / "cache/unslow/m.gguf").exists()
    assert run("purge", "--yes", env=env).returncode == 0
    assert not (tmp_path / "cache/unslow").exists()
    assert (tmp_path / "data/other").exists()
    assert "nothing is kept" in run("purge", env=env).stdout
