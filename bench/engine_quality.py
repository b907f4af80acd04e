"""Which precision should the embedded engine use? 20 simple questions, and perplexity, for each configuration.

Questions go through the same pipeline that serves (greedy, 48 tokens, a pattern that a right answer holds).
Perplexity is of Python's own docstrings (in every installation; the figure depends on the Python version), in
windows of 1,024 tokens fed in pieces of 128, so that the later pieces read the KV cache at its precision.
`python bench/engine_quality.py [--json FILE]`: each configuration runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from unslow.serve.engine.model import find_source, prepare
from unslow.serve.engine.openvino_backend import import_genai

CONFIGURATIONS: dict[str, dict[str, str]] = {
    "library's default": {},
    "balanced (f32, KV u8, groups of 32)": {
        "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "u8", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "32",
    },
    "f32, KV f16": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16"},
    "bf16, KV bf16": {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16"},
    "exact (f32, KV f32, no quantised products)": {
        "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    },
    "Q4_1 as it comes, balanced": {
        "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "u8", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "32",
    },
}  # fmt: skip
QUESTIONS = {
    "What is the capital of France?": "Paris", "What is the capital of Italy?": "Rome",
    "What is the capital of Japan?": "Tokyo", "What is the capital of Germany?": "Berlin",
    "How many days are in a week?": "7|seven", "What is 2 + 2?": "4",
    "What color is the sky on a clear day?": "blue", "What planet do we live on?": "Earth",
    "Who wrote Romeo and Juliet?": "Shakespeare", "What is the chemical symbol for water?": "H2O|H₂O",
    "What is the opposite of hot?": "cold", "Which animal barks?": "dog",
    "What is the largest ocean on Earth?": "Pacific", "How many legs does a spider have?": "8|eight",
    "What language is spoken in Spain?": "Spanish", "What is the freezing point of water in Celsius?": "\\b0|zero",
    "Name the first month of the year.": "January", "What gas do humans need to breathe?": "oxygen",
    "Who was the first president of the United States?": "Washington", "What is the fastest land animal?": "cheetah",
}  # fmt: skip
MODULES = (
    "argparse", "asyncio", "collections", "decimal", "difflib", "doctest", "email", "fractions", "functools", "json",
    "logging", "optparse", "pathlib", "pickle", "random", "re", "shelve", "statistics", "string", "tarfile",
    "textwrap", "typing", "unittest", "zipfile",
)  # fmt: skip
WINDOW, PIECE, WINDOWS = 1_024, 128, 6


def text() -> str:
    """Docstrings of modules and of what they define, in order."""
    parts = []
    for name in MODULES:
        module = importlib.import_module(name)
        members = [member for _, member in sorted(vars(module).items()) if inspect.isclass(member)]
        parts += [inspect.getdoc(item) or "" for item in (module, *members)]
    return "\n\n".join(part for part in parts if part)


def answers(pipeline: Any, genai: Any) -> dict[str, str]:
    tokenizer = pipeline.get_tokenizer()
    said = {}
    for question in QUESTIONS:
        config = genai.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.apply_chat_template = 48, False, False
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
        ids = tokenizer.encode(prompt, add_special_tokens=False).input_ids
        handle, out = pipeline.add_request(0, ids, config), []
        while pipeline.has_non_finished_requests():
            pipeline.step()
            while handle.can_read():
                for part in handle.read().values():
                    out += part.generated_ids
        said[question] = tokenizer.decode(out)
    return said


def perplexity(folder: Path, properties: dict[str, str], ids: np.ndarray[Any, Any]) -> float:
    import openvino

    core = openvino.Core()
    request = core.compile_model(folder / "openvino_model.xml", "CPU", properties).create_infer_request()
    loss, count = 0.0, 0
    for window in range(min(WINDOWS, len(ids) // WINDOW)):
        piece_ids = ids[window * WINDOW : (window + 1) * WINDOW]
        request.reset_state()
        for start in range(0, WINDOW, PIECE):
            end = start + PIECE
            logits = request.infer({
                "input_ids": piece_ids[None, start:end], "attention_mask": np.ones((1, end), np.int64),
                "position_ids": np.arange(start, end)[None], "beam_idx": np.zeros(1, np.int32),
            })["logits"][0].astype(np.float64)  # fmt: skip
            nexts = piece_ids[start + 1 : end + 1]
            rows = logits[: len(nexts)]
            top = rows.max(axis=1)
            norms = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
            loss += float((norms - rows[np.arange(len(nexts)), nexts]).sum())
            count += len(nexts)
    return float(np.exp(loss / count))


def judge(name: str, cache_dir: str) -> dict[str, Any]:
    genai = import_genai()
    source = find_source(None)
    file, _ = prepare(source, Path(cache_dir).expanduser(), print)
    model = source if name.startswith("Q4_1") else file
    properties = CONFIGURATIONS[name]
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks, scheduler.max_num_batched_tokens = 512, 128
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "model.gguf"
        shutil.copyfile(model, copy)
        save = {**properties, "enable_save_ov_model": True}
        pipeline = genai.ContinuousBatchingPipeline(copy, scheduler, "CPU", save)
        began = time.perf_counter()
        said = answers(pipeline, genai)
        took = time.perf_counter() - began
        long = text()[:60_000]
        tokenizer = pipeline.get_tokenizer()
        encoded = [
            tokenizer.encode(long[at : at + 20_000], add_special_tokens=False).input_ids.data[0] for at in (0, 20_000)
        ]
        value = perplexity(Path(folder), properties, np.concatenate(encoded).astype(np.int64))
    right = {question: bool(re.search(QUESTIONS[question], answer, re.IGNORECASE)) for question, answer in said.items()}
    return {"configuration": name, "right": sum(right.values()), "of": len(right), "perplexity": round(value, 3),
            "answers_s": round(took, 1), "france": said["What is the capital of France?"][:60],
            "wrong": {question: said[question][:60] for question, fine in right.items() if not fine}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--cache-dir", default="~/.cache/unslow")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(judge(options.one, options.cache_dir)))
        return
    rows = []
    for name in CONFIGURATIONS:
        command = [sys.executable, __file__, "--one", name, "--cache-dir", options.cache_dir]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        row = rows[-1]
        print(
            f"{row['configuration']:44} {row['right']:2}/{row['of']}  ppl {row['perplexity']:7.3f}  {row['france']}",
            flush=True,
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
