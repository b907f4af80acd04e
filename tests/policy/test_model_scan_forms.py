"""The scan for a form's model (audio): any split, no time wasted, little memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pieces import CUTS, assert_linear, cut, each, peak_bytes

from unslow.core.policy.model_scan import ModelScan

FORM = b"multipart/form-data; boundary=b"
DISPOSITION = b'--b\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
SOUND = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n%b\r\n'


def scanned(*pieces: bytes, content_type: bytes = FORM) -> str | None:
    scan = ModelScan(content_type)
    for piece in pieces:
        scan.feed(piece)
    return scan.model


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.booleans(), CUTS, st.sampled_from([0, 5000]))
def test_a_form_s_field_is_found(sound: bytes, before: bool, cuts: list[int], more: int) -> None:
    file, model = SOUND % (sound + b"\0" * more), DISPOSITION % (b"model", b"whisper-1")
    data = form(*([model, file] if before else [file, model]))
    assert scanned(*cut(data, cuts)) == "whisper-1"
    assert scanned(*each(data, 1 if not more else 977), content_type=FORM.upper()) == "whisper-1"


def test_a_form_s_field_may_have_headers_of_its_own() -> None:
    part = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nm\r\n'
    )
    assert scanned(form(part)) == "m"
    assert scanned(form(DISPOSITION % (b"model", "ü".encode()))) == "ü"


@pytest.mark.parametrize(
    "data",
    [
        form(DISPOSITION % (b"a_model", b"x"), DISPOSITION % (b"modela", b"x")),
        form(DISPOSITION % (b"prompt", b"model")),
        form(DISPOSITION % (b"model", b"")),
        form(DISPOSITION % (b"model", b"n" * 257)),
        form(DISPOSITION % (b"model", b"x"))[:-12],
        b'{"model":"x"}',
    ],
)
def test_a_form_without_it_has_none(data: bytes) -> None:
    assert scanned(data) is None
    assert scanned(*each(data, 1)) is None


def test_json_is_no_form() -> None:
    assert scanned(form(DISPOSITION % (b"model", b"x")), content_type=b"application/json") is None


@pytest.mark.parametrize(
    "unit",
    [
        b'name="model"\r\n',
        b'name="model"\r\na: ' + b"x" * 200 + b"\r\n",
        b'name="model"\r\n\r\n' + b"n" * 300,
        b"\r\n",
        b"x",
        b'name="',
    ],
)
@pytest.mark.parametrize("read_bytes", [1 << 20, 509])
def test_a_hostile_form_takes_linear_time(unit: bytes, read_bytes: int) -> None:
    assert_linear(lambda data: scanned(*each(data, read_bytes)), unit)


@pytest.mark.parametrize("piece", [b"\0" * 4096, b'name="model"\r\n' * 292])
def test_what_was_searched_is_let_go(piece: bytes) -> None:
    scan = ModelScan(FORM)
    assert peak_bytes(lambda: [scan.feed(piece) for _ in range(64)]) < 32 << 10
