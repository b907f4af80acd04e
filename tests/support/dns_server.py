"""A scripted name server on a loopback UDP port."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


class Said(NamedTuple):
    """What the server says to one type of question: addresses, after a delay; None for silence."""

    addresses: tuple[str, ...] = ()
    delay_s: float = 0.0
    silent: bool = False
    rcode: str = "NOERROR"
    cut: bool = False


NOTHING = Said()


def _both() -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket on one port: one that is free for the first may be taken for the second."""
    for _ in range(50):
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", 0))
        try:
            return datagrams, socket.create_server(datagrams.getsockname())
        except OSError:
            datagrams.close()
    raise OSError("no port is free for both UDP and TCP")


class NameServer:
    """Answers A and AAAA questions; remembers the names asked for."""

    def __init__(self, a: Said, aaaa: Said) -> None:
        self._said = {"A": a, "AAAA": aaaa}
        self._sock, self._listener = _both()
        self.port: int = self._sock.getsockname()[1]
        self.asked: list[tuple[str, str]] = []
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._run, daemon=True)
        self._main.start()
        self._threads.append(threading.Thread(target=self._run_tcp, daemon=True))
        self._threads[0].start()

    @property
    def address(self) -> str:
        """As `nameservers` takes it."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._listener.close()
        for thread in (self._main, *self._threads):
            thread.join(5)

    def _run(self) -> None:
        while True:
            try:
                data, client = self._sock.recvfrom(4096)
            except OSError:
                return
            if not data:
                return
            query = dns.message.from_wire(data)
            kind = query.question[0].rdtype.name
            self.asked.append((query.question[0].name.to_text(), kind))
            thread = threading.Thread(target=self._answer, args=(query, self._said[kind], client), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, query: dns.message.Message, said: Said, client: tuple[str, int]) -> None:
        if said.silent:
            return
        time.sleep(said.delay_s)
        answer = self._response(query, said)
        if said.cut:
            answer.answer = []
            answer.flags |= dns.flags.TC
        with contextlib.suppress(OSError):
            self._sock.sendto(answer.to_wire(), client)

    def _response(self, query: dns.message.Message, said: Said) -> dns.message.Message:
        answer = dns.message.make_response(query)
        answer.set_rcode(dns.rcode.from_text(said.rcode))
        if said.addresses:
            question = query.question[0]
            answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", question.rdtype.name, *said.addresses))
        return answer

    def _run_tcp(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                data = sock.recv(4096)
                query = dns.message.from_wire(data[2:])
                kind = query.question[0].rdtype.name
                self.asked.append((query.question[0].name.to_text(), f"{kind} over TCP"))
                wire = self._response(query, self._said[kind]).to_wire()
                sock.sendall(len(wire).to_bytes(2, "big") + wire)


@contextlib.contextmanager
def naming(a: Said = NOTHING, aaaa: Said = NOTHING) -> Iterator[NameServer]:
    """A name server for the length of a block."""
    server = NameServer(a, aaaa)
    try:
        yield server
    finally:
        server.close()
