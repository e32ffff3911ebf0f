"""Which mode, cursor and key a stream is synced with. Pure. Source: the protocol, section 6.

Not here: whether the connector's manifest names the mode, and so whether there is cdc
(``component.RapidbyteManifest``), full lists of streams (``engine.plan.streams``).
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
    must_exist,
    path_text,
    read_anew,
    selection,
    target_of,
    word,
)


def configure(stream: Stream, wish: StreamWish) -> ConfiguredStream:
    """Raises ``ConfigError``."""
    mode = _sync_mode(stream, wish)
    known = wish.primary_key or stream.source_defined_primary_key
    target, reason = target_of(stream, wish, mode, known)
    cursor = _cursor(stream, mode, wish)
    key = _primary_key(stream, wish, target)
    chosen = selection(stream, wish.columns, (*key, cursor))
    return ConfiguredStream(
        stream=stream,
        sync_mode=mode,
        destination_sync_mode=target,
        cursor_field=cursor,
        primary_key=key,
        columns=chosen.columns,
        nested=chosen.nested,
        replaces=wish.replaces,
        mode_reason=reason,
    )


def _sync_mode(stream: Stream, wish: StreamWish) -> SyncMode:
    """The user's, else incremental where the source has a cursor of its own."""
    wished = word(stream, "sync_mode", wish.sync_mode, SyncMode)
    if wished is None and read_anew(stream, wish):
        return SyncMode.full_refresh
    if wished is None:
        cursor = wish.cursor_field or stream.default_cursor_field
        able = SyncMode.incremental in stream.sync_modes and cursor
        wished = SyncMode.incremental if able else SyncMode.full_refresh
    # Catalogs of v4 do not list cdc: the manifest decides (``settings.RapidbyteManifest``).
    if wished is not SyncMode.cdc and wished not in stream.sync_modes:
        raise ConfigError(
            f"stream {stream.id} does not support sync_mode {wished.value}",
            code="config.sync_mode",
            hint=f"it supports: {', '.join(stream.sync_modes)}",
            stream=str(stream.id),
        )
    return wished


def _cursor(stream: Stream, mode: SyncMode, wish: StreamWish) -> FieldPath:
    if mode is not SyncMode.incremental:
        return ()
    path = wish.cursor_field or stream.default_cursor_field
    if not path:
        raise ConfigError(
            f"stream {stream.id}: incremental needs a cursor, and the source names none",
            code="config.cursor_missing",
            hint="set cursor_field to the column that grows with every change",
            stream=str(stream.id),
        )
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
    stream: Stream, wish: StreamWish, target: DestinationSyncMode
) -> tuple[FieldPath, ...]:
    for path in wish.primary_key or ():
        must_exist(stream, "primary_key", path)
    key = wish.primary_key or stream.source_defined_primary_key or ()
    if target is DestinationSyncMode.append_dedup and not key:
        raise ConfigError(
            f"stream {stream.id}: append_dedup needs a primary key, and the source names none",
            code="config.primary_key_missing",
            hint="set primary_key",
            stream=str(stream.id),
        )
    return key
