"""Configures one stream: its sync mode, cursor and primary key, from the catalog and the pipeline.

Pure. Not here: whether the manifest has the mode, especially cdc (``guest.component``); the choice
of streams (``engine.plan.stream_choice``). Source: the protocol, section 6.
"""

import msgspec

from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
)
from penstock.protocols.json_schema.paths import names_of
from penstock.protocols.rapidbyte.wire.schema import DELETED_AT, OPERATION, change_schema
from penstock.protocols.reading import StreamOverrides
from penstock.protocols.stream_config import (
    configured,
    cursor_missing,
    key_missing,
    must_exist,
    path_text,
    read_anew,
    target_of,
    unsupported_mode,
    word,
)


def configure(stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
    """Builds the configured stream. ``overrides``: the pipeline's options for it. A stream of
    changes (cdc) always has the columns that describe the change of a row, whatever these select.
    Raises ``ConfigError``."""
    mode, columns = _sync_mode(stream, overrides), overrides.columns
    if mode is SyncMode.cdc:
        changes = change_schema(stream.json_schema)
        stream = msgspec.structs.replace(stream, json_schema=changes)
        columns = None if columns is None else (*columns, OPERATION)
    key = overrides.primary_key or stream.source_defined_primary_key
    target = target_of(stream, overrides, mode, key)
    return configured(
        stream,
        overrides,
        mode,
        target,
        cursor=_cursor(stream, mode, overrides),
        key=_primary_key(stream, overrides, target.mode),
        columns=columns,
        deleted_at=DELETED_AT,
    )


def _sync_mode(stream: Stream, overrides: StreamOverrides) -> SyncMode:
    """Returns the user's mode, else incremental where a cursor is known, else full refresh."""
    wanted = word(stream, "sync_mode", overrides.sync_mode, SyncMode)
    if wanted is None and read_anew(stream, overrides):
        return SyncMode.full_refresh
    if wanted is None:
        cursor = overrides.cursor_field or stream.default_cursor_field
        incremental = SyncMode.incremental in stream.sync_modes and cursor
        wanted = SyncMode.incremental if incremental else SyncMode.full_refresh
    # Catalogs of v4 do not list cdc: the manifest decides (``guest.component``).
    if wanted is not SyncMode.cdc and wanted not in stream.sync_modes:
        raise unsupported_mode(stream, wanted, stream.sync_modes)
    return wanted


def _cursor(stream: Stream, mode: SyncMode, overrides: StreamOverrides) -> FieldPath:
    if mode is not SyncMode.incremental:
        return ()
    path = overrides.cursor_field or stream.default_cursor_field
    if not path:
        raise cursor_missing(stream, "source", names_of(stream.json_schema))
    if len(path) > 1:
        raise ConfigError(
            f"stream {stream.id}: the cursor {path_text(path)} is nested",
            code="config.cursor",
            hint="name one column",
            stream=str(stream.id),
        )
    must_exist(stream, "cursor_field", path)
    return path


def _primary_key(
    stream: Stream, overrides: StreamOverrides, target: DestinationSyncMode
) -> tuple[FieldPath, ...]:
    for path in overrides.primary_key or ():
        must_exist(stream, "primary_key", path)
    key = overrides.primary_key or stream.source_defined_primary_key or ()
    if target is DestinationSyncMode.append_dedup and not key:
        raise key_missing(stream, "source")
    return key
