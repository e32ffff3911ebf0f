"""Plans one stream: its modes, key, columns and table.

Pure. Used before a run and again when the source sends a change of the stream while it is read. The
protocol's rules (``SourceRole.configure``) decide modes, cursors and keys;
``engine.plan.stream_columns`` decides columns. Not here: which streams are planned, and in how many
lanes they are read (``engine.plan.streams``). Neighbours: ``engine.plan.replan`` plans while a
source is read; ``transforms.chain`` plans the transforms.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from penstock.config import modes
from penstock.config.pipeline import StreamSettings
from penstock.engine.plan import histories, key_types
from penstock.engine.plan.earlier_modes import as_before, mixed_keys
from penstock.engine.plan.saved_cursors import SavedCursor, keep_cursor
from penstock.engine.plan.stream_columns import (
    NO_COLUMNS,
    source_columns,
    undeclared_columns,
)
from penstock.engine.plan.table_types import TableTypes, decoded_whole, with_types
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Change,
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
    default_cursor,
)
from penstock.model.events import TransformColumns
from penstock.model.names import split_table
from penstock.model.segments import CursorOrder, WriteDisposition
from penstock.model.types import (
    DataType,
    Kind,
    MetadataNames,
    MissingColumns,
    RowSchema,
    UndeclaredPolicy,
    cleaned_path,
)
from penstock.protocols.contract import ProtocolPackage, source_rules
from penstock.protocols.reading import StreamOverrides
from penstock.store.remembered import Remembered
from penstock.tables.contract import PlannedDestination, TableName
from penstock.transforms.chain import Outline, plan_chain
from penstock.transforms.contract import TransformJob
from penstock.transforms.spark_sql import SINGLE_LOAD_REASON

_QUERIED = "a query over the whole stream makes its rows, and its key is known at the load only"

_SEVERAL = (
    "its transforms may make several rows of one record; set mode: upsert if the primary key "
    "still distinguishes them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """The rules for every stream that a run plans. ``earlier``: what earlier runs stored; names
    that this run chose before its source sent the stream do not bind it. ``transforms``: those that
    work on batches; ``outline``: returns the output columns of transform connectors. ``queried``:
    queries over the whole stream follow, and decide its columns. ``cursors``: those that saved
    states use. ``recreate``: this run requests a refresh of its streams. ``undeclared``: the
    columns of undeclared properties that earlier runs made. ``adds_columns``: the destination takes
    columns that it does not have. ``takes_undeclared``: it gets undeclared properties, unless the
    pipeline sets otherwise. ``names_extra``: a transform or query names the column of undeclared
    properties, so it must exist. ``merges``: the destination is tables, which merge rows by their
    keys; ``coerces``: a value whose type changes is cast to that of the table's column.
    ``schemas``: of the tables' rows. ``table_types``: the tables' types; None: the destination has
    no tables. ``going_on``: the schema of the rows that the stream's lane has read, for planning in
    the middle of an epoch. ``kept_histories``: what the destination can keep of histories."""

    package: ProtocolPackage
    destination: PlannedDestination
    earlier: Remembered
    metadata: MetadataNames | None
    sync_id: int
    transforms: tuple[TransformJob, ...] = ()
    outline: Outline | None = None
    queried: bool = False
    cursors: Mapping[StreamId, SavedCursor] = field(default_factory=dict[StreamId, SavedCursor])
    recreate: bool = False
    undeclared: Mapping[StreamId, MissingColumns] = field(
        default_factory=dict[StreamId, MissingColumns]
    )
    adds_columns: bool = True
    takes_undeclared: bool = True
    names_extra: bool = False
    merges: bool = False
    coerces: bool = True
    schemas: Mapping[StreamId, RowSchema] = field(default_factory=dict[StreamId, RowSchema])
    table_types: TableTypes | None = None
    going_on: RowSchema | None = None
    kept_histories: histories.KeptHistories = histories.NONE

    def policy(self, settings: StreamSettings) -> UndeclaredPolicy:
        """Returns the policy for undeclared properties of a stream's records."""
        keeps = self.package.keeps_undeclared and self.takes_undeclared
        default = "keep" if keeps else "drop"
        kept = self.adds_columns and not self.package.columnar
        return UndeclaredPolicy((settings.undeclared or default) if kept else "drop")

    @property
    def mark(self) -> str | None:
        """Returns the property that marks deletes, where it gets a column even if a schema lacks
        it: without it, deleted rows would be written as rows of NULLs."""
        makes = self.package.keeps_undeclared and self.adds_columns
        return self.package.deleted_at_field if makes else None

    def refreshes(self, stream: StreamId) -> bool:
        """Whether a refresh of the stream is pending, or begins with this run: it is read from the
        start, so that no saved state binds its cursor."""
        return self.recreate or stream in self.earlier.pending_refreshes


