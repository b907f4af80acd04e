"""TLS to upstreams: verified by name and authority, at least 1.2, sessions resumed, all else as without it."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from tests.support.gateway import ask, becomes, connected, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.tls import Certificates
from tests.support.upstream import DONE, LAST_CHUNK, SSE_HEAD, Call, Script, Upstream, chat, chunk, delta, json_answer

from unslow.core.timeline import End, Phase
from unslow.serve.gateway.settings import UpstreamSettings

pytestmark = pytest.mark.anyio


def trusting(upstream: Upstream, certificates: Certificates | None, host: str = "localhost") -> UpstreamSettings:
    """An upstream whose certificate is checked against this authority (None: the system's)."""
    url = f"https://{host}:{upstream.port}/v1"
    return UpstreamSettings(name="up0", url=url, ca_file=certificates.file if certificates else None)


def seen_tls(call: Call) -> ssl.SSLObject:
    return call.writer.get_extra_info("ssl_object")  # type: ignore[no-any-return]


async def says_tls(call: Call) -> None:
    tls = seen_tls(call)
    await call.send(json_answer({"version": tls.version(), "reused": tls.session_reused}))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
async def test_an_authority_of_our_own(version: ssl.TLSVersion, certificates: Certificates, records: Records) -> None:
    context = certificates.context()
    context.maximum_version = version
    async with (
        Upstream(says_tls, tls=context) as upstream,
        relay(trusting(upstream, certificates), recorder_socket=records.path, pool_idle_s=0.0) as gateway,
    ):
        reply = await say(gateway.port, ask())
        assert reply.json()["version"] == version.name.replace("_", ".")
        timeline = (await records.wait())[0].timeline
    tls = next(span for span in timeline.spans if span.phase is Phase.TLS)
    assert tls.duration_ns > 0
    assert float(reply.headers["server-timing"].split("connect;dur=")[1].split(",")[0]) * 1e6 >= tls.duration_ns - 1000


async def test_sessions_are_resumed(certificates: Certificates) -> None:
    """Each request on a connection of its own: all but the first few handshakes go without certificates."""
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        context = certificates.context()
        context.maximum_version = version
        async with (
            Upstream(says_tls, tls=context) as upstream,
            relay(trusting(upstream, certificates), pool_idle_s=0.0) as gateway,
        ):
            reused = [(await say(gateway.port, ask())).json()["reused"] for _ in range(5)]
        assert all(reused[1:]), (version, reused)  # the probe at the start may have had the first one already


def wrong_name(certificates: Certificates) -> ssl.SSLContext:
    return certificates.context("other.example")


def expired(certificates: Certificates) -> ssl.SSLContext:
    return certificates.context(expired=True)


def foreign(_certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    return context


@pytest.mark.parametrize("make", [wrong_name, expired, foreign])
async def test_a_certificate_that_does_not_hold_is_refused(
    make: object, certificates: Certificates, records: Records
) -> None:
    context: ssl.SSLContext = make(certificates)  # type: ignore[operator]
    async with (
        Upstream(chat, tls=context) as upstream,
        relay(trusting(upstream, certificates), recorder_socket=records.path) as gateway,
    ):
        reply = await say(gateway.port, ask(authorization="Bearer sk-secret"))
        assert (reply.status, reply.code) == (502, "connect_failed")
        assert "certificate" in reply.json()["error"]["message"].lower()
        assert (await say(gateway.port, request("GET", "/readyz", None))).status == 503
        outcome = (await records.wait())[0].timeline.outcome
        assert not upstream.calls
    assert outcome.phase is Phase.TLS


async def test_the_system_does_not_trust_our_authority(certificates: Certificates) -> None:
    async with Upstream(chat, tls=certificates.context()) as upstream, relay(trusting(upstream, None)) as gateway:
        assert (await say(gateway.port, ask())).code == "connect_failed"
        assert not upstream.calls


async def test_an_address_needs_a_certificate_for_it(certificates: Certificates) -> None:
    async with (
        Upstream(chat, tls=certificates.context()) as upstream,
        relay(trusting(upstream, certificates, "127.0.0.1")) as gateway,
    ):
        assert (await say(gateway.port, ask())).code == "connect_failed"
    async with (
        Upstream(chat, tls=certificates.context("127.0.0.1")) as upstream,
        relay(trusting(upstream, certificates, "127.0.0.1")) as gateway,
    ):
        assert (await say(gateway.port, ask())).status == 200


async def test_tls_older_than_1_2_is_not_spoken(certificates: Certificates) -> None:
    context = certificates.context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with Upstream(chat, tls=context) as upstream, relay(trusting(upstream, certificates)) as gateway:
        assert (await say(gateway.port, ask())).code == "connect_failed"
        assert not upstream.calls


async def test_streams_pass_as_they_come_and_connections_are_kept(certificates: Certificates) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    async def script(call: Call) -> None:
        gate = gates[len(upstream.calls) - 1]
        await call.send(SSE_HEAD + chunk(delta("a")))
        await gate.wait()
        await call.send(chunk(delta("b")) + chunk(DONE) + LAST_CHUNK)

    async with (
        Upstream(script, tls=certificates.context()) as upstream,
        relay(trusting(upstream, certificates)) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        for gate in gates:
            writer.write(ask(stream=True))
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(chunk(delta("a")))) == chunk(delta("a"))
            gate.set()
            assert await reader.readuntil(LAST_CHUNK) == chunk(delta("b")) + chunk(DONE) + LAST_CHUNK
        assert upstream.connections <= 2


async def test_large_bodies_pass_both_ways(certificates: Certificates) -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(call.body) + call.body)

    body = bytes(range(256)) * 20_000
    async with (
        Upstream(script, tls=certificates.context()) as upstream,
        relay(trusting(upstream, certificates)) as gateway,
    ):
        assert (await say(gateway.port, request("POST", "/v1/x", body))).body == body


async def stream_then(end: str) -> Script:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")))
        if end == "abort":
            call.writer.transport.abort()
            call.keep = False
        else:
            call.close()

    return script


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_cut_stream_ends_uncleanly(end: str, certificates: Certificates, records: Records) -> None:
    async with (
        Upstream(await stream_then(end), tls=certificates.context()) as upstream,
        relay(trusting(upstream, certificates), recorder_socket=records.path) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(ask(stream=True))
        got = await reader.read()
        assert got.endswith(chunk(delta("a")))
        outcome = (await records.wait())[0].timeline.outcome
    assert (outcome.end, outcome.kind) == (End.FAILED, "upstream_lost")


async def test_a_body_until_close_that_lost_its_end_is_no_whole_one(certificates: Certificates) -> None:
    """TLS says when a side is done. What ends without that may have been cut by anybody (RFC 8446, section 6.1)."""

    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nhalf of")
        await asyncio.sleep(0.05)
        call.writer.transport.abort()
        call.keep = False

    async with (
        Upstream(script, tls=certificates.context()) as upstream,
        relay(trusting(upstream, certificates)) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        writer.write(request("GET", "/v1/x", None))
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_client_that_leaves_is_heard_through_tls(certificates: Certificates) -> None:
    async def script(call: Call) -> None:
        await call.send(SSE_HEAD + chunk(delta("a")))
        await call.until_closed()

    async with (
        Upstream(script, tls=certificates.context()) as upstream,
        relay(trusting(upstream, certificates)) as gateway,
    ):
        async with connected(gateway.port) as (reader, writer):
            writer.write(ask(stream=True))
            await reader.readuntil(chunk(delta("a")))
        await becomes(lambda: upstream.calls[0].closed)


async def test_a_stale_connection_costs_no_request(certificates: Certificates) -> None:
    seen: set[int] = set()

    async def script(call: Call) -> None:
        if call.connection in seen:
            call.close()
            return
        seen.add(call.connection)
        await chat(call)

    async with (
        Upstream(script, tls=certificates.context()) as upstream,
        relay(trusting(upstream, certificates)) as gateway,
        connected(gateway.port) as (reader, writer),
    ):
        for _ in range(4):
            writer.write(ask())
            assert (await read_reply(reader)).status == 200
