"""The console's API over real connections: what it answers, whom it lets in, and what its document says of it."""

from __future__ import annotations

import http.client
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from tests.support.recorder import TOKEN, Got, Recorder, finished, gateway_timeline, running, until

from unslow.core.timeline import Chunks, Clock, End, Hop, Outcome, Phase, Span, Timeline
from unslow.serve.recorder.operations import OPERATIONS
from unslow.serve.recorder.protocol import Snapshot
from unslow.serve.recorder.settings import ConfigSummary, UpstreamSummary

SUMMARY = ConfigSummary(
    models=("m-1",),
    upstreams=(UpstreamSummary(name="main", url="http://u:SECRET@up.example/v1?k=SECRET", has_key=True),),
    settings={"gateway": {"api_key": "SECRET", "port": 80, "api_key_env": "OPENAI_API_KEY"}, "client_token": "SECRET"},
)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    folder = tmp_path_factory.mktemp("console")
    settings: dict[str, Any] = {"gateway_url": "http://127.0.0.1:8080/v1", "config_summary": SUMMARY}
    with running(folder, **settings) as started:
        started.send(*(finished(f"id{n}") for n in range(5)), Snapshot(0, 1, time.time()))
        until(lambda: started.metric("unslow_recorder_received_total") == 5)
        yield started


def page_timeline(name: str, trace: str = "0af7651916cd43dd8448eb211c80319c") -> Timeline:
    gateway = gateway_timeline(name)
    facts = msgspec.structs.replace(gateway.facts, headers={"cookie": "SECRET"})
    return Timeline(
        trace_id=trace,
        party=Hop.PAGE,
        started_at=gateway.started_at,
        end_ns=gateway.end_ns + 20_000_000,
        spans=(Span(Phase.RENDER, Hop.PAGE, gateway.end_ns + 15_000_000, gateway.end_ns + 20_000_000),),
        chunks=Chunks(),
        facts=facts,
        clock=Clock("page"),
    )


def test_lists_newest_first_in_pages(recorder: Recorder) -> None:
    first = recorder.ask("/api/exchanges?limit=3").json
    assert [i["id"] for i in first["items"]] == ["id4", "id3", "id2"]
    rest = recorder.ask(f"/api/exchanges?limit=3&before={first['next']}").json
    assert [i["id"] for i in rest["items"]] == ["id1", "id0"]
    assert rest["next"] is None
    item = first["items"][0]
    assert sum(row["duration_ns"] for row in item["rows"]) == item["e2e_ns"] == 1_760_000_000
    assert (item["model"], item["upstream"], item["status"], item["end"]) == ("m-1", "main", 200, "completed")
    assert (item["ttft_ns"], item["tokens"]) == (1_000_000_000, 5)


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "limit=-1", "before=x", "before=9" + "9" * 30])
def test_a_bad_parameter_is_named(recorder: Recorder, query: str) -> None:
    got = recorder.ask(f"/api/exchanges?{query}")
    assert got.status == 400
    assert query.partition("=")[0] in got.json["error"]["message"]


def test_one_exchange_without_secrets(recorder: Recorder) -> None:
    got = recorder.ask("/api/exchanges/id1")
    assert got.json["id"] == "id1"
    assert sum(row["duration_ns"] for row in got.json["rows"]) == got.json["timeline"]["end_ns"]
    assert got.json["timeline"]["facts"]["url"] == "http://up.example/v1/chat/completions"
    assert got.json["timeline"]["facts"]["headers"] == {"server": "x"}
    assert recorder.ask("/api/exchanges/none").status == 404


def test_no_answer_holds_a_secret(recorder: Recorder) -> None:
    for path in ("/api/config", "/api/exchanges", "/api/exchanges/id1", "/metrics", "/readyz", "/openapi.json"):
        assert b"SECRET" not in recorder.ask(path).body, path
    config = recorder.ask("/api/config").json
    assert config["settings"]["gateway"] == {"api_key": "(hidden)", "port": 80, "api_key_env": "OPENAI_API_KEY"}
    assert config["upstreams"] == [{"name": "main", "url": "http://up.example/v1", "has_key": True}]
    assert config["gateway_url"] == "http://127.0.0.1:8080/v1"


def test_the_pages_own_record_is_joined(recorder: Recorder) -> None:
    got = recorder.ask("/api/exchanges", "POST", body=msgspec.json.encode(page_timeline("id2")))
    assert (got.status, got.json) == (201, {"id": "id2"})
    joined = recorder.ask("/api/exchanges/id2").json
    assert joined["timeline"]["party"] == "page"
    assert {row["hop"] for row in joined["rows"]} >= {"page", "gateway", "provider"}
    assert sum(row["duration_ns"] for row in joined["rows"]) == 1_780_000_000
    assert "SECRET" not in json.dumps(joined)
    again = recorder.ask("/api/exchanges", "POST", body=msgspec.json.encode(page_timeline("id2")))
    assert again.status == 201
    assert len(recorder.ask("/api/exchanges").json["items"]) == 5  # the page adds to exchanges, it is none


