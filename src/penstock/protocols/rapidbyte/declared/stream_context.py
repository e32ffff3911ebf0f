"""What every stage of a stream is told of it (section 6). Pure.

A destination is told it in the words of its table (``rapidbyte.write.write_context``), a shard its
part (``sharding``).
"""

from typing import Any, cast

import msgspec

from penstock.errors import StateError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, SyncMode
from penstock.model.state import SavedState
from penstock.protocols.rapidbyte.declared.settings import Settings
from penstock.protocols.rapidbyte.state import cursor_of
from penstock.protocols.rapidbyte.wire.messages import (
    CursorInfo,
    CursorValue,
    StreamContext,
    WriteMode,
)

WRITE_MODES = {
    DestinationSyncMode.append: "append",
    DestinationSyncMode.overwrite: "replace",
    DestinationSyncMode.append_dedup: "upsert",
}


def context_of(
    settings: Settings,
    stream: ConfiguredStream,
    state: SavedState | None,
    max_records: int | None = None,
) -> StreamContext:
    """What every stage of a stream is told (section 6). ``max_records``: so many are wanted and no
    more."""
    key = [path[0] for path in stream.primary_key]
    mode = WRITE_MODES[stream.destination_sync_mode]
    return StreamContext(
        stream_name=stream.id.name,
        sync_mode=stream.sync_mode.value,
        cursor_info=_cursor(stream, state),
        limits=settings.limits(max_records),
        policies=settings.policies(),
        write_mode=WriteMode(mode=cast(Any, mode), primary_key=key if mode == "upsert" else None),
        selected_columns=None if stream.columns is None else list(stream.columns),
        effective_parallelism=stream.shards,
        copy_flush_bytes_override=settings.copy_flush_bytes(),
    )


def _cursor(stream: ConfiguredStream, state: SavedState | None) -> CursorInfo | None:
    """As v4 writes it: the cursor as text, and a replication position under its own name."""
    cdc = stream.sync_mode is SyncMode.cdc
    if stream.sync_mode is SyncMode.full_refresh or not (cdc or stream.cursor_field):
        return None
    kind, name = ("lsn", "lsn") if cdc else ("utf8", stream.cursor_field[0])
    text = None if state is None else _saved_text(state, name, cdc=cdc)
    last = msgspec.UNSET if text is None else CursorValue(type=kind, value=text)
    return CursorInfo(cursor_field=name, cursor_type=kind, last_value=last)


def _saved_text(state: SavedState, name: str, *, cdc: bool) -> str | None:
    """Raises ``StateError`` where the saved place is one in another column, or of another mode."""
    saved = cursor_of(state)
    position = saved.cursor_value.type == "lsn"
    if saved.cursor_field != name or position is not cdc:
        raise StateError(
            f"the saved state of {state.scope.stream} is a place in {saved.cursor_field!r}, and it "
            f"is now read by {name!r}",
            code="state.cursor_changed",
            hint="run `penstock state reset` for the stream: it is then read anew",
            stream=str(state.scope.stream),
        )
    return saved.cursor_value.text()
