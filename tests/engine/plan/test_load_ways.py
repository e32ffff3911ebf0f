"""Which lanes write parts in the shape of their table (issue 37, part 5)."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engine.plan.load_ways import shaped, shaped_with_keys
from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.segments import WriteDisposition
from penstock.model.types import NEUTRAL_METADATA, DataType, Field, Kind, RowSchema
from penstock.tables.contract import TableName

ID = StreamId(None, "s")
DEDUP, APPEND = DestinationSyncMode.append_dedup, DestinationSyncMode.append


def stream(key: Kind = Kind.integer, mode: Any = DEDUP, **more: Any) -> PlannedStream:
    fields = (
        Field("id", "id", DataType(key)),
        Field("gone", "gone", DataType(Kind.timestamp)),
    )
    return PlannedStream(
        configured=ConfiguredStream(
            stream=Stream(id=ID, json_schema={}),
            sync_mode=SyncMode.full_refresh,
            destination_sync_mode=mode,
        ),
        schema=RowSchema(fields, 1),
        columns={"id": "id", "gone": "gone"},
        disposition=WriteDisposition(
            mode=mode,
            primary_key=(("id",),) if mode is DEDUP else (),
            deleted_column=more.pop("deleted", None),
            replaces=more.pop("replaces", False),
        ),
        table=TableName(None, "s"),
        **more,
    )


def prepared(
    *, known: bool = False, files: bool = True, master: str = "local[2]", named: bool = True
) -> Any:
    return SimpleNamespace(
        rules=SimpleNamespace(
            schemas={ID: RowSchema((), 1)} if known else {},
            metadata=NEUTRAL_METADATA if named else None,
        ),
        destination=SimpleNamespace(takes_parts=files),
        pipeline=SimpleNamespace(spark=SimpleNamespace(master=master)),
    )


def test_first_rows_with_keys_are_written_in_the_shape_of_their_table() -> None:
    assert shaped_with_keys(prepared(), stream())
    assert not shaped(prepared(), stream())


def test_rows_of_a_stream_that_was_read_before_are_not_unless_they_replace_its_own() -> None:
    assert not shaped_with_keys(prepared(known=True), stream())
    assert shaped_with_keys(prepared(known=True), stream(replaces=True))


@pytest.mark.parametrize(
    "given",
    [
        (prepared(files=False), stream()),
        (prepared(named=False), stream()),
        (prepared(master="spark://host:7077"), stream()),
        (prepared(), stream(queried=True)),
        (prepared(), stream(deleted="gone")),
        (prepared(), stream(Kind.number)),
        (prepared(), stream(mode=APPEND)),
    ],
)
def test_what_asks_for_more_than_new_keys_is_not(given: tuple[Any, PlannedStream]) -> None:
    assert not shaped_with_keys(*given)


def test_a_mark_that_the_rows_lack_deletes_none() -> None:
    assert shaped_with_keys(prepared(), stream(deleted="other"))
