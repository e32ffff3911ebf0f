"""Configures a model's stream: its modes, cursor and key.

A query that has the parameter ``:cursor`` is read in increments from the cursor on. Any other is
read whole. Pure. Not here: what the query is (``transforms.spark_model``).
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
    read_anew,
    target_of,
    unsupported_mode,
    word,
)

_WHOSE = "query"


def configure(stream: Stream, wish: StreamWish) -> ConfiguredStream:
    """Builds the configured stream. Raises ``ConfigError``."""
    mode = _sync_mode(stream, wish)
    target = target_of(stream, wish, mode, wish.primary_key)
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
    """The user's mode, else incremental where the query has a cursor, else full refresh."""
    wished = word(stream, "sync_mode", wish.sync_mode, SyncMode)
    if wished is None:
        incremental = SyncMode.incremental in stream.sync_modes and not read_anew(stream, wish)
        return SyncMode.incremental if incremental else SyncMode.full_refresh
    if wished not in stream.sync_modes:
        because = ": the query has no parameter :cursor" if wished is SyncMode.incremental else ""
        raise unsupported_mode(stream, wished, stream.sync_modes, because)
    return wished


def _cursor(stream: Stream, mode: SyncMode, wish: StreamWish) -> FieldPath:
    has_cursor = SyncMode.incremental in stream.sync_modes
    if wish.cursor_field and not has_cursor:
        raise ConfigError(
            f"stream {stream.id}: the query does not use its cursor {'.'.join(wish.cursor_field)}",
            code="config.cursor",
            hint="write WHERE :cursor IS NULL OR COLUMN > :cursor in the query",
            stream=str(stream.id),
        )
    if mode is not SyncMode.incremental:
        return ()
    path = wish.cursor_field
    if not path:
        raise cursor_missing(stream, _WHOSE, names_of(stream.json_schema))
    if len(path) > 1:
        raise ConfigError(
            f"stream {stream.id}: the cursor {'.'.join(path)} is nested",
            code="config.cursor",
            hint="name one column",
            stream=str(stream.id),
        )
    must_exist(stream, "cursor_field", path)
    return path


def _primary_key(
    stream: Stream, wish: StreamWish, target: DestinationSyncMode
) -> tuple[FieldPath, ...]:
    key = wish.primary_key or ()
    for path in key:
        must_exist(stream, "primary_key", path)
    if target is DestinationSyncMode.append_dedup and not key:
        raise key_missing(stream, _WHOSE)
    return key
