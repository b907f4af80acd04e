"""Writes docs/reference/cli.md from the commands' own help: `python docs/make_cli_reference.py`."""

from __future__ import annotations

from pathlib import Path

import click

from unslow.cli.main import COMMANDS, unslow

PAGE = Path(__file__).parent / "reference" / "cli.md"


def text() -> str:
    """The page."""
    parts = ["# Command line\n\nMade from `--help` by `docs/make_cli_reference.py`; a test compares.\n"]
    parts.append(_section("unslow", unslow, None))
    top = click.Context(unslow, info_name="unslow")
    for name in COMMANDS:
        command = unslow.get_command(top, name)
        assert command is not None
        parts.append(_section(f"unslow {name}", command, top))
    return "\n".join(parts)


def _section(title: str, command: click.Command, parent: click.Context | None) -> str:
    context = click.Context(
        command, info_name=title.rsplit(maxsplit=1)[-1], parent=parent, terminal_width=100, max_content_width=100
    )
    return f"## `{title}`\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