def test_a_page_can_say_nothing_in_words(recorder: Recorder) -> None:
    """Nowhere in a page's record is room for a prompt, an answer, a header or a cookie."""
    told = page_timeline("id0")
    secrets = {"notes": ("SECRET",), "headers": {"server": "SECRET"}, "redirects": ("http://x/SECRET",)}
    places = {**secrets, "tls_issuer": "SECRET", "remote_address": "SECRET", "addresses": ("SECRET",)}
    facts = msgspec.structs.replace(told.facts, **places, url="http://u:SECRET@gw/v1?q=SECRET", model="m" * 5000)
    outcome = Outcome(End.FAILED, None, "truncated", "SECRET")
    body = msgspec.structs.replace(told, facts=facts, outcome=outcome, clocks=(Clock("SECRET"),))
    assert recorder.ask("/api/exchanges", "POST", body=msgspec.json.encode(body)).status == 201
    joined = recorder.ask("/api/exchanges/id0")
    assert joined.json["timeline"]["party"] == "page"
    assert joined.json["timeline"]["outcome"] == {"end": "failed", "kind": "truncated"}
    assert b"SECRET" not in joined.body
    assert b"m" * 201 not in joined.body


def test_a_record_of_another_trace_is_not_joined(recorder: Recorder) -> None:
    recorder.ask("/api/exchanges", "POST", body=msgspec.json.encode(page_timeline("id3", trace="f" * 32)))
    assert recorder.ask("/api/exchanges/id3").json["timeline"]["party"] == "gateway"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "no_timeline"),
        (b"{", "no_timeline"),
        (b"\xff\xfe", "no_timeline"),
        (b'{"trace_id": 1}', "no_timeline"),
        (msgspec.json.encode(gateway_timeline("id1")), "not_the_page"),
        (msgspec.json.encode(msgspec.structs.replace(page_timeline("id1"), end_ns=-1)), "invalid_timeline"),
        (msgspec.json.encode(msgspec.structs.replace(page_timeline("id1"), started_at=1e300)), "invalid_timeline"),
        (msgspec.json.encode(page_timeline("")), "no_request_id"),
        (msgspec.json.encode(page_timeline("x" * 200)), "no_request_id"),
    ],
)
def test_what_is_no_record_of_the_page_is_refused(recorder: Recorder, body: bytes, code: str) -> None:
    got = recorder.ask("/api/exchanges", "POST", body=body)
    assert (got.status, got.json["error"]["code"]) == (400, code)


def test_a_body_over_the_limit_is_refused(recorder: Recorder) -> None:
    got = recorder.ask("/api/exchanges", "POST", body=b" " * ((1 << 20) + 1))
    assert (got.status, got.json["error"]["code"]) == (413, "body_too_large")


# Who may speak


PROTECTED = ["/api/config", "/api/exchanges", "/api/exchanges/id1", "/api/events", "/openapi.json"]
PAGE_FILES = ["/", "/index.html", "/app.js", "/app.css", "/mark.svg"]


@pytest.mark.parametrize("path", PROTECTED)
def test_without_the_token_nothing_is_told(recorder: Recorder, path: str) -> None:
    for token in (None, "x" * 20, TOKEN[:-1]):
        got = recorder.ask(path, token=token)
        assert (got.status, got.json["error"]["code"]) == (401, "token_needed")


@pytest.mark.parametrize("path", PAGE_FILES)
def test_the_page_itself_is_no_secret_and_asks_for_the_token(recorder: Recorder, path: str) -> None:
    got = recorder.ask(path, token=None)
    assert got.status == 200
    assert got.body == recorder.ask(path).body, "the same for everybody"
    assert recorder.ask(path, "POST", token=None).status == 403


@pytest.mark.parametrize("path", ["/nothing", "/app.js.map", "//app.js", "/..%2fstatic/app.js", "/%61pp.js/"])
def test_other_paths_stay_locked(recorder: Recorder, path: str) -> None:
    assert recorder.ask(path, token=None).status == 401


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_what_machines_read_needs_no_token_here(recorder: Recorder, path: str) -> None:
    assert recorder.ask(path, token=None).status == 200


