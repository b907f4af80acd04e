"""Every recorded stream of the shared corpus decodes to the right kinds. Skipped where the corpus is absent."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from unslow.core.timeline import TOKEN_KINDS, ChunkKind, CountSource, ServerTimings, Usage
from unslow.core.wire import decoder_for
from unslow.core.wire.dialects import by_name, dialect_for
from unslow.core.wire.events import Delta, SseEvent

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "sse"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")

ROLE, CONTENT, REASONING, TOOL = ChunkKind.ROLE, ChunkKind.CONTENT, ChunkKind.REASONING, ChunkKind.TOOL
USAGE, DONE, ERROR, KEEPALIVE = ChunkKind.USAGE, ChunkKind.DONE, ChunkKind.ERROR, ChunkKind.KEEPALIVE


class Answer(NamedTuple):
    """One recorded answer as its dialect reads it."""

    dialect: str
    streamed: bool
    deltas: list[Delta]

    def text(self, kind: ChunkKind) -> str:
        return "".join(delta.text for delta in self.deltas if delta.kind is kind)

    @property
    def kinds(self) -> Counter[ChunkKind]:
        return Counter(delta.kind for delta in self.deltas)

    @property
    def usage(self) -> Usage:
        return [delta.usage for delta in self.deltas if delta.usage is not None][-1]

    @property
    def server(self) -> ServerTimings:
        return [delta.server for delta in self.deltas if delta.server is not None][-1]

    @property
    def finish(self) -> list[str]:
        return [delta.finish_reason for delta in self.deltas if delta.finish_reason]

    @property
    def order(self) -> list[ChunkKind]:
        """Kinds of the token chunks with repeats folded."""
        kinds = [delta.kind for delta in self.deltas if delta.kind in TOKEN_KINDS]
        return [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] is not kind]


def chunks(name: str, dialect: str) -> Answer:
    """A file of frames, one JSON object a line."""
    lines = (CORPUS / name).read_bytes().splitlines()
    reader = by_name(dialect).reader()
    return Answer(dialect, True, [d for line in lines if line.strip() for d in reader.read(SseEvent(line))])


def _inflated(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip" or body[:2] == b"\x1f\x8b":
        return gzip.decompress(body)
    return zlib.decompress(body) if encoding == "deflate" else body


def cassette(name: str) -> list[Answer]:
    """A VCR cassette: every interaction's answer, its dialect told by its URL alone."""
    found = []
    for item in yaml.safe_load((CORPUS / name).read_text())["interactions"]:
        url, response = urlsplit(item["request"]["uri"]), item["response"]
        dialect = dialect_for(url.path, host=url.netloc)
        headers = {key.lower(): value[0] for key, value in response["headers"].items()}
        if "body" not in response:
            data = json.dumps(response["parsed_body"]).encode()
        else:
            string = response["body"]["string"]
            raw = string.encode() if isinstance(string, str) else string
            data = _inflated(raw, headers.get("content-encoding", ""))
        decoder = decoder_for(headers["content-type"], path=url.path)
        if decoder is None:
            found.append(Answer(dialect.name, False, dialect.body(data)))
            continue
        reader = dialect.reader()
        events = [*decoder.feed(data), *decoder.close()]
        deltas = [delta for event in events if isinstance(event, SseEvent) for delta in reader.read(event)]
        found.append(Answer(dialect.name, True, deltas))
    return found


def docs(name: str) -> Iterator[dict[str, Any]]:
    """The JSON examples of a documentation page that parse."""
    for block in re.findall(r"```json5?\n(.*?)```", (CORPUS / name).read_text(), re.DOTALL):
        try:
            value = json.loads(block)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _named(part: str) -> str:
    return next(path.name for path in CORPUS.iterdir() if part in path.name)


