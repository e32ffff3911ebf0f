"""What a catalog gives to the source: schemas, keys, cursors and modes of the selected streams, and
a Singer tap's metadata; not order, texts or row counts."""

from typing import Any

import msgspec
import pytest

from penstock.config.command_line import pipeline_from_arguments
from penstock.engine.plan.given_catalog import given
from penstock.model.catalog import Catalog, Stream, StreamId, SyncMode
from penstock.protocols.airbyte.catalog import stream_of
from penstock.protocols.singer.catalog import catalog_of

ENTRY: dict[str, Any] = {
    "tap_stream_id": "users",
    "stream": "users",
    "schema": {
        "type": "object",
        "description": "people",
        "properties": {
            "id": {"type": ["null", "integer"], "title": "number"},
            "description": {"type": "string"},
        },
    },
    "metadata": [
        {"breadcrumb": [], "metadata": {"row-count": 3, "table-key-properties": ["id", "city"]}},
        {"breadcrumb": ["properties", "id"], "metadata": {"inclusion": "automatic"}},
    ],
}


def changed(path: str, value: Any, entry: dict[str, Any] = ENTRY) -> dict[str, Any]:
    """A copy of the entry with another value at a path; None: without it."""
    copy = msgspec.json.decode(msgspec.json.encode(entry))
    at: Any = copy
    *steps, last = [int(s) if s.isdigit() else s for s in path.split("/")]
    for step in steps:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return copy


def of_tap(*entries: dict[str, Any], streams: str | None = None, config: str = "k") -> str:
    more = {} if streams is None else {"streams": streams}
    pipeline = pipeline_from_arguments("singer:tap", "parquet:./lake", **more)
    return given(pipeline, catalog_of({"streams": [*entries]}), config)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema/description", "persons"),
        ("schema/properties/id/title", None),
        ("schema/properties/id/type", ["integer", "null"]),
        ("metadata/0/metadata/row-count", 1_000_000),
        ("metadata/0/metadata/table-key-properties", ["city", "id"]),
        ("metadata", [*reversed(ENTRY["metadata"])]),
    ],
)
def test_order_texts_and_row_counts_are_the_same(path: str, value: Any) -> None:
    assert of_tap(changed(path, value)) == of_tap(ENTRY)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema/properties/id/type", ["integer"]),
        ("schema/properties/city", {"type": "string"}),
        ("schema/properties/description", None),
        ("schema/properties/description/type", "integer"),
        ("schema/properties/id/format", "int64"),
        ("metadata/0/metadata/table-key-properties", ["id"]),
        ("metadata/0/metadata/forced-replication-method", "FULL_TABLE"),
        ("metadata/0/metadata/valid-replication-keys", ["id"]),
        ("metadata/1/metadata/inclusion", "available"),
        ("stream", "people"),
    ],
)
def test_what_the_tap_reads_by_is_another(path: str, value: Any) -> None:
    assert of_tap(changed(path, value)) != of_tap(ENTRY)


def test_only_selected_streams_count() -> None:
    other = changed("tap_stream_id", "orders")
    assert of_tap(ENTRY, other, streams="users") == of_tap(ENTRY, streams="users")
    assert of_tap(ENTRY, other) != of_tap(ENTRY)
    assert of_tap(ENTRY, other) == of_tap(other, ENTRY)
    assert of_tap(other, streams="users") != of_tap(ENTRY, streams="users")


def test_another_configuration_confirms_nothing() -> None:
    assert of_tap(ENTRY, config="a") != of_tap(ENTRY, config="b")


AIRBYTE: dict[str, Any] = {
    "name": "users",
    "json_schema": {"type": "object", "properties": {"id": {"type": "integer"}}},
    "supported_sync_modes": ["full_refresh", "incremental"],
    "source_defined_primary_key": [["id"], ["at", "b"]],
    "default_cursor_field": ["at", "b"],
}


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("supported_sync_modes", ["incremental", "full_refresh"], True),
        ("source_defined_primary_key", [["at", "b"], ["id"]], True),
        ("source_defined_primary_key", [["id"], ["b", "at"]], False),
        ("default_cursor_field", ["b", "at"], False),
        ("supported_sync_modes", ["full_refresh"], False),
        ("is_resumable", True, False),
        ("json_schema/properties/id/airbyte_type", "integer", False),
    ],
)
def test_an_airbyte_stream_by_keys_cursors_and_modes(path: str, value: Any, same: bool) -> None:
    pipeline = pipeline_from_arguments("airbyte:source", "parquet:./lake")

    def of(entry: dict[str, Any]) -> str:
        return given(pipeline, Catalog((stream_of(entry)[0],)), "k")

    assert (of(changed(path, value, AIRBYTE)) == of(AIRBYTE)) is same


def test_a_stream_of_any_protocol_counts_by_its_modes() -> None:
    pipeline = pipeline_from_arguments("rapidbyte:source", "parquet:./lake")
    one = Stream(id=StreamId(None, "a"), json_schema={})
    two = msgspec.structs.replace(one, sync_modes=(SyncMode.full_refresh, SyncMode.cdc))
    assert given(pipeline, Catalog((one,)), "k") != given(pipeline, Catalog((two,)), "k")
