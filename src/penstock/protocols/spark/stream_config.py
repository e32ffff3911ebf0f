"""Configures a model's stream: its modes, cursor and key.

A query that has the parameter ``:cursor`` is read in increments from the cursor on. Any other is
read whole, and is sent whole, or compared by its primary key with the rows sent before, where the
user's mode is one of ``config.modes.SENDS``. Pure. Not here: the query itself
(``transforms.spark_model``).
"""

import msgspec

from penstock.config.modes import SENDS
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
from penstock.protocols.json_schema.paths import names_of
from penstock.protocols.reading import StreamOverrides
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


def configure(stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
    """Builds the configured stream. Raises ``ConfigError``."""
    if (sends := SENDS.get(overrides.mode or "")) is not None and compares(stream, overrides):
        return _compared(stream, overrides, *sends)
    mode = _sync_mode(stream, overrides)
    target = target_of(stream, overrides, mode, overrides.primary_key)
    return configured(
        stream,
        overrides,
        mode,
        target,
        cursor=_cursor(stream, mode, overrides),
        key=_primary_key(stream, overrides, target.mode),
        columns=overrides.columns,
    )


def compares(stream: Stream, overrides: StreamOverrides) -> bool:
    """Returns whether the stream's rows are compared with those sent before. Raises ``ConfigError``
    for a mode that needs this comparison where it is impossible."""
    can = SyncMode.incremental not in stream.sync_modes and bool(overrides.primary_key)
    if not can and overrides.mode in ("insert", "update"):
        raise ConfigError(
            f"stream {stream.id}: mode {overrides.mode!r} compares rows by their primary key with"
            " what was sent before, so it needs one, and a query without :cursor",
            code="config.primary_key_missing",
            hint="set primary_key, and leave :cursor out of the query",
            stream=str(stream.id),
        )
    return can


def _compared(
    stream: Stream, overrides: StreamOverrides, mode: DestinationSyncMode, sends: tuple[Change, ...]
) -> ConfiguredStream:
    key = _primary_key(stream, overrides, DestinationSyncMode.append_dedup)
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
        stream, overrides, SyncMode.incremental, target,
        cursor=(), key=key, columns=overrides.columns, deleted_at=deleted,
    )  # fmt: skip
    return msgspec.structs.replace(made, sends=sends)


def _sync_mode(stream: Stream, overrides: StreamOverrides) -> SyncMode:
    """Returns the user's mode, else incremental where the query has a cursor, else full refresh."""
    wanted = word(stream, "sync_mode", overrides.sync_mode, SyncMode)
    if wanted is None:
        incremental = SyncMode.incremental in stream.sync_modes and not read_anew(stream, overrides)
        return SyncMode.incremental if incremental else SyncMode.full_refresh
    if wanted not in stream.sync_modes:
        because = ": the query has no parameter :cursor" if wanted is SyncMode.incremental else ""
        raise unsupported_mode(stream, wanted, stream.sync_modes, because)
    return wanted


def _cursor(stream: Stream, mode: SyncMode, overrides: StreamOverrides) -> FieldPath:
    has_cursor = SyncMode.incremental in stream.sync_modes
    if overrides.cursor_field and not has_cursor:
        raise ConfigError(
            f"stream {stream.id}: the query does not use its cursor"
            f" {'.'.join(overrides.cursor_field)}",
            code="config.cursor",
            hint="write WHERE :cursor IS NULL OR COLUMN > :cursor in the query",
            stream=str(stream.id),
        )
    if mode is not SyncMode.incremental:
        return ()
    path = overrides.cursor_field
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
    stream: Stream, overrides: StreamOverrides, target: DestinationSyncMode
) -> tuple[FieldPath, ...]:
    key = overrides.primary_key or ()
    for path in key:
        must_exist(stream, "primary_key", path)
    if target is DestinationSyncMode.append_dedup and not key:
        raise key_missing(stream, _WHOSE)
    return key
