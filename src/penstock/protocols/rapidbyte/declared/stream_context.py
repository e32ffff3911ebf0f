"""Builds the stream context that every stage of a stream gets (section 6). Pure.

Not here: a destination's context, which has the table's names (``rapidbyte.write.write_context``),
and that of a shard (``sharding``).
"""

from typing import Any, cast

import msgspec

from penstock.errors import StateError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, SyncMode
from penstock.model.state import StoredState
from penstock.protocols.rapidbyte.declared.settings import ComponentSettings
from penstock.protocols.rapidbyte.state import cursor_of
from penstock.protocols.rapidbyte.wire.messages import (
    CursorInfo,
    CursorValue,
    StreamContext,
    WriteMode,
)
from penstock.protocols.rapidbyte.wire.schema import DELETED_AT, OPERATION

WRITE_MODES = {
    DestinationSyncMode.append: "append",
    DestinationSyncMode.overwrite: "replace",
    DestinationSyncMode.append_dedup: "upsert",
}


def context_of(
    settings: ComponentSettings,
    stream: ConfiguredStream,
    state: StoredState | None,
    max_records: int | None = None,
) -> StreamContext:
    """Builds the context of a stream. ``state``: the one saved by the last run. ``max_records``:
    the row cap of a preview. Raises ``StateError`` where ``state`` belongs to another cursor."""
    key = [path[0] for path in stream.primary_key]
    mode = WRITE_MODES[stream.destination_sync_mode]
    columns = None if stream.columns is None else list(stream.columns)
    if columns is not None and stream.sync_mode is SyncMode.cdc:  # of changes, not of the table
        columns = [name for name in columns if name not in (OPERATION, DELETED_AT)]
    return StreamContext(
        stream_name=stream.id.name,
        sync_mode=stream.sync_mode.value,
        cursor_info=_cursor(stream, state),
        limits=settings.limits(max_records),
        policies=settings.policies(),
        write_mode=WriteMode(mode=cast(Any, mode), primary_key=key if mode == "upsert" else None),
        selected_columns=columns,
        effective_parallelism=stream.shards,
        copy_flush_bytes_override=settings.copy_flush_bytes().value,
    )


def _cursor(stream: ConfiguredStream, state: StoredState | None) -> CursorInfo | None:
    """Returns the cursor in v4's form: its value as text; a replication position (cdc) as
    ``lsn``."""
    cdc = stream.sync_mode is SyncMode.cdc
    if stream.sync_mode is SyncMode.full_refresh or not (cdc or stream.cursor_field):
        return None
    kind, name = ("lsn", "lsn") if cdc else ("utf8", stream.cursor_field[0])
    text = None if state is None else _saved_text(state, name, cdc=cdc)
    last = msgspec.UNSET if text is None else CursorValue(type=kind, value=text)
    return CursorInfo(cursor_field=name, cursor_type=kind, last_value=last)


def _saved_text(state: StoredState, name: str, *, cdc: bool) -> str | None:
    """Returns the saved cursor value. Raises ``StateError`` where it belongs to another column or
    mode."""
    saved = cursor_of(state)
    position = saved.cursor_value.type == "lsn"
    if saved.cursor_field != name or position is not cdc:
        raise StateError(
            f"the saved state of {state.scope.stream} is a place in {saved.cursor_field!r}, and it "
            f"is now read by {name!r}",
            code="state.cursor_changed",
            hint="run `penstock state reset` for the stream: it is then read again",
            stream=str(state.scope.stream),
        )
    return saved.cursor_value.text()
