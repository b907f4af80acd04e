"""The `unslow` command: its subcommands are imported when they are used, so that `--help` is quick."""

from __future__ import annotations

import importlib
import sys

import click

from unslow import __version__
from unslow.errors import UnslowError

EXIT_FINDINGS, EXIT_INCONCLUSIVE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 64, 130

COMMANDS = {
    "check": ("unslow.cli.check", "Measure an endpoint: where did the time of an answer go?"),
    "serve": ("unslow.cli.serve", "Run the gateway in front of one or more upstreams."),
    "up": ("unslow.cli.up", "Run an embedded model, the gateway and the console on this machine."),
    "doctor": ("unslow.cli.doctor", "Say what this machine has, what works, and what extras would give."),
    "purge": ("unslow.cli.purge", "Delete what unslow keeps on this machine: history and cached model."),
    "completion": ("unslow.cli.completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order in which people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.group("unslow", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="unslow %(version)s")
def unslow() -> None:
    """Find where every millisecond of an LLM response goes, take it out, and prove that it is gone.

    Exit codes: 0 well, 1 findings or a gate failed, 2 could not measure, 64 wrong usage.
    """


def main() -> None:
    """Run the command line; every failure is one line and an exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036  # a checkout can be run without pip's check
        sys.exit(f"unslow needs Python 3.11 or newer; this is {sys.version_info[0]}.{sys.version_info[1]}")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; gives its exit code."""
    try:
        code = unslow.main(arguments, prog_name="unslow", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        click.echo(f"unslow: {error.format_message()}", err=True)
        return EXIT_INCONCLUSIVE
    except click.Abort:
        return EXIT_INTERRUPTED
    except UnslowError as error:
        click.echo(f"unslow: {error}", err=True)
        return EXIT_INCONCLUSIVE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads: no noise at exit
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"unslow: {where}{error.strerror or error}", err=True)
        return EXIT_INCONCLUSIVE
    return code if isinstance(code, int) else 0


def _usage(error: click.UsageError) -> int:
    """One line: what is wrong, and where the help is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return EXIT_USAGE
    command = error.ctx.command_path if error.ctx else "unslow"
    click.echo(f"{command}: {error.format_message()} (see {command} --help)", err=True)
    return EXIT_USAGE
