"""Namespaces and prefixes on the way out (reference: Airbyte's namespace definitions)."""

import pytest

from penstock.model.catalog import StreamId
from penstock.model.targets import clashes, target_of, targets_of

SHOP, BARE = StreamId("shop", "users"), StreamId(None, "users")


@pytest.mark.parametrize(
    ("namespace", "prefix", "of_shop", "of_bare"),
    [
        ("source", "", ("shop", "users"), (None, "users")),
        ("source", "p_", ("shop", "p_users"), (None, "p_users")),
        ("destination", "", (None, "users"), (None, "users")),
        ("destination", "p_", (None, "p_users"), (None, "p_users")),
        ("lake", "", ("lake", "users"), ("lake", "users")),
        ("in_${SOURCE_NAMESPACE}", "", ("in_shop", "users"), ("in_", "users")),
        ("${SOURCE_NAMESPACE}", "", ("shop", "users"), (None, "users")),
        (
            "${SOURCE_NAMESPACE}_${SOURCE_NAMESPACE}",
            "",
            ("shop_shop", "users"),
            ("_", "users"),
        ),
        ("", "", (None, "users"), (None, "users")),
        ("  ", "p_", (None, "p_users"), (None, "p_users")),
        (" ${SOURCE_NAMESPACE} ", "", (" shop ", "users"), (None, "users")),
    ],
)
def test_a_target_has_the_namespace_that_was_asked_for(
    namespace: str,
    prefix: str,
    of_shop: tuple[str | None, str],
    of_bare: tuple[str | None, str],
) -> None:
    assert target_of(SHOP, namespace, prefix) == StreamId(*of_shop)
    assert target_of(BARE, namespace, prefix) == StreamId(*of_bare)


def test_by_default_a_stream_keeps_its_name() -> None:
    odd = StreamId("${SOURCE_NAMESPACE}", "a.b c")
    assert target_of(odd) == odd
    assert target_of(StreamId("a$b\\1", "x"), "${SOURCE_NAMESPACE}").namespace == "a$b\\1"


def test_streams_that_would_share_a_name_are_named() -> None:
    streams = [SHOP, BARE, StreamId("crm", "users"), StreamId("crm", "deals")]
    assert clashes(targets_of(streams)) == []
    (sentence,) = clashes(targets_of(streams, "destination"))
    assert "users, crm.users, shop.users would all be 'users'" in sentence
