"""From a clean clone to the first answer, and from a second start: what a new user waits for.

    python bench/first_run.py

Clones the committed HEAD into a temporary folder and runs the README's command there: a fresh virtual environment, an
empty model cache, a package cache that is as warm as the machine's. The first answer is there when its waterfall is
printed. Limits: 60 s and 5 s.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAST_LINE = "Ctrl-C stops everything."


def first_answer_s(folder: Path, home: Path) -> tuple[float, str]:
    """Seconds from `make up` to the printed waterfall, and what it printed."""
    env = {**os.environ, "XDG_CACHE_HOME": str(home / "cache"), "XDG_DATA_HOME": str(home / "data")}
    env["PIP_CACHE_DIR"] = subprocess.run(
        ["python3", "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    command = ["make", "up", "ARGS=--no-browser --port 0 --console-port 0"]
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(LAST_LINE):
            break
    took = time.perf_counter() - began
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    if not said or not said[-1].startswith(LAST_LINE):
        raise SystemExit("no first answer:\n" + "".join(said))
    return took, "".join(said)


def main() -> None:
    """Measure both starts."""
    with tempfile.TemporaryDirectory() as made:
        folder, home = Path(made) / "clone", Path(made) / "home"
        subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
        first, said = first_answer_s(folder, home)
        print(said)
        second = min(first_answer_s(folder, home)[0] for _ in range(3))
        for words, took, limit in (("clean clone to first answer", first, 60), ("second start", second, 5)):
            print(f"{'PASS' if took <= limit else 'MISS'} {words}: {took:.1f} s (limit {limit})")


if __name__ == "__main__":
    main()
