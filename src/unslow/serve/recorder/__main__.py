"""`python -m unslow.serve.recorder`: settings on the first line of stdin, `ready` on stdout, logs on stderr.

stdin stays open as a lifeline: its end means that the parent is gone. SIGTERM drains and exits 0; SIGINT is the
supervisor's business. Exit code 1 for a start that failed, 2 for an address that cannot be had.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine

from unslow.errors import UnslowError
from unslow.serve.recorder.process import BindFailed, serve
from unslow.serve.recorder.settings import RecorderSettings, read_settings

MAX_SETTINGS_BYTES = 1 << 20


def main() -> int:
    """Run the recorder; its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the access log can be reopened
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="unslow recorder: %(message)s")
    try:
        settings = read_settings(_first_line())
        _run(_main(settings))
    except BindFailed as error:
        print(f"unslow recorder: {error}", file=sys.stderr)  # noqa: T201 -- the contract: one line
        return 2
    except UnslowError as error:
        print(f"unslow recorder: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _first_line() -> bytes:
    """Read stdin up to the first newline, and nothing beyond it."""
    held = bytearray()
    while not held.endswith(b"\n") and len(held) < MAX_SETTINGS_BYTES:
        piece = os.read(0, 1)
        if not piece:
            break
        held += piece
    return bytes(held)


def _run(main: Coroutine[None, None, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _main(settings: RecorderSettings) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    threading.Thread(target=_lifeline, args=(loop, stop), daemon=True).start()
    gc.freeze()
    await serve(settings, stop=stop, ready=_say_ready)


def _say_ready(address: str) -> None:
    print("ready " + json.dumps({"address": address}), flush=True)  # noqa: T201 -- the contract


def _lifeline(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Wait for the end of stdin in a thread: it works for pipes, files and terminals alike."""
    while True:
        try:
            if not os.read(0, 4096):
                break
        except OSError:
            break
    try:
        loop.call_soon_threadsafe(stop.set)
    except RuntimeError:  # the loop has ended already
        return


if __name__ == "__main__":
    sys.exit(main())
