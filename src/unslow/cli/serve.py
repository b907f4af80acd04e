"""`unslow serve`: the gateway, and the recorder with its console."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from unslow.serve.gateway.settings import UpstreamSettings
    from unslow.serve.supervisor import Supervisor

_UPSTREAM = re.compile(r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)=)?(?P<url>(?:https?|http\+unix)://\S+)")


@click.command("serve", short_help="Run the gateway in front of one or more upstreams.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="Base URL that OpenAI clients would call, ending in /v1 or not. Repeatable.",
)
@click.option("--port", "-p", type=click.IntRange(0, 65535), help="Port to listen on; 0: a free one. [default: 8080]")
@click.option("--host", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--workers", type=click.IntRange(1, 64), help="Gateway processes. [default: 1]")
@click.option("--console-port", type=click.IntRange(0, 65535), help="The console's port. [default: 8081, or free]")
@click.option("--no-console", is_flag=True, help="No recorder: no console, history, metrics or access log.")
@click.option("--access-log", metavar="PATH", help="One JSON line a request; - for stderr.")
@click.option("--ledger-comment", is_flag=True, help="End every stream with its ledger, as an SSE comment.")
@click.option("--config", metavar="FILE", help="Settings. [default: ./unslow.toml, ~/.config/unslow/unslow.toml]")
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one JSON line.")
def serve(upstreams: tuple[str, ...], **options: Any) -> None:
    """Relay OpenAI-compatible requests to one or more upstreams, and keep a record of where their time goes.

    \b
    unslow serve --upstream http://127.0.0.1:8000/v1 --port 8080
    unslow serve --upstream big=https://api.example.com/v1 --upstream small=http://127.0.0.1:8000/v1
    """
    named = named_upstreams(upstreams)
    from unslow.cli import config as settings
    from unslow.cli import stack

    config = settings.load(settings.find(options["config"], os.environ), os.environ)
    with stack.run_dir() as run:
        plan = stack.make_plan(
            config,
            run,
            gateway=_said(options, "port", "host", "workers", "ledger_comment"),
            recorder=None if options["no_console"] else recorder_options(options, config.recorder),
            upstreams=(*named, *(u for u in config.upstreams if u.name not in {n.name for n in named})),
        )

        async def started(_: Supervisor) -> None:
            stack.banner(plan, as_json=options["as_json"])

        sys.exit(stack.run_plan(plan, started))


def recorder_options(options: dict[str, Any], configured: dict[str, Any]) -> dict[str, Any]:
    """What the command line says of the recorder; the default console port gives way when it is taken."""
    from unslow.cli.stack import free_port
    from unslow.errors import ConfigError

    said = _said(options, "console_port", "access_log")
    if "console_port" not in said and "console_port" not in configured:
        try:
            free_port("127.0.0.1", 8081)
        except ConfigError:
            said["console_port"] = 0
    return said


def named_upstreams(texts: tuple[str, ...]) -> tuple[UpstreamSettings, ...]:
    """Upstreams of the command line; the first without a name is `default`, further ones `upstream-2` and so on."""
    from unslow.serve.gateway.settings import UpstreamSettings

    found: dict[str, UpstreamSettings] = {}
    for n, text in enumerate(texts, 1):
        match = _UPSTREAM.fullmatch(text)
        if match is None:
            raise click.BadParameter(
                f"{text!r} is no [NAME=]URL such as http://127.0.0.1:8000/v1", param_hint="--upstream"
            )
        name = match["name"] or ("default" if n == 1 else f"upstream-{n}")
        if name in found:
            raise click.BadParameter(f"{name} is named twice", param_hint="--upstream")
        found[name] = UpstreamSettings(name=name, url=match["url"])
    return tuple(found.values())


def _said(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Options that were given."""
    return {name: options[name] for name in names if options[name] is not None and options[name] is not False}
