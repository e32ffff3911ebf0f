"""Hosts as v4 compares them (protocol, section 8; reference, section 5.8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.rapidbyte.network import allows, hosts_in, intersection, normalized, union


@pytest.mark.parametrize(
    "given_, expected",
    [
        ("DB.Example", "db.example"),
        (" db.example ", "db.example"),
        ("db.example:5432", "db.example"),
        ("db.example.", "db.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("2001:0db8:0:0:0:0:0:1", "2001:db8::1"),
        ("db.example:x", "db.example:x"),
        ("", ""),
    ],
)
def test_one_spelling_per_host(given_: str, expected: str):
    assert normalized(given_) == expected


@pytest.mark.parametrize(
    "patterns, host, expected",
    [
        (["*"], "anything", True),
        (["*"], "", False),
        ([], "a", False),
        (["a.example"], "A.EXAMPLE:5432", True),
        (["*.example"], "a.b.example", True),
        (["*.example"], "example", False),
        (["*.example"], "badexample", False),
        (["*.example"], "a.example.", True),
        (["localhost"], "127.0.0.1", False),
        (["127.0.0.1"], "localhost", False),
        (["127.0.0.1"], "127.1", False),
        (["127.0.0.1"], "2130706433", False),
        (["127.0.0.1"], "::ffff:127.0.0.1", False),
        (["::1"], "[0:0:0:0:0:0:0:1]:5432", True),
        (["a.example"], "a.example\0.evil", False),
        (["a.example"], "evil@a.example", False),
    ],
)
def test_what_a_list_allows(patterns: list[str], host: str, expected: bool):
    assert allows(patterns, host) is expected


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
PATTERNS = st.one_of(LABELS, LABELS.map(lambda n: f"*.{n}"), st.just("*"))


@given(st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=4), LABELS)
def test_an_intersection_allows_exactly_what_both_allow(
    left: list[str], right: list[str], host: str
):
    both = intersection(left, right)
    assert allows(both, host) == (allows(left, host) and allows(right, host))


@given(st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=4), LABELS)
def test_a_union_allows_exactly_what_either_allows(left: list[str], right: list[str], host: str):
    assert allows(union(left, right), host) == (allows(left, host) or allows(right, host))
