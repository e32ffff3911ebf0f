"""Keeps the sync modes of a pipeline's earlier runs, and the rule by which they found the newest
row of a key.

Where the pipeline file sets no mode for a stream, the stream keeps its mode: a default or a catalog
that changes must not turn an append into a merge. The store keeps the modes (``store.remembered``).
Not here: the modes of a new stream (``protocols/*/stream_config.py``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from penstock.config.pipeline import StreamSettings
from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
)
from penstock.model.segments import CursorOrder
from penstock.model.types import Kind, RowSchema
from penstock.protocols.reading import StreamOverrides
from penstock.store.remembered import Refresh, Remembered, UsedModes

NEWEST = 1
"""The version of the rule of ``tables.newest``. 0: the earlier rule, which compared text cursors as
numbers, times or bytes, whichever fitted all, and never took an older one."""


def modes_of(configured: ConfiguredStream) -> UsedModes:
    """Returns the modes of a configured stream, for the store."""
    return UsedModes(
        sync_mode=configured.sync_mode,
        destination_sync_mode=configured.destination_sync_mode,
        replaces=configured.replaces,
        primary_key=configured.primary_key,
        newest=NEWEST,
        history=configured.history,
    )


def other_rule_notes(stream: PlannedStream, had: UsedModes | None) -> list[str]:
    """Returns notes, once per stream, about a table that was merged by the earlier rule. ``had``:
    the modes of the last run."""
    was_merged = had is not None and had.destination_sync_mode is DestinationSyncMode.append_dedup
    if had is None or had.newest == NEWEST or not was_merged or stream.replaces_table:
        return []
    mixed = ", ".join(stream.disposition.mixed_keys)
    return [*_text_cursor(stream), *([_MIXED.format(stream.id, mixed)] if mixed else [])]


_MIXED = (
    "stream {}: an earlier version of Penstock wrote its key {} as text while the source declared "
    "text, and as JSON, with quotes, while it declared a union: a new row replaces the rows of "
    "its key in both forms. Until then the table may have a key twice; `penstock run --recreate` "
    "writes the table again, in one form"
)


def _text_cursor(stream: PlannedStream) -> Iterator[str]:
    by = stream.newest_by or {}
    if by.get("order") == CursorOrder.by_value:
        yield (
            f"stream {stream.id}: an earlier version of Penstock wrote its table, and compared the"
            f" cursor {'.'.join(by['field'])}, which is text, by another rule. From this run on"
            " whole numbers and ISO 8601 times are compared as such, and between other texts the"
            ' row that came later wins (docs/incremental.md, "Which row wins"). Rows that were left'
            " out as older come in when the source sends them again: `penstock run --full-refresh`"
            " reads the stream from the start"
        )


def mixed_keys(
    stream: StreamId,
    key: Sequence[FieldPath],
    versions: Callable[[StreamId], Mapping[int, RowSchema]],
    refresh: Refresh | None,
) -> tuple[str, ...]:
    """Returns the columns of the key that were text in one stored schema and JSON in another.
    ``refresh``: the newest of the stream; a published one has rewritten the table."""
    if refresh is not None and not refresh.pending and not refresh.cancelled:
        return ()
    kinds: dict[str, set[Kind]] = {}
    for field in (field for schema in versions(stream).values() for field in schema.fields):
        kinds.setdefault(field.name, set()).add(field.type.kind)
    keys = dict.fromkeys(path[0] for path in key if len(path) == 1)
    return tuple(name for name in keys if {Kind.string, Kind.json} <= kinds.get(name, set()))


def as_before(overrides: StreamOverrides, stream: Stream, earlier: Remembered) -> StreamOverrides:
    """Returns the user's overrides. Fills in the modes of earlier runs, and the key that these
    need, where the user set none."""
    had = earlier.modes.get(stream.id)
    if had is None:
        return msgspec.structs.replace(overrides, unrecorded=stream.id in earlier.columns)
    if overrides.destination_sync_mode is not None or overrides.sync_mode not in (
        None,
        had.sync_mode,
    ):
        return overrides
    key = overrides.primary_key
    if key is None and stream.source_defined_primary_key is None:
        key = had.primary_key or None
    why = "its table has been written so until now"
    if had.destination_sync_mode is DestinationSyncMode.append:
        why = "its table has been appended to until now; mode: upsert keeps one row per key"
    return msgspec.structs.replace(
        overrides,
        sync_mode=had.sync_mode,
        destination_sync_mode=had.destination_sync_mode,
        replaces=had.replaces,
        primary_key=key,
        said=why,
    )


def overwritten(settings: StreamSettings | None, stream: StreamId, earlier: Remembered) -> bool:
    """Whether the stream's rows will replace its table, as far as this can be known before its
    source sends it. ``settings`` None: the stream is not selected."""
    if settings is None:
        return False
    mode, had = settings.destination_sync_mode, earlier.modes.get(stream)
    if mode is None and had is not None:
        mode = had.destination_sync_mode
    return mode is DestinationSyncMode.overwrite
