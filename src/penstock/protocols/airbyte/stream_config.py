"""Configures one stream: its modes, cursor and key, by the protocol's rules and the pipeline.

Pure. Not here: generations and the choice of streams (``engine.plan.stream_choice``). Sources:
protocol, "Logic for resolving the Cursor Field", ConfiguredAirbyteStream, Source and Destination
Sync Modes.
"""

from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
)
from penstock.protocols.json_schema.paths import exists, names_of
from penstock.protocols.reading import StreamOverrides
from penstock.protocols.stream_config import (
    configured,
    cursor_missing,
    has,
    key_missing,
    must_exist,
    paths,
    read_anew,
    target_of,
    unsupported_mode,
    word,
)


def configure(stream: Stream, overrides: StreamOverrides, deleted_at: str) -> ConfiguredStream:
    """Builds the configured stream. ``deleted_at``: the property that marks deletes. Raises
    ``ConfigError``."""
    sync_mode = _sync_mode(stream, overrides)
    key = _own_key(stream, overrides) or overrides.primary_key
    target = target_of(stream, overrides, sync_mode, key)
    return configured(
        stream,
        overrides,
        sync_mode,
        target,
        cursor=resolve_cursor(stream, sync_mode, overrides.cursor_field),
        key=_primary_key(stream, overrides, needed=target.mode is DestinationSyncMode.append_dedup),
        columns=overrides.columns,
        deleted_at=deleted_at,
    )


def resolve_cursor(stream: Stream, sync_mode: SyncMode, wanted: FieldPath | None) -> FieldPath:
    """Resolves the cursor's path. It is empty for full_refresh. A source-defined cursor cannot be
    overridden (empty where it names no field of the schema); else the user's; else the source's
    default. Raises ``ConfigError`` without any of these."""
    default = stream.default_cursor_field
    if sync_mode is SyncMode.full_refresh:
        return ()
    if stream.source_defined_cursor:
        return default if default and exists(stream.json_schema, default) else ()
    if wanted:
        must_exist(stream, "cursor_field", wanted)
        return wanted
    if default:
        must_exist(stream, "default_cursor_field", default)
        return default
    raise cursor_missing(stream, "source", names_of(stream.json_schema))


def _sync_mode(stream: Stream, overrides: StreamOverrides) -> SyncMode:
    wanted = word(stream, "sync_mode", overrides.sync_mode, SyncMode)
    if wanted is None:
        if SyncMode.incremental in stream.sync_modes and not read_anew(stream, overrides):
            try:
                resolve_cursor(stream, SyncMode.incremental, overrides.cursor_field)
            except ConfigError:
                if overrides.cursor_field:
                    raise
                return SyncMode.full_refresh
            return SyncMode.incremental
        return SyncMode.full_refresh
    if wanted is not SyncMode.full_refresh and wanted not in stream.sync_modes:
        offered = dict.fromkeys([SyncMode.full_refresh, *stream.sync_modes])
        raise unsupported_mode(stream, wanted, offered)
    return wanted


def _own_key(stream: Stream, overrides: StreamOverrides) -> tuple[FieldPath, ...]:
    """Returns the key that the source defines. It does not override the user's key where it names
    something that is not a property of the stream: for example, where the columns of a key are
    written as the path of one."""
    own = stream.source_defined_primary_key or ()
    return () if overrides.primary_key and not all(has(stream, path) for path in own) else own


def _primary_key(
    stream: Stream, overrides: StreamOverrides, *, needed: bool
) -> tuple[FieldPath, ...]:
    """Returns the source's key if it defines one, else the user's. Raises ``ConfigError``."""
    own, wanted = _own_key(stream, overrides), overrides.primary_key or ()
    if own:
        if wanted and set(wanted) != set(own):
            raise ConfigError(
                f"stream {stream.id}: the source defines its primary key as {paths(own)};"
                f" {paths(wanted)} cannot replace it",
                code="config.primary_key",
                hint="leave primary_key out",
                stream=str(stream.id),
            )
        if needed:
            for path in own:
                must_exist(stream, "source_defined_primary_key", path)
        return own
    for path in wanted:
        must_exist(stream, "primary_key", path)
    if needed and not wanted:
        raise key_missing(stream, "source")
    return wanted
