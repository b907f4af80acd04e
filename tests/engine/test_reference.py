"""The reference page names everything; our frames mean to our own dialect what they should."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from unslow.core.timeline import ChunkKind
from unslow.core.wire.dialects import dialect_for
from unslow.core.wire.events import SseEvent
from unslow.core.wire.sse import SseDecoder
from unslow.serve.engine import answers, api
from unslow.serve.engine.link import Timings
from unslow.serve.engine.settings import EngineSettings

ROOT = Path(__file__).parents[2]
TIMES = answers.timings(Timings(1_000_000, 20_000_000, 300_000_000, 32), prompt_tokens=40, completion_tokens=7)


def shape(*, chat: bool) -> answers.Shape:
    return answers.Shape(chat=chat, answer_id="id", model="m", created=1, prompt_tokens=40)


def test_every_setting_parameter_and_code_stands_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "engine.md").read_text("utf-8")
    named = set(re.findall(r"`([^`]+)`", page))
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/unslow/serve/engine").glob("*.py"))
    codes = set(re.findall(r'(?:Refusal|Refused)\([^"]*?\d{3}, "(\w+)"', source))
    assert {"invalid_json", "engine_overloaded", "context_length_exceeded"} <= codes
    wanted = {*EngineSettings.__struct_fields__, *codes, *TIMES}
    wanted |= {*api.ChatBody.__struct_fields__, *api.CompletionBody.__struct_fields__} - {"stream_options"}
    assert wanted - named == set()


@pytest.mark.parametrize(("chat", "path"), [(True, "/v1/chat/completions"), (False, "/v1/completions")])
def test_our_dialect_reads_a_stream(chat: bool, path: str) -> None:
    made = shape(chat=chat)
    data = made.role() + made.text('a "b"\n🙂') + made.finish("stop", TIMES) + made.usage(7, 32) + answers.DONE
    reader = dialect_for(path).reader()
    deltas = [delta for event in SseDecoder().feed(data) if isinstance(event, SseEvent) for delta in reader.read(event)]
    assert [delta.text for delta in deltas if delta.kind is ChunkKind.CONTENT] == ['a "b"\n🙂']
    (server,) = [delta.server for delta in deltas if delta.server]
    assert (server.queue_ns, server.prefill_ns, server.decode_ns) == (1_000_000, 20_000_000, 300_000_000)
    usage = [delta.usage for delta in deltas if delta.usage][-1]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (40, 7, 32)
    assert deltas[-1].kind is ChunkKind.DONE


@pytest.mark.parametrize(("chat", "path"), [(True, "/v1/chat/completions"), (False, "/v1/completions")])
def test_our_dialect_reads_a_whole_answer(chat: bool, path: str) -> None:
    data = shape(chat=chat).whole("text", "length", 7, TIMES)
    deltas = dialect_for(path).body(data)
    assert "text" in [delta.text for delta in deltas]
    assert any(delta.server and delta.server.queue_ns == 1_000_000 for delta in deltas)
    assert msgspec.json.decode(data)["usage"]["total_tokens"] == 47
