"""Which modes, cursor and key a stream is synced with: the protocol's rules and the user's wishes.

Pure. Not here: generations and full lists of streams (``engine.plan.streams``). Sources: protocol,
"Logic for resolving the Cursor Field", ConfiguredAirbyteStream, Source and Destination Sync Modes.
"""

from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
)
from penstock.protocols.contract import StreamWish
from penstock.protocols.stream_config import (
    exists,
    listed,
    must_exist,
    paths,
    read_anew,
    selection,
    target_of,
    word,
)
from penstock.protocols.stream_config import names_of as names


def configure(stream: Stream, wish: StreamWish, deleted_at: str) -> ConfiguredStream:
    """The configured stream. ``deleted_at``: the property that marks deletes, kept under
    append_dedup whatever ``columns`` says. Raises ``ConfigError``."""
    sync_mode = _sync_mode(stream, wish)
    known = stream.source_defined_primary_key or wish.primary_key
    mode, reason = target_of(stream, wish, sync_mode, known)
    cursor = resolve_cursor(stream, sync_mode, wish.cursor_field)
    key = _primary_key(stream, wish, needed=mode is DestinationSyncMode.append_dedup)
    kept = [*key, cursor]
    if mode is DestinationSyncMode.append_dedup and exists(stream.json_schema, (deleted_at,)):
        kept.append((deleted_at,))
    chosen = selection(stream, wish.columns, kept)
    return ConfiguredStream(
        stream=stream,
        sync_mode=sync_mode,
        destination_sync_mode=mode,
        cursor_field=cursor,
        primary_key=key,
        columns=chosen.columns,
        nested=chosen.nested,
        replaces=wish.replaces,
        mode_reason=reason,
    )


def resolve_cursor(stream: Stream, sync_mode: SyncMode, wished: FieldPath | None) -> FieldPath:
    """The cursor's path. Five outcomes: not needed (full_refresh: empty), source-defined (cannot be
    overridden; empty where the source names no field of the schema), the user's, the source's
    default, and none of them: ``ConfigError``."""
    default = stream.default_cursor_field
    if sync_mode is SyncMode.full_refresh:
        return ()
    if stream.source_defined_cursor:
        return default if default and exists(stream.json_schema, default) else ()
    if wished:
        must_exist(stream, "cursor_field", wished)
        return wished
    if default:
        must_exist(stream, "default_cursor_field", default)
        return default
    raise ConfigError(
        f"stream {stream.id}: incremental needs a cursor, and the source defines none",
        code="config.cursor_missing",
        hint="set cursor_field to the property that grows with every change"
        f" ({listed(names(stream.json_schema))}), or use full_refresh",
        stream=str(stream.id),
    )


def _sync_mode(stream: Stream, wish: StreamWish) -> SyncMode:
    wished = word(stream, "sync_mode", wish.sync_mode, SyncMode)
    if wished is None:
        if SyncMode.incremental in stream.sync_modes and not read_anew(stream, wish):
            try:
                resolve_cursor(stream, SyncMode.incremental, wish.cursor_field)
            except ConfigError:
                if wish.cursor_field:
                    raise
                return SyncMode.full_refresh
            return SyncMode.incremental
        return SyncMode.full_refresh
    if wished is not SyncMode.full_refresh and wished not in stream.sync_modes:
        offered = ", ".join(dict.fromkeys([SyncMode.full_refresh, *stream.sync_modes]))
        raise ConfigError(
            f"stream {stream.id} does not support sync_mode {wished.value}",
            code="config.sync_mode",
            hint=f"it supports: {offered}",
            stream=str(stream.id),
        )
    return wished


def _primary_key(stream: Stream, wish: StreamWish, *, needed: bool) -> tuple[FieldPath, ...]:
    """The source's key where it defines one, else the user's. Raises ``ConfigError``."""
    own, wished = stream.source_defined_primary_key or (), wish.primary_key or ()
    if own:
        if wished and set(wished) != set(own):
            raise ConfigError(
                f"stream {stream.id}: the source defines its primary key as {paths(own)};"
                f" {paths(wished)} cannot replace it",
                code="config.primary_key",
                hint="leave primary_key out",
                stream=str(stream.id),
            )
        if needed:
            for path in own:
                must_exist(stream, "source_defined_primary_key", path)
        return own
    for path in wished:
        must_exist(stream, "primary_key", path)
    if needed and not wished:
        raise ConfigError(
            f"stream {stream.id}: append_dedup needs a primary key, and the source defines none",
            code="config.primary_key_missing",
            hint="set primary_key (a list of paths, for example [[id]]), or use append",
            stream=str(stream.id),
        )
    return wished
