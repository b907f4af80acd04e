"""`unslow check` as its user meets it: outputs, exit codes, and no secret anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.timed_server import Peer, chat, closed_port, event, serving
from tests.support.tls import Certificates

from unslow.cli.check import api_key, check, header, proxy_for
from unslow.core.timeline import load_lines
from unslow.errors import ConfigError
from unslow.show.report.json import decode

KEY = "sk-canary-0123456789abcdef"


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    clean = dict.fromkeys(
        ("OPENAI_API_KEY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY"), None
    )
    return CliRunner().invoke(check, arguments, env={**clean, **(env or {})})


def refusing(peer: Peer) -> None:
    """Answers everything with 401 and the key it was given."""
    while True:
        line, headers, _ = peer.request()
        if not line:
            return
        said = json.dumps({"error": {"message": f"wrong key {headers.get('authorization')} {headers.get('x-secret')}"}})
        peer.answer(said.encode(), status="401 Unauthorized", more=f"X-Request-Id: {headers.get('authorization')}\r\n")


def test_waterfall_on_stdout() -> None:
    with serving(chat(gap_s=0.005)) as server:
        result = run(server.url)
    assert result.exit_code == 0, result.output
    for word in ("TTFT", "wait", "decode", "m-1", "status 200"):
        assert word in result.stdout
    assert result.stderr == ""


def test_json_on_stdout_and_nothing_else_there() -> None:
    with serving(chat()) as server:
        result = run(server.url, "--model", "m-1", "--json", "-")
    assert result.exit_code == 0
    report = decode(result.stdout_bytes)
    assert report.target.model == "m-1"
    (shown,) = report.exchanges
    assert sum(row.duration_ns for row in shown.rows) == shown.timeline.end_ns
    assert shown.metrics.ttft_ns is not None


def test_repeats_first_cold_then_warm_and_a_summary() -> None:
    with serving(chat()) as server:
        result = run(server.url, "--repeat", "3")
        assert result.exit_code == 0
        assert server.connections == 2  # one lists the models, unmeasured
        again = run(server.url, "--repeat", "3", "--cold", "-m", "m-1", "--json", "-")
        assert server.connections == 5
    assert "p95" in result.stdout
    assert "3 exchanges" in result.stdout
    assert [e.timeline.facts.reused for e in decode(again.stdout_bytes).exchanges] == [False, False, False]


def test_all_outputs_at_once(tmp_path: Path) -> None:
    with serving(chat()) as server:
        files = [tmp_path / name for name in ("r.json", "r.html", "r.jsonl")]
        result = run(server.url, "--json", str(files[0]), "--html", str(files[1]), "--jsonl", str(files[2]), "-n", "2")
    assert result.exit_code == 0, result.output
    assert len(decode(files[0].read_bytes()).exchanges) == 2
    assert files[1].read_text().lstrip().lower().startswith("<!doctype html>")
    assert len(list(load_lines(files[2].read_bytes().splitlines()))) == 2


@pytest.mark.parametrize("answers", [refusing, chat()])
def test_no_secret_in_any_output(answers: object, tmp_path: Path) -> None:
    with serving(answers) as server:  # type: ignore[arg-type]
        files = [tmp_path / name for name in ("r.json", "r.html", "r.jsonl")]
        for url in (
            server.url,
            f"http://localhost:{closed_port()}",
            "http://unslow.invalid",
            server.url + "?key=" + KEY,
        ):
            result = run(
                url, "-m", "m", "--api-key-env", "MY_KEY", "-H", f"X-Secret: {KEY[::-1]}", "--json", str(files[0]),
                "--html", str(files[1]), "--jsonl", str(files[2]), env={"MY_KEY": KEY},
            )  # fmt: skip
            outputs = [result.stdout, result.stderr, *(f.read_text() for f in files)]
            for text in outputs:
                assert "canary" not in text
                assert "canary"[::-1] not in text
                assert KEY[10:18] not in text
        assert server.requests[0][1]["authorization"] == f"Bearer {KEY}"


def test_wrong_usage_does_not_repeat_a_secret() -> None:
    for arguments in (
        (f"http://user:{KEY}@localhost/",),
        ("http://localhost/", "-H", KEY),
        ("http://localhost/", "-H", f"X: {KEY}\nY: z"),
        ("http://localhost/", "--proxy", f"socks5://u:{KEY}@h:1"),
    ):
        result = run(*arguments)
        assert result.exit_code == 64, result.output
        assert "canary" not in result.output
        assert result.stderr.count("\n") == 1


def test_could_not_measure_is_two_with_one_line_and_a_report() -> None:
    port = closed_port()
    result = run(f"http://127.0.0.1:{port}/v1", "-m", "m", "--json", "-")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in result.stderr
    outcome = decode(result.stdout_bytes).exchanges[0].timeline.outcome
    assert (outcome.kind, outcome.phase) == ("connection_refused", "connect")


def test_some_failures_among_answers_are_reported_and_the_rest_counts() -> None:
    def play(peer: Peer) -> None:
        if peer.server.connections == 2:
            return
        peer.request()
        peer.begin_stream()
        peer.chunk(event({"content": "x"}) + event({}, "stop"))
        peer.end_stream()

    with serving(play) as server:
        result = run(server.url, "-m", "m", "--repeat", "3", "--cold")
    assert result.exit_code == 0
    assert "request 2 of 3" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("ftp://x/",),
        ("localhost:8080",),
        ("http://localhost/", "--api-key-env", "NOT_SET_ANYWHERE"),
        ("http://localhost/", "--header", "no colon"),
        ("http://localhost/", "--header", "Host: other"),
        ("http://localhost/", "--prompt", "a", "--prompt-file", "b"),
        ("http://localhost/", "--prompt-file", "/nonexistent"),
        ("http://localhost/", "--json", "/nonexistent/x.json"),
        ("http://localhost/", "--json", "-", "--jsonl", "-"),
        ("http://localhost/", "--http", "3"),
        ("https://localhost/", "--http", "3", "--proxy", "http://h:1"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 64, result.output
    assert result.stderr.startswith("unslow check: ")
    assert result.stderr.count("\n") == 1


def test_prompt_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Warum?\n", encoding="utf-8")
    with serving(chat()) as server:
        assert run(server.url, "-m", "m", "--prompt-file", str(file)).exit_code == 0
        assert json.loads(server.requests[0][2])["messages"][0]["content"] == "Warum?\n"


def test_https_with_a_certificate_of_ones_own(certificates: Certificates) -> None:
    with serving(chat(), tls=certificates.context()) as server:
        refused = run(server.url, "-m", "m")
        assert refused.exit_code == 2
        assert "--ca-file" in refused.stderr
        trusted = run(server.url, "-m", "m", "--ca-file", certificates.file)
        assert trusted.exit_code == 0
        assert "tls" in trusted.stdout
        assert run(server.url, "-m", "m", "--insecure").exit_code == 0


def test_proxy_from_the_environment() -> None:
    with serving(chat()) as proxy:
        result = run("http://unslow.invalid/v1", "-m", "m", env={"http_proxy": f"http://127.0.0.1:{proxy.port}"})
        assert result.exit_code == 0, result.output
        assert proxy.requests[0][0].startswith(b"POST http://unslow.invalid/v1/chat/completions")


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://a.test/", {"HTTPS_PROXY": "p"}, "p"),
        ("https://a.test/", {"https_proxy": "q", "HTTPS_PROXY": "p"}, "q"),
        ("http://a.test/", {"HTTPS_PROXY": "p"}, None),
        ("http://a.test/", {"HTTP_PROXY": "p"}, None),  # a CGI request header could set it (httpoxy)
        ("http://a.test/", {"ALL_PROXY": "p"}, "p"),
        ("https://a.test/", {"HTTPS_PROXY": "p", "NO_PROXY": "b.test,a.test"}, None),
        ("https://x.a.test/", {"HTTPS_PROXY": "p", "NO_PROXY": ".a.test"}, None),
        ("https://xa.test/", {"HTTPS_PROXY": "p", "NO_PROXY": "a.test"}, "p"),
        ("https://a.test:1/", {"HTTPS_PROXY": "p", "NO_PROXY": "a.test:2"}, "p"),
        ("https://a.test/", {"HTTPS_PROXY": "p", "NO_PROXY": "*"}, None),
        ("https://a.test/", {"HTTPS_PROXY": "p", "NO_PROXY": ""}, "p"),
    ],
)
def test_which_proxy(url: str, environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, environ) == proxy


def test_which_key() -> None:
    environ = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": " g \n", "MINE": "m"}
    assert [api_key(d, None, environ) for d in ("openai", "openai-responses", "anthropic", "gemini")] == [
        "o",
        "o",
        "a",
        "g",
    ]
    assert api_key("ollama", None, environ) is None
    assert api_key("anthropic", "MINE", environ) == "m"
    assert api_key("openai", None, {}) is None
    with pytest.raises(ConfigError, match="NONE"):
        api_key("openai", "NONE", environ)


def test_headers_are_read() -> None:
    assert header("X-A: b: c ") == ("X-A", "b: c")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from unslow.cli.check import check\n"
        "try: check(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'msgspec', 'dns', 'h2', 'httptools', 'ssl', 'pycurl'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for option in ("--model", "--api-key-env", "--repeat", "--json", "--html", "--proxy", "--http"):
        assert option in done.stdout


def test_a_reader_that_has_seen_enough_gets_no_complaint() -> None:
    code = "import sys; from unslow.cli.check import check; check()"
    with serving(chat()) as server:
        command = [sys.executable, "-c", code, server.url, "-m", "m", "--repeat", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""


def test_interrupt_keeps_what_was_measured() -> None:
    def play(peer: Peer) -> None:
        if peer.server.connections == 1:
            chat()(peer)
        peer.request()
        peer.sock.recv(1)

    code = "from unslow.cli.check import check; check()"
    with serving(play) as server:
        command = [sys.executable, "-c", code, server.url, "-m", "m", "--repeat", "2", "--cold", "--json", "-"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as process:
            deadline = time.monotonic() + 10
            while len(server.requests) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(2)
            out, err = process.communicate(timeout=10)
    assert b"interrupted" in err
    assert len(decode(out).exchanges) == 1