@pytest.mark.parametrize(
    ("part", "order", "counts", "pings", "usage"),
    [
        ("code-execution-20250825.1", [CONTENT, TOOL, CONTENT, TOOL, CONTENT], (25, 0, 205), 1, (8050, 771)),
        ("pptx-skill", [CONTENT, TOOL] * 10 + [CONTENT], (87, 0, 510), 5, (320032, 5558)),
        ("file-upload", [CONTENT, TOOL, CONTENT, TOOL, CONTENT], (12, 0, 280), 1, (11505, 1103)),
        ("combined-context-editing", [REASONING, CONTENT], (45, 54, 0), 1, (50, 485)),
        ("advisor-20250301", [TOOL, CONTENT], (114, 0, 1), 3, (4727, 3391)),
        ("advisor-stop-reasons", [TOOL], (0, 0, 2), 0, (10, 20)),
        ("clear-thinking", [REASONING, CONTENT], (3, 9, 0), 1, (69, 53)),
        ("compaction", [REASONING, CONTENT], (739, 1, 0), 2, (612, 2819)),
        ("anthropic-fallback", [CONTENT], (2, 0, 0), 0, (412, 264)),
        ("json-output-format", [CONTENT], (114, 0, 0), 1, (313, 305)),
    ],
)
def test_anthropic(
    part: str, order: list[ChunkKind], counts: tuple[int, int, int], pings: int, usage: tuple[int, int]
) -> None:
    answer = chunks(_named(part), "anthropic")
    kinds = answer.kinds
    assert answer.order == order
    assert (kinds[CONTENT], kinds[REASONING], kinds[TOOL]) == counts
    assert (kinds[KEEPALIVE], kinds[DONE], kinds[ERROR]) == (pings, 1, 0)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == usage
    assert answer.deltas[0].kind is ROLE
    assert answer.deltas[-1].kind is DONE
    assert answer.finish == ["end_turn"]


def test_a_tools_result_is_no_generated_text() -> None:
    answer = chunks(_named("advisor-stop-reasons"), "anthropic")
    assert "Partial plaintext advice" not in "".join(delta.text for delta in answer.deltas)
    assert answer.text(TOOL) == "advisoradvisor"


def test_shown_thinking_is_not_hidden_by_its_signature() -> None:
    assert not any(delta.hidden for delta in chunks(_named("clear-thinking"), "anthropic").deltas)


def test_bedrock_reasoning_comes_before_content() -> None:
    answer = chunks(_named("bedrock-reasoning"), "bedrock")
    assert answer.order == [REASONING, CONTENT]
    assert answer.text(REASONING).startswith("Let me count the r's in ")
    assert answer.server.total_ns == 2_281_000_000
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (51, 94)
    assert answer.finish == ["end_turn"]


def test_azure_encrypted_reasoning_is_hidden_and_only_its_summary_is_seen() -> None:
    answer = chunks(_named("azure-reasoning-encrypted"), "openai-responses")
    hidden = [n for n, delta in enumerate(answer.deltas) if delta.hidden]
    first_token = next(n for n, delta in enumerate(answer.deltas) if delta.kind in TOKEN_KINDS)
    assert hidden
    assert hidden[0] < first_token
    assert all(not answer.deltas[n].text for n in hidden)
    assert "gAAAAA" not in "".join(delta.text for delta in answer.deltas)
    assert answer.order == [REASONING, TOOL, CONTENT]
    assert answer.text(CONTENT) == "The final result is **570**."
    assert (answer.kinds[USAGE], answer.kinds[DONE]) == (4, 4)


def test_azure_text() -> None:
    answer = chunks(_named("azure-text"), "openai-responses")
    assert answer.text(CONTENT) == "Hello"
    assert answer.kinds[CONTENT] == 1
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (11, 11)
    assert answer.deltas[0].model == "gpt-5.1"


def test_deepseek_reasons_before_it_answers_a_token_a_chunk() -> None:
    answer = chunks(_named("deepseek-reasoning.chunks"), "openai")
    assert answer.deltas[0] == Delta(ROLE, model="deepseek-reasoner")
    assert answer.order == [REASONING, CONTENT]
    assert (answer.kinds[REASONING], answer.usage.reasoning_tokens) == (205, 205)
    assert answer.kinds[REASONING] + answer.kinds[CONTENT] + 1 == answer.usage.completion_tokens == 219
    assert answer.usage.source is CountSource.USAGE_TOTAL
    assert answer.finish == ["stop"]


