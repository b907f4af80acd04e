"""The upstream that every relay is measured against: an OpenAI-shaped server of known timing, as cheap as can be.

    python mock.py PORT

`x-bench-events`, `x-bench-gap-ms` and `x-bench-ttft-ms` request headers say how many token events a stream has, how
far apart they are and when the first one comes; relays pass them on, or `user` in the body says the same
("events,gap_ms,ttft_ms") for those that do not.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import cast

import httptools
import uvloop

MODELS = b'{"object":"list","data":[{"id":"mock","object":"model","created":1,"owned_by":"bench"}]}'
ANSWER = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "mock",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "All is well. " * 16}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 20, "completion_tokens": 64, "total_tokens": 84},
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n"
STREAM_HEAD = HEAD % (b"text/event-stream; charset=utf-8", b"cache-control: no-cache\r\ntransfer-encoding: chunked")
PACE = re.compile(rb'"user": ?"([0-9.,]+)"')


def frame(delta: dict[str, str], finish: str | None = None) -> bytes:
    """One stream event in its own HTTP chunk."""
    body = {
        "id": "chatcmpl-bench-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "mock",
        "system_fingerprint": "fp_bench",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    data = b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


ROLE, TOKEN, STOP = frame({"role": "assistant", "content": ""}), frame({"content": " token"}), frame({}, "stop")
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Server(asyncio.Protocol):
    """One connection; answers one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.url, self.body = b"", b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        url, body, self.body = self.url, self.body, b""
        if b"chat" not in url:
            out = MODELS if url.endswith(b"/models") else b"{}"
            self.transport.write(HEAD % (b"application/json", b"content-length: %d" % len(out)) + out)
        elif b'"stream": true' in body or b'"stream":true' in body:
            found = PACE.search(body)
            events, gap_ms, ttft_ms = (float(x) for x in (found[1].decode() if found else "100,20,0").split(","))
            self.transport.write(STREAM_HEAD + ROLE)
            at = self.loop.time() + ttft_ms / 1e3
            self.loop.call_at(at, self.token, int(events), gap_ms / 1e3, at)
        else:
            self.transport.write(HEAD % (b"application/json", b"content-length: %d" % len(ANSWER)) + ANSWER)

    def token(self, left: int, gap_s: float, at: float) -> None:
        if self.transport.is_closing():
            return
        if left == 0:
            self.transport.write(STOP + END)
            return
        self.transport.write(TOKEN)
        at += gap_s
        self.loop.call_at(at, self.token, left - 1, gap_s, at)


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