class _KeyLost(ConfigError):
    """Raised where the primary key is not a typed column of the rows that go into the table."""


def plan_stream(
    stream: Stream,
    settings: StreamSettings,
    rules: StreamRules,
    *,
    table_name: str,
    columns: Mapping[str, str],
    nested: Mapping[str, str] = {},
    before: PlannedStream | None = None,
    showed: TransformColumns | None = None,
    undeclared: MissingColumns | None = None,
) -> PlannedStream:
    """Plans one stream. ``table_name``: cleaned. ``columns``: cleaned names of its columns so far,
    ``nested``: of the fields inside them. ``before``: the stream's plan before its source sent the
    change; the stream keeps its sync mode. ``showed``: the columns that rows of transform
    connectors had (``transforms.chain``). ``undeclared``: columns of undeclared properties; None:
    those that it had before. Raises ``ConfigError``, ``SchemaError``."""
    package = rules.package
    overrides = _overrides_of(settings, stream)
    history = histories.with_modes(stream, settings, overrides, rules.earlier, package)
    overrides = _as_before(history or overrides, stream, package, rules.earlier)
    saved = None if rules.refreshes(stream.id) else rules.cursors.get(stream.id)
    if before is not None:
        overrides = msgspec.structs.replace(overrides, sync_mode=before.configured.sync_mode.value)
    elif saved is not None:
        overrides = keep_cursor(stream, overrides, source_rules(package), saved)
    if undeclared is None:
        known = None if before is None else before.given or before.schema
        undeclared = rules.undeclared.get(stream.id, NO_COLUMNS)
        undeclared = undeclared if known is None else undeclared_columns(known)
    more = _undeclared(rules, settings, undeclared)
    if rules.queried:
        overrides = msgspec.structs.replace(overrides, appends=_QUERIED)

    def with_overrides(overrides: StreamOverrides) -> PlannedStream:
        configured = source_rules(package).configure(stream, overrides)
        if history is not None:
            configured = histories.with_history(configured)
        refreshes = rules.refreshes(stream.id) if before is None else before.configured.refreshes
        if refreshes:
            configured = msgspec.structs.replace(configured, refreshes=True)
        named = (columns, nested)
        return _planned(configured, settings, rules, table_name, named, before, showed, more)

    explicit = overrides.destination_sync_mode is not None
    try:
        found = with_overrides(overrides)
    except _KeyLost as e:
        if explicit:
            raise
        why = e.message
    else:
        if explicit or found.disposition.mode is not DestinationSyncMode.append_dedup:
            return found
        why = rules.destination.unsupported_reason(found.configured, found.schema)
        if found.chain is not None and not found.chain.one_to_one:
            why = _SEVERAL
        if why is None:
            return found
    return with_overrides(msgspec.structs.replace(overrides, appends=why))


def _undeclared(
    rules: StreamRules, settings: StreamSettings, had: MissingColumns
) -> MissingColumns:
    """Returns the columns of undeclared properties under the stream's policy."""
    policy = rules.policy(settings)
    mark = tuple(name for name in had.names if name == rules.mark)
    if policy is UndeclaredPolicy.drop:
        return MissingColumns(mark, extra=False)
    names = had.names if policy is UndeclaredPolicy.columns else mark
    return MissingColumns(names, had.extra or rules.names_extra)


