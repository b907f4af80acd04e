"""A gateway worker as a child process, as the supervisor starts it, and plain clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.support.nursery import Child, forked
from tests.support.upstream import Upstream

from unslow.serve.gateway.settings import GatewaySettings, UpstreamSettings


class Relay:
    """A running worker."""

    def __init__(self, process: Child, port: int) -> None:
        self.process, self.port = process, port

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    def rss_bytes(self) -> int:
        """Its resident memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - the number is all we want

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.returncode is None

    def terminate(self) -> None:
        """Ask it to drain and stop."""
        self.process.send_signal(signal.SIGTERM)


class Plain(NamedTuple):
    """A worker with default settings, before one scripted upstream."""

    upstream: Upstream
    gateway: Relay

    @property
    def port(self) -> int:
        """The gateway's."""
        return self.gateway.port


class Reply(NamedTuple):
    """An answer read off the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error of ours."""
        return str(self.json()["error"]["code"])


async def worker(line: bytes) -> asyncio.subprocess.Process:
    """The process as the supervisor executes it, told this line."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "unslow.serve.gateway", stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdin is not None
    process.stdin.write(line)
    return process


@contextlib.asynccontextmanager
async def relay(*upstreams: str | UpstreamSettings, **settings: Any) -> AsyncIterator[Relay]:
    """Start a worker in front of these upstreams; it is stopped, and has to stop well and in silence, at the end."""
    listed = tuple(
        one if isinstance(one, UpstreamSettings) else UpstreamSettings(name=f"up{n}", url=one)
        for n, one in enumerate(upstreams)
    )
    process = await forked()
    process.write(msgspec.json.encode(GatewaySettings(upstreams=listed, port=0, **settings)) + b"\n")
    line = await process.readline()
    try:
        assert line.startswith(b"ready "), line
        yield Relay(process, int(json.loads(line[6:])["address"].rpartition(":")[2]))
    finally:
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
    assert (code, said := process.errors()) == (0, ""), f"the worker ended with {code} and said {said}"


async def read_reply(reader: asyncio.StreamReader, method: str = "GET") -> Reply:
    """One whole answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in head[1:]:
        name, _, value = line.partition(": ")
        if name:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    status = int(head[0].split(" ")[1])
    if method == "HEAD" or status in (204, 304) or status < 200:
        return Reply(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
        return Reply(status, headers, b"".join(parts))
    if "content-length" in headers:
        return Reply(status, headers, await reader.readexactly(int(headers["content-length"])))
    return Reply(status, headers, await reader.read())


async def becomes(true: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait for something that must become true."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def connected(
    port: int, *, receive_bytes: int | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's connection; heads of up to 256 KiB can be read from it. One that reads slowly has a small buffer."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio: TCP_NODELAY for these
    sock.setblocking(False)
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=256 << 10 if receive_bytes is None else 1024)
    except BaseException:
        sock.close()
        raise
    try:
        yield reader, writer
    finally:
        writer.close()


async def everything(port: int, *pieces: bytes, pause_s: float = 0.0, within_s: float = 15.0) -> bytes:
    """Send pieces on a connection of their own: all that comes until the gateway ends it, by whatever end."""
    got = b""
    async with connected(port) as (reader, writer):
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(within_s):
                while piece := await reader.read(65536):
                    got += piece
    return got


async def say(port: int, data: bytes, method: str = "GET") -> Reply:
    """Send raw bytes on a connection of their own, read one answer."""
    async with connected(port) as (reader, writer):
        writer.write(data)
        return await read_reply(reader, method)


def request(method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
    """A well-formed request; header names are written with underscores."""
    lines = {"host": "127.0.0.1"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        lines = {"content-type": "application/json", "content-length": str(len(body))} | lines
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")


def ask(stream: bool = False, model: str = "mock", **headers: str) -> bytes:
    """A chat request."""
    body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}).encode()
    return request("POST", "/v1/chat/completions", body, **headers)
