"""Modes, cursor and key (protocol, "Logic for resolving the Cursor Field" and
ConfiguredAirbyteStream), and the catalogs to and fro."""

from typing import Any

import msgspec
import pytest

from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.types import Kind
from penstock.protocols.airbyte.catalog import catalog_of, configured_catalog
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.airbyte.stream_config import exists, resolve_cursor
from penstock.protocols.reading import StreamOverrides

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "updated_at": {"type": "string"},
        "email": {"type": "string"},
        "open": {"type": ["null", "object"]},
        "meta": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/meta"}]},
        "_ab_cdc_deleted_at": {"type": "string"},
    },
    "definitions": {"meta": {"properties": {"changed": {"type": "string"}}}},
}


def stream(**more: Any) -> Stream:
    given: dict[str, Any] = {
        "id": StreamId(None, "users"),
        "json_schema": SCHEMA,
        "sync_modes": (SyncMode.full_refresh, SyncMode.incremental),
        "raw": {"name": "users", "json_schema": SCHEMA, "future": {"x": 1}},
    }
    return Stream(**{**given, **more})


NO_WISH = StreamOverrides()


def configure(overrides: StreamOverrides = NO_WISH, **more: Any):
    return PACKAGE.source.configure(stream(**more), overrides)


INCREMENTAL = StreamOverrides(sync_mode="incremental")


# -- the cursor's five outcomes


def test_cursor_not_needed_under_full_refresh():
    overrides = StreamOverrides(sync_mode="full_refresh", cursor_field=("nonsense",))
    assert configure(overrides).cursor_field == ()


def test_cursor_source_defined_cannot_be_overridden():
    overrides = StreamOverrides(sync_mode="incremental", cursor_field=("email",))
    more: dict[str, Any] = {"source_defined_cursor": True}
    assert configure(overrides, default_cursor_field=("updated_at",), **more).cursor_field == (
        "updated_at",
    )
    assert configure(INCREMENTAL, **more).cursor_field == ()
    assert configure(INCREMENTAL, default_cursor_field=("hidden",), **more).cursor_field == ()


def test_cursor_configured_wins_over_the_default():
    overrides = StreamOverrides(sync_mode="incremental", cursor_field=("meta", "changed"))
    assert configure(overrides, default_cursor_field=("updated_at",)).cursor_field == (
        "meta",
        "changed",
    )


def test_cursor_default():
    found = configure(INCREMENTAL, default_cursor_field=("updated_at",))
    assert found.cursor_field == ("updated_at",)


def test_cursor_illegal():
    with pytest.raises(ConfigError, match="needs a cursor") as caught:
        configure(INCREMENTAL)
    assert caught.value.code == "config.cursor_missing"
    assert "updated_at" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        (("updated_att",), "did you mean 'updated_at'?"),
        (("meta", "chnged"), "did you mean 'changed'?"),
        (("id", "x"), "its properties: none"),
    ],
)
def test_an_unknown_cursor_says_what_was_meant(path: tuple[str, ...], hint: str):
    with pytest.raises(ConfigError, match="not in the stream's schema") as caught:
        configure(StreamOverrides(sync_mode="incremental", cursor_field=path))
    assert (caught.value.code, caught.value.hint) == ("config.unknown_field", hint)


def test_paths_into_objects_of_unknown_shape_are_taken():
    assert exists(SCHEMA, ("open", "a", "b"))
    assert exists({}, ("anything",))
    assert not exists(SCHEMA, ("id", "a"))
    assert resolve_cursor(stream(), SyncMode.incremental, ("open", "at")) == ("open", "at")


# -- modes


def test_the_best_mode_without_a_wish():
    """Incremental where it is supported and a cursor resolves, else full_refresh."""
    best = configure(default_cursor_field=("updated_at",))
    assert (best.sync_mode, best.destination_sync_mode) == ("incremental", "append")
    plain = configure()
    assert (plain.sync_mode, plain.destination_sync_mode) == ("full_refresh", "overwrite")
    only_full = configure(sync_modes=(SyncMode.full_refresh,), source_defined_cursor=True)
    assert only_full.sync_mode is SyncMode.full_refresh
    assert configure(StreamOverrides(cursor_field=("email",))).sync_mode is SyncMode.incremental
    with pytest.raises(ConfigError, match="not in the stream's schema"):
        configure(StreamOverrides(cursor_field=("emial",)))


