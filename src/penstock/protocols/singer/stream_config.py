"""Configures one stream: its sync mode, cursor, key and columns, from the tap's metadata and the
pipeline.

Pure. Full refresh is always possible: its bookmark is omitted. The tap's key and cursor are
defaults, but a cursor must be one of ``valid-replication-keys``, where there are any. Not here: the
catalog for the tap (``catalog``), the choice of streams (``engine.plan.stream_choice``).
"""

from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
)
from penstock.protocols.json_schema.paths import names_of
from penstock.protocols.reading import StreamOverrides
from penstock.protocols.singer.catalog import (
    deselected,
    forced,
    only_cursor,
    preset,
    reads_tables,
    unselected,
    valid_cursors,
)
from penstock.protocols.stream_config import (
    configured,
    cursor_missing,
    has,
    key_missing,
    listed,
    must_exist,
    read_anew,
    target_of,
    unsupported_mode,
    word,
)


def configure(stream: Stream, overrides: StreamOverrides, deleted_at: str) -> ConfiguredStream:
    """Builds the configured stream. ``deleted_at``: the property that marks deletes. Raises
    ``ConfigError``."""
    mode = _sync_mode(stream, overrides)
    key = overrides.primary_key or stream.source_defined_primary_key
    target = target_of(stream, overrides, mode, key)
    return configured(
        stream,
        overrides,
        mode,
        target,
        cursor=_cursor(stream, mode, overrides),
        key=_primary_key(stream, overrides, needed=target.mode is DestinationSyncMode.append_dedup),
        columns=overrides.columns,
        left_out=deselected(stream),
        unselected=unselected(stream),
        deleted_at=deleted_at,
        source_decides=_source_decides(stream, overrides) and mode is SyncMode.incremental,
    )


def _sync_mode(stream: Stream, overrides: StreamOverrides) -> SyncMode:
    """Returns the user's mode, else the catalog's, else incremental where a cursor is known, where
    the stream has no full refresh, or where the tap decides by itself."""
    wanted = word(stream, "sync_mode", overrides.sync_mode, SyncMode)
    if wanted is None and read_anew(stream, overrides):
        return SyncMode.full_refresh
    if wanted is None:
        named = preset(stream)
        if named is not None:
            unusable = named is SyncMode.incremental and _missing_cursor(stream, overrides)
            return SyncMode.full_refresh if unusable else named
        known = overrides.cursor_field or stream.default_cursor_field
        known = known or (_source_decides(stream, overrides) and not overrides.unrecorded)
        anew = SyncMode.full_refresh in stream.sync_modes and not known
        return SyncMode.full_refresh if anew else SyncMode.incremental
    if wanted not in stream.sync_modes:
        insists = forced(stream)
        because = f": the tap insists on {insists.value}" if insists else ""
        raise unsupported_mode(stream, wanted, stream.sync_modes, because)
    return wanted


def _source_decides(stream: Stream, overrides: StreamOverrides) -> bool:
    """Returns whether neither user nor catalog sets anything about replication: then only the tap
    knows whether it resumes from its state or sends everything each time."""
    chosen = (
        overrides.sync_mode
        or overrides.cursor_field
        or stream.default_cursor_field
        or preset(stream)
    )
    return not (chosen or valid_cursors(stream) or reads_tables(stream))


def _cursor_of_increments(stream: Stream, overrides: StreamOverrides) -> FieldPath | None:
    return overrides.cursor_field or stream.default_cursor_field or only_cursor(stream)


def _missing_cursor(stream: Stream, overrides: StreamOverrides) -> bool:
    return reads_tables(stream) and _cursor_of_increments(stream, overrides) is None


def _cursor(stream: Stream, mode: SyncMode, overrides: StreamOverrides) -> FieldPath:
    """Returns the cursor; empty where the tap resumes by itself. Raises ``ConfigError``."""
    if mode is not SyncMode.incremental:
        return ()
    path = _cursor_of_increments(stream, overrides)
    offered = valid_cursors(stream)
    if path is None:
        if _missing_cursor(stream, overrides) or offered:
            raise cursor_missing(stream, "tap", offered or names_of(stream.json_schema))
        return ()
    if overrides.cursor_field:
        must_exist(stream, "cursor_field", path)
        if len(path) > 1 or (offered and not {*path} <= {*offered}):
            allowed = listed(list(offered)) if offered else "a top-level property"
            raise ConfigError(
                f"stream {stream.id}: {'.'.join(path)} cannot be its replication key",
                code="config.cursor",
                hint=f"the tap takes {allowed}",
                stream=str(stream.id),
            )
    return path if has(stream, path) else ()


def _primary_key(
    stream: Stream, overrides: StreamOverrides, *, needed: bool
) -> tuple[FieldPath, ...]:
    """Returns the user's key, else the tap's. Raises ``ConfigError``."""
    own, wanted = stream.source_defined_primary_key or (), overrides.primary_key or ()
    for path in wanted:
        must_exist(stream, "primary_key", path)
    key = wanted or own
    if needed and not key:
        raise key_missing(stream, "tap")
    if needed and not wanted:
        for path in own:
            must_exist(stream, "key_properties", path)
    return key
