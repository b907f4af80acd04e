"""A scripted HTTP/2 server: the h2 library on a peer's socket."""

from __future__ import annotations

from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from tests.support.timed_server import Peer, Play

Answer = Callable[["H2Peer", int, dict[str, str], bytes], None]


class H2Peer:
    """The server's end of an HTTP/2 connection."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> int:
        """Send what h2 wants to send."""
        return self.peer.send(self.h2.data_to_send())

    def begin(self, stream: int, status: int = 200, kind: str = "text/event-stream") -> int:
        """Send response headers."""
        self.h2.send_headers(stream, [(":status", str(status)), ("content-type", kind)])
        return self.flush()

    def data(self, stream: int, data: bytes, *, end: bool = False) -> int:
        """Send one DATA frame in a write of its own."""
        self.h2.send_data(stream, data, end_stream=end)
        return self.flush()


def h2_play(answer: Answer) -> Play:
    """Serve a connection: `answer` is called with each whole request."""

    def play(peer: Peer) -> None:
        server = H2Peer(peer)
        heads: dict[int, dict[str, str]] = {}
        bodies: dict[int, bytes] = {}
        while data := peer.sock.recv(65536):
            try:
                events = server.h2.receive_data(data)
            except h2.exceptions.ProtocolError:
                return  # the connection is over for us
            for event in events:
                if isinstance(event, h2.events.RequestReceived):
                    heads[event.stream_id] = {str(k): str(v) for k, v in event.headers or []}
                    bodies[event.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data or b""
                    server.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    answer(server, event.stream_id, heads[event.stream_id], bodies[event.stream_id])
            server.flush()

    return play