def test_full_refresh_is_allowed_even_when_it_is_not_listed():
    overrides = StreamOverrides(sync_mode="full_refresh")
    assert configure(overrides, sync_modes=()).sync_mode is SyncMode.full_refresh


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        (StreamOverrides(sync_mode="cdc"), "config.sync_mode"),
        (StreamOverrides(sync_mode="incremental"), "config.sync_mode"),
        (StreamOverrides(sync_mode="incremantal"), "config.unknown_mode"),
        (StreamOverrides(destination_sync_mode="upsert"), "config.unknown_mode"),
    ],
)
def test_a_mode_that_is_not_supported_is_refused(overrides: StreamOverrides, code: str):
    with pytest.raises(ConfigError) as caught:
        configure(overrides, sync_modes=(SyncMode.full_refresh,))
    assert caught.value.code == code
    assert caught.value.hint


# -- the key

DEDUP = "append_dedup"


def test_append_dedup_needs_a_key():
    with pytest.raises(ConfigError) as caught:
        configure(StreamOverrides(destination_sync_mode=DEDUP))
    assert caught.value.code == "config.primary_key_missing"


def test_the_users_key_may_be_nested_and_must_exist():
    key = (("id",), ("meta", "changed"))
    overrides = StreamOverrides(destination_sync_mode=DEDUP, primary_key=key)
    assert configure(overrides).primary_key == key
    with pytest.raises(ConfigError, match=r"primary_key idd"):
        configure(StreamOverrides(destination_sync_mode=DEDUP, primary_key=(("idd",),)))


def test_the_sources_key_wins_and_cannot_be_replaced():
    more: dict[str, Any] = {"source_defined_primary_key": (("id",), ("email",))}
    assert configure(StreamOverrides(destination_sync_mode=DEDUP), **more).primary_key == (
        ("id",),
        ("email",),
    )
    same = StreamOverrides(primary_key=(("email",), ("id",)))
    assert configure(same, **more).primary_key == (("id",), ("email",))
    with pytest.raises(ConfigError, match="cannot replace it"):
        configure(StreamOverrides(primary_key=(("id",),)), **more)


# -- columns and the catalogs


def test_selected_columns_keep_key_cursor_and_deletes():
    overrides = StreamOverrides(
        sync_mode="incremental",
        destination_sync_mode=DEDUP,
        cursor_field=("meta", "changed"),
        primary_key=(("id",),),
        columns=("email",),
    )
    found = configure(overrides)
    assert found.columns == ("email", "id", "meta", "_ab_cdc_deleted_at")
    (entry,) = configured_catalog([found])["streams"]
    kept = {"email", "id", "meta", "_ab_cdc_deleted_at"}
    assert set(entry["stream"]["json_schema"]["properties"]) == kept
    assert entry["stream"]["json_schema"]["definitions"] == SCHEMA["definitions"]
    assert entry["stream"]["future"] == {"x": 1}
    with pytest.raises(ConfigError, match="columns emal"):
        configure(StreamOverrides(columns=("emal",)))


def test_sync_modes_in_the_capitals_of_the_protocol_page_count():
    """Protocol, AirbyteStream: "The allowed sync modes are `FULL_REFRESH` and `INCREMENTAL`"."""
    raw = {
        "name": "users",
        "json_schema": SCHEMA,
        "supported_sync_modes": ["FULL_REFRESH", "INCREMENTAL"],
        "default_cursor_field": ["updated_at"],
    }
    (one,) = catalog_of({"streams": [raw]}).streams
    assert one.sync_modes == (SyncMode.full_refresh, SyncMode.incremental)
    configured = PACKAGE.source.configure(one, StreamOverrides())
    (entry,) = configured_catalog([configured])["streams"]
    assert (entry["sync_mode"], entry["stream"]) == ("incremental", raw)


def test_the_configured_catalog_passes_the_sources_own_object_and_the_generations():
    raw = {
        "name": "users",
        "namespace": "",
        "json_schema": SCHEMA,
        "supported_sync_modes": ["incremental", "new_mode"],
        "default_cursor_field": ["updated_at"],
        "source_defined_primary_key": [["id"]],
        "is_resumable": True,
        "future": 1,
    }
    catalog = catalog_of({"streams": [raw]})
    (one,) = catalog.streams
    assert not catalog.notes
    assert one.id == StreamId(None, "users")
    assert one.sync_modes == (SyncMode.full_refresh, SyncMode.incremental)
    assert one.is_resumable
    overrides = StreamOverrides(destination_sync_mode=DEDUP)
    configured = PACKAGE.source.configure(one, overrides)
    assert configured.destination_sync_mode is DestinationSyncMode.append_dedup
    with_ids = msgspec.structs.replace(
        configured, generation_id=4, minimum_generation_id=4, sync_id=7
    )
    assert configured_catalog([with_ids])["streams"] == [
        {
            "stream": raw,
            "sync_mode": "incremental",
            "destination_sync_mode": "append_dedup",
            "cursor_field": ["updated_at"],
            "primary_key": [["id"]],
            "generation_id": 4,
            "minimum_generation_id": 4,
            "sync_id": 7,
        }
    ]


