"""Who may ask, and for what: Host, Origin, paths, methods, loops, and the endpoints that are answered here."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.gateway import Plain, Reply, ask, connected, read_reply, relay, request, say
from tests.support.records import Records
from tests.support.upstream import Call, Upstream, chat, json_answer

from unslow.serve.gateway.settings import client_key

pytestmark = pytest.mark.anyio

PAGE = "http://127.0.0.1:3000"


async def get(port: int, path: str = "/v1/models", host: str = "127.0.0.1", **headers: str) -> Reply:
    """A GET with this Host."""
    return await say(port, request("GET", path, None, host=host, **headers))


# -- Host


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost", "LOCALHOST:1", "localhost.", "[::1]", "[::1]:80"]
)
async def test_loopback_s_names_are_ours(host: str, plain: Plain) -> None:
    assert (await get(plain.port, host=host)).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.2",
        "0.0.0.0",
        "2130706433",
        "[::ffff:127.0.0.1]",
        "example.localhost",
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/readyz"])
async def test_a_foreign_host_is_refused_everywhere(host: str, path: str, plain: Plain) -> None:
    """DNS rebinding: the page's own name stands in Host."""
    reply = await get(plain.port, path, host=host)
    assert (reply.status, reply.code) == (403, "host_not_allowed")
    assert not plain.upstream.calls


async def test_hosts_can_be_allowed() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url, allowed_hosts=("Gate.Example",)) as gateway:
        assert (await get(gateway.port, host="gate.example:443")).status == 200
        assert (await get(gateway.port, host="sub.gate.example")).status == 403
        absolute = b"GET http://gate.example/v1/models HTTP/1.1\r\nhost: gate.example\r\n\r\n"
        assert (await say(gateway.port, absolute)).status == 200


async def test_on_all_addresses_an_address_is_a_name_of_ours() -> None:
    async with (
        Upstream(chat) as upstream,
        relay(upstream.url, host="0.0.0.0", api_keys=(client_key("k", "secret"),)) as gateway,
    ):
        good = await get(gateway.port, host="192.0.2.7", authorization="Bearer secret")
        assert good.status == 200
        bad = await get(gateway.port, host="evil.example", authorization="Bearer secret")
        assert bad.code == "host_not_allowed"


# -- Origin


async def test_pages_that_are_not_listed_may_not_call(plain: Plain) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "file://", "http://127.0.0.1.evil.example"):
        for sent in (ask(origin=origin), request("GET", "/healthz", None, origin=origin)):
            reply = await say(plain.port, sent)
            assert (reply.status, reply.code) == (403, "origin_not_allowed")
            assert "access-control-allow-origin" not in reply.headers
    assert not plain.upstream.calls


async def test_the_gateway_s_own_origin_may_call(plain: Plain) -> None:
    reply = await say(plain.port, ask(host=f"127.0.0.1:{plain.port}", origin=f"http://127.0.0.1:{plain.port}"))
    assert reply.status == 200


async def test_a_listed_page_gets_exactly_its_origin() -> None:
    async def script(call: Call) -> None:
        await call.send(
            json_answer({}, extra="access-control-allow-origin: *\r\ntiming-allow-origin: *\r\nvary: accept\r\n")
        )

    async with Upstream(script) as upstream, relay(upstream.url, allowed_origins=(PAGE + "/",)) as gateway:
        for path in ("/v1/models", "/healthz", "/nothing"):
            sent = request("GET", path, None, origin=PAGE)
            reply = await say(gateway.port, sent)
            assert reply.headers["access-control-allow-origin"] == PAGE
            assert reply.headers["timing-allow-origin"] == PAGE, "its browser's own stamps"
            assert "Origin" in reply.headers["vary"]
        theirs = {"access-control-allow-origin", "timing-allow-origin"}
        assert not theirs & set((await say(gateway.port, ask())).headers), "theirs never passes"
        assert all("origin" not in call.headers for call in upstream.calls)
        assert (await say(gateway.port, ask(origin="http://127.0.0.1:3001"))).code == "origin_not_allowed"


async def test_preflights_are_answered_here(records: Records) -> None:
    settings = {"allowed_origins": (PAGE,), "recorder_socket": records.path}
    async with Upstream(chat) as upstream, relay(upstream.url, **settings) as gateway:
        wanted = {"access_control_request_method": "POST", "access_control_request_headers": "authorization,x-a"}
        reply = await say(gateway.port, request("OPTIONS", "/v1/chat/completions", None, origin=PAGE, **wanted))
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert reply.headers["access-control-allow-headers"] == "authorization,x-a"
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert "content-length" not in reply.headers
        assert not upstream.calls
        bad = await say(gateway.port, request("OPTIONS", "/v1/x", None, origin="http://evil.example", **wanted))
        assert bad.code == "origin_not_allowed"
        await say(gateway.port, request("OPTIONS", "/v1/models", None))
        assert len(upstream.calls) == 1, "without an origin it is a request as any other"
        assert [one.timeline.facts.status for one in await records.wait(2)] == [403, 200], "a preflight is no exchange"


# -- paths and methods


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin",
        "/v1/./models",
        "/v1/models/..",
        "/v1/models/.",
        "/v1/%2e%2e/admin",
        "/v1/%2E./admin",
        "/v1/.%2e/admin",
        "/v1/models/%2e%2e",
        "/v1/models%2f..%2fadmin",
        "/v1/models%2Fx",
        "/v1/models%5c..",
        "/v1/models\\..\\admin",
        "/v1//admin",
        "/v1/models//x",
        "/v1/models/..;/admin",
        "/v1/audio/%2e%2e;x=y/admin",
    ],
)
async def test_a_path_that_two_servers_read_differently_is_refused(path: str, plain: Plain) -> None:
    reply = await get(plain.port, path)
    assert (reply.status, reply.code) == (400, "ambiguous_path")
    assert not plain.upstream.calls


