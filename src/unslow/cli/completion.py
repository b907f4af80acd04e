"""`unslow completion SHELL`: the script that makes a shell complete unslow's words."""

from __future__ import annotations

import click

_HOW = {
    "bash": 'add to ~/.bashrc:  eval "$(unslow completion bash)"',
    "zsh": 'add to ~/.zshrc:  eval "$(unslow completion zsh)"',
    "fish": "run once:  unslow completion fish > ~/.config/fish/completions/unslow.fish",
}


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(sorted(_HOW)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL (bash, zsh or fish); its first line says where it goes."""
    from click.shell_completion import get_completion_class

    from unslow.cli.main import unslow

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that we offer"
    click.echo(f"# {_HOW[shell]}")
    click.echo(kind(unslow, {}, "unslow", "_UNSLOW_COMPLETE").source())
