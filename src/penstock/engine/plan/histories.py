"""Plans histories: which streams keep every version of a key, and which cannot.

Pure except for a look at the table's columns. Neighbours: ``engine.plan.stream_plan`` plans a
stream, ``tables.history`` keeps the versions."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from penstock.config.pipeline import StreamSettings
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.segments import WriteDisposition
from penstock.model.table_columns import stored
from penstock.model.types import Field, Kind, RowSchema
from penstock.protocols.contract import ProtocolPackage, source_rules
from penstock.protocols.reading import StreamOverrides
from penstock.store.remembered import Remembered
from penstock.tables.contract import TableName
from penstock.tables.files.merge_job import compared_in_tasks
from penstock.tables.history.columns import COLUMNS, has_history, history_fields
from penstock.tables.refused_histories import ENDS, RECREATE, other

_CURSORS = {
    Kind.integer, Kind.decimal, Kind.number, Kind.date, Kind.timestamp, Kind.timestamp_ntz,
    Kind.string,
}  # fmt: skip
_UPSERT = "a history keeps the versions of a key: set mode: upsert, or leave history out"


class KeptHistories(msgspec.Struct, frozen=True):
    """What a run's destination can keep of histories. ``local``: it is tables in folders of this
    machine; ``queried``: queries make its rows; ``soft``: deletes are soft. ``columns_of``: as in
    ``TableFormat``; None: there are no tables. ``had``: streams whose tables have a history, each
    with its key. ``ends``: the user agrees that tables lose their older versions."""

    local: bool = False
    queried: bool = False
    soft: bool = False
    columns_of: Callable[[TableName], Sequence[Field] | None] | None = None
    had: Mapping[StreamId, tuple[FieldPath, ...]] = {}
    ends: bool = False

    def columns(self, table: TableName) -> Sequence[Field]:
        """The table's columns, as far as they are known."""
        return () if self.columns_of is None else self.columns_of(table) or ()

    def has(self, configured: ConfiguredStream, table: TableName) -> bool:
        """Whether the stream's table has a history that no refresh replaces."""
        if configured.refreshes:
            return False
        # tables of all streams are read only where a history may end: loads check them anyway
        return configured.id in self.had or (self.ends and has_history(self.columns(table)))


NONE = KeptHistories()


def with_modes(
    stream: Stream,
    settings: StreamSettings,
    overrides: StreamOverrides,
    earlier: Remembered,
    package: ProtocolPackage,
) -> StreamOverrides | None:
    """Returns the overrides of a stream that is to have a history, with the mode that it needs;
    None: it has none. Without a setting in the pipeline, the stream has one if its table has.
    Raises ``ConfigError``."""
    had = earlier.modes.get(stream.id)
    asked = settings.history or ("on" if had is not None and had.history else "off")
    said = overrides.destination_sync_mode
    dedup = DestinationSyncMode.append_dedup.value
    if asked == "off" or (settings.history != "on" and said not in (None, dedup)):
        return None
    if said is None:
        why = "its table keeps a history"
        overrides = msgspec.structs.replace(overrides, destination_sync_mode=dedup, said=why)
    try:
        source_rules(package).configure(stream, overrides)
    except ConfigError as error:
        if error.code != "config.primary_key_missing":
            return overrides  # raised again when the stream is planned
        if asked == "keyed":
            return None
        error.hint = (
            "a history keeps the versions of a key: set primary_key (a list of paths, for example "
            "[[id]]), or leave history out"
        )
        raise
    return overrides


def without_history(
    streams: Sequence[PlannedStream], asked: Mapping[StreamId, str | None]
) -> list[str]:
    """Returns a note for each stream that keeps no history, though the pipeline requests one for
    all streams with a key."""
    return [
        f"{s.id}: keeps no history: "
        + (
            f"its mode is {s.disposition.mode}"
            if s.configured.primary_key
            else "it has no primary key; `primary_key:` gives it one"
        )
        for s in streams
        if asked.get(s.id) == "keyed" and not s.disposition.history
    ]


def turning(streams: Sequence[PlannedStream], kept: KeptHistories) -> list[str]:
    """Returns a note for each stream whose table begins a history with its existing rows, or ends
    its history."""
    notes: list[str] = []
    for s in streams:
        if s.disposition.ends_history:
            notes.append(f"{s.id}: its table's history ends: current rows stay, and no other")
        elif s.disposition.history and s.id not in kept.had and not s.configured.refreshes:
            columns = kept.columns(s.table)
            if columns and not has_history(columns):
                notes.append(f"{s.id}: its table begins a history: its rows are the first versions")
    return notes