@pytest.mark.parametrize(
    ("part", "thoughts", "tokens"), [("google-reasoning.chunks", 256, [10, 19]), ("reasoning-gemini3", 302, [13, 10])]
)
def test_gemini_tells_hidden_thoughts_and_tokens_of_each_chunk(part: str, thoughts: int, tokens: list[int]) -> None:
    answer = chunks(_named(part), "gemini")
    assert answer.order == [CONTENT]
    assert [delta.tokens for delta in answer.deltas if delta.kind is CONTENT] == tokens
    assert all(delta.hidden for delta in answer.deltas if delta.kind is CONTENT)
    assert answer.usage.reasoning_tokens == thoughts
    assert answer.usage.completion_tokens == thoughts + sum(tokens)
    assert answer.deltas[-1].kind is DONE
    assert answer.finish == ["STOP"]


def test_gemini_interactions() -> None:
    answer = chunks(_named("interactions"), "gemini")
    assert answer.order == [CONTENT]
    assert answer.text(CONTENT).startswith("I'm doing great")
    assert [delta.hidden for delta in answer.deltas].count(True) == 1
    assert answer.usage == Usage(7, 141, 115, 0)
    assert (answer.finish, answer.deltas[-1].kind) == (["completed"], DONE)


def test_groq_reports_its_times() -> None:
    answer = chunks(_named("groq-text"), "openai")
    assert (answer.kinds[ROLE], answer.kinds[CONTENT], answer.kinds[USAGE]) == (1, 661, 1)
    assert answer.server == ServerTimings(
        queue_ns=41_905_864, prefill_ns=3_940_145, decode_ns=2_652_230_333, total_ns=2_656_170_478
    )
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (45, 662)


def test_mistral_thinks_in_parts_of_its_content() -> None:
    answer = chunks(_named("mistral-reasoning"), "openai")
    assert answer.order == [REASONING, CONTENT]
    assert answer.text(REASONING) == "The user is asking for 2+2. This is basic arithmetic. 2+2=4."
    assert answer.text(CONTENT) == "2 + 2 = 4"
    assert answer.usage.completion_tokens == 46


def test_responses_not_streamed_hide_their_reasoning() -> None:
    answers = cassette(_named("interleaved_reasoning"))
    assert [(a.dialect, a.streamed) for a in answers] == [("openai-responses", False)] * 4
    assert [a.usage.reasoning_tokens for a in answers] == [45, 98, 196, 17]
    assert all(a.order == [TOOL] and any(d.hidden for d in a.deltas) for a in answers)


def test_responses_streamed() -> None:
    call, text = cassette(_named("responses_tool_use_streaming"))
    assert call.order == [TOOL]
    assert call.text(TOOL) == 'multiply{"a":1231,"b":2331}'
    assert text.order == [CONTENT]
    assert text.kinds[CONTENT] == 14
    assert [a.usage.completion_tokens for a in (call, text)] == [23, 18]
    assert all(a.deltas[-1] == Delta(DONE, finish_reason="completed") for a in (call, text))


def test_openrouter_streams_a_call_then_text() -> None:
    call, text = cassette(_named("tools_streaming_variant_a"))
    assert (call.text(TOOL), call.kinds[ROLE], call.kinds[DONE]) == ("llm_versionllm_version{}", 2, 1)
    assert text.order == [CONTENT]
    assert [a.usage.completion_tokens for a in (call, text)] == [17, 15]


def test_groq_streams_reasoning_with_times() -> None:
    raw, parsed = cassette(_named("groq_model_thinking_part_iter"))
    assert raw.order == [CONTENT]  # reasoning_format raw: the tags are in the content
    assert raw.text(CONTENT).startswith("<think>")
    assert parsed.order == [REASONING, CONTENT]
    assert (parsed.kinds[REASONING], parsed.kinds[CONTENT]) == (782, 722)
    assert [a.server.queue_ns for a in (raw, parsed)] == [56_572_745, 56_866_598]
    assert [a.kinds[DONE] for a in (raw, parsed)] == [1, 1]