@pytest.mark.parametrize("path", [*PROTECTED, *PAGE_FILES, "/metrics", "/healthz", "/readyz"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_foreign_host_is_refused_everywhere(recorder: Recorder, path: str, host: str) -> None:
    got = recorder.ask(path, headers={"host": host.format(port=recorder.port)})
    assert (got.status, got.json["error"]["code"]) == (421, "host_not_allowed")


def test_two_host_headers_are_refused(recorder: Recorder) -> None:
    with socket.create_connection(("127.0.0.1", recorder.port)) as raw:
        host = f"Host: 127.0.0.1:{recorder.port}\r\n"
        raw.sendall(f"GET /healthz HTTP/1.1\r\n{host}{host}Connection: close\r\n\r\n".encode())
        assert raw.makefile("rb").read().startswith((b"HTTP/1.1 421", b"HTTP/1.1 400"))


def test_a_foreign_origin_is_refused(recorder: Recorder) -> None:
    own = f"http://127.0.0.1:{recorder.port}"
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://localhost:{recorder.port}", own + "/"):
        for method, path in (("DELETE", "/api/exchanges"), ("POST", "/api/exchanges"), ("GET", "/api/events")):
            got = recorder.ask(path, method, headers={"origin": origin})
            assert (got.status, got.json["error"]["code"]) == (403, "foreign_origin")
    assert recorder.ask("/api/config", headers={"origin": own}).status == 200
    assert recorder.ask("/api/events", headers={"sec-fetch-site": "same-site"}).status == 403


def cookie_of(recorder: Recorder) -> str:
    got = recorder.ask(f"/?token={TOKEN}", token=None)
    assert (got.status, got.headers["location"]) == (303, "/")
    cookie = got.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    return cookie.partition(";")[0]


def test_the_address_with_the_token_sets_the_cookie(recorder: Recorder) -> None:
    cookie = {"cookie": cookie_of(recorder)}
    assert recorder.ask("/api/config", token=None, headers=cookie).status == 200
    assert recorder.ask("/?token=wrong", token=None).json["error"]["code"] == "wrong_token"
    assert recorder.ask("/?token=%ff%00", token=None).status == 401
    person = recorder.ask("/?token=wrong", token=None, headers={"accept": "text/html,*/*;q=0.8"})
    assert (person.status, person.headers["location"]) == (303, "/#/wrong-key")
    assert "set-cookie" not in person.headers


def test_a_change_by_cookie_needs_an_origin(recorder: Recorder) -> None:
    cookie = {"cookie": cookie_of(recorder)}
    got = recorder.ask("/api/exchanges", "DELETE", token=None, headers=cookie)
    assert (got.status, got.json["error"]["code"]) == (403, "origin_missing")
    body = msgspec.json.encode(page_timeline("id4"))
    own = {"origin": f"http://127.0.0.1:{recorder.port}"}
    assert recorder.ask("/api/exchanges", "POST", body=body, token=None, headers=cookie | own).status == 201


@pytest.mark.parametrize("path", ["/", "/api/config", "/nope", "/metrics"])
def test_every_answer_carries_the_security_headers(recorder: Recorder, path: str) -> None:
    for got in (recorder.ask(path), recorder.ask(path, token=None), recorder.ask(path, headers={"host": "evil"})):
        policy = got.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "connect-src 'self' http://127.0.0.1:8080;" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert got.headers["cache-control"] == "no-store"
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["cross-origin-opener-policy"] == "same-origin"
        assert got.headers["cross-origin-embedder-policy"] == "require-corp"
        assert "server" not in got.headers


@pytest.mark.parametrize(
    "path", ["/../settings.py", "/..%2f..%2fpayload.py", "/%2e%2e/__init__.py", "/static/", "//etc/passwd"]
)
def test_nothing_outside_the_bundle_is_served(recorder: Recorder, path: str) -> None:
    got = recorder.ask(path)
    assert (got.status, got.json["error"]["code"]) == (404, "not_found")


def test_a_wrong_method_is_refused_as_json(recorder: Recorder) -> None:
    got = recorder.ask("/api/config", "PUT", body=b"{}")
    assert got.status == 405
    assert got.json["error"]["code"] == "method_not_allowed"


# Live events


def listen(recorder: Recorder) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", recorder.port, timeout=10)
    connection.request("GET", "/api/events", headers={"authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    return connection, answer


def next_event(answer: http.client.HTTPResponse, name: str) -> Any:
    while line := answer.readline():
        if line == f"event: {name}\n".encode():
            return json.loads(answer.readline().removeprefix(b"data: "))
    raise AssertionError("the stream ended")


def test_live_events_and_their_end_at_shutdown(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        connection, answer = listen(recorder)
        recorder.send(finished("a"), Snapshot(3, 77, time.time(), active_requests=2))
        assert next_event(answer, "exchange")["id"] == "a"
        live = next_event(answer, "live")
        assert [(w["worker"], w["active_requests"]) for w in live["workers"]] == [(3, 2)]
        ended = threading.Thread(target=answer.read)
        ended.start()
        code, said = recorder.stop()
        ended.join(5)
        assert not ended.is_alive()
        assert (code, said) == (0, "")
        connection.close()


def test_a_page_that_does_not_read_costs_bounded_memory(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        connection, answer = listen(recorder)
        for n in range(20):
            recorder.send(*(finished(f"x{n}-{m}") for m in range(200)))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 4000)
        next_event(answer, "exchange")
        assert next_event(answer, "live")["skipped"] > 0  # 50 a second are sent, the rest is told as a number
        connection.close()
        until(lambda: recorder.metric("unslow_recorder_event_listeners") == 0)


# The document


def checked(document: dict[str, Any], path: str, method: str, got: Got) -> None:
    answers = document["paths"][path][method]["responses"]
    answer = answers.get(str(got.status)) or answers["4XX"]
    schema = answer["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(got.json)


def test_the_document_describes_every_route_and_real_answers(recorder: Recorder) -> None:
    document = recorder.ask("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    described = {(m.upper(), p) for p, methods in document["paths"].items() for m in methods}
    assert described == {(o.method, o.path) for o in OPERATIONS}
    asked = [
        ("/api/exchanges", "/api/exchanges?limit=2"),
        ("/api/exchanges", "/api/exchanges?limit=0"),
        ("/api/exchanges/{id}", "/api/exchanges/id1"),
        ("/api/exchanges/{id}", "/api/exchanges/none"),
        ("/api/config", "/api/config"),
        ("/healthz", "/healthz"),
        ("/readyz", "/readyz"),
        ("/openapi.json", "/openapi.json"),
    ]
    for path, target in asked:
        checked(document, path, "get", recorder.ask(target))
    taken = recorder.ask("/api/exchanges", "POST", body=msgspec.json.encode(page_timeline("id1")))
    checked(document, "/api/exchanges", "post", taken)
    wrong = recorder.ask("/api/exchanges/id1").json | {"rows": "none"}
    with pytest.raises(jsonschema.ValidationError):
        checked(document, "/api/exchanges/{id}", "get", Got(200, {}, json.dumps(wrong).encode()))


def test_purge(tmp_path: Path) -> None:
    with running(tmp_path) as recorder:
        recorder.send(finished("gone"), finished("gone-too"))
        until(lambda: recorder.metric("unslow_history_rows") == 2)
        got = recorder.ask("/api/exchanges", "DELETE")
        assert (got.status, got.json) == (200, {"deleted": 2})
        assert recorder.ask("/api/exchanges").json == {"items": [], "next": None}
        held = b"".join(f.read_bytes() for f in tmp_path.iterdir() if f.is_file())
        assert b"gone-too" not in held
        recorder.send(finished("new"))
        until(lambda: [i["id"] for i in recorder.ask("/api/exchanges").json["items"]] == ["new"])


def test_a_purge_that_leaves_the_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    with running(tmp_path) as recorder:
        recorder.send(finished("old"))
        until(lambda: recorder.metric("unslow_history_rows") == 1)
        recorder.stop()
    kept = sqlite3.connect(path, isolation_level=None)
    kept.execute("BEGIN EXCLUSIVE")  # another program holds the file
    with running(tmp_path) as recorder:
        recorder.send(finished("new"))
        until(lambda: recorder.metric("unslow_recorder_received_total") == 1)
        until(lambda: bool(recorder.ask("/readyz").json["degraded"]))
        got = recorder.ask("/api/exchanges", "DELETE")
        assert (got.status, got.json["error"]["code"]) == (507, "purge_failed")
        kept.execute("ROLLBACK")
        assert recorder.ask("/api/exchanges", "DELETE").status == 200
        assert recorder.ask("/readyz").json["degraded"] == []
        recorder.stop()
    assert kept.execute("SELECT count(*) FROM exchanges").fetchone() == (0,)
    kept.close()


def test_a_head_without_end_is_cut_off(recorder: Recorder) -> None:
    before = recorder.metric("unslow_recorder_resident_bytes")
    with socket.create_connection(("127.0.0.1", recorder.port)) as raw:
        raw.settimeout(10)
        raw.sendall(b"GET / HTTP/1.1\r\n")
        head = b"".join(b"x-%d: %b\r\n" % (n, b"y" * 8000) for n in range(5000))
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            raw.sendall(head)
    assert recorder.metric("unslow_recorder_resident_bytes") < before + (16 << 20)
