"""The model's file: a tiny GGUF made here, requantised, cached, damaged, raced for."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny_gguf import make_gguf

from unslow.errors import ConfigError
from unslow.serve.engine import model
from unslow.serve.engine.memory import available_bytes, needed_bytes

np = pytest.importorskip("numpy", reason="numpy is not installed")
gguf = pytest.importorskip("gguf", reason="gguf is not installed")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    make_gguf(path)
    return path


def prepare(source: Path, cache: Path) -> tuple[Path, model.Card, list[str]]:
    told: list[str] = []
    path, card = model.prepare(source, cache, told.append)
    return path, card, told


def test_requantised_once_with_metadata_and_weights_kept(source: Path, tmp_path: Path) -> None:
    path, card, told = prepare(source, tmp_path / "cache")
    assert told == ["preparing tiny.gguf (first start only)"]
    reader, before = gguf.GGUFReader(path), gguf.GGUFReader(source)
    assert {tensor.name: tensor.tensor_type.name for tensor in reader.tensors} == {"blk.0.w": "Q8_0", "norm": "F32"}
    kept = [key for key in before.fields if not key.startswith("GGUF.") and key != "general.file_type"]
    assert all(reader.fields[key].contents() == before.fields[key].contents() for key in kept)
    old = gguf.quants.dequantize(before.tensors[0].data, before.tensors[0].tensor_type)
    new = gguf.quants.dequantize(reader.tensors[0].data, reader.tensors[0].tensor_type)
    assert np.abs(old - new).max() < np.abs(old).max() / 200
    assert (card.context_tokens, card.elements_per_token) == (128, 2 * 1 * 2 * 8)
    assert (card.control_tokens, card.chat_template) == (["<|end|>"], "{{ messages }}")
    assert prepare(source, tmp_path / "cache") == (path, card, [])


@pytest.mark.parametrize("harm", ["cut", "flip", "card", "gone", "touched"])
def test_a_damaged_cache_is_made_anew(source: Path, tmp_path: Path, harm: str) -> None:
    path, card, _ = prepare(source, tmp_path / "cache")
    good = path.read_bytes()
    if harm == "cut":
        path.write_bytes(good[:-1])
    elif harm == "flip":
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    elif harm == "card":
        next((tmp_path / "cache").glob("*.json")).write_text("{")
    elif harm == "gone":
        path.unlink()
    else:
        make_gguf(source)
    again, new, told = prepare(source, tmp_path / "cache")
    assert told == ["preparing tiny.gguf (first start only)"]
    assert (again.read_bytes(), new.sha256) == (good, card.sha256)


def test_other_quantisations_are_used_where_they_lie(tmp_path: Path) -> None:
    make_gguf(tmp_path / "q8.gguf", "Q8_0")
    path, _, _ = prepare(tmp_path / "q8.gguf", tmp_path / "cache")
    assert path == tmp_path / "q8.gguf"


def test_leftovers_of_a_killed_process_are_removed(source: Path, tmp_path: Path) -> None:
    path, _, _ = prepare(source, tmp_path / "cache")
    path.unlink()
    left = path.with_name(path.name + ".part1")
    left.write_text("x")
    prepare(source, tmp_path / "cache")
    assert sorted(file.suffix for file in (tmp_path / "cache").iterdir()) == [".gguf", ".json", ".lock"]


def test_two_processes_at_once_both_get_a_whole_file(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from unslow.serve.engine.model import prepare;"
        "print(prepare(Path(sys.argv[1]), Path(sys.argv[2]), lambda _: None)[1].sha256)"
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "cache")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate()[0] for process in started}
    assert [process.returncode for process in started] == [0, 0]
    assert len(said) == 1


def test_no_space_is_one_line_that_names_the_folder(source: Path, tmp_path: Path, monkeypatch: Any) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10, 10, 0))
    with pytest.raises(ConfigError, match=r"engine\.cache_dir: no space left in .*cache"):
        prepare(source, tmp_path / "cache")


def test_a_disk_that_fills_while_writing(source: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(model, "_write_bytes", full)
    with pytest.raises(ConfigError, match="no space left"):
        prepare(source, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.part*"))


def test_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.model_path: no such file"):
        model.find_source(str(tmp_path / "none.gguf"))
    (tmp_path / "bad.gguf").write_bytes(b"GGUX" + b"\0" * 100)
    with pytest.raises(ConfigError, match="not a GGUF model"):
        prepare(tmp_path / "bad.gguf", tmp_path / "cache")
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(ConfigError, match="not a GGUF model"):
        prepare(tmp_path / "empty.gguf", tmp_path / "cache")


def test_a_cache_folder_that_is_a_file(source: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.cache_dir: cannot keep the model"):
        prepare(source, source)


def test_memory_is_the_least_of_machine_and_control_groups(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cg"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 4000 kB\n")
    assert available_bytes(proc, cgroup) == 4_000 * 1024
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    (cgroup / "a" / "b").mkdir(parents=True)
    (cgroup / "a" / "b" / "memory.max").write_text("max\n")
    (cgroup / "a" / "memory.max").write_text("1000000\n")
    (cgroup / "a" / "memory.current").write_text("900000\n")
    (cgroup / "a" / "memory.stat").write_text("anon 1\ninactive_file 50000\n")
    assert available_bytes(proc, cgroup) == 150_000
    assert available_bytes(tmp_path / "nothing", tmp_path / "nothing") is None
    assert needed_bytes(100, 10) > 110
