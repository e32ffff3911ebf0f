"""Discovery's catalogs: identity, selection, modes, what the tap is given back (discovery and field
selection guides; the rule on which the Singer SDK and Meltano agree)."""

import json
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.protocols.reading import StreamOverrides
from penstock.protocols.singer.catalog import selected_catalog
from penstock.protocols.singer.package import PACKAGE

SOURCE = PACKAGE.source
NAMES = {"id": {"type": "integer"}, "a.b c": {"type": "string"}, "note": {"type": "string"}}


def metadata(root: dict[str, Any] | None = None, **fields: dict[str, Any]) -> list[Any]:
    items = [] if root is None else [{"breadcrumb": [], "metadata": root}]
    return items + [{"breadcrumb": ["properties", k], "metadata": v} for k, v in fields.items()]


def entry(items: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": dict(NAMES)}
    base = {"tap_stream_id": "db-orders", "stream": "orders", "schema": schema}
    return {**base, **({} if items is None else {"metadata": items}), **more}


def stream(items: list[Any] | None = None, **more: Any) -> Stream:
    return SOURCE.catalog_of({"streams": [entry(items, **more)]}).streams[0]


def configured(found: Stream, **overrides: Any) -> ConfiguredStream:
    return SOURCE.configure(found, StreamOverrides(**overrides))


def given_back(one: ConfiguredStream) -> dict[tuple[str, ...], Any]:
    """Metadata of the tap's catalog, by breadcrumb."""
    (found,) = selected_catalog([one])["streams"]
    return {tuple(m["breadcrumb"]): m["metadata"] for m in found["metadata"]}


def test_identity_is_tap_stream_id_without_a_namespace():
    assert stream().id == StreamId(None, "db-orders")
    assert stream(tap_stream_id=None).id == StreamId(None, "orders")


def test_odd_entries_are_left_out_and_told():
    catalog = SOURCE.catalog_of({"streams": [entry(), 7, {"schema": {}}, entry()]})
    assert [s.id.name for s in catalog.streams] == ["db-orders"]
    assert catalog.unnamed == 2
    assert [n.split()[:2] for n in catalog.notes] == [
        ["stream", "2"], ["stream", "3"], ["stream", "db-orders"],
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        SOURCE.catalog_of({"stream": []})
    assert caught.value.code == "config.catalog"


@pytest.mark.parametrize(
    ("root", "more", "selected"),
    [
        ({}, {}, True),
        ({"selected": True}, {}, True),
        ({"selected": "true"}, {}, True),
        ({"selected": False}, {}, False),
        ({"selected": "false"}, {}, False),
        ({"selected-by-default": False}, {}, False),
        ({"selected-by-default": False, "selected": True}, {}, True),
        ({"inclusion": "unsupported", "selected": True}, {}, False),
        ({}, {"schema": {"selected": False}}, False),
        ({}, {"selected": False}, False),
    ],
)
def test_what_a_catalog_says_of_a_stream(root: dict[str, Any], more: Any, selected: bool):
    assert stream(metadata(root), **more).selected is selected


def test_a_stream_of_which_nothing_is_said_is_left_out_where_another_is_selected():
    chosen = entry(metadata({"selected": True}))
    catalog = SOURCE.catalog_of({"streams": [chosen, entry(tap_stream_id="other")]})
    assert [s.selected for s in catalog.streams] == [True, False]


# -- fields


def test_unsupported_fields_never_come():
    found = stream(metadata({}, note={"inclusion": "unsupported", "selected": True}))
    assert list(found.json_schema["properties"]) == ["id", "a.b c"]


def test_marks_inside_the_schema_are_no_part_of_it():
    schema = {
        "selected": True,
        "properties": {
            "id": {"type": "integer", "inclusion": "automatic"},
            "x": {"selected": False},
        },
    }
    found = stream(None, schema=schema)
    assert found.json_schema == {"properties": {"id": {"type": "integer"}, "x": {}}}
    assert configured(found).left_out == ("x",)


def test_columns_are_those_selected_unless_the_user_says():
    items = metadata({}, **{"a.b c": {"selected": "false"}, "note": {"selected-by-default": False}})
    found = configured(stream(items))
    assert found.selected([*NAMES, "only in a SCHEMA"]) == {"id", "only in a SCHEMA"}
    chosen = configured(stream(items), columns=("note",))
    assert chosen.columns == ("note",) and not chosen.left_out
    assert not configured(stream(metadata({}))).left_out
    with pytest.raises(ConfigError):
        configured(stream(items), columns=("nope",))


def test_the_tap_is_told_of_every_field_automatic_ones_kept():
    items = metadata({}, id={"inclusion": "automatic", "selected": False}, note={"selected": True})
    told = given_back(configured(stream(items), columns=("a.b c",)))
    assert told[()]["selected"] is True
    assert {k[-1]: v["selected"] for k, v in told.items() if k} == {
        "id": True,
        "a.b c": True,
        "note": False,
    }


def test_nested_fields_keep_what_is_said_of_them_and_their_parents():
    schema = {
        "properties": {
            "o": {"properties": {"x": {}, "y": {}, "items": {"properties": {"z": {}}}}},
            "l": {"items": {"properties": {"x": {}, "y": {}}}},
        }
    }
    items = [
        {"breadcrumb": ["properties", "o", "properties", "y"], "metadata": {"selected": False}},
        {
            "breadcrumb": ["properties", "l", "items", "properties", "x"],
            "metadata": {"inclusion": "unsupported"},
        },
    ]
    found = stream(items, schema=schema)
    inside = found.json_schema["properties"]
    assert list(inside["o"]["properties"]) == ["x", "items"]
    assert list(inside["l"]["items"]["properties"]) == ["y"]
    told = {k: v["selected"] for k, v in given_back(configured(found)).items()}
    assert told[("properties", "o")] and told[("properties", "o", "properties", "x")]
    assert not told[("properties", "o", "properties", "y")]
    assert told[("properties", "o", "properties", "items", "properties", "z")]
    assert not told[("properties", "l", "items", "properties", "x")]
    gone = {k: v["selected"] for k, v in given_back(configured(found, columns=("l",))).items()}
    assert not any(v for k, v in gone.items() if k[:2] == ("properties", "o"))


def test_a_part_of_an_object_is_told_by_the_breadcrumbs_of_its_fields():
    geo = {"properties": {"lat": {}, "lon": {"properties": {"deg": {}}}}}
    schema = {
        "properties": {
            "id": {},
            "o": {"properties": {"x": {}, "y": {}, "key": {}, "geo": geo, "l": {"items": geo}}},
            "p": {"properties": {"x": {}}},
        }
    }
    items = [
        {"breadcrumb": ["properties", "o", "properties", "key"],
         "metadata": {"inclusion": "automatic"}},
    ]  # fmt: skip
    chosen = configured(
        stream(items, schema=schema, key_properties=["id"]), columns=("o.x", ("o", "geo", "lon"))
    )
    assert chosen.columns == ("o", "id")
    assert chosen.nested == (("o", "x"), ("o", "geo", "lon"))
    told = given_back(chosen)
    selected = {
        c[1::2] for c, words in told.items() if c and words["selected"] and "items" not in c
    }
    assert selected == {
        ("id",),
        ("o",),
        ("o", "x"),
        ("o", "key"),
        ("o", "geo"),
        ("o", "geo", "lon"),
        ("o", "geo", "lon", "deg"),
    }
    assert not any(words["selected"] for c, words in told.items() if "items" in c)
    assert told[("properties", "o", "properties", "y")] == {"selected": False}


def test_a_part_of_an_object_is_told_in_the_schema_of_an_entry_without_metadata():
    schema = {"properties": {"o": {"properties": {"x": {}, "y": {}}}}}
    (found,) = selected_catalog([configured(stream(schema=schema), columns=("o.x",))])["streams"]
    inside = found["schema"]["properties"]["o"]
    assert inside["selected"] is True
    assert {k: v["selected"] for k, v in inside["properties"].items()} == {"x": True, "y": False}


def test_legacy_selection_stands_in_the_schema_of_an_entry_without_metadata():
    (found,) = selected_catalog([configured(stream(), columns=("id",))])["streams"]
    assert found["selected"] is True
    assert found["schema"]["selected"] is True
    fields = found["schema"]["properties"]
    assert {k: v["selected"] for k, v in fields.items()} == {
        "id": True,
        "a.b c": False,
        "note": False,
    }


def test_entries_reach_the_tap_with_what_nobody_here_knows_and_are_not_changed():
    given = entry(metadata({"sql-datatype": "x"}), is_view=False, table_name="orders")
    before = json.dumps(given)
    found = SOURCE.catalog_of({"streams": [given]}).streams[0]
    (back,) = selected_catalog([configured(found)])["streams"]
    assert (back["table_name"], back["metadata"][0]["metadata"]["sql-datatype"]) == ("orders", "x")
    assert json.dumps(given) == before


def test_streams_that_are_not_chosen_are_deselected():
    other = stream(metadata({"selected": True}), tap_stream_id="other")
    (_, back) = selected_catalog([configured(stream(metadata({})))], [other])["streams"]
    assert back["tap_stream_id"] == "other"
    assert back["metadata"][0]["metadata"]["selected"] is False
    assert back["selected"] is False


# -- modes, cursor, key

MONGO = {"row-count": 5, "table-key-properties": ["id"], "valid-replication-keys": ["id"]}
"""As singer-io's tap-mongodb discovers: it lists the columns that have an index of their own."""


@pytest.mark.parametrize(
    ("root", "mode", "cursor"),
    [
        ({}, SyncMode.incremental, ()),
        ({"replication-key": "id"}, SyncMode.incremental, ("id",)),
        ({"valid-replication-keys": ["note"]}, SyncMode.incremental, ("note",)),
        ({"valid-replication-keys": "note"}, SyncMode.incremental, ("note",)),
        ({"valid-replication-keys": ["id", "note"]}, SyncMode.full_refresh, ()),
        # rows that change keep their id, and a table's columns are candidates for its user
        (MONGO, SyncMode.full_refresh, ()),
        ({**MONGO, "valid-replication-keys": ["note"]}, SyncMode.full_refresh, ()),
        ({**MONGO, "replication-key": "id"}, SyncMode.incremental, ("id",)),
        ({**MONGO, "replication-method": "INCREMENTAL"}, SyncMode.incremental, ("id",)),
        (
            {"table-key-properties": ["id", "note"], "valid-replication-keys": ["id"]},
            SyncMode.full_refresh,
            (),
        ),
        ({"forced-replication-method": "FULL_TABLE"}, SyncMode.full_refresh, ()),
        ({"forced-replication-method": "INCREMENTAL"}, SyncMode.incremental, ()),
        ({"forced-replication-method": "LOG_BASED"}, SyncMode.cdc, ()),
        ({"replication-method": "LOG_BASED"}, SyncMode.cdc, ()),
        ({"forced-replication-method": "", "schema-name": "s"}, SyncMode.full_refresh, ()),
        ({"replication-method": "INCREMENTAL", "schema-name": "s"}, SyncMode.full_refresh, ()),
    ],
)
def test_the_mode_where_the_user_says_nothing(root: Any, mode: SyncMode, cursor: Any):
    found = configured(stream(metadata(root)))
    assert (found.sync_mode, found.cursor_field) == (mode, cursor)
    overwrite = found.destination_sync_mode is DestinationSyncMode.overwrite
    assert overwrite is (mode is SyncMode.full_refresh)


@pytest.mark.parametrize(
    ("root", "overrides", "code"),
    [
        ({"forced-replication-method": "FULL_TABLE"}, {"sync_mode": "incremental"}, "sync_mode"),
        ({}, {"sync_mode": "cdc"}, "sync_mode"),
        ({"schema-name": "s"}, {"sync_mode": "incremental"}, "cursor_missing"),
        (
            {"valid-replication-keys": ["id"]},
            {"sync_mode": "incremental", "cursor_field": ("note",)},
            "cursor",
        ),
        ({}, {"sync_mode": "incremental", "cursor_field": ("x",)}, "unknown_field"),
        ({}, {"destination_sync_mode": "append_dedup"}, "primary_key_missing"),
        (
            {"table-key-properties": ["x"]},
            {"destination_sync_mode": "append_dedup"},
            "unknown_field",
        ),
        ({}, {"sync_mode": "sometimes"}, "unknown_mode"),
    ],
)
def test_what_cannot_be_is_a_config_error(root: Any, overrides: Any, code: str):
    with pytest.raises(ConfigError) as caught:
        configured(stream(metadata(root)), **overrides)
    assert caught.value.code == f"config.{code}"
    assert caught.value.hint


def test_the_only_key_that_a_tap_takes_is_the_cursor_of_who_asks_for_increments():
    """Also of a pipeline whose earlier runs brought increments (``engine.plan.earlier_modes``)."""
    found = configured(stream(metadata(MONGO)), sync_mode="incremental")
    assert (found.sync_mode, found.cursor_field) == (SyncMode.incremental, ("id",))


def test_any_stream_can_be_read_anew_also_where_the_tap_insists():
    found = stream(metadata({"forced-replication-method": "INCREMENTAL"}))
    one = configured(found, sync_mode="full_refresh")
    assert one.sync_mode is SyncMode.full_refresh
    assert given_back(one)[()]["replication-method"] == "INCREMENTAL"


@pytest.mark.parametrize("root", [{}, {"table-key-properties": ["id"]}])
def test_l6_a_tap_that_says_nothing_of_replication_decides_by_itself(root: Any):
    """It is told no method, unless the user names one. A key says nothing of replication: with
    singer-python's standard metadata every tap names it."""
    free = configured(stream(metadata(root)))
    assert free.sync_mode is SyncMode.incremental
    assert free.source_decides and "replication-method" not in given_back(free)[()]
    (back,) = selected_catalog([free])["streams"]
    assert "replication_method" not in back
    for overrides in ({"sync_mode": "incremental"}, {"sync_mode": "full_refresh"}):
        told = configured(stream(metadata(root)), **overrides)
        assert not told.source_decides and "replication-method" in given_back(told)[()]


def test_the_tap_is_told_method_and_key_in_both_places():
    one = configured(stream(metadata({})), sync_mode="incremental", cursor_field=("id",))
    (back,) = selected_catalog([one])["streams"]
    root = back["metadata"][0]["metadata"]
    assert (root["replication-method"], root["replication-key"]) == ("INCREMENTAL", "id")
    assert (back["replication_method"], back["replication_key"]) == ("INCREMENTAL", "id")
    cdc = configured(stream(metadata({"is-view": False})), sync_mode="cdc")
    assert given_back(cdc)[()]["replication-method"] == "LOG_BASED"


def test_a_nested_key_is_not_told_to_the_tap_as_its_first_step():
    inner = {"type": "object", "properties": {"id": {"type": "integer"}}}
    found = stream(schema={"type": "object", "properties": {"a": inner, "b": {"type": "integer"}}})
    for key in ((("a", "id"),), (("b",), ("a", "id"))):
        (back,) = selected_catalog([configured(found, primary_key=key)])["streams"]
        assert "key_properties" not in back
        assert "view-key-properties" not in back["metadata"][0]["metadata"]


def test_key_properties_are_the_default_primary_key_specification_SCHEMA():
    assert configured(stream(key_properties=["id"])).primary_key == (("id",),)
    found = stream(metadata({"table-key-properties": ["id"]}), key_properties=[])
    assert configured(found).primary_key == (("id",),)
    assert configured(found, primary_key=(("note",),)).primary_key == (("note",),)
    view = configured(stream(metadata({"is-view": True})), primary_key=(("id",),))
    assert given_back(view)[()]["view-key-properties"] == ["id"]
