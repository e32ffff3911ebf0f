"""Hosts as v4 compares them (protocol, section 8; reference, section 5.8)."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.hosts import (
    AddressClass,
    Pattern,
    ReachableHosts,
    allows,
    host_of,
    lies,
    pattern_of,
)
from penstock.protocols.rapidbyte.declared.host_patterns import (
    hosts_in,
    intersection,
    malformed,
    named_in,
    naming,
    union,
)


@pytest.mark.parametrize(
    "given_, expected",
    [
        ("DB.Example", "db.example"),
        ("db.example.", "db.example"),
        ("db_1.example", "db_1.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("2001:0db8:0:0:0:0:0:1", "2001:db8::1"),
        ("a" * 63 + ".b", "a" * 63 + ".b"),
        ("1.example", "1.example"),
    ],
)
def test_one_spelling_per_host(given_: str, expected: str):
    assert host_of(given_) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a..b", ".a", "a.example..", " a.example", "a.example ", "a.example\n",
        "127.0.0.1\0.corp.test", "corp.test\0", "a\tb", "a/b", "a@b", "a?b", "a#b", "a\\b", "a%2eb",
        "bücher.example", "a\u3002example", "\uff11\uff12\uff17.0.0.1", "\u2488.0.0.1",
        "-a.example", "a-.example", "a" * 64 + ".b", ("a" * 60 + ".") * 5 + "b", "*.example", "*",
        "127.1", "127.0.1", "2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.0.0.01",
        "127.0.0.1.", "1.2.3.4.5", "256.1.1.1", "a.1", "a.0x1", "0x", "1.2.3.0x4",
        "fe80::1%eth0", "::1%1", "[::1", "::1]", "[127.0.0.1]", "[a.example]", "[]", "::1::",
        "a.example:80", "127.0.0.1:80", "[::1]:80",
    ],
)  # fmt: skip
def test_what_is_no_host(text: str):
    """Each is, to one resolver or another, a host that a pattern would not see in it."""
    assert host_of(text) is None


@pytest.mark.parametrize(
    "text, expected",
    [
        ("*", Pattern("*")),
        ("*:443", Pattern("*", 443)),
        ("*.Corp", Pattern("*.corp")),
        ("*.corp:443", Pattern("*.corp", 443)),
        ("db.corp:5432", Pattern("db.corp", 5432)),
        ("127.0.0.1:5432", Pattern("127.0.0.1", 5432)),
        ("[::1]:5432", Pattern("::1", 5432)),
        ("[::1]", Pattern("::1")),
        ("::1", Pattern("::1")),
        ("db.corp:x", None), ("db.corp:", None), ("db.corp:0", None), ("db.corp:65536", None),
        ("db.corp:+80", None), ("*.*", None), ("a.*", None), ("*a", None), ("*.", None),
        ("*.127.1", None), ("[::1]x", None), ("a:b:c", None),
    ],
)  # fmt: skip
def test_a_pattern_and_its_port(text: str, expected: Pattern | None):
    assert pattern_of(text) == expected
    if expected is not None:
        assert pattern_of(str(expected)) == expected


@pytest.mark.parametrize(
    "patterns, host, expected",
    [
        (["*"], "anything", True),
        ([], "a", False),
        (["A.example."], "a.example", True),
        ([" a.example "], "a.example", True),
        (["*.example"], "a.b.example", True),
        (["*.example"], "example", False),
        (["*.example"], "badexample", False),
        (["localhost"], "127.0.0.1", False),
        (["127.0.0.1"], "localhost", False),
        (["127.0.0.1"], "::ffff:127.0.0.1", False),
        (["::1"], "::1", True),
        (["*.corp.test\0"], "a.corp.test", False),
    ],
)
def test_what_a_list_allows(patterns: list[str], host: str, expected: bool):
    assert allows(patterns, host) is expected


def test_a_port_in_a_pattern_is_the_only_one():
    assert allows(["db.corp:5432"], "db.corp", 5432)
    assert not allows(["db.corp:5432"], "db.corp", 22)
    assert allows(["db.corp:5432", "[::1]:22"], "::1", 22)
    assert allows(["db.corp"], "db.corp", 22)


@pytest.mark.parametrize(
    "kind, addresses",
    [
        (AddressClass.public,
         "1.1.1.1 93.184.216.34 2606:4700::1111 64:ff9b::101:101 2002:101:101::1 "
         "::ffff:1.1.1.1"),
        (AddressClass.private,
         "127.0.0.1 127.255.0.1 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 "
         "100.64.0.1 ::1 fc00::1 fd12::1 fec0::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 "
         "2002:7f00:1::1 ::7f00:1"),
        (AddressClass.special,
         "169.254.169.254 169.254.0.1 fe80::1 0.0.0.0 0.1.2.3 :: 224.0.0.1 ff02::1 "
         "255.255.255.255 240.0.0.1 fd00:ec2::254 100.100.100.200 168.63.129.16 192.0.2.1 "
         "198.18.0.1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1 100::1 "
         "2001:db8::1 4000::1 192.0.0.192 64:ff9b:1::a00:1 64:ff9b:1:a9fe:a9:fe00:808:808"),
    ],
)  # fmt: skip
def test_where_an_address_lies(kind: AddressClass, addresses: str):
    assert {a: lies(ip_address(a)) for a in addresses.split()} == dict.fromkeys(
        addresses.split(), kind
    )


PRIVATE, METADATA = ip_address("10.0.0.5"), ip_address("169.254.169.254")


@pytest.mark.parametrize(
    "reach, address, allowed",
    [
        (ReachableHosts(hosts=("*",)), "1.1.1.1", True),
        (ReachableHosts(hosts=("*",)), "10.0.0.5", False),
        (ReachableHosts(hosts=("db.corp",)), "10.0.0.5", False),
        (ReachableHosts(named=("db.corp",)), "10.0.0.5", True),
        (ReachableHosts(named=("*.corp",)), "10.0.0.5", True),
        (ReachableHosts(named=("*.corp",)), "169.254.169.254", False),
        (ReachableHosts(named=("*.other",)), "10.0.0.5", False),
        (ReachableHosts(named=("db.corp:5432",)), "10.0.0.5", True),
        (ReachableHosts(named=("db.corp:22",)), "10.0.0.5", False),
        (ReachableHosts(private=True), "10.0.0.5", True),
        (ReachableHosts(named=("db.corp",)), "127.0.1.1", True),
        (ReachableHosts(named=("db.corp",), private=True), "169.254.169.254", False),
        (ReachableHosts(named=("169.254.169.254",)), "169.254.169.254", True),
        (ReachableHosts(named=("db.corp",), private=True), "0.0.0.0", False),
        (ReachableHosts(named=("db.corp",), private=True), "::ffff:169.254.169.254", False),
    ],
)
def test_which_addresses_an_allowed_host_may_have(
    reach: ReachableHosts, address: str, allowed: bool
):
    assert (reach.refusal("db.corp", 5432, ip_address(address)) is None) is allowed


def test_a_refused_address_says_what_to_write():
    why = ReachableHosts(hosts=("*",)).refusal("db.corp", 1, PRIVATE) or ""
    assert "10.0.0.5" in why and "write db.corp into permissions.network.allowed_hosts" in why
    why = ReachableHosts(hosts=("*",)).refusal("db.corp", 1, METADATA) or ""
    assert "write 169.254.169.254 into" in why


def test_hosts_that_a_user_has_in_mind():
    config = {
        "pg_host": "db.corp:5432",
        "dsn": "host=one.corp port=5432 password=x",
        "mongo_uri": "mongodb://u:p@two.corp:1,three.corp/x",
        "bootstrap_servers": "k1:9092,k2:9092",
        "hosts": ["four.corp", "*.corp"],
        "api": {"Endpoint": "https://five.corp/"},
        "name": "six.corp",
    }
    assert named_in(config) == (
        "db.corp", "five.corp", "four.corp", "k1", "k2", "one.corp", "three.corp", "two.corp",
    )  # fmt: skip


def test_patterns_that_name_hosts_and_such_that_are_none():
    assert naming(["*", "*:80", "*.a", "A.b:1", "a\0b"]) == ("*.a", "a.b:1")
    assert malformed(["*", "a\0b", "https://x", " a "]) == ["a\0b", "https://x"]


def test_hosts_that_a_configuration_names():
    config = {
        "HOST": "One.example",
        "hostname": "two.example:5432",
        "server": 3,
        "list": [{"address": "10.0.0.1"}, "nothost.example"],
        "base_URL": "https://user:pa%40ss@three.example:8443/path?host=four.example",
        "url": "not a url",
        "proxy_url_list": ["https://five.example"],
        "description": "six.example",
    }
    assert hosts_in(config) == ("10.0.0.1", "one.example", "three.example", "two.example")


LABELS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(".".join)
ANY_PORT = st.sampled_from([1, 2, 3])
PORTS = st.sampled_from(["", "", ":1", ":2"])
PATTERNS = st.tuples(st.one_of(LABELS, LABELS.map(lambda n: f"*.{n}"), st.just("*")), PORTS).map(
    "".join
)


@given(st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=4), LABELS, ANY_PORT)
def test_an_intersection_allows_exactly_what_both_allow(
    left: list[str], right: list[str], host: str, port: int
):
    both = intersection(left, right)
    assert allows(both, host, port) == (allows(left, host, port) and allows(right, host, port))


@given(st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=4), LABELS, ANY_PORT)
def test_a_union_allows_exactly_what_either_allows(
    left: list[str], right: list[str], host: str, port: int
):
    assert allows(union(left, right), host, port) == (
        allows(left, host, port) or allows(right, host, port)
    )
