"""What the recorder says of itself: its own cost, what it dropped, its build."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from unslow import __version__
from unslow.show.export.prometheus import Family, Sample

if TYPE_CHECKING:
    from unslow.serve.recorder.desk import Desk

_STARTED = time.time()


class Own:
    """The recorder's own families."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def families(self) -> Iterator[Family]:
        """What is exposed."""
        desk, history = self._desk, self._desk.history.state()
        yield _counter("unslow_recorder_cpu_seconds_total", "CPU time of the recorder.", time.process_time())
        if (rss := resident_bytes()) is not None:
            yield _gauge("unslow_recorder_resident_bytes", "Resident memory of the recorder.", rss)
        yield _gauge("unslow_recorder_start_time_seconds", "When the recorder started.", _STARTED)
        yield _counter("unslow_recorder_received_total", "Records received.", desk.finished)
        yield _counter("unslow_recorder_invalid_total", "Records refused as invalid.", desk.invalid)
        yield _dropped(desk)
        yield _gauge("unslow_recorder_event_listeners", "Pages that listen to live events.", len(desk.hub))
        yield _gauge("unslow_history_rows", "Records in the history.", history.rows)
        yield _gauge("unslow_history_bytes", "Bytes of the records in the history.", history.size_bytes)
        yield _gauge("unslow_history_on_disk", "1 where the history is on disk, 0 in memory.", history.where == "file")
        build = (("version", __version__), ("python", platform.python_version()))
        yield Family("unslow_build_info", "gauge", "What runs; always 1.", [Sample(build, 1)])


def _dropped(desk: Desk) -> Family:
    log = desk.access_log
    sinks = (
        ("history", desk.history.dropped),
        ("access_log", log.dropped if log else 0),
        ("event_listener", desk.hub.let_go),
    )
    samples = [Sample((("sink", name),), count) for name, count in sinks]
    return Family("unslow_recorder_dropped_total", "counter", "Records (or slow listeners) dropped, by sink.", samples)


def resident_bytes() -> int | None:
    """This process's resident memory (Linux); None where the platform does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return None


def _counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, [Sample((), value)])


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, [Sample((), value)])
