"""Configures one stream: its sync mode, cursor and primary key, from the catalog and the pipeline.

Pure. Not here: whether the manifest names the mode, cdc above all (``guest.component``); the choice
of streams (``engine.plan.streams``). Source: the protocol, section 6.
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
from penstock.protocols.json_schema.paths import names_of
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


def configure(stream: Stream, wish: StreamWish) -> ConfiguredStream:
    """Builds the configured stream. ``wish``: the pipeline's options of this stream. Raises
    ``ConfigError``."""
    mode = _sync_mode(stream, wish)
    key = wish.primary_key or stream.source_defined_primary_key
    target = target_of(stream, wish, mode, key)
    return configured(
        stream,
        wish,
        mode,
        target,
        cursor=_cursor(stream, mode, wish),
        key=_primary_key(stream, wish, target.mode),
        columns=wish.columns,
    )


def _sync_mode(stream: Stream, wish: StreamWish) -> SyncMode:
    """The user's mode, else incremental where a cursor is known, else full refresh."""
    wished = word(stream, "sync_mode", wish.sync_mode, SyncMode)
    if wished is None and read_anew(stream, wish):
        return SyncMode.full_refresh
    if wished is None:
        cursor = wish.cursor_field or stream.default_cursor_field
        incremental = SyncMode.incremental in stream.sync_modes and cursor
        wished = SyncMode.incremental if incremental else SyncMode.full_refresh
    # Catalogs of v4 do not list cdc: the manifest decides (``guest.component``).
    if wished is not SyncMode.cdc and wished not in stream.sync_modes:
        raise unsupported_mode(stream, wished, stream.sync_modes)
    return wished


def _cursor(stream: Stream, mode: SyncMode, wish: StreamWish) -> FieldPath:
    if mode is not SyncMode.incremental:
        return ()
    path = wish.cursor_field or stream.default_cursor_field
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
    stream: Stream, wish: StreamWish, target: DestinationSyncMode
) -> tuple[FieldPath, ...]:
    for path in wish.primary_key or ():
        must_exist(stream, "primary_key", path)
    key = wish.primary_key or stream.source_defined_primary_key or ()
    if target is DestinationSyncMode.append_dedup and not key:
        raise key_missing(stream, "source")
    return key
