"""Whether the model will fit, asked before it is loaded: the kernel's way to say no is to kill the process."""

from __future__ import annotations

from pathlib import Path

_PROGRAM_BYTES = 120 << 20  # interpreter, numpy and the inference library, measured
_WEIGHTS_RATIO = 3.3  # resident bytes a byte of GGUF while OpenVINO loads it, measured


def needed_bytes(model_bytes: int, kv_bytes: int) -> int:
    """The most that loading and a full KV cache take."""
    return _PROGRAM_BYTES + int(_WEIGHTS_RATIO * model_bytes) + kv_bytes


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What this process may still take, or None where the system does not say (macOS).

    The smaller of the machine's MemAvailable and what the control groups (v2) above us leave.
    """
    limits = [_mem_available(proc / "meminfo"), *_cgroup_rooms(proc / "self" / "cgroup", cgroup)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _mem_available(meminfo: Path) -> int | None:
    for line in _text(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_rooms(membership: Path, root: Path) -> list[int | None]:
    path = next((line[3:] for line in _text(membership).splitlines() if line.startswith("0::")), None)
    if path is None:
        return []
    folder = root / path.strip().lstrip("/")
    folders = [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]
    return [_cgroup_room(each) for each in folders]


def _cgroup_room(folder: Path) -> int | None:
    limit, used = _text(folder / "memory.max").strip(), _text(folder / "memory.current").strip()
    if not limit.isdigit() or not used.isdigit():
        return None
    stats = dict(line.split() for line in _text(folder / "memory.stat").splitlines() if line.count(" ") == 1)
    return max(0, int(limit) - int(used) + int(stats.get("inactive_file", "0")))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
