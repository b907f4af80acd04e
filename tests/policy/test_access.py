"""Host, Origin and keys: what is ours passes, in any spelling that means the same, and nothing else."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unslow.core.policy.access import HostRule, KeyRule, OriginRule, host_name, is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1", "[::1]", "0:0:0:0:0:0:0:1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.1", "example.org", "localhost.evil.example", "127.1"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("a", "a"),
        ("a:80", "a"),
        ("A.Example:8080", "a.example"),
        ("a.example.:80", "a.example"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[FE80::1]:80", "[fe80::1]"),
    ],
)
def test_the_name_in_an_authority(authority: str, name: str) -> None:
    assert host_name(authority) == name


# -- Host

LOOPBACK = [b"localhost", b"LocalHost", b"localhost:9000", b"localhost.", b"127.0.0.1", b"127.0.0.1:1", b"[::1]:80"]
FOREIGN = [b"evil.example", b"127.0.0.1.evil.example", b"localhost.evil.example", b"evil.example:8080", b"", b":80"]
ADDRESSES = [b"192.168.1.5", b"10.0.0.1:8080", b"[fe80::1]:80", b"[2001:db8::1]"]


@pytest.mark.parametrize("bound", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "", "192.168.1.5", "box"])
def test_loopback_s_names_pass_and_foreign_ones_do_not(bound: str) -> None:
    rule = HostRule(bound)
    assert [host for host in LOOPBACK if not rule.allows(host)] == []
    assert [host for host in FOREIGN if rule.allows(host)] == []


def test_the_address_that_is_bound_passes() -> None:
    assert HostRule("192.168.1.5").allows(b"192.168.1.5:8080")
    assert HostRule("2001:DB8::1").allows(b"[2001:db8::1]:8080")
    assert HostRule("[2001:db8::1]").allows(b"[2001:db8::1]")
    assert HostRule("Box").allows(b"box")
    assert not HostRule("192.168.1.5").allows(b"192.168.1.6")


@pytest.mark.parametrize("host", ADDRESSES)
def test_an_address_passes_only_where_all_are_bound(host: bytes) -> None:
    assert all(HostRule(everywhere).allows(host) for everywhere in ("0.0.0.0", "::", "[::]", ""))
    assert not HostRule("127.0.0.1").allows(host)
    assert not HostRule("10.9.9.9").allows(host)


@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        ("box.lan", b"box.lan:8080"),
        ("Box.LAN", b"box.lan"),
        ("box.lan:8080", b"box.lan:9090"),
        ("10.0.0.7", b"10.0.0.7:80"),
        ("[fd00::7]", b"[fd00::7]:80"),
        ("[FD00::7]:80", b"[fd00::7]"),
        ("fd00::7", b"[fd00::7]:80"),
        ("*", b"evil.example"),
    ],
)
def test_an_allowed_name_passes(allowed: str, host: bytes) -> None:
    assert HostRule("127.0.0.1", ["other", allowed]).allows(host)


@pytest.mark.parametrize("allowed", ["box.lan", "fd00::7", "::1"])
@pytest.mark.parametrize("host", [b"sub.box.lan", b"box.lan.evil", b"xbox.lan", *FOREIGN])
def test_an_allowed_name_lets_nothing_else_in(allowed: str, host: bytes) -> None:
    assert not HostRule("127.0.0.1", [allowed]).allows(host)


@given(st.lists(st.binary(max_size=12), max_size=300))
def test_an_answer_that_is_remembered_is_the_same(hosts: list[bytes]) -> None:
    rule = HostRule("0.0.0.0", ["box"])
    for host in [b"box", *hosts, b"box", *hosts]:
        assert rule.allows(host) == HostRule("0.0.0.0", ["box"]).allows(host)


def test_names_that_are_remembered_do_not_pile_up() -> None:
    rule = HostRule("127.0.0.1")
    for n in range(1000):
        assert not rule.allows(b"%d.evil.example" % n)
    assert len(rule._seen) < 100


# -- Origin


@pytest.mark.parametrize(
    ("origin", "passes"),
    [
        (b"http://page.example", True),
        (b"http://127.0.0.1:8080", True),
        (b"https://127.0.0.1:8080", True),
        (b"https://page.example", False),
        (b"http://page.example:81", False),
        (b"http://page.example.evil", False),
        (b"http://127.0.0.1:8081", False),
        (b"http://127.0.0.1", False),
        (b"null", False),
        (b"", False),
        (b"127.0.0.1:8080", False),
        (b"http://page.example/", False),
    ],
)
def test_an_origin_is_listed_or_our_own(origin: bytes, passes: bool) -> None:
    rule = OriginRule(["http://page.example/", "https://other.example"])
    assert rule.allows(origin, b"127.0.0.1:8080") is passes


@given(st.text(st.characters(codec="latin-1"), max_size=20).map(lambda text: text.encode("latin-1")))
def test_without_a_list_only_our_own_origin_passes(origin: bytes) -> None:
    assert OriginRule().allows(origin, b"a") is (origin in (b"http://a", b"https://a"))


# -- keys


def digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


RULE = KeyRule({digest(b"sk-one"): "one", digest(b"sk-two").upper(): "two", digest(b"key with spaces"): "three"})


@pytest.mark.parametrize(
    ("credential", "name"),
    [
        (b"Bearer sk-one", "one"),
        (b"bearer sk-two", "two"),
        (b"BEARER   sk-one", "one"),
        (b"sk-one", "one"),
        (b"key with spaces", "three"),
        (b"Bearer key with spaces", "three"),
        (b"Basic sk-one", None),
        (b"Bearersk-one", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"", None),
        (b"sk-one ", None),
        (b"sk-on", None),
        (b"SK-ONE", None),
        (digest(b"sk-one").encode(), None),
        (b"Bearer Bearer sk-one", None),
    ],
)
def test_a_key_by_its_name(credential: bytes, name: str | None) -> None:
    assert RULE.name(credential) == name


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_no_other_bytes_are_a_key(key: bytes, other: bytes) -> None:
    rule = KeyRule({digest(key): "k"})
    assert rule.name(b"Bearer " + key) == ("k" if key == key.strip() else None)
    if key not in (other, other.partition(b" ")[2].strip()):
        assert rule.name(other) is None


def test_keys_are_asked_for_only_where_there_are_some() -> None:
    assert RULE.required
    assert not KeyRule({}).required
    assert KeyRule({}).name(b"Bearer x") is None
