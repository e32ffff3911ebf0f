"""A column that was JSON text, since its reference could not be read, stays JSON text in a table
that keeps its rows (L9: one column, one form)."""

from typing import Any

from penstock.engine.plan.kept_json import referring, with_kept_json
from penstock.model.catalog import Catalog, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.airbyte.package import PACKAGE
from penstock.store.remembered import UsedModes

REF = {"$ref": "WellKnownTypes.json#/definitions/Integer"}
PROPERTIES: dict[str, Any] = {
    "old": REF,
    "maybe": {"oneOf": [{"type": "null"}, REF]},
    "new": REF,
    "text": {"type": "string"},
    "inside": {"$ref": "#/definitions/x"},
}
USERS = Stream(id=StreamId(None, "users"), json_schema={"properties": PROPERTIES})
APPENDS = UsedModes(
    sync_mode=SyncMode.incremental, destination_sync_mode=DestinationSyncMode.append_dedup
)
REPLACES = UsedModes(
    sync_mode=SyncMode.full_refresh, destination_sync_mode=DestinationSyncMode.overwrite
)


def stored(**kinds: Kind) -> RowSchema:
    return RowSchema(tuple(Field(n, n, DataType(kind)) for n, kind in kinds.items()))


def test_yesterdays_column_of_json_text_stays_one() -> None:
    assert referring([USERS], {USERS.id: APPENDS}) == [USERS.id]
    kinds = {"old": Kind.json, "maybe": Kind.json, "text": Kind.json, "inside": Kind.json}
    catalog = with_kept_json(Catalog((USERS,)), {USERS.id: stored(**kinds)}, PACKAGE.schema)
    row = PACKAGE.schema.data_type(catalog.streams[0].json_schema)
    assert {f.source: f.type.kind for f in row.fields} == {
        "old": Kind.json,
        "maybe": Kind.json,
        "new": Kind.integer,
        "text": Kind.string,
        "inside": Kind.json,
    }
    (note,) = catalog.notes
    assert note.startswith("stream users: old, maybe: JSON text") and "--recreate" in note


def test_a_table_that_is_replaced_and_one_that_is_typed_are_left_alone() -> None:
    assert referring([USERS], {USERS.id: REPLACES}) == referring([USERS], {}) == []
    typed = {USERS.id: stored(old=Kind.integer, maybe=Kind.integer)}
    catalog = Catalog((USERS,))
    assert with_kept_json(catalog, typed, PACKAGE.schema) is catalog
