"""Streams, cursors, keys and configurations on the command line (docs/cli.md)."""

import time
from pathlib import Path

import pytest

from penstock.config.pipeline import StreamOptions
from penstock.config.selectors import (
    find_stream,
    parse_config,
    parse_cursor,
    parse_keys,
    parse_stream,
    parse_streams,
)
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId

USERS, SHOP_USERS = StreamId(None, "users"), StreamId("shop", "users")
DOTTED, ORDERS = StreamId(None, "shop.orders"), StreamId("shop", "orders")


def test_streams_by_name_list_and_json() -> None:
    assert [s.name for s in parse_streams("users, shop.orders,users")] == ["users", "shop.orders"]
    one = parse_stream('{"namespace": "a.b", "name": "c"}')
    assert (one.namespace, one.name) == ("a.b", "c")
    assert len(parse_streams('["a,b", {"name": "c"}]')) == 2


@pytest.mark.parametrize("text", ["", "a,,b", "[]", "[1]", '{"name": 1}', '{"nam": "x"}', "{"])
def test_what_names_no_stream_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_streams(text)
    assert caught.value.code == "config.option"
    assert caught.value.message.startswith("--streams: ")
    assert "NAMESPACE.NAME" in (caught.value.hint or "")


def test_finding_a_stream() -> None:
    known = [SHOP_USERS, ORDERS]
    assert find_stream(StreamOptions(name="users"), known) == SHOP_USERS
    assert find_stream(StreamOptions(name="shop.orders"), known) == ORDERS
    assert find_stream(StreamOptions(name="shop.orders"), [*known, DOTTED]) == DOTTED
    assert find_stream(StreamOptions(name="users", namespace="shop"), [USERS, *known]) == SHOP_USERS
    two = [USERS, StreamId("", "users")]
    assert find_stream(StreamOptions(name="users"), two) == two[0]
    assert find_stream(StreamOptions(name=".users"), two) == two[1]
    assert find_stream(StreamOptions(name="users", namespace=""), two) == two[1]
    assert find_stream(StreamOptions(name="users", namespace=""), [SHOP_USERS]) == SHOP_USERS
    with pytest.raises(ConfigError) as caught:
        find_stream(StreamOptions(name="shop.usres"), known)
    assert caught.value.message == "there is no stream 'shop.usres'"
    assert caught.value.hint == "did you mean 'shop.users'?"
    with pytest.raises(ConfigError) as caught:
        find_stream(StreamOptions(name="users"), [USERS, SHOP_USERS])
    assert caught.value.message == "'users' names 2 streams: users, shop.users"


def test_cursor_and_keys() -> None:
    assert parse_cursor("updated.at") == ("updated.at",)
    assert parse_cursor('["metadata","updated_at"]') == ("metadata", "updated_at")
    assert parse_keys("a, b") == (("a",), ("b",))
    assert parse_keys('["metadata","id"]') == (("metadata", "id"),)
    assert parse_keys('[["metadata","id"],["shop"]]') == (("metadata", "id"), ("shop",))


@pytest.mark.parametrize("text", ["a,b", "", "[]", "[1]", "[", '["a", ""]'])
def test_bad_cursor(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--cursor-field: "):
        parse_cursor(text)


@pytest.mark.parametrize("text", ["a,,b", "", "[]", "[[]]", "[1]", "[[1]]"])
def test_bad_keys(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--primary-key: "):
        parse_keys(text)


def test_config_by_json_and_by_file(tmp_path: Path) -> None:
    assert parse_config('{"count": 1}') == {"count": 1}
    file = tmp_path / "c.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": {"b": []}}')
    assert parse_config(f"@{file}") == {"a": {"b": []}}


@pytest.mark.parametrize("text", ["[1]", "{", "@/nowhere/c.json", "hunter2", '{"p": "hunter2"'])
def test_bad_config_is_not_quoted(text: str) -> None:
    """L10"""
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert caught.value.message.startswith("--config: ")
    assert "hunter2" not in str(caught.value.as_dict())


def test_deep_json_is_an_error_and_no_crash() -> None:
    with pytest.raises(ConfigError, match="nested too deep"):
        parse_config("[" * 100_000 + "]" * 100_000)


def test_l11_a_long_name_is_matched_in_time_that_grows_with_it() -> None:
    """A source names its streams: 800 characters took three seconds, 8000 a night."""
    began = time.monotonic()
    option = StreamOptions(name="*_*_*_x")
    assert not option.matches(StreamId(None, "_" * 100_000))
    assert option.matches(StreamId(None, "_" * 100_000 + "\n_x"))
    assert StreamOptions(name="[a]*?").matches(StreamId(None, "[a]bc"))
    assert not StreamOptions(name="[a]*?").matches(StreamId(None, "abc"))
    assert time.monotonic() - began < 5
