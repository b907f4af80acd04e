"""A GGUF file of a model that is too small to be one."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make_gguf(path: Path | str, kind: str = "Q4_1") -> Any:
    """A model of one block: 64 × 32 weights; returns the weights."""
    import gguf
    import numpy as np

    rng = np.random.default_rng(1)
    weights = rng.standard_normal((64, 32)).astype(np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_file_type(3)
    writer.add_token_list(["<|end|>", "a", "ä"])
    writer.add_token_types([3, 1, 1])
    writer.add_chat_template("{{ messages }}")
    quantised = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[kind])
    writer.add_tensor("blk.0.w", quantised, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.add_tensor("norm", np.ones(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights
