"""A scripted upstream on a real loopback socket: it does exactly what a test tells it, bytes and all.

async def script(call: Call) -> None:      # one call a request
    await call.send(json_answer({"ok": True}))

async with Upstream(script) as upstream:
    ...  # upstream.url, upstream.calls
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Literal


class Call:
    """One request as it arrived, and the means to answer it byte by byte."""

    def __init__(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        self.reader, self.writer, self.connection = reader, writer, connection
        line, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.fields = [tuple(one.split(": ", 1)) for one in lines if one]
        self.headers = {name.lower(): value for name, value in self.fields}
        self.body = b""
        self.closed = self.answered = False
        self.keep = True

    async def read_body(self) -> bytes:
        """Read the body, however it is framed."""
        if self.headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(await self.reader.readuntil(b"\n"), 16):
                parts.append(await self.reader.readexactly(size))
                await self.reader.readexactly(2)
            await self.reader.readuntil(b"\n")
            self.body = b"".join(parts)
        elif "content-length" in self.headers:
            self.body = await self.reader.readexactly(int(self.headers["content-length"]))
        return self.body

    async def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """End the connection after what was written."""
        self.keep = False
        self.writer.close()

    def reset(self) -> None:
        """End the connection with a reset."""
        self.keep = False
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER: on, 0 s
        self.writer.transport.abort()

    async def until_closed(self) -> None:
        """Wait until the other side ends the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.closed = True
        self.keep = False


Script = Callable[[Call], Awaitable[None]]


Then = Literal["keep", "close", "reset", "silence"]


def sends(*pieces: bytes, then: Then = "close", pause_s: float = 0.02) -> Script:
    """A script that sends bytes, and then goes on, closes, resets or says no more."""

    async def script(call: Call) -> None:
        for piece in pieces:
            await call.send(piece)
            await asyncio.sleep(pause_s)
        if then == "close":
            call.close()
        elif then == "reset":
            call.reset()
        elif then == "silence":
            await call.until_closed()

    return script


class Upstream:
    """A server that runs `script` for each request."""

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        read_body: bool = True,
        receive_bytes: int | None = None,
    ) -> None:
        self.script, self._tls, self._read_body, self._receive_bytes = script, tls, read_body, receive_bytes
        self.calls: list[Call] = []
        self.connections = 0
        """So many were accepted so far."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._tasks)

    @property
    def url(self) -> str:
        """The base that OpenAI clients call `base_url`."""
        return f"http{'s' if self._tls else ''}://{'localhost' if self._tls else '127.0.0.1'}:{self.port}/v1"

    async def __aenter__(self) -> Upstream:
        await self.start()
        return self

    async def start(self, port: int = 0) -> None:
        """Listen; a given port is one that was listened on before."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio: TCP_NODELAY for these
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        limit = 1 << 16
        if self._receive_bytes is not None:  # what is accepted inherits it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
            limit = self._receive_bytes
        sock.bind(("127.0.0.1", port))
        self._server = await asyncio.start_server(self.serve, sock=sock, ssl=self._tls, limit=limit)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        self._server.close()
        await self.end()

    async def end(self) -> None:
        """End every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._calls(reader, writer, self.connections)
        self._tasks.discard(task)
        writer.close()

    async def _calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        keep = True
        while keep:
            head = await reader.readuntil(b"\r\n\r\n")
            call = Call(head[:-4], reader, writer, connection)
            self.calls.append(call)
            if self._read_body:
                await call.read_body()
            await self.script(call)
            keep = call.keep


def json_answer(value: Any, status: str = "200 OK", extra: str = "") -> bytes:
    """A whole answer with a JSON body."""
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(text: str | None = None, **more: Any) -> bytes:
    """One event of OpenAI's chat stream."""
    inner: dict[str, Any] = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": inner | more, "finish_reason": None}
    frame = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "mock", "choices": [choice]}
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


