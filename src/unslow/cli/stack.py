"""The processes behind `serve` and `up`: their settings, where they meet, and the supervisor's life."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from unslow import __version__
from unslow.cli.config import Config
from unslow.errors import ConfigError, UnslowError
from unslow.serve.engine.settings import EngineSettings
from unslow.serve.gateway.settings import GatewaySettings, UpstreamSettings
from unslow.serve.recorder.settings import ConfigSummary, RecorderSettings, UpstreamSummary, console_hosts
from unslow.serve.supervisor import ChildSpec, Supervisor

ENGINE_READY_S = 240.0
"""The first start requantises and compiles the model."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to run. `console_port` None: no recorder and no console; `engine` None: no embedded model."""

    gateway: GatewaySettings
    recorder: RecorderSettings | None = None
    engine: EngineSettings | None = None

    @property
    def gateway_url(self) -> str:
        """Where clients find the gateway (their `base_url` is this and `/v1`)."""
        return url_of(self.gateway.host, self.gateway.port)

    @property
    def console_url(self) -> str | None:
        """The console's address, with the token that opens it."""
        if self.recorder is None:
            return None
        base = url_of(self.recorder.console_host, self.recorder.console_port)
        return f"{base}/?token={self.recorder.console_token}"


def url_of(host: str, port: int) -> str:
    """An http URL; a wildcard address is shown as loopback."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104  # shown, not bound
    return f"http://{f'[{shown}]' if ':' in shown and not shown.startswith('[') else shown}:{port}"


def data_dir() -> Path:
    """Where the history lives (XDG)."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "unslow"


def cache_dir() -> Path:
    """Where the requantised model lives (XDG)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "unslow"


def clock_id() -> str:
    """The machine's monotonic clock by name: two parties with the same one need no mapping."""
    with contextlib.suppress(OSError):
        return "monotonic:" + Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"monotonic:{secrets.token_hex(8)}"


@contextlib.contextmanager
def run_dir() -> Iterator[Path]:
    """A private directory for sockets, removed at the end."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(tempfile.mkdtemp(prefix="unslow-", dir=base if base and Path(base).is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def free_port(host: str, port: int) -> int:
    """The port itself, or a free one for 0. Raises ConfigError, saying what is in the way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host.strip("[]"), port))
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from error
        return int(s.getsockname()[1])


def make_plan(
    config: Config,
    run: Path,
    *,
    gateway: dict[str, Any],
    recorder: dict[str, Any] | None,
    upstreams: tuple[UpstreamSettings, ...] = (),
    engine: EngineSettings | None = None,
) -> Plan:
    """Settings for every process; `gateway` and `recorder` hold what the command line said, which comes first."""
    asked = {**config.gateway, **gateway, "api_keys": config.api_keys, "clock_id": clock_id()}
    asked["host"] = asked.get("host", "127.0.0.1")
    asked["port"] = free_port(asked["host"], asked.get("port", 8080))
    origins = tuple(asked.pop("allowed_origins", ()))
    if engine is not None:
        engine = msgspec.structs.replace(engine, socket_path=str(run / "engine.sock"))
        url = f"http+unix://{quote(str(run / 'engine.sock'), safe='')}/v1"
        upstreams = (*upstreams, UpstreamSettings(name="engine", url=url))
    if not upstreams:
        raise ConfigError("no upstream: name one with --upstream URL, or in a section [upstreams.NAME]")
    if recorder is None:
        return Plan(gateway=GatewaySettings(**asked, allowed_origins=origins, upstreams=upstreams), engine=engine)
    said = {"history_path": str(data_dir() / "history.sqlite"), **config.recorder, **recorder}
    host = said.setdefault("console_host", "127.0.0.1")
    said["console_port"] = free_port(host, said.get("console_port", 8081))
    origins = (*origins, *console_origins(host, said["console_port"], said.get("console_allowed_hosts", ())))
    settings = GatewaySettings(
        **asked, allowed_origins=origins, upstreams=upstreams, recorder_socket=str(run / "recorder.sock")
    )
    book = RecorderSettings(
        **{"gateway_url": url_of(settings.host, settings.port), **said},
        socket_path=str(run / "recorder.sock"),
        console_token=secrets.token_urlsafe(24),
        config_summary=summary(settings, engine),
    )
    return Plan(gateway=settings, recorder=book, engine=engine)


