"""xllamacpp: llama.cpp's server inside the step process, for machines that OpenVINO has no wheel for.

The library runs llama-server on threads and a loopback port of its own, so the adapter is an HTTP client of it: a
thread a request reads the answer's token ids and puts them into one queue, from which `step` takes them. Closing a
connection is how llama.cpp is told to stop. A key made for this process keeps others off that port.
"""

from __future__ import annotations

import http.client
import os
import queue
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from unslow.errors import ConfigError

from .backend import Output
from .link import Finish, Message, Sampling
from .model import Card
from .settings import EngineSettings
from .template import Neutraliser

_MAX_PIECES = 256  # each is a call
_STEP_WAIT_S = 0.005  # the longest that a command waits while nothing comes out


class LlamaCppBackend:
    """See `backend.Backend`."""

    name = "llamacpp"

    def __init__(self, file: Path, card: Card, settings: EngineSettings) -> None:
        self._key = secrets.token_hex(16)
        self._server = _start(file, settings, self._key)
        self._port = urlsplit(self._server.listening_address).port or 0
        self._penalty_tokens = card.context_tokens
        self._chatml = "<|im_start|>" in card.chat_template
        self._neutraliser = Neutraliser(card.control_tokens)
        self._default_system = _default_system(card.chat_template)
        self._outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
        self._live: dict[int, http.client.HTTPConnection] = {}
        self.vocab = _vocab(file)
        by_text = {text: token for token, text in enumerate(self.vocab)}
        self.control = [by_text[text.encode()] for text in card.control_tokens if text.encode() in by_text]

    def encode(self, text: str) -> list[int]:
        """See `backend.Backend`."""
        return self._tokenise(text, special=True)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """See `backend.Backend`. ChatML only, which is what the bundled model speaks."""
        if not self._chatml:
            raise ValueError("with llama.cpp, only models with a ChatML template chat: use /v1/completions")
        marked, marker = self._neutraliser.mark(messages)
        turns = [f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in marked]
        if marked[0].role != "system" and self._default_system:
            turns.insert(0, f"<|im_start|>system\n{self._default_system}<|im_end|>\n")
        text = "".join(turns) + "<|im_start|>assistant\n"
        cut = text.split(marker) if marker else [text]
        if len(cut) > _MAX_PIECES:
            raise ValueError("the messages hold too many texts of control tokens")
        return [token for piece in cut for token in self.encode(piece)]

    def add(self, key: int, ids: Sequence[int], sampling: Sampling) -> None:
        """See `backend.Backend`."""
        body = {
            "prompt": list(ids),
            "n_predict": sampling.max_tokens,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "temperature": sampling.temperature if sampling.top_p > 0 else 0.0,
            "top_p": sampling.top_p,
            "top_k": max(0, sampling.top_k),
            "min_p": 0.0,
            "seed": sampling.seed,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "repeat_last_n": self._penalty_tokens,
            "ignore_eos": sampling.ignore_eos,
        }
        connection = self._connect()
        self._live[key] = connection
        threading.Thread(target=self._follow, args=(key, connection, msgspec.json.encode(body)), daemon=True).start()

    def cancel(self, key: int) -> None:
        """See `backend.Backend`."""
        connection = self._live.pop(key, None)
        if connection is not None and connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)

    def busy(self) -> bool:
        """See `backend.Backend`."""
        return bool(self._live)

    def step(self) -> list[Output]:
        """Whatever has come since; waits a few milliseconds for it."""
        try:
            outputs = [self._outputs.get(timeout=_STEP_WAIT_S)]
        except queue.Empty:
            return []
        while not self._outputs.empty():
            outputs.append(self._outputs.get())
        outputs = [output for output in outputs if output.key in self._live]
        for output in outputs:
            if output.finish:
                self._live.pop(output.key, None)
        return outputs

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)

    def _post(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> http.client.HTTPResponse:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._key}"}
        connection.request("POST", path, body, headers)
        return connection.getresponse()

    def _tokenise(self, text: str, *, special: bool) -> list[int]:
        connection = self._connect()
        try:
            body = {"content": text, "add_special": False, "parse_special": special}
            answer = msgspec.json.decode(self._post(connection, "/tokenize", msgspec.json.encode(body)).read())
        finally:
            connection.close()
        return [int(token) for token in answer["tokens"]]

    def _follow(self, key: int, connection: http.client.HTTPConnection, body: bytes) -> None:
        """Read one answer to its end, on a thread of its own."""
        finish: Finish = "error"
        try:
            response = self._post(connection, "/completion", body)
            if response.status != http.HTTPStatus.OK:
                print(f"llama.cpp: {response.read(500)!r}", file=sys.stderr)  # noqa: T201
            for line in response:
                if line.startswith(b"data: {"):
                    event = msgspec.json.decode(line[6:])
                    ended = bool(event.get("stop"))
                    self._outputs.put(Output(key, event.get("tokens") or [], _finish(event) if ended else None))
                    if ended:
                        return
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            finish = "error"  # cancelled, in most cases: then nobody reads the output
        finally:
            connection.close()
        self._outputs.put(Output(key, [], finish))


def _finish(event: dict[str, Any]) -> Finish:
    return "length" if event.get("stop_type") == "limit" else "stop"


def _start(file: Path, settings: EngineSettings, key: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx = settings.kv_tokens
    params.n_parallel = settings.max_streams
    params.kv_unified = True
    params.n_batch = params.n_ubatch = settings.max_batched_tokens
    params.cpuparams.n_threads = settings.threads or _cores()
    params.api_keys = [key]
    try:
        return xllamacpp.Server(params)
    except RuntimeError as problem:
        raise ConfigError(f"llama.cpp cannot load {file}: {problem}", key="engine.model_path") from problem


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _vocab(file: Path) -> list[bytes]:
    """Tokens' bytes: GGUF keeps GPT-2's printable stand-ins for them."""
    from gguf import GGUFReader

    fields = GGUFReader(file).fields
    if fields["tokenizer.ggml.model"].contents() != "gpt2":
        raise ConfigError("with llama.cpp, only byte-level BPE models are supported", key="engine.model_path")
    tokens = fields["tokenizer.ggml.tokens"].contents()
    table = _stand_ins()
    return [b"".join(table.get(c, c.encode()) for c in token) for token in tokens]


def _stand_ins() -> dict[str, bytes]:
    """GPT-2's map: printable bytes stand for themselves, the others for characters from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    table = {chr(byte): bytes([byte]) for byte in plain}
    return table | {chr(256 + index): bytes([byte]) for index, byte in enumerate(rest)}


def _default_system(template: str) -> str:
    """The system turn that a ChatML template puts first where the chat has none."""
    start = template.find("<|im_start|>system\n")
    end = template.find("<|im_end|>", start)
    return template[start + len("<|im_start|>system\n") : end] if 0 <= start < end else ""
