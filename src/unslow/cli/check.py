"""`unslow check URL`: where the time of one answer went, measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from unslow.core.timeline import Timeline
    from unslow.measure.probe import Probe
    from unslow.measure.transport import TransportSettings

_KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
_DIALECTS = ("openai", "openai-completions", "openai-responses", "anthropic", "gemini", "ollama")
_COULD_NOT_MEASURE, _WRONG_USAGE = 2, 64


@click.command("check", short_help="Measure an endpoint: where did the time of an answer go?")
@click.argument("url")
@click.option("--model", "-m", help="Model to ask. Default: the first that the endpoint lists.")
@click.option("--dialect", type=click.Choice(_DIALECTS), help="How the endpoint speaks. Default: guessed from URL.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the key. Default: by dialect.")
@click.option("--prompt", help="Prompt to send.")
@click.option("--prompt-file", type=click.Path(dir_okay=False), help="File with the prompt (- for stdin).")
@click.option(
    "--max-tokens", type=click.IntRange(1, 1_000_000), default=128, show_default=True, help="Tokens to ask for."
)
@click.option("--repeat", "-n", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Requests to send.")
@click.option("--cold", is_flag=True, help="A new connection for every request.")
@click.option("--no-stream", is_flag=True, help="Ask for the answer in one piece.")
@click.option(
    "--http", type=click.Choice(("auto", "1.1", "2", "3")), default="auto", show_default=True, help="HTTP version."
)
@click.option(
    "--proxy", metavar="URL", help="HTTP proxy. Default: HTTPS_PROXY, http_proxy or ALL_PROXY, unless NO_PROXY."
)
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME:VALUE", help="Another request header.")
@click.option("--insecure", is_flag=True, help="Do not verify the certificate.")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Trust these certificates (PEM) instead.")
@click.option(
    "--timeout-s", type=click.FloatRange(min=0.001), default=600.0, show_default=True, help="Bound of one request."
)
@click.option(
    "--max-seconds", type=click.FloatRange(min=0.001), default=300.0, show_default=True, help="Cut an answer then."
)
@click.option("--max-bytes", type=click.IntRange(1), default=64 << 20, show_default=True, help="Cut an answer then.")
@click.option(
    "--json", "json_to", metavar="PATH", help="Write the report as JSON (- for stdout, and nothing else there)."
)
@click.option("--html", "html_to", metavar="PATH", help="Write the report as one HTML file.")
@click.option("--jsonl", "jsonl_to", metavar="PATH", help="Write the Timelines as JSON lines.")
def check(url: str, **options: Any) -> None:
    """Send one request to URL and show where every millisecond went.

    URL is the base that API clients are given (https://api.openai.com/v1), or a full endpoint. It speaks OpenAI,
    Anthropic, Gemini or Ollama. The key is read from the environment and sent to that host only.

    Exit codes: 0 measured, 2 could not measure, 64 wrong usage.
    """
    sys.exit(_run(url, options))


def _run(url: str, options: dict[str, Any]) -> int:
    from unslow.errors import ConfigError, LocalProtocolError, UnslowError

    try:
        _check_outputs(options)
        probe = _probe(url, options)
    except (ConfigError, LocalProtocolError, UnslowError) as error:
        click.echo(f"unslow check: {error}", err=True)
        return _WRONG_USAGE
    try:
        return _Check(probe, options).run()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _COULD_NOT_MEASURE
    except OSError as error:
        click.echo(f"unslow check: cannot write {error.filename}: {error.strerror}", err=True)
        return _COULD_NOT_MEASURE
    finally:
        probe.close()


def _check_outputs(options: dict[str, Any]) -> None:
    """Refuse outputs that could not be written, before anything is measured. Raises ConfigError."""
    from unslow.errors import ConfigError

    paths = {f"--{kind}": options[f"{kind}_to"] for kind in ("json", "html", "jsonl") if options[f"{kind}_to"]}
    if list(paths.values()).count("-") > 1:
        raise ConfigError("only one of --json, --html and --jsonl can go to stdout", key=" ".join(paths))
    for key, path in paths.items():
        target = Path(path)
        if path != "-" and (target.is_dir() or not os.access(target.parent, os.W_OK)):
            raise ConfigError(f"cannot write {path}: no such folder, or not ours to write", key=key)


def _probe(url: str, options: dict[str, Any]) -> Probe:
    from unslow.measure.probe import DEFAULT_PROMPT, Probe, ProbeSettings
    from unslow.measure.probe.target import endpoint

    asked = endpoint(url, options["dialect"])
    settings = ProbeSettings(
        url=url,
        dialect=asked.dialect,
        model=options["model"],
        api_key=api_key(asked.dialect, options["api_key_env"], os.environ),
        prompt=_prompt(options["prompt"], options["prompt_file"]) or DEFAULT_PROMPT,
        max_tokens=options["max_tokens"],
        stream=not options["no_stream"],
        headers=tuple(header(text) for text in options["headers"]),
    )
    return Probe(settings, _transport(url, options))


def _transport(url: str, options: dict[str, Any]) -> TransportSettings:
    from unslow.measure.transport import TransportSettings

    total = options["timeout_s"]
    return TransportSettings(
        http=options["http"],
        proxy=options["proxy"] or proxy_for(url, os.environ),
        insecure=options["insecure"],
        ca_file=options["ca_file"],
        total_timeout_s=total,
        max_seconds=options["max_seconds"],
        max_bytes=options["max_bytes"],
    )


def api_key(dialect: str, name: str | None, environ: Mapping[str, str]) -> str | None:
    """The key: from the variable named, which must be set, else from the dialect's usual one if it is.

    Raises ConfigError.
    """
    from unslow.errors import ConfigError

    usual = _KEY_VARIABLES.get(dialect) or ("OPENAI_API_KEY" if dialect.startswith("openai") else None)
    key: str = environ.get(name or usual or "", "").strip()
    if name and not key:
        raise ConfigError(f"the environment variable {name} is not set or empty", key="--api-key-env")
    return key or None


def header(text: str) -> tuple[str, str]:
    """Read NAME:VALUE. Raises ConfigError, which does not repeat the value."""
    from unslow.errors import ConfigError

    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError("give NAME:VALUE", key="--header")
    if name.strip().lower() in ("host", "content-length", "transfer-encoding", "connection"):
        raise ConfigError(f"{name.strip()} is set by unslow itself", key="--header")
    return name.strip(), value.strip()


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL; NO_PROXY lists hosts, domains and `*`."""
    from unslow.measure.transport import origin_of

    origin = origin_of(url)
    names = ("https_proxy", "HTTPS_PROXY") if origin.scheme == "https" else ("http_proxy",)
    found = next((environ[n] for n in (*names, "all_proxy", "ALL_PROXY") if environ.get(n)), None)
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if found is None or any(_exempts(rule.strip(), origin.host, origin.port) for rule in exempt.split(",")):
        return None
    return found


def _exempts(rule: str, host: str, port: int) -> bool:
    if rule == "*":
        return True
    name, colon, own = rule.rpartition(":")
    if colon and own.isdigit() and ":" not in name:
        if int(own) != port:
            return False
        rule = name
    rule = rule.lstrip(".").lower()
    return bool(rule) and (host.lower() == rule or host.lower().endswith("." + rule))


def _prompt(text: str | None, file: str | None) -> str | None:
    from unslow.errors import ConfigError

    if text is not None and file is not None:
        raise ConfigError("give a prompt or a file, not both", key="--prompt-file")
    if file is None:
        return text
    try:
        with click.open_file(file, encoding="utf-8") as opened:
            content: str = opened.read()
            return content
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read as UTF-8 text: {error}", file=file) from error


def terminal_look() -> tuple[int, bool | str, bool]:
    """Width, colour and whether Unicode can be shown, for what we print on stdout."""
    import shutil

    from unslow.show.report.terminal import look

    columns = shutil.get_terminal_size((100, 24)).columns
    seen = look(os.environ, tty=sys.stdout.isatty(), columns=columns, encoding=sys.stdout.encoding)
    return seen.width, seen.color, seen.unicode


class _Check:
    """One run of the command: measure, show the first answer at once, then the whole."""

    def __init__(self, probe: Probe, options: dict[str, Any]) -> None:
        self._probe, self._options = probe, options
        self._repeat: int = options["repeat"]
        self._timelines: list[Timeline] = []
        self._quiet = options["json_to"] == "-" or options["jsonl_to"] == "-" or options["html_to"] == "-"

    def run(self) -> int:
        """Measure and write; the exit code."""
        try:
            self._measure()
        except KeyboardInterrupt:
            click.echo("unslow check: interrupted; what was measured so far is kept", err=True)
        if not self._timelines:
            return _COULD_NOT_MEASURE
        self._write()
        return self._verdict()

    def _measure(self) -> None:
        failed = self._probe.find_model()
        if failed is not None:
            self._add(failed)
            return
        for n in range(self._repeat):
            self._progress(f"request {n + 1} of {self._repeat}")
            self._add(self._probe.measure(cold=self._options["cold"] and n > 0))

    def _progress(self, text: str) -> None:
        """Say where we are, to people only; the next call wipes it."""
        if self._repeat > 1 and sys.stderr.isatty():
            click.echo("\r\033[K" + text, nl=False, err=True)

    def _add(self, timeline: Timeline) -> None:
        from unslow.core.timeline import End

        self._progress("")
        self._timelines.append(timeline)
        first = len(self._timelines) == 1
        if timeline.outcome.end is End.FAILED:
            number = f" (request {len(self._timelines)} of {self._repeat})" if self._repeat > 1 else ""
            click.echo(f"unslow check: {timeline.outcome.detail}{number}", err=True)
        if first and not self._quiet:
            self._show_first(timeline)

    def _show_first(self, timeline: Timeline) -> None:
        from unslow.show.report.payload import exchange
        from unslow.show.report.terminal import render_exchange

        click.echo(render_exchange(exchange(timeline), *terminal_look()), nl=False)

    def _write(self) -> None:
        import time

        from unslow import __version__
        from unslow.core.timeline import dump_line
        from unslow.show.report.payload import Target, report

        target = Target(self._probe.shown_url, self._probe.model, self._probe.endpoint.dialect)
        made = report(target, self._timelines, version=__version__, created_at=time.time())
        if self._repeat > 1 and len(self._timelines) > 1 and not self._quiet:
            from unslow.show.report.terminal import render

            click.echo("\n" + render(made, *terminal_look()), nl=False)
        if path := self._options["jsonl_to"]:
            _put(path, b"".join(dump_line(t) + b"\n" for t in self._timelines))
        if path := self._options["json_to"]:
            from unslow.show.report.json import encode

            _put(path, encode(made).rstrip(b"\n") + b"\n")
        if path := self._options["html_to"]:
            from unslow.show.report import html

            _put(path, html.render(made).encode())

    def _verdict(self) -> int:
        from unslow.core.timeline import End

        return _COULD_NOT_MEASURE if all(t.outcome.end is End.FAILED for t in self._timelines) else 0


def _put(path: str, data: bytes) -> None:
    if path == "-":
        click.echo(data, nl=False)
        return
    with click.open_file(path, "wb", atomic=True) as file:
        file.write(data)
