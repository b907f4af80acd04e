"""openvino-genai's continuous batching, its GGUF import and its prefix cache.

Precision. `balanced` computes in 32-bit floats, with matrix products dynamically quantised to 8 bits in groups of 32
and an 8-bit KV cache: on every processor the same, while the library's own default changes with what the processor
has. It costs 0.6 % of perplexity against `exact`, which turns all of that off, and nothing against the default
(docs/explanation/engine.md, bench/engine_quality.py).

No telemetry: the package `openvino` reports its import to a web analytics service, and writes a client id into the
user's home, unless `openvino_telemetry` cannot be imported; then it uses its own stub. We see to that first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from .backend import Output
from .link import Finish, Message, Sampling
from .model import Card
from .prefix import BLOCK_TOKENS
from .settings import EngineSettings
from .template import Neutraliser, batched, pieces

_BATCH = 128
_CUT_OFF_TOKENS = 8_192  # the library's limit, whatever the model's context
_PROPERTIES: dict[str, dict[str, object]] = {
    "balanced": {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "u8",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "32",
    },
    "exact": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}


def import_genai() -> Any:
    """The module `openvino_genai`, with telemetry out of its reach."""
    if "openvino" not in sys.modules:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # makes its import fail, by Python's rules
    import openvino_genai

    return openvino_genai


class OpenVinoBackend:
    """See `backend.Backend`."""

    name = "openvino"

    def __init__(self, file: Path, card: Card, settings: EngineSettings) -> None:
        self._genai = genai = import_genai()
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = -(-settings.kv_tokens // BLOCK_TOKENS)
        scheduler.max_num_batched_tokens = settings.max_batched_tokens
        scheduler.max_num_seqs = settings.max_streams
        scheduler.enable_prefix_caching = True
        properties = dict(_PROPERTIES[settings.precision])
        if settings.threads:
            properties["INFERENCE_NUM_THREADS"] = settings.threads
        self._pipeline = genai.ContinuousBatchingPipeline(file, scheduler, "CPU", properties)
        self._tokenizer = self._pipeline.get_tokenizer()
        self._has_template = bool(card.chat_template)
        self._neutraliser = Neutraliser(card.control_tokens)
        self._handles: dict[int, Any] = {}
        by_text: dict[bytes, int] = self._tokenizer.get_vocab()  # get_vocab_vector() fails on tokens that are no UTF-8
        self.vocab = [b""] * (max(by_text.values()) + 1)
        for text, token in by_text.items():
            self.vocab[token] = text
        self.control = [by_text[text.encode()] for text in card.control_tokens if text.encode() in by_text]

    def encode(self, text: str) -> list[int]:
        """See `backend.Backend`."""
        return self._encode([text])

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """See `backend.Backend`."""
        if not self._has_template:
            raise ValueError("this model's file has no chat template: use /v1/completions")
        marked, marker = self._neutraliser.mark(messages)
        turns = [{"role": message.role, "content": message.content} for message in marked]
        text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True)
        return self._encode(text.split(marker) if marker else [text])

    def _encode(self, texts: Sequence[str]) -> list[int]:
        """Token ids of texts that follow each other. The library cuts long ones off: those go through in pieces."""
        ids: list[int] = []
        for text, row in zip(texts, self._rows(texts), strict=True):
            cut_off = len(row) >= _CUT_OFF_TOKENS
            ids += chain.from_iterable(self._rows(list(pieces(text, _CUT_OFF_TOKENS // 4)))) if cut_off else row
        return ids

    def _rows(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Token ids of each text. One call takes many (100 µs a call, 1 µs a text), but pads all to the longest."""
        for batch in batched(texts, _BATCH):
            encoded = self._tokenizer.encode(batch, add_special_tokens=False)
            for ids, mask in zip(encoded.input_ids.data, encoded.attention_mask.data, strict=True):
                yield ids[mask == 1].tolist()

    def add(self, key: int, ids: Sequence[int], sampling: Sampling) -> None:
        """See `backend.Backend`."""
        import numpy as np
        import openvino

        tensor = openvino.Tensor(np.array([ids], dtype=np.int64))
        try:
            self._handles[key] = self._pipeline.add_request(key, tensor, self._config(sampling))
        except RuntimeError as problem:
            raise ValueError(str(problem).strip().splitlines()[-1]) from problem

    def cancel(self, key: int) -> None:
        """See `backend.Backend`."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def busy(self) -> bool:
        """See `backend.Backend`."""
        return bool(self._pipeline.has_non_finished_requests())

    def step(self) -> list[Output]:
        """See `backend.Backend`."""
        self._pipeline.step()
        outputs = [self._read(key, handle) for key, handle in self._handles.items()]
        for output in outputs:
            if output.finish:
                del self._handles[output.key]
        return [output for output in outputs if output.ids or output.finish]

    def _read(self, key: int, handle: Any) -> Output:
        ids: list[int] = []
        reason: Any = None
        ended = handle.get_status() != self._genai.GenerationStatus.RUNNING
        while handle.can_read():
            for part in handle.read().values():
                ids += part.generated_ids
                reason = part.finish_reason
        return Output(key, ids, self._finish(reason) if ended else None)

    def _finish(self, reason: Any) -> Finish:
        reasons = self._genai.GenerationFinishReason
        return "stop" if reason == reasons.STOP else "length" if reason == reasons.LENGTH else "error"

    def _config(self, sampling: Sampling) -> Any:
        config = self._genai.GenerationConfig()
        config.apply_chat_template = False
        config.max_new_tokens = sampling.max_tokens
        config.ignore_eos = sampling.ignore_eos
        config.presence_penalty = sampling.presence_penalty
        config.frequency_penalty = sampling.frequency_penalty
        config.do_sample = sampling.temperature > 0 and sampling.top_p > 0
        if config.do_sample:
            config.temperature, config.top_p, config.rng_seed = sampling.temperature, sampling.top_p, sampling.seed
            if sampling.top_k > 0:
                config.top_k = sampling.top_k
        return config
