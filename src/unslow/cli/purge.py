"""`unslow purge`: delete what unslow keeps on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import click


@click.command("purge", short_help="Delete what unslow keeps on this machine: history and cached model.")
@click.option("--history", is_flag=True, help="Only the history of requests.")
@click.option("--cache", is_flag=True, help="Only the cached model.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def purge(history: bool, cache: bool, yes: bool) -> None:
    """Delete the history of requests and the cached model. A running unslow keeps its open history until it ends."""
    found = [path for path in _kept(history=history or not cache, cache=cache or not history) if path.exists()]
    if not found:
        click.echo("nothing is kept on this machine")
        return
    for path in found:
        click.echo(f"{_size_bytes(path) / 1e6:8.1f} MB  {path}")
    if not yes:
        click.confirm("delete this?", abort=True)
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    click.echo("deleted")


def _kept(*, history: bool, cache: bool) -> list[Path]:
    from unslow.cli.stack import cache_dir, data_dir

    return [*(sorted(data_dir().glob("history.sqlite*")) if history else []), *([cache_dir()] if cache else [])]


def _size_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