def last_delta(prompt_tokens: int = 3, completion_tokens: int = 2) -> bytes:
    """The events that end OpenAI's chat stream before `[DONE]`: finish reason, then usage."""
    frame: dict[str, Any] = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "mock"}
    end = frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    total = prompt_tokens + completion_tokens
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}
    counted = frame | {"choices": [], "usage": usage}
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (end, counted))


def completion(text: str = "hello") -> dict[str, Any]:
    """A whole chat completion."""
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


async def chat(call: Call) -> None:
    """A well-behaved chat API: streams if it is asked to."""
    if call.target.endswith("/models"):
        await call.send(json_answer({"object": "list", "data": [{"id": "mock", "object": "model"}]}))
        return
    asked = json.loads(call.body or b"{}")
    if not asked.get("stream"):
        await call.send(json_answer(completion()))
        return
    await call.send(SSE_HEAD + chunk(delta(role="assistant")))
    for text in ("hel", "lo"):
        await call.send(chunk(delta(text)))
    await call.send(chunk(last_delta()) + chunk(DONE) + LAST_CHUNK)


def named(name: str, value: Any) -> bytes:
    """A named event, as Anthropic's and OpenAI's Responses streams have them."""
    return f"event: {name}\ndata: {json.dumps({'type': name} | value)}\n\n".encode()


MESSAGE: dict[str, Any] = {"id": "m1", "type": "message", "role": "assistant", "model": "mock", "stop_sequence": None}


async def messages(call: Call) -> None:
    """Anthropic's Messages API."""
    text = {"type": "text", "text": "hello"}
    if call.target.startswith("/v1/messages/count_tokens"):
        await call.send(json_answer({"input_tokens": 3}))
    elif not json.loads(call.body).get("stream"):
        usage = {"input_tokens": 3, "output_tokens": 2}
        await call.send(json_answer(MESSAGE | {"content": [text], "stop_reason": "end_turn", "usage": usage}))
    else:
        start = MESSAGE | {"content": [], "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 1}}
        await call.send(SSE_HEAD + chunk(named("message_start", {"message": start})))
        await call.send(chunk(named("content_block_start", {"index": 0, "content_block": text | {"text": ""}})))
        for part in ("hel", "lo"):
            said = {"index": 0, "delta": {"type": "text_delta", "text": part}}
            await call.send(chunk(named("content_block_delta", said)))
        end = {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 2}}
        await call.send(chunk(named("content_block_stop", {"index": 0})) + chunk(named("message_delta", end)))
        await call.send(chunk(named("message_stop", {})) + LAST_CHUNK)


async def responses(call: Call) -> None:
    """OpenAI's Responses API, streamed."""
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    begun = {"id": "r1", "object": "response", "created_at": 1, "model": "mock", "output": [], "status": "in_progress"}
    said = {"item_id": "i", "output_index": 0, "content_index": 0, "delta": "hello", "sequence_number": 1}
    await call.send(SSE_HEAD + chunk(named("response.created", {"response": begun, "sequence_number": 0})))
    await call.send(chunk(named("response.output_text.delta", said)))
    ended = begun | {"status": "completed", "usage": usage}
    await call.send(chunk(named("response.completed", {"response": ended, "sequence_number": 2})) + LAST_CHUNK)


async def both_apis(call: Call) -> None:
    """OpenAI's endpoints and Anthropic's."""
    path = call.target.partition("?")[0]
    if path.startswith("/v1/messages"):
        await messages(call)
    elif path == "/v1/responses":
        await responses(call)
    elif path == "/v1/embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        await call.send(json_answer({"object": "list", "model": "mock", "data": [vector], "usage": usage}))
    elif path == "/v1/audio/transcriptions":
        await call.send(json_answer({"text": f"heard {call.body.count(bytes(range(256))) * 256}"}))
    elif path == "/v1/audio/speech":
        sound = bytes(range(256))
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 256\r\n\r\n" + sound)
    elif path.startswith("/v1/models/"):
        await call.send(json_answer({"id": path[11:], "object": "model", "created": 1, "owned_by": "x"}))
    else:
        await chat(call)
