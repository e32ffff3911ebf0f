"""``protocols.column_patterns``: columns by a pattern, and columns to leave out. No value comes
that the user left out, in any protocol."""

from pathlib import Path
from typing import Any

import pytest
from test_stream_columns import PROPERTIES, PROTOCOLS, USERS, plan

from penstock.errors import ConfigError
from penstock.model.catalog import Stream, StreamId, SyncMode
from penstock.protocols.singer.catalog import catalog_of

ALL = [*PROPERTIES]


def kept(tmp_path: Path, columns: str, protocol: str = "airbyte", **more: Any) -> dict[str, Any]:
    """The columns that are read, each with the parts that are kept of it (None: all)."""
    (stream,) = plan(tmp_path, f"columns: {columns}", protocol=protocol, **more).streams
    found: dict[str, Any] = dict.fromkeys(f.source for f in stream.schema.fields)
    for path in stream.configured.nested:
        found[path[0]] = [*(found[path[0]] or []), ".".join(path[1:])]
    return found


def without(*names: str) -> dict[str, Any]:
    return dict.fromkeys(name for name in ALL if name not in names)


CASES: list[tuple[str, dict[str, Any]]] = [
    ('["!free"]', without("free")),
    ('["!free", "!lines"]', without("free", "lines")),
    ('["!f*"]', without("free")),
    ('["!address"]', without("address")),
    ('["!address.*"]', without("address")),
    ('["!address.city"]', {**without(), "address": ["street", "geo"]}),
    ('["!address.geo.lat"]', {**without(), "address": ["city", "street", "geo.lon"]}),
    ('["!*.lat"]', {**without(), "address": ["city", "street", "geo.lon"]}),
    ('["!address.city", "!address.street", "!address.geo.l*"]', without("address")),
    ('["*", "!free"]', without("free")),
    ('["*"]', without()),
    ('["addr*"]', dict.fromkeys(["id", "address"])),
    ('["f???"]', dict.fromkeys(["id", "free"])),
    ('["*.city"]', {"id": None, "address": ["city"]}),
    (
        '["free", "addr*", "!address.geo"]',
        {"id": None, "address": ["city", "street"], "free": None},
    ),
    ('["address.city", "li*"]', {"id": None, "address": ["city"], "lines": None}),
    ('["address", "!address.city"]', {"id": None, "address": ["street", "geo"]}),
    ('["!id"]', without()),  # the key is kept, whatever the list says
    ('["!meta.a"]', {**without("meta.a"), "meta": ["a.b"]}),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("columns", "expected"), CASES)
def test_columns_by_a_pattern_and_columns_to_leave_out(
    tmp_path: Path, columns: str, expected: dict[str, Any], protocol: str
) -> None:
    assert kept(tmp_path, columns, protocol) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ('["!frea"]', "no stream has frea, which is to be left out; did you mean 'free'?"),
        ('["!address.citty"]', "no stream has address.citty"),
        ('["!free.secret"]', "free.secret cannot be left out alone"),
        ('["!free.*secret"]', "free.*secret cannot be left out alone"),
        ('["!lines.sku"]', "lines.sku cannot be left out alone"),
        ('["!*"]', "they leave no column"),
        ('["x*"]', "they leave no column"),
    ],
)
def test_what_cannot_be_left_out_is_refused(
    tmp_path: Path, columns: str, said: str, protocol: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        kept(tmp_path, columns, protocol)
    assert said in str(refused.value.problems)


def test_a_property_that_is_called_like_a_pattern_is_meant(tmp_path: Path) -> None:
    odd = Stream(
        id=StreamId(None, "users"),
        json_schema={"properties": {"!a": {}, "b*": {}, "a": {}, "bc": {}}},
        sync_modes=tuple(SyncMode),
    )
    assert [*kept(tmp_path, '["!a", "b*"]', stream=odd)] == ["!a", "b*"]
    assert [*kept(tmp_path, '[["b*"]]', stream=odd)] == ["b*"]


def test_a_stream_whose_schema_names_nothing_has_no_pattern(tmp_path: Path) -> None:
    bare = Stream(id=StreamId(None, "u"), json_schema={}, sync_modes=tuple(SyncMode))
    with pytest.raises(ConfigError) as refused:
        kept(tmp_path, '["!secret"]', stream=bare)
    assert "names no properties" in str(refused.value.problems)


def test_what_a_catalog_deselects_is_not_meant_by_all_others(tmp_path: Path) -> None:
    """A tap's own choice stays, but where a pattern or a name asks for it."""
    entry = {
        "tap_stream_id": "users",
        "stream": "users",
        "schema": {"type": "object", "properties": {n: {"type": "string"} for n in "abc"}},
        "metadata": [
            {"breadcrumb": [], "metadata": {"selected": True}},
            {"breadcrumb": ["properties", "b"], "metadata": {"selected": False}},
        ],
    }
    (stream,) = catalog_of({"streams": [entry]}).streams
    assert [*kept(tmp_path, '["!c"]', "singer", stream=stream)] == ["a"]
    assert [*kept(tmp_path, '["*", "!c"]', "singer", stream=stream)] == ["a", "b"]


def test_the_users_stream_has_all_columns(tmp_path: Path) -> None:
    assert kept(tmp_path, "[id]", stream=USERS) == {"id": None}