@pytest.mark.parametrize(
    ("part", "orders", "completions", "cached"),
    [
        ("openrouter_cache", [[CONTENT]], [10], [0]),
        (
            "deepseek_deferred",
            [[REASONING, CONTENT, TOOL], [REASONING, CONTENT, TOOL], [REASONING, CONTENT]],
            [116, 79, 61],
            [512, 0, 896],
        ),
        ("deepseek_model_thinking_part", [[REASONING, CONTENT]], [789], [0]),
        ("groq-test_extra_headers", [[CONTENT]], [8], [None]),
        ("groq_model_thinking_part.yaml", [[CONTENT], [REASONING, CONTENT]], [1414, 1590], [None, None]),
        ("ollama_cloud_tool_output", [[REASONING, CONTENT], [REASONING, TOOL]], [122, 194], [None, None]),
        ("openai_chat_prompt_cache", [[CONTENT], [CONTENT]], [4, 4], [0, 4012]),
        ("openai_responses_prompt_cache", [[CONTENT], [CONTENT]], [5, 5], [0, 4012]),
    ],
)
def test_whole_answers(
    part: str, orders: list[list[ChunkKind]], completions: list[int], cached: list[int | None]
) -> None:
    answers = cassette(_named(part))
    assert not any(answer.streamed for answer in answers)
    assert [answer.order for answer in answers] == orders
    assert [answer.usage.completion_tokens for answer in answers] == completions
    assert [answer.usage.cached_tokens for answer in answers] == cached
    assert {answer.usage.source for answer in answers} == {CountSource.USAGE_TOTAL}
    assert all(answer.deltas[-1].kind is DONE for answer in answers)


def test_groq_reports_its_times_in_a_whole_answer() -> None:
    (answer,) = cassette(_named("groq-test_extra_headers"))
    assert answer.server.queue_ns == 100_731_848
    assert answer.text(CONTENT) == "Hello! How can I assist you today?"


def test_a_gemini_stream_with_carriage_returns() -> None:
    (answer,) = cassette(_named("[google]"))
    assert (answer.dialect, answer.streamed) == ("gemini", True)
    assert answer.deltas[0].text == "Paris"
    assert answer.deltas[0].tokens == 1
    assert answer.usage.reasoning_tokens == 35
    assert answer.deltas[-1].kind is DONE


def test_xai_chunks_as_json() -> None:
    (item,) = yaml.safe_load((CORPUS / _named("[xai]")).read_text())["interactions"]
    frames = [frame["chunk"] for frame in item["response_stream"]["chunks_json"]]
    reader = by_name("openai").reader()
    deltas = [delta for frame in frames for delta in reader.read(SseEvent(json.dumps(frame).encode()))]
    assert (deltas[0].kind, deltas[0].text, deltas[0].model) == (CONTENT, "Paris", "grok-4.3")
    usage = next(delta.usage for delta in reversed(deltas) if delta.usage)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (189, 1, 128)


def test_ollama_examples_tell_a_cold_load_from_a_warm_one() -> None:
    answers = [
        Answer("ollama", False, by_name("ollama").body(json.dumps(value).encode()))
        for value in docs("ollama__docs-api.md")
        if "done" in value
    ]
    loads = [delta.server.load_ns for answer in answers for delta in answer.deltas if delta.server]
    assert len(answers) >= 15
    assert 6_338_219_291 in loads
    assert 5_025_959 in loads
    partial = [answer for answer in answers if not answer.kinds[DONE]]
    whole = [answer for answer in answers if answer.kinds[DONE]]
    assert partial
    assert all(answer.order == [CONTENT] or answer.order == [TOOL] for answer in partial)
    assert all(answer.deltas[-1].kind is DONE for answer in whole)
    assert not any(answer.kinds[ERROR] for answer in answers)


def test_no_file_of_the_corpus_is_left_out() -> None:
    """A new file must get its assertions here."""
    known = Path(__file__).read_text()
    parts = {part for part in re.findall(r'"([^"\s]+)"', known) if len(part) > 4}
    assert [path.name for path in CORPUS.iterdir() if not any(part in path.name for part in parts)] == []