def with_history(configured: ConfiguredStream) -> ConfiguredStream:
    """Returns the stream with a history: a full refresh ends the versions of keys that it lacks.
    Raises ``ConfigError`` (``config.history``)."""
    if configured.destination_sync_mode is not DestinationSyncMode.append_dedup:
        mode = configured.destination_sync_mode.value
        raise _refused(configured.id, f"its destination sync mode is {mode}", _UPSERT)
    if configured.sends:
        raise _refused(
            configured.id,
            "a model that is compared with earlier sent rows has none yet",
            "leave history out, or have the model read whole each time (sync_mode: full_refresh)",
        )
    full = configured.sync_mode is SyncMode.full_refresh
    return msgspec.structs.replace(configured, history=True, replaces=full)


def settled(
    configured: ConfiguredStream,
    disposition: WriteDisposition,
    schema: RowSchema,
    kept: KeptHistories,
    table: TableName,
) -> WriteDisposition:
    """Returns the disposition with whether the load ends its table's history. Raises
    ``ConfigError`` (``config.history``) as :func:`_refuse`."""
    if kept.ends and not configured.history:
        ends = kept.has(configured, table)
        disposition = msgspec.structs.replace(disposition, ends_history=ends)
    _refuse(configured, disposition, schema, kept, table)
    return disposition


def _refuse(
    configured: ConfiguredStream,
    disposition: WriteDisposition,
    schema: RowSchema,
    kept: KeptHistories,
    table: TableName,
) -> None:
    """Raises ``ConfigError`` (``config.history``) where rows with ``schema`` cannot have a history,
    or where the table does not fit one."""
    stream = configured.id
    if not disposition.history:
        if not disposition.ends_history and kept.has(configured, table):
            why = "has a history of its rows, and the stream is configured without one"
            raise _refused(stream, f"its table {table.name} {why}", ENDS)
        return
    if not kept.local:
        raise _refused(
            stream,
            "its destination keeps no history yet",
            "write to delta:PATH or parquet:PATH on a local path, or leave history out",
        )
    if kept.queried:
        raise _refused(
            stream,
            "a query over the whole stream makes its rows",
            "query its table in a pipeline of its own (docs/models.md), or leave history out",
        )
    if kept.soft and disposition.deleted_column is not None:
        raise _refused(
            stream,
            "its deletes are soft, and marked versions are not kept yet",
            "set `deletes: hard`, under which a delete ends the version, or leave history out",
        )
    _refuse_columns(stream, disposition, schema)
    key, had = configured.primary_key, kept.had.get(stream)
    if had and {*had} != {*key} and not configured.refreshes:
        was, now = (", ".join(".".join(path) for path in paths) for paths in (had, key))
        why = f"its table {table.name} has versions of the key {was}, and the key is {now}"
        raise _refused(stream, why, RECREATE)
    columns = () if configured.refreshes else kept.columns(table)
    if not any(f.name in COLUMNS for f in columns):
        return  # its rows become the first versions
    found = other(history_fields(schema, disposition.cursor), columns)
    if found is not None:
        raise _refused(stream, f"its table {table.name} {found.why}", found.hint)


def _refuse_columns(stream: StreamId, disposition: WriteDisposition, schema: RowSchema) -> None:
    ours = {name.lower() for name in COLUMNS}
    taken = [f for f in schema.fields if f.name.lower() in ours]
    if taken:
        raise _refused(
            stream,
            f"its rows have a column {taken[0].name} of their own",
            f"leave it out (`columns: ['!{taken[0].source}']`), or rename it in a transform",
        )
    kinds = {f.name: stored(f.type).kind for f in schema.fields}
    key, cursor = disposition.primary_key, disposition.cursor
    if not compared_in_tasks(kinds, key, cursor, arrival=disposition.arrival):
        raise _refused(
            stream,
            "its key or cursor is nested, or a key is a floating-point number",
            "set primary_key and cursor_field to top-level columns (a transform can make them)",
        )
    if cursor and kinds.get(cursor[0]) not in _CURSORS:
        raise _refused(
            stream,
            f"its cursor {cursor[0]} has no order",
            "set cursor_field to a column of numbers, times or text",
        )


def _refused(stream: StreamId, why: str, hint: str) -> ConfigError:
    return ConfigError(
        f"stream {stream}: it cannot have a history: {why}",
        code="config.history",
        hint=hint,
        stream=str(stream),
    )