def console_origins(host: str, port: int, allowed: Iterable[str]) -> tuple[str, ...]:
    """The origins that the console's page can have: it calls the gateway from there. Other names may be behind TLS."""
    here = url_of(host, port)
    named = sorted(console_hosts(host, port, allowed) - console_hosts(host, port))
    return (here, here.replace("127.0.0.1", "localhost"), *(f"{s}://{h}" for h in named for s in ("http", "https")))


def summary(gateway: GatewaySettings, engine: EngineSettings | None) -> ConfigSummary:
    """What the console's page says of the configuration: no key, no address with a secret in it."""
    hidden = {"upstreams", "api_keys", "recorder_socket", "clock_id", "worker"}
    settings = {k: v for k, v in msgspec.structs.asdict(gateway).items() if k not in hidden}
    models = [name for upstream in gateway.upstreams for name in upstream.models]
    about: dict[str, object] | None = None
    if engine is not None:
        models.append(engine.model_name)
        shown = ("model_name", "backend", "precision", "threads", "max_streams", "kv_tokens")
        about = {key: getattr(engine, key) for key in shown}
    return ConfigSummary(
        models=tuple(models),
        upstreams=tuple(
            UpstreamSummary(
                name=u.name, url="embedded engine" if u.url.startswith("http+unix") else u.url, has_key=bool(u.api_key)
            )
            for u in gateway.upstreams
        ),
        engine=about,
        settings={**settings, "clients_need_a_key": bool(gateway.api_keys)},
    )


def children(plan: Plan) -> list[ChildSpec]:
    """What the supervisor starts."""
    encode = msgspec.json.encode
    found = []
    for n in range(plan.gateway.workers):
        settings = encode(msgspec.structs.replace(plan.gateway, worker=n))
        name = "gateway" if plan.gateway.workers == 1 else f"gateway {n + 1}"
        limit = plan.gateway.drain_timeout_s + 5
        found.append(ChildSpec(name=name, module="unslow.serve.gateway", settings=settings, stop_timeout_s=limit))
    if plan.recorder is not None:
        found.append(ChildSpec(name="recorder", module="unslow.serve.recorder", settings=encode(plan.recorder)))
    if plan.engine is not None:
        found.append(
            ChildSpec(
                name="engine",
                module="unslow.serve.engine",
                settings=encode(plan.engine),
                ready_timeout_s=ENGINE_READY_S,
                stop_timeout_s=plan.engine.drain_s + 5,
            )
        )
    return found


def say(name: str, line: str) -> None:
    """A child's line on our stderr."""
    if line:
        click.echo(f"[{name}] {line}", err=True)


async def supervise(plan: Plan, started: Callable[[Supervisor], Awaitable[None]]) -> None:
    """Run the children until SIGINT or SIGTERM; `started` is awaited once all are ready. A second signal ends at once.

    Raises UnslowError when they cannot be started.
    """
    loop, stop, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
    supervisor = Supervisor(children(plan), say=say)
    work = asyncio.create_task(_start(supervisor, started))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
    if work.done() and not (failure := work.exception()):
        await stopped
    elif not work.done():
        work.cancel()
        failure = None
    await _end(supervisor, hurry)
    await asyncio.gather(work, return_exceptions=True)
    stopped.cancel()
    if failure is not None:
        raise failure


async def _start(supervisor: Supervisor, started: Callable[[Supervisor], Awaitable[None]]) -> None:
    await supervisor.start()
    await started(supervisor)


async def _end(supervisor: Supervisor, hurry: asyncio.Event) -> None:
    ending = asyncio.create_task(supervisor.stop())
    hurried = asyncio.create_task(hurry.wait())
    await asyncio.wait((ending, hurried), return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        await supervisor.stop(at_once=True)
    await ending
    hurried.cancel()


def run_plan(plan: Plan, started: Callable[[Supervisor], Awaitable[None]]) -> int:
    """Run to the end; gives the exit code."""
    try:
        asyncio.run(supervise(plan, started))
    except UnslowError as error:
        click.echo(f"unslow: {error}", err=True)
        return 2
    return 0


def banner(plan: Plan, *, as_json: bool) -> None:
    """Say where everything is: for people, or one JSON line for scripts."""
    base = plan.gateway_url
    if as_json:
        facts = {"version": __version__, "gateway": base, "base_url": f"{base}/v1", "console": plan.console_url}
        click.echo(msgspec.json.encode(facts).decode())
    else:
        click.echo(f"gateway  {base}/v1   (base_url for OpenAI clients)")
        if plan.console_url:
            click.echo(f"console  {plan.console_url}")
    sys.stdout.flush()
