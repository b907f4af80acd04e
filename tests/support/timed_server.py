"""Scripted servers on real loopback sockets: each connection is handed to a function that plays its part.

What a server sends it stamps on the monotonic clock that the client uses too, so a test can compare the two.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence

Play = Callable[["Peer"], None]


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, server: TimedServer) -> None:
        self.sock, self.server = sock, server
        self.sent: list[tuple[int, bytes]] = []
        self._held = b""

    def request(self) -> tuple[bytes, dict[str, str], bytes]:
        """Read one HTTP/1.1 request: request line, headers (lower case), body. Empty line at the end of input."""
        while b"\r\n\r\n" not in self._held:
            data = self.sock.recv(65536)
            if not data:
                return b"", {}, b""
            self._held += data
        head, _, rest = self._held.partition(b"\r\n\r\n")
        line, *rows = head.split(b"\r\n")
        headers = {k.decode().lower(): v.strip().decode() for k, _, v in (row.partition(b":") for row in rows)}
        size = int(headers.get("content-length", "0"))
        while len(rest) < size:
            data = self.sock.recv(65536)
            if not data:
                return b"", {}, b""
            rest += data
        self._held = rest[size:]
        self.server.requests.append((line, headers, rest[:size]))
        return line, headers, rest[:size]

    def send(self, data: bytes) -> int:
        """Send, and give the moment just before."""
        at = time.perf_counter_ns()
        self.sock.sendall(data)
        self.sent.append((at, data))
        return at

    def answer(self, body: bytes, *, status: str = "200 OK", kind: str = "application/json", more: str = "") -> None:
        """Send a whole answer with a length."""
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        self.send(head.encode() + body)

    def begin_stream(self, *, kind: str = "text/event-stream", more: str = "") -> int:
        """Send the head of a chunked answer."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n{more}\r\n"
        return self.send(head.encode())

    def chunk(self, data: bytes) -> int:
        """Send one HTTP chunk in one write."""
        return self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> int:
        """Send the last chunk."""
        return self.send(b"0\r\n\r\n")


class TimedServer:
    """Listens on an ephemeral port and plays `play` on every connection, each in a thread of its own."""

    def __init__(self, play: Play, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._play, self._tls = play, tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.peers: list[Peer] = []
        self.requests: list[tuple[bytes, dict[str, str], bytes]] = []
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def url(self) -> str:
        """Its base URL, without a path."""
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}"

    def close(self) -> None:
        """Stop listening, cut what is open, and wait for the threads."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in (self._accepting, *self._threads):
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            peer = Peer(sock, self)
            self.peers.append(peer)
            self._play(peer)
        except Exception as error:  # noqa: BLE001  a client that went away breaks a play anywhere
            self.errors.append(error)
        finally:
            sock.close()


@contextlib.contextmanager
def serving(play: Play, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[TimedServer]:
    """A server for the length of a block."""
    server = TimedServer(play, tls=tls, host=host)
    try:
        yield server
    finally:
        server.close()


def closed_port() -> int:
    """A port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def event(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    """One chat.completion.chunk as an SSE event."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    frame = {"id": "c1", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice], **more}
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


def usage_event(prompt: int, completion: int, **more: object) -> bytes:
    """The usage frame that ends a stream with `include_usage`."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return (
        b"data: " + json.dumps({"id": "c1", "model": "m-1", "choices": [], "usage": usage, **more}).encode() + b"\n\n"
    )


DONE = b"data: [DONE]\n\n"


def chat_frames(words: Sequence[str]) -> list[bytes]:
    """A whole chat answer as events: the early role, one chunk a word, the end, usage, the end mark."""
    frames = [event({"role": "assistant", "content": ""})]
    frames += [event({"content": word}) for word in words]
    return [*frames, event({}, "stop"), usage_event(5, len(words)), DONE]


def chat(words: Sequence[str] = ("Hel", "lo", " there", "."), *, gap_s: float = 0.0) -> Play:
    """Answer every request on a connection: a model list for GET, a streamed chat for POST."""

    def play(peer: Peer) -> None:
        while True:
            line, _, _ = peer.request()
            if not line:
                return
            if line.startswith(b"GET"):
                peer.answer(b'{"object":"list","data":[{"id":"m-1","object":"model"}]}')
                continue
            peer.begin_stream()
            for frame in chat_frames(words):
                time.sleep(gap_s)
                peer.chunk(frame)
            peer.end_stream()

    return play
