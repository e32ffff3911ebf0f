"""Builds the configured stream from a user's choices, by the rules that all protocols share: the
default destination sync mode, columns, words, property paths, errors.

Pure. Not here: which sync mode, cursor and key a protocol allows (``protocols/*/stream_config.py``,
in ``rapidbyte`` under ``declared``).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, TypeVar

from penstock.config import did_you_mean
from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
)
from penstock.protocols.column_patterns import is_pattern, matching
from penstock.protocols.json_schema.paths import exists, names_of
from penstock.protocols.reading import StreamOverrides

_Mode = TypeVar("_Mode", bound=StrEnum)


class Target(NamedTuple):
    """A destination sync mode, and why it was chosen (a clause for ``plan``)."""

    mode: DestinationSyncMode
    reason: str


def said_target(stream: Stream, overrides: StreamOverrides) -> DestinationSyncMode | None:
    """Returns the destination sync mode that the user requests. Raises ``ConfigError``."""
    return word(
        stream, "destination_sync_mode", overrides.destination_sync_mode, DestinationSyncMode
    )


def read_anew(stream: Stream, overrides: StreamOverrides) -> bool:
    """Returns True where no sync mode is set and the stream must be read in full: its rows replace
    the table's, and the stream supports a full read."""
    overwrites = said_target(stream, overrides) is DestinationSyncMode.overwrite
    return overwrites and SyncMode.full_refresh in stream.sync_modes


def target_of(
    stream: Stream, overrides: StreamOverrides, sync: SyncMode, key: Iterable[FieldPath] | None
) -> Target:
    """Returns the destination sync mode: the user's; else overwrite for a full refresh, and for
    increments append_dedup where ``key`` is known, else append. Raises ``ConfigError`` where a mere
    increment would replace the stream's table (L6)."""
    said = said_target(stream, overrides)
    full = sync is SyncMode.full_refresh
    if said is DestinationSyncMode.overwrite and not full:
        if SyncMode.full_refresh in stream.sync_modes:
            raise ConfigError(
                f"stream {stream.id}: {sync.value} with overwrite would leave only the last"
                " increment in the table",
                code="config.increment_overwrites",
                hint="for a table that is what the source holds, use full_refresh (mode: mirror);"
                " to add what changed, use append_dedup (mode: upsert) or append",
                stream=str(stream.id),
            )
        return Target(
            said, "its source reads it in increments only: each run starts from the beginning"
        )
    if said is not None:
        return Target(said, overrides.said or "the pipeline sets it")
    if full:
        return Target(DestinationSyncMode.overwrite, "a full refresh brings every row")
    if overrides.unrecorded:
        return Target(
            DestinationSyncMode.append,
            "an earlier version of Penstock appended to its table by default; set mode: upsert to "
            "keep one row per key from now on",
        )
    paths_of_key = tuple(key or ())
    if not paths_of_key:
        return Target(DestinationSyncMode.append, "no primary key is known")
    missing = [path for path in paths_of_key if not has(stream, path)]
    if missing:
        lost = f"the primary key {path_text(missing[0])} is not a property of its schema"
        return Target(DestinationSyncMode.append, lost)
    if overrides.appends is not None:
        return Target(DestinationSyncMode.append, overrides.appends)
    return Target(DestinationSyncMode.append_dedup, "its primary key is known")


def configured(
    stream: Stream,
    overrides: StreamOverrides,
    sync_mode: SyncMode,
    target: Target,
    *,
    cursor: FieldPath,
    key: tuple[FieldPath, ...],
    columns: Iterable[str | FieldPath] | None,
    left_out: Iterable[str] = (),
    unselected: Iterable[FieldPath] = (),
    deleted_at: str | None = None,
    source_decides: bool = False,
) -> ConfiguredStream:
    """Returns the stream with its resolved settings. ``key``: omitted where rows are not merged by
    it and the schema lacks a part of the key, since a destination would get only the rest.
    ``columns``: None means all but ``left_out``. ``unselected``: as in :class:`ConfiguredStream`.
    Key and cursor are always kept, and so is ``deleted_at``, the property that marks deletes,
    unless a full refresh reads every row, so that none is a delete. Raises ``ConfigError``."""
    dedup = target.mode is DestinationSyncMode.append_dedup
    if not dedup and not all(has(stream, path) for path in key):
        key = ()
    kept = [*key, cursor]
    deletes = dedup or sync_mode is not SyncMode.full_refresh
    if deletes and deleted_at is not None and has(stream, (deleted_at,)):
        kept.append((deleted_at,))
    chosen = selection(stream, columns, kept, deleted_at, left_out)
    needed = {path[0] for path in kept if path}
    return ConfiguredStream(
        stream=stream,
        sync_mode=sync_mode,
        destination_sync_mode=target.mode,
        cursor_field=cursor,
        primary_key=key,
        columns=chosen.columns,
        left_out=tuple(n for n in left_out if n not in needed) if columns is None else (),
        nested=chosen.nested,
        unselected=tuple(path for path in unselected if path not in kept),
        replaces=overrides.replaces,
        mode_reason=target.reason,
        source_decides=source_decides,
    )


