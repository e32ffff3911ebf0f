"""Configures a model's stream: its modes, cursor and key.

A query that has the parameter ``:cursor`` is read in increments from the cursor on. Any other is
read whole, and is sent whole, or compared by its primary key with what was sent before, where the
user's mode is one of :data:`SENDS`. Pure. Not here: what the query is (``transforms.spark_model``).
"""

import msgspec

from penstock.errors import ConfigError
from penstock.model.catalog import (
    Change,
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
)
from penstock.model.staged_rows import DELETED_AT
from penstock.protocols.contract import StreamWish
from penstock.protocols.json_schema.paths import names_of
from penstock.protocols.stream_config import (
    Target,
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
_NEW, _CHANGED, _GONE = Change.added, Change.changed, Change.removed
_APPEND, _DEDUP = DestinationSyncMode.append, DestinationSyncMode.append_dedup
SENDS: dict[str, tuple[DestinationSyncMode, tuple[Change, ...]]] = {
    "insert": (_APPEND, (_NEW,)),
    "update": (_DEDUP, (_CHANGED,)),
    "upsert": (_DEDUP, (_NEW, _CHANGED)),
    "mirror": (_DEDUP, (_NEW, _CHANGED, _GONE)),
}
"""The modes of a model that is compared by its primary key, and which rows they send."""


def configure(stream: Stream, wish: StreamWish) -> ConfiguredStream:
    """Builds the configured stream. Raises ``ConfigError``."""
    if (sends := SENDS.get(wish.mode or "")) is not None and compares(stream, wish):
        return _compared(stream, wish, *sends)
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


def compares(stream: Stream, wish: StreamWish) -> bool:
    """Whether the stream's rows are compared with what was sent before. Raises ``ConfigError`` for
    a mode that needs it, where it cannot be."""
    can = SyncMode.incremental not in stream.sync_modes and bool(wish.primary_key)
    if not can and wish.mode in ("insert", "update"):
        raise ConfigError(
            f"stream {stream.id}: mode {wish.mode!r} compares rows by their primary key with what"
            " was sent before, so it needs one, and a query without :cursor",
            code="config.primary_key_missing",
            hint="set primary_key, and leave :cursor out of the query",
            stream=str(stream.id),
        )
    return can


def _compared(
    stream: Stream, wish: StreamWish, mode: DestinationSyncMode, sends: tuple[Change, ...]
) -> ConfiguredStream:
    key = _primary_key(stream, wish, DestinationSyncMode.append_dedup)
    nested = [path for path in key if len(path) > 1]
    if nested:
        raise ConfigError(
            f"stream {stream.id}: the primary key {'.'.join(nested[0])} is nested",
            code="config.primary_key",
            hint="name columns of the query",
            stream=str(stream.id),
        )
    kinds = " and ".join(change.value for change in sends)
    target = Target(mode, f"{kinds} rows are sent, compared with what was sent before")
    deleted = DELETED_AT if Change.removed in sends else None
    made = configured(
        stream, wish, SyncMode.incremental, target,
        cursor=(), key=key, columns=wish.columns, deleted_at=deleted,
    )  # fmt: skip
    return msgspec.structs.replace(made, sends=sends)


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