def _overrides_of(settings: StreamSettings, stream: Stream) -> StreamOverrides:
    sync, destination = settings.sync_mode, settings.destination_sync_mode
    replaces = False
    if settings.mode is not None:
        if modes.canonical(settings.mode) in ("insert", "update") and not stream.compared:
            raise ConfigError(
                f"mode {settings.mode!r} needs a destination that distinguishes new rows from old "
                "ones while writing; tables take append, upsert or mirror"
            )
        both = modes.mode(settings.mode)
        sync, destination = both.sync_mode or sync, both.destination_sync_mode or destination
        replaces = both.replaces
    return StreamOverrides(
        sync_mode=sync,
        destination_sync_mode=destination,
        cursor_field=settings.cursor_field,
        primary_key=settings.primary_key,
        columns=settings.columns,
        replaces=replaces,
        mode=None if settings.mode is None else modes.canonical(settings.mode),
    )


def _as_before(
    overrides: StreamOverrides, stream: Stream, package: ProtocolPackage, earlier: Remembered
) -> StreamOverrides:
    """Completes the overrides with the modes of earlier runs; leaves out a sync mode that the
    source's rules would choose anyway."""
    before = as_before(overrides, stream, earlier)
    if overrides.sync_mode is None and before.sync_mode is not None:
        free = msgspec.structs.replace(before, sync_mode=None)
        with suppress(ConfigError):
            if source_rules(package).configure(stream, free).sync_mode == before.sync_mode:
                return free
    return before


def _planned(
    configured: ConfiguredStream,
    settings: StreamSettings,
    rules: StreamRules,
    table_name: str,
    named: tuple[Mapping[str, str], Mapping[str, str]],
    before: PlannedStream | None,
    showed: TransformColumns | None,
    undeclared: MissingColumns,
) -> PlannedStream:
    """Adds columns and table to a configured stream. ``named``: cleaned names that earlier runs
    gave to columns and to fields inside them. ``undeclared``: columns of properties that its schema
    does not declare."""
    package, queried = rules.package, rules.queried
    reserved = () if rules.metadata is None else msgspec.structs.astuple(rules.metadata)
    read = source_columns(
        configured, settings, package.schema, named=named[0], nested=named[1], reserved=reserved,
        deleted_at=package.deleted_at_field, undeclared=undeclared,
    )  # fmt: skip
    table = TableName(*split_table(table_name))
    kept = _kept_types(configured, read.schema, rules, table)
    declared = {f.source: f.type for f in read.schema.fields if f.source in kept}
    schema = with_types(read.schema, kept)
    given, chain = None, None
    if rules.transforms:
        known = None if before is None else before.chain
        given, chain = schema, plan_chain(
            rules.transforms, schema, configured, outline=rules.outline, before=known,
            showed=showed, mark=read.names.get(package.deleted_at_field or ""),
        )  # fmt: skip
        schema = chain.schema
    mode = configured.destination_sync_mode
    schema, exact = _with_exact_keys(schema, read.declared, configured, settings, rules, table)
    disposition = _disposition(configured, settings, schema, rules, read.names)
    disposition = histories.settled(configured, disposition, schema, rules.kept_histories, table)
    planned_stream = PlannedStream(
        configured=configured,
        schema=schema,
        given=given,
        chain=chain,
        columns=read.names,
        nested=read.nested,
        disposition=disposition,
        table=table,
        deferred=SINGLE_LOAD_REASON if queried else rules.destination.single_load_reason(mode),
        whole=read.whole,
        ignored=read.ignored,
        undeclared=rules.policy(settings),
        closed=read.closed,
        mark=rules.mark if mode is DestinationSyncMode.append_dedup and not read.whole else None,
        narrowed=read.narrowed,
        exact=exact,
        declared=declared,
        queried=queried,
        max_rejected=settings.max_rejected,
        retry_rejected=_retry_rejected(configured, settings),
        deleted_at=_deleted_at(configured, package, schema, read.names),
    )
    _refuse_lost_deletions(planned_stream, package)
    return as_shown(planned_stream, (), {})


def _refuse_lost_deletions(planned: PlannedStream, package: ProtocolPackage) -> None:
    """Raises ``ConfigError`` (``config.deletions_lost``)."""
    if Change.removed in planned.configured.sends and deletions_lost(planned, package):
        raise ConfigError(
            f"its transforms leave out {package.deleted_at_field}: removals would be written as"
            " rows that are there",
            code="config.deletions_lost",
            hint="select it too, or choose a mode that sends no removals",
        )