def unsupported_mode(
    stream: Stream, wanted: SyncMode, offered: Iterable[SyncMode], because: str = ""
) -> ConfigError:
    """Builds the error for a sync mode that the stream does not have."""
    return ConfigError(
        f"stream {stream.id} does not support sync_mode {wanted.value}{because}",
        code="config.sync_mode",
        hint=f"it supports: {', '.join(offered)}",
        stream=str(stream.id),
    )


def cursor_missing(stream: Stream, whose: str, offered: Iterable[str]) -> ConfigError:
    """Builds the error for an incremental stream without a cursor. ``whose``: the protocol's word
    for the connector; ``offered``: properties that may be one."""
    return ConfigError(
        f"stream {stream.id}: incremental needs a cursor, and the {whose} names none",
        code="config.cursor_missing",
        hint="set cursor_field to the property that grows with every change"
        f" ({listed(list(offered))}), or use full_refresh",
        stream=str(stream.id),
    )


def key_missing(stream: Stream, whose: str) -> ConfigError:
    """Builds the error for append_dedup without a primary key."""
    return ConfigError(
        f"stream {stream.id}: append_dedup needs a primary key, and the {whose} names none",
        code="config.primary_key_missing",
        hint="set primary_key (a list of paths, for example [[id]]), or use append",
        stream=str(stream.id),
    )


class Selection(NamedTuple):
    """``columns``: top-level properties (None: all); ``nested``: paths into the properties of which
    only a part is kept."""

    columns: tuple[str, ...] | None = None
    nested: tuple[FieldPath, ...] = ()


def selection(
    stream: Stream,
    wanted: Iterable[str | FieldPath] | None,
    kept: Iterable[FieldPath],
    deleted_at: str | None = None,
    left_out: Iterable[str] = (),
) -> Selection:
    """Returns the requested columns, plus those that key, cursor and deletes need (``kept``).
    ``deleted_at`` may be requested before the source has announced it: some sources do so only
    during a read. ``left_out``: properties that "all others" excludes. Raises ``ConfigError``."""
    if wanted is None:
        return Selection()
    wanted = tuple(wanted)
    patterns = [said for said in wanted if isinstance(said, str) and is_pattern(stream, said)]
    paths = [_column(stream, said) for said in wanted if said not in patterns]
    for path in paths:
        if path != (deleted_at,):
            must_exist(stream, "columns", path)
    if patterns:
        everything = wanted[0] in patterns and wanted[0][0] == "!"
        most = set(names_of(stream.json_schema)).difference(left_out) if everything else set()
        paths = matching(stream, patterns, paths, most)
    in_part = {path[0] for path in paths if len(path) > 1}
    paths += [path for path in kept if path]
    in_part -= {path[0] for path in paths if len(path) == 1}
    return Selection(
        tuple(dict.fromkeys(path[0] for path in paths)),
        tuple(dict.fromkeys(path for path in paths if path[0] in in_part)),
    )


def _column(stream: Stream, said: str | FieldPath) -> FieldPath:
    """Returns a path unchanged. A name is the property of that name; if there is none, its dots
    lead into an object."""
    if not isinstance(said, str):
        return said
    path = tuple(said.split("."))
    whole = exists(stream.json_schema, (said,)) or "" in path
    return (said,) if whole or not has(stream, path[:1]) else path


def word(stream: Stream, field: str, given: str | None, kind: type[_Mode]) -> _Mode | None:
    if given is None:
        return None
    try:
        return kind(given)
    except ValueError:
        raise ConfigError(
            f"stream {stream.id}: {field} {given!r} is unknown",
            code="config.unknown_mode",
            hint=did_you_mean.hint(given, [m.value for m in kind]),
            stream=str(stream.id),
        ) from None


def has(stream: Stream, path: FieldPath) -> bool:
    """Returns whether the stream's records may have a property at this path."""
    schema = stream.json_schema
    return exists(schema, path) or (stream.partial and not exists(schema, path[:1]))


def must_exist(stream: Stream, field: str, path: FieldPath) -> None:
    schema = stream.json_schema
    for depth in range(1, len(path) + 1):
        if has(stream, path[:depth]):
            continue
        known = sorted(set(names_of(schema, path[: depth - 1])))
        raise ConfigError(
            f"stream {stream.id}: {field} {path_text(path)} is not in the stream's schema"
            f" ({path[depth - 1]!r} is unknown)",
            code="config.unknown_field",
            hint=did_you_mean.hint(path[depth - 1], known, "its properties"),
            stream=str(stream.id),
        )


def path_text(path: FieldPath) -> str:
    return ".".join(path)


def paths(paths: Iterable[FieldPath]) -> str:
    return "[" + ", ".join(path_text(p) for p in paths) + "]"


def listed(names: list[str]) -> str:
    shown = names[:12]
    return "one of: " + ", ".join(shown) + (", ..." if len(names) > 12 else "")