def test_only_a_missing_name_costs_a_stream():
    good = {"name": "a", "json_schema": {}, "supported_sync_modes": []}
    nameless = [{"name": 5}, {"json_schema": {}}, {"name": None}, "users", None]
    catalog = catalog_of({"streams": [*nameless, good, dict(good), {**good, "namespace": "n"}]})
    assert [str(s.id) for s in catalog.streams] == ["a", "n.a"]
    assert catalog.unnamed == len(nameless)
    assert [n for n in catalog.notes if "left out" not in n] == [
        "stream a comes twice in the catalog; the first is taken"
    ]
    with pytest.raises(SourceError):
        catalog_of({"streams": None})


@pytest.mark.parametrize(
    ("field", "given", "key", "cursor"),
    [
        ("source_defined_primary_key", ["id"], (("id",),), ("updated_at",)),
        ("source_defined_primary_key", ["id", ["org", "id"]], (("id",), ("org", "id")), None),
        ("source_defined_primary_key", "id", (("id",),), None),
        ("source_defined_primary_key", [["id"], [5]], None, None),
        ("source_defined_primary_key", {"id": 1}, None, None),
        ("default_cursor_field", "updated_at", (("id",),), ("updated_at",)),
        ("default_cursor_field", 7, (("id",),), ()),
        ("json_schema", None, None, None),
        ("json_schema", "{}", None, None),
        ("supported_sync_modes", "incremental", None, None),
        ("is_resumable", "yes", None, None),
        ("namespace", 7, None, None),
    ],
)
def test_an_optional_field_that_cannot_be_read_costs_nothing_else(
    field: str, given: Any, key: Any, cursor: Any
):
    """Protocol, AirbyteStream: paths are lists, of a key a list of lists."""
    raw = {
        "name": "users",
        "json_schema": SCHEMA,
        "supported_sync_modes": ["incremental"],
        "default_cursor_field": ["updated_at"],
        "source_defined_primary_key": [["id"]],
        field: given,
    }
    catalog = catalog_of({"streams": [raw]})
    (stream,) = catalog.streams
    assert stream.id == StreamId(None, "users") and stream.raw == raw
    (note,) = catalog.notes
    assert "stream users" in note and field in note
    if field == "source_defined_primary_key":
        assert stream.source_defined_primary_key == key
    if cursor is not None:
        assert (stream.default_cursor_field or ()) == cursor
    configured = PACKAGE.source.configure(
        stream, StreamOverrides(sync_mode="full_refresh", destination_sync_mode="append")
    )
    (entry,) = configured_catalog([configured])["streams"]
    assert isinstance(entry["stream"]["json_schema"], dict), "the Python CDK takes no other"


# -- the package and its types


def test_the_package_is_found_by_its_name():
    from penstock.protocols import load

    package = load("airbyte")
    assert package.command_name("source-faker") == "airbyte-source-faker"
    assert package.metadata_names.meta == "_airbyte_meta"
    assert package.deleted_at_field == "_ab_cdc_deleted_at"


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string", "format": "date-time"}, Kind.timestamp),
        ("timestamp_with_timezone", Kind.timestamp),
        ("timestamp_without_timezone", Kind.timestamp_ntz),
        ("time_with_timezone", Kind.time_tz),
        ("time_without_timezone", Kind.time),
        ({"type": "number", "airbyte_type": "integer"}, Kind.integer),
        ({"type": ["null", "string"], "airbyte_type": "big_integer"}, Kind.decimal),
        ({"type": "string", "airbyte_type": "big_number"}, Kind.decimal),
        ({"type": "object", "airbyte_type": "integer"}, Kind.json),
        ({"type": "string", "airbyte_type": "vector_array"}, Kind.string),
        ({"type": ["string", "object"], "airbyte_type": "timestamp_with_timezone"}, Kind.json),
    ],
)
def test_airbyte_types(schema: Any, kind: Kind):
    """Protocol, Data Types."""
    if isinstance(schema, str):
        schema = {"type": ["string", "null"], "format": "date-time", "airbyte_type": schema}
    assert PACKAGE.schema.data_type(schema).kind is kind
    record = {"type": "object", "properties": {"a": {"type": "array", "items": schema}}}
    item = PACKAGE.schema.data_type(record).fields[0].type.item
    assert item is not None and item.kind is kind