def _with_exact_keys(
    schema: RowSchema,
    declared: RowSchema,
    configured: ConfiguredStream,
    settings: StreamSettings,
    rules: StreamRules,
    table: TableName,
) -> tuple[RowSchema, tuple[str, ...]]:
    """Returns the schema with the types in which a table keeps the stream's keys apart, and the
    columns (dotted paths) that become decimals for this in a new table. ``declared``: the columns
    with the source's own types. Columns that transforms make, and doubles that a source sends as
    such, are already exact."""
    key, mode = configured.primary_key, configured.destination_sync_mode
    if mode is DestinationSyncMode.overwrite or not rules.merges:
        return schema, ()
    chosen, exact = schema, ()
    as_sent = not (rules.transforms or rules.queried or rules.package.columnar)
    merges = mode is DestinationSyncMode.append_dedup
    if as_sent and merges:
        chosen = key_types.exact_keys(schema, key, settings.types or {})
        exact = key_types.exact_columns(chosen, schema, key)
        chosen = key_types.number_texts(chosen, declared, key)
    fills = configured.fills_generation and not configured.history
    replaces = rules.refreshes(configured.id) or fills
    before = None if replaces else rules.schemas.get(configured.id)
    if before is None:
        if replaces or not merges or rules.table_types is None:
            return chosen, exact
        others = rules.table_types.of_others(table, schema)
        kept = key_types.kept_keys(chosen, schema, others, key, coerces=rules.coerces)
        return kept, tuple(name for name in exact if kept == chosen)
    if not merges:
        return (key_types.lasting_keys(schema, before, key) if as_sent else schema), ()
    if rules.table_types is not None and rules.going_on is None:
        before = rules.table_types.as_in_table(configured.id, table, before)
    return key_types.kept_keys(chosen, schema, before, key, coerces=rules.coerces), ()


def _kept_types(
    configured: ConfiguredStream, schema: RowSchema, rules: StreamRules, table: TableName
) -> dict[str, DataType]:
    """Returns the types of columns that are decoded by their table's type: none where the table's
    rows are replaced, or the source sends typed columns."""
    overwrites = configured.destination_sync_mode is DestinationSyncMode.overwrite
    replaced = overwrites or configured.refreshes
    replaced = replaced or (configured.replaces and not configured.history)
    if rules.table_types is None or rules.package.columnar or replaced:
        return {}
    kept = rules.table_types.kept(
        configured.stream.id,
        table,
        decoded_whole(configured, schema, {rules.package.deleted_at_field}),
        rules.going_on,
        compared={
            path[0] for path in (*configured.primary_key, default_cursor(configured)) if path
        },
        transformed=bool(rules.transforms) or rules.queried,
    )
    # a key that the table has both as text and as JSON becomes text again, in which each text is
    # one key
    declared = {f.source: f for f in schema.fields if f.type.kind is Kind.string}
    again = [s for s, now in kept.items() if now.kind is Kind.json and s in declared]
    key = tuple((declared[s].name,) for s in again if (s,) in configured.primary_key)
    mixed = _mixed_keys(configured, key, rules) if key else ()
    return {s: now for s, now in kept.items() if s not in again or declared[s].name not in mixed}


def _disposition(
    configured: ConfiguredStream,
    settings: StreamSettings,
    schema: RowSchema,
    rules: StreamRules,
    columns: Mapping[str, str],
) -> WriteDisposition:
    """Returns how the stream's rows are written. ``schema``: of the written rows; ``columns``:
    original property -> cleaned column. Raises :class:`_KeyLost`."""
    mode = configured.destination_sync_mode
    dedup = mode is DestinationSyncMode.append_dedup
    refills = configured.history and configured.replaces
    arrival = dedup and (refills or _in_log_order(configured, rules.package))
    named = cleaned_path(default_cursor(configured), schema) if dedup else ()
    cursor = () if arrival else named
    key = tuple(cleaned_path(path, schema) for path in configured.primary_key)
    if dedup and not all(key) and not rules.queried:
        bad = [".".join(p) for p, k in zip(configured.primary_key, key, strict=True) if not k]
        after = " after its transforms" if rules.transforms else ""
        raise _KeyLost(
            f"the primary key {', '.join(bad)} is not a typed column of its schema{after}"
        )
    deleted = columns.get(rules.package.deleted_at_field or "")
    has_deleted = any(f.name == deleted for f in schema.fields)
    return WriteDisposition(
        mode=mode,
        primary_key=key if dedup else (),
        cursor=cursor,
        cursor_order=CursorOrder(settings.cursor_order or CursorOrder.by_value),
        delete_cursor=named if arrival and has_deleted else (),
        deleted_column=deleted if dedup and has_deleted else None,
        sync_id=rules.sync_id,
        replaces=configured.replaces,
        arrival=arrival,
        refreshes=configured.refreshes,
        mixed_keys=_mixed_keys(configured, key, rules) if dedup else (),
        history=configured.history,
    )


