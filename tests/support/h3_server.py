"""A scripted HTTP/3 server: aioquic in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, QuicEvent

Answer = Callable[["H3Peer", int], Awaitable[None]]


class H3Peer(QuicConnectionProtocol):
    """The server's end of an HTTP/3 connection."""

    def __init__(self, *args: Any, answer: Answer, heads: list[dict[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answer, self._heads = answer, heads
        self._h3: H3Connection | None = None
        self._tasks: list[asyncio.Future[None]] = []

    def quic_event_received(self, event: QuicEvent) -> None:
        """Take what came in."""
        if isinstance(event, ProtocolNegotiated):
            self._h3 = H3Connection(self._quic)
        for part in self._h3.handle_event(event) if self._h3 else []:
            if isinstance(part, HeadersReceived):
                self._heads.append({k.decode(): v.decode() for k, v in part.headers})
            if isinstance(part, HeadersReceived | DataReceived) and part.stream_ended:
                self._tasks.append(asyncio.ensure_future(self._answer(self, part.stream_id)))

    def begin(self, stream: int, status: int = 200, **headers: str) -> None:
        """Send response headers."""
        assert self._h3 is not None
        rows = [(b":status", str(status).encode())]
        rows += [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        self._h3.send_headers(stream, rows)
        self.transmit()

    def data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send a DATA frame."""
        assert self._h3 is not None
        self._h3.send_data(stream, data, end)
        self.transmit()


class H3Server:
    """Listens on an ephemeral UDP port."""

    def __init__(self, answer: Answer, certificate: Path, key: Path) -> None:
        self.heads: list[dict[str, str]] = []
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(answer, certificate, key), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"https://localhost:{self.port}"

    def close(self) -> None:
        """Stop and wait."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self, answer: Answer, certificate: Path, key: Path) -> None:
        self._loop.run_until_complete(self._serve(answer, certificate, key))
        self._loop.close()

    async def _serve(self, answer: Answer, certificate: Path, key: Path) -> None:
        configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
        configuration.load_cert_chain(certificate, key)

        def protocol(*args: Any, **kwargs: Any) -> H3Peer:
            return H3Peer(*args, answer=answer, heads=self.heads, **kwargs)

        server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=protocol)
        transport = server._transport
        assert transport is not None
        self.port = transport.get_extra_info("sockname")[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.05)  # for the transport to be closed by the loop


@contextlib.contextmanager
def serving_h3(answer: Answer, certificate: Path, key: Path) -> Iterator[H3Server]:
    """A server for the length of a block."""
    server = H3Server(answer, certificate, key)
    try:
        yield server
    finally:
        server.close()
