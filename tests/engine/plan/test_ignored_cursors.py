"""``engine.plan.saved_cursors``: a cursor that the source does not let the user choose is named."""

import pytest

from penstock.engine.plan.saved_cursors import ignored_cursor
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)

AT: FieldPath = ("updated_at",)


def configured(cursor: FieldPath, mode: SyncMode, *, defined: bool) -> ConfiguredStream:
    schema = {"type": "object", "properties": {"updated_at": {"type": "string"}}}
    stream = Stream(
        id=StreamId(None, "users"), json_schema=schema, sync_modes=(mode,),
        source_defined_cursor=defined, default_cursor_field=AT,
    )  # fmt: skip
    return ConfiguredStream(
        stream=stream, sync_mode=mode, destination_sync_mode=DestinationSyncMode.append,
        cursor_field=cursor,
    )  # fmt: skip


def test_a_cursor_that_the_source_defines_itself_is_noted() -> None:
    """A newcomer's report: a misspelt ``cursor_field`` was taken without a word."""
    users = configured(AT, SyncMode.incremental, defined=True)
    (note,) = ignored_cursor(users, ("updatd_at",))
    assert "cursor_field updatd_at is ignored" in note and note.endswith("cursor, updated_at")
    (note,) = ignored_cursor(configured((), SyncMode.incremental, defined=True), AT)
    assert note.endswith("the source defines the stream's cursor")


@pytest.mark.parametrize(
    ("wanted", "mode", "defined"),
    [
        ((), SyncMode.incremental, True),
        (AT, SyncMode.incremental, True),
        (("id",), SyncMode.incremental, False),
        (("id",), SyncMode.full_refresh, True),
    ],
)
def test_any_other_is_not(wanted: FieldPath, mode: SyncMode, defined: bool) -> None:
    assert ignored_cursor(configured(AT, mode, defined=defined), wanted) == []