def _mixed_keys(
    configured: ConfiguredStream, key: tuple[FieldPath, ...], rules: StreamRules
) -> tuple[str, ...]:
    """Returns the key columns that have text in some rows of the table and JSON in others."""
    stream, replaced = configured.id, configured.replaces or configured.refreshes
    newest = rules.schemas.get(stream)
    if replaced or rules.table_types is None or newest is None or newest.version < 2:
        return ()
    return mixed_keys(stream, key, rules.table_types.versions, rules.earlier.refresh.get(stream))


def _in_log_order(configured: ConfiguredStream, package: ProtocolPackage) -> bool:
    """Whether the stream's records are the changes of a log, in its order. A log may restart the
    numbers of its changes, so these give no order."""
    if configured.sync_mode is SyncMode.cdc:
        return True
    cursor, prefix = default_cursor(configured), package.log_cursor_prefix
    return bool(cursor) and prefix is not None and cursor[0].startswith(prefix)


def _deleted_at(
    configured: ConfiguredStream,
    package: ProtocolPackage,
    schema: RowSchema,
    columns: Mapping[str, str],
) -> str | None:
    """Returns the property that marks a row as deleted, where the rows have it. A model's columns
    may be unknown before it is read."""
    name = package.deleted_at_field
    column = columns.get(name or "")
    has = Change.removed in configured.sends or any(f.name == column for f in schema.fields)
    return name if has else None


def deletions_lost(stream: PlannedStream, package: ProtocolPackage) -> bool:
    """Whether transforms leave out the column that marks deleted rows, though a row replaces the
    earlier row of its key."""
    deleted = stream.columns.get(package.deleted_at_field or "")
    if stream.given is None or stream.queried or not stream.disposition.primary_key:
        return False
    had, has = ({f.name for f in schema.fields} for schema in (stream.given, stream.schema))
    return deleted in had - has


def deletes_held_back(stream: PlannedStream) -> bool:
    """Whether deletes are carried out, and it is unknown whether the transforms pass each
    delete."""
    carried = stream.disposition.deleted_column is not None
    through = stream.chain is None or stream.chain.passes_deletes
    return carried and (not through or stream.queried)


def left_out_unknown(stream: PlannedStream) -> bool:
    """Whether the stream's rows are compared with the rows sent before, and it is unknown which of
    them the transforms leave out."""
    through = stream.chain is None or stream.chain.one_to_one
    return bool(stream.configured.sends) and (not through or stream.queried)


def _retry_rejected(configured: ConfiguredStream, settings: StreamSettings) -> int:
    """Returns how often rejected rows are sent again. Raises ``ConfigError`` for a stream whose
    rows are not compared with the rows sent before: a rejected row would have to be read from its
    source again."""
    if settings.retry_rejected and not configured.sends:
        raise ConfigError(
            f"stream {configured.id}: retry_rejected sends rows again that were rejected, which "
            "needs a model that is compared with what was sent before",
            code="config.retry_rejected",
            hint="set mode insert, update, upsert or mirror, and a primary_key; otherwise remove "
            "retry_rejected: `penstock rejects` has the rows, and a stream that is read whole each"
            " time sends them anyway",
            stream=str(configured.id),
        )
    return settings.retry_rejected or 0


def as_shown(
    stream: PlannedStream, required: Collection[str], frame_types: Mapping[str, str]
) -> PlannedStream:
    """Returns the stream with what its rows have shown: its non-null columns are ``required``
    (original names) and its key; ``frame_types`` are the columns with frame types of their own."""
    keys = {path[0] for path in stream.key}
    schema = stream.schema.with_required({*required, *keys}).with_frame_types(frame_types)
    return msgspec.structs.replace(stream, schema=schema)