@pytest.mark.parametrize(
    "path", ["/v1/models/org%20x", "/v1/models/a..b", "/v1/models/.hidden", "/v1/x?u=http://a//../b"]
)
async def test_odd_but_plain_paths_pass(path: str, plain: Plain) -> None:
    async def script(call: Call) -> None:
        await call.send(json_answer({"target": call.target}))

    plain.upstream.script = script
    assert (await get(plain.port, path)).json()["target"] == path


@pytest.mark.parametrize("path", ["/", "/v2/x", "/v1x", "/V1/models", "/metrics", "/admin", "*", "//v1/models"])
async def test_nothing_else_is_served(path: str, plain: Plain) -> None:
    reply = await say(plain.port, request("OPTIONS" if path == "*" else "GET", path))
    assert reply.status in (400, 404)
    assert reply.code in ("not_found", "ambiguous_path")
    assert not plain.upstream.calls


async def test_methods_that_are_not_relayed(plain: Plain) -> None:
    reply = await say(plain.port, request("TRACE", "/v1/x"))
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert not plain.upstream.calls


async def test_an_upstream_that_points_back_here_is_noticed() -> None:
    async with Upstream(chat) as upstream, relay(upstream.url) as gateway:
        mark = (await _via(upstream, gateway.port)).split(", ")[-1]
        reply = await say(gateway.port, ask(via=f"1.1 other, {mark}"))
        assert (reply.status, reply.code) == (508, "loop_detected")
        assert (await say(gateway.port, ask(via="1.1 other"))).status == 200


async def _via(upstream: Upstream, port: int) -> str:
    await say(port, ask())
    return upstream.calls[-1].headers["via"]


# -- what goes along


async def test_offers_of_another_protocol_stay_here(plain: Plain) -> None:
    """h2c smuggling: behind a 101 a client could ask the upstream for anything."""
    for offer in ("h2c", "H2C", "TLS/1.0", "h2c, websocket", "websocket, h2c"):
        await say(plain.port, ask(connection="upgrade, http2-settings", upgrade=offer, http2_settings="AAMAAABkAAQ"))
        sent = plain.upstream.calls[-1].headers
        assert not {"upgrade", "connection", "http2-settings"} & set(sent), offer


async def test_a_trace_that_cannot_be_read_is_replaced(plain: Plain) -> None:
    zeros = "00-00000000000000000000000000000000-0000000000000001-01"
    for bad in ("x", "00-abc-def-01", zeros, "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
        await say(plain.port, ask(traceparent=bad))
        sent = [value for name, value in plain.upstream.calls[-1].fields if name == "traceparent"]
        assert len(sent) == 1, "two would contradict each other"
        assert sent[0] != bad


async def test_our_own_headers_stay_here_and_theirs_do_not_pass(plain: Plain) -> None:
    async def script(call: Call) -> None:
        theirs = "x-unslow-id: theirs\r\nx-unslow-upstream: theirs\r\nserver-timing: db;dur=1\r\n"
        hops = "connection: x-a\r\nx-a: 1\r\nkeep-alive: timeout=5\r\nalt-svc: h3\r\n"
        await call.send(json_answer({}, extra=theirs + hops))

    plain.upstream.script = script
    reply = await say(plain.port, ask(x_unslow_upstream="up0", x_unslow_ledger="1"))
    assert not [name for name in plain.upstream.calls[-1].headers if name.startswith("x-unslow")]
    assert reply.headers["x-unslow-upstream"] == "up0"
    assert reply.headers["x-unslow-id"] != "theirs"
    assert reply.headers["server-timing"].startswith("db;dur=1, gw;dur=")
    assert not {"x-a", "keep-alive", "alt-svc", "connection"} & set(reply.headers)


# -- endpoints of our own


async def states(port: int) -> Any:
    """What readiness says of each upstream; None where it was not tried yet."""
    return (await get(port, "/readyz")).json()["upstreams"]


async def test_health_and_readiness() -> None:
    upstream = Upstream(chat)
    await upstream.start()
    async with relay(upstream.url, "http://127.0.0.1:1/v1", api_keys=(client_key("k", "secret"),)) as gateway:
        assert (await get(gateway.port, "/healthz")).json() == {"status": "ok"}
        async with asyncio.timeout(10):
            state = await states(gateway.port)
            while None in (state["up0"]["reachable"], state["up1"]["reachable"]):
                await asyncio.sleep(0.05)
                state = await states(gateway.port)
        assert state["up0"] == {"reachable": True, "trouble": None}
        assert (state["up1"]["reachable"], "127.0.0.1:1" in state["up1"]["trouble"]) == (False, True)
        assert (await get(gateway.port, "/readyz")).status == 200
        await upstream.stop()
    async with relay("http://127.0.0.1:1/v1") as gateway:
        reply = await get(gateway.port, "/readyz")
        assert (reply.status, reply.json()["status"]) == (503, "not ready")
        assert (await get(gateway.port, "/healthz")).status == 200


async def test_every_refusal_has_the_shape_that_clients_read(plain: Plain) -> None:
    async with connected(plain.port) as (reader, writer):
        for path, code in (("/x", "not_found"), ("/v1/../x", "ambiguous_path")):
            writer.write(request("POST", path, b"{}"))
            reply = await read_reply(reader)
            error = json.loads(reply.body)["error"]
            assert set(error) == {"message", "type", "code", "param"}
            assert error["code"] == code
            assert error["message"].endswith(".")
            assert reply.headers["content-type"] == "application/json"
            if reply.status == 400:
                break
