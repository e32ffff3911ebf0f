"""Plans each stream of a run, in pure decisions from the pipeline file, the source's catalog and
what the store remembers of earlier runs.

Reads nothing, writes nothing (`penstock plan` prints the result). Neighbours:
``engine.plan.prepare`` gathers the inputs; modes, cursors and keys are the protocol's rules
(``SourceRole.configure``), columns are ``codec.json_schema``'s.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from penstock.codec.json_schema import row_schema
from penstock.config import did_you_mean, modes
from penstock.config.pipeline import Pipeline, StreamOptions, StreamSettings
from penstock.config.protocol_spec import spec_of
from penstock.config.reader import join
from penstock.config.sections import Resources
from penstock.engine.plan.earlier_modes import as_before, modes_of
from penstock.engine.plan.state_names import begins_anew, mixed, names_in_states, state_role
from penstock.engine.plan.table_names import misnamed, only, record_names, table_names
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError, SchemaError
from penstock.model.catalog import (
    Catalog,
    Change,
    ConfiguredStream,
    ConnectorSpec,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
    default_cursor,
)
from penstock.model.events import TransformColumns
from penstock.model.names import clean_columns, split_table
from penstock.model.segments import WriteDisposition
from penstock.model.state import StoredState
from penstock.model.type_words import type_text
from penstock.model.types import DataType, Field, Kind, MetadataNames, RowSchema, cleaned_path
from penstock.protocols.contract import ProtocolPackage, ShardRole, StateRole, source_rules
from penstock.protocols.reading import StreamOverrides
from penstock.store.remembered import Remembered, TableNames
from penstock.tables.contract import PlannedDestination, TableName
from penstock.transforms.chain import Outline, plan_chain
from penstock.transforms.contract import TransformJob
from penstock.transforms.spark_sql import SINGLE_LOAD_REASON

WHOLE_RECORD = DataType(Kind.struct, fields=(Field("record", "record", DataType(Kind.json)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """What applies to every stream that a run plans. ``earlier``: what earlier runs stored; names
    that this run chose before its source sent the stream do not bind it. ``transforms``: those that
    work on batches; ``outline``: returns the output columns of those that are connectors.
    ``queried``: queries over the whole stream follow, which decide its columns."""

    package: ProtocolPackage
    destination: PlannedDestination
    earlier: Remembered
    metadata: MetadataNames | None
    sync_id: int
    transforms: tuple[TransformJob, ...] = ()
    outline: Outline | None = None
    queried: bool = False


class StreamsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned streams of a run. ``gone``: streams, configured or synced before, that the source
    no longer has; their tables are kept. ``found``: what the store must remember. ``open``: the
    source reveals its streams only while it is read."""

    streams: tuple[PlannedStream, ...]
    lanes: int
    notes: tuple[str, ...]
    gone: tuple[StreamId, ...]
    found: Remembered = Remembered()
    open: bool = False


def plan_streams(
    pipeline: Pipeline,
    catalog: Catalog,
    rules: StreamRules,
    *,
    known: Set[StreamId],
    states: Sequence[StoredState],
    cores: int,
    spec: ConnectorSpec | None = None,
    slots: int | None = None,
    changes_config: bool = False,
    stateless: bool = False,
) -> StreamsPlan:
    """Plans all streams of a run. ``known``: streams synced before. ``cores``, ``slots``: of this
    machine, and of Spark (None: unknown). ``changes_config``: the source has sent CONTROL before.
    ``stateless``: it is given no state, whatever is saved. Raises ``ConfigError`` with every
    problem of every stream at once."""
    package, earlier, destination = rules.package, rules.earlier, pipeline.destination
    problems: list[str] = []
    chosen, gone = _choose(pipeline, catalog, known, problems)
    problems += _unknown_columns(pipeline, [s for s, _ in chosen], package)
    records = record_names(catalog.streams, earlier.tables)
    problems += misnamed(destination, [s.id for s, _ in chosen], earlier.tables, records)
    called = table_names(destination, [s.id for s in catalog.streams], earlier.tables, records)
    streams: list[PlannedStream] = []
    for stream, settings in chosen:
        try:
            streams.append(
                plan_stream(
                    stream,
                    settings,
                    rules,
                    table_name=called.tables[stream.id.key],
                    columns=earlier.columns.get(stream.id, {}),
                )
            )
        except ConfigError as e:
            said = e.problems or [f"{e.message}; {e.hint}" if e.hint else e.message]
            problems += [_named(stream, text) for text in said]
        except SchemaError as e:
            problems.append(f"stream {stream.id}: {e.message}")
    if problems:
        raise ConfigError(
            f"the pipeline {pipeline.pipeline!r} cannot run as it is",
            code="config.streams",
            problems=problems,
            hint=None
            if spec_of(package.name).queries  # its columns are the query's, which the user has
            else "`penstock discover` shows the source's streams and what each supports",
        )
    lanes, notes = _lanes(pipeline, len(streams), states, cores)
    if not stateless:
        role = state_role(package, earlier, known, catalog.streams)
        notes += _given(pipeline, streams, role, states, known)
    if package.sharding is not None and pipeline.resources is not None and spec is not None:
        role, resources, most = package.sharding, pipeline.resources, slots or cores
        streams = [_sharded(s, resources, role, spec, most) for s in streams]
        lanes = max([lanes, *(s.shards for s in streams)])
    if changes_config and lanes > 1:
        lanes, notes = 1, ["the source changes its own configuration: it is read in one lane"]
    if catalog.open:
        notes.append("the source shows its streams only while it is read")
    if any(s.configured.sync_mode is SyncMode.cdc for s in streams):
        notes.append(
            "cdc: changes are gone at the source once they are read; after a failure those that no "
            "state covers are kept, and may come twice"
        )
    for s in streams:
        had = earlier.modes.get(s.id)
        if had is not None and had.destination_sync_mode is not s.disposition.mode:
            notes.append(
                f"stream {s.id}: its table was written under {had.destination_sync_mode.value} "
                f"until now and is written under {s.disposition.mode.value} from now on"
            )
        elif had is not None and s.disposition.primary_key and had.primary_key not in (
            (), s.configured.primary_key,
        ):  # fmt: skip
            notes.append(
                f"stream {s.id}: its table kept one row for each {_key_text(had.primary_key)} until"
                f" now and keeps one for each {_key_text(s.configured.primary_key)} from now on"
            )
        if _deletions_lost(s, package):
            notes.append(
                f"stream {s.id}: its transforms leave out {package.deleted_at_field}: rows that are"
                " gone at the source are written as if they were there"
            )
    notes += [f"the source no longer has the stream {s}; its table is kept as it is" for s in gone]
    planned = [msgspec.structs.replace(s, lane=index % lanes) for index, s in enumerate(streams)]
    return StreamsPlan(
        streams=tuple(planned),
        lanes=lanes,
        notes=tuple(notes),
        gone=tuple(gone),
        found=to_remember(rules, planned, only(called, (s.id for s in streams))),
        open=catalog.open,
    )


def to_remember(
    rules: StreamRules, streams: Sequence[PlannedStream], tables: TableNames
) -> Remembered:
    """Returns what the store must keep of these streams before any of their rows is written."""
    return Remembered(
        tables=tables,
        columns={s.id: s.columns for s in streams},
        modes={s.id: modes_of(s.configured) for s in streams},
        state_names=names_in_states(rules.package, [s.configured.stream for s in streams]),
    )


def _given(
    pipeline: Pipeline,
    streams: Sequence[PlannedStream],
    role: StateRole,
    states: Sequence[StoredState],
    known: Set[StreamId],
) -> list[str]:
    """Returns notes about the state that the source will be given. Raises ``ConfigError`` where
    some streams need a state that others must not be given (L6)."""
    anew = [s.id for s in streams if begins_anew(s.configured)]
    others = [s.id for s in streams if not begins_anew(s.configured)]
    problem = mixed(role, states, anew, others, pipeline.pipeline)
    if problem is not None:
        raise ConfigError(
            f"the pipeline {pipeline.pipeline!r} cannot run as it is",
            code="config.mixed_state",
            problems=[problem],
            hint="nothing was read and nothing was changed",
        )
    given = role.without(states, anew)
    if role.within(given, [s.id for s in streams]) != given:
        return [
            "the streams of the source share one position, which moves on in this run: streams that"
            " are not in it are read from the start when they run next"
        ]
    absent = sorted(known - {s.id for s in streams})
    if others or not absent or role.splits(states, anew):
        return []
    return [
        "every stream of this run begins anew, so the source is given no state; its state cannot be"
        f" split, and what it says of {', '.join(map(str, absent[:5]))} is replaced"
    ]


def _choose(
    pipeline: Pipeline, catalog: Catalog, known: Set[StreamId], problems: list[str]
) -> tuple[list[tuple[Stream, StreamSettings]], list[StreamId]]:
    """Returns the streams to sync, with their settings, and the configured ones that the source no
    longer has; adds unknown names to ``problems``."""
    named = pipeline.source.streams is not None
    wanted = [s for s in catalog.streams if named or s.selected]
    chosen = [(s, w) for s in wanted if (w := pipeline.stream_settings(s.id)) is not None]
    gone: list[StreamId] = []
    if catalog.open:
        return chosen, gone
    if pipeline.source.streams is None:
        gone += sorted(known - {s.id for s in catalog.streams}, key=lambda s: s.key)
    for index, entry in enumerate(pipeline.source.streams or ()):
        found = [s.id for s in catalog.streams if entry.matches(s.id)]
        if entry.is_pattern and len(found) > 1:
            continue
        if len(found) > 1 and not entry.namespace and entry.name not in map(str, found):
            listed = ", ".join(map(str, found))
            problems.append(f"stream {entry.name!r} is ambiguous: {listed}; say its namespace")
        if not found:
            before = [s for s in known if entry.matches(s)]
            gone += before
            if not before:
                at = pipeline.position(f"source.streams[{index}]")
                problems.append((f"{at}: " if at else "") + _unknown(entry, catalog))
    for name in pipeline.source.exclude:
        left_out = StreamOptions(name=name)
        here = any(left_out.matches(s) for s in (*(s.id for s in catalog.streams), *known))
        if not here and not left_out.is_pattern:
            problems.append(f"excluded: {_unknown(left_out, catalog)}")
    if not chosen and not gone and not problems:
        unselected = "; its catalog selects none" if catalog.streams and not wanted else ""
        problems.append(f"the source has no stream to sync{unselected}")
    return chosen, gone


def _unknown(entry: StreamOptions, catalog: Catalog) -> str:
    names = [str(s.id) for s in catalog.streams]
    wanted = f"{entry.namespace}.{entry.name}" if entry.namespace else entry.name
    close = get_close_matches(wanted, names, n=1) or get_close_matches(
        entry.name, [s.id.name for s in catalog.streams], n=1
    )
    if close:
        return f"unknown stream {wanted!r}; did you mean {close[0]!r}?"
    shown = ", ".join(sorted(names)[:10]) + (", ..." if len(names) > 10 else "")
    return f"unknown stream {wanted!r}; the source has: {shown or 'none'}"


def _unknown_columns(
    pipeline: Pipeline, chosen: Sequence[Stream], package: ProtocolPackage
) -> list[str]:
    """Returns a problem for each column that is given a type and that no stream of its entry has.
    An entry for several streams may name columns that only some have; a stream without known
    properties may have any."""
    meant = [("source.defaults", pipeline.source.defaults, list(chosen))]
    for index, entry in enumerate(pipeline.source.streams or ()):
        of = [s for s in chosen if entry.matches(s.id)]
        meant.append((f"source.streams[{index}]", entry, of))
    problems: list[str] = []
    for path, settings, streams in meant:
        if not settings.types or not streams:
            continue
        records = [package.schema.data_type(s.json_schema).fields for s in streams]
        known = dict.fromkeys(f.source for fields in records for f in fields)
        if not all(records):
            continue
        whose = f"stream {streams[0].id}" if len(streams) == 1 else f"{len(streams)} streams"
        for name in settings.types.keys() - known.keys():
            at = pipeline.position(join(f"{path}.types", name))
            problems.append(
                (f"{at}: " if at else "")
                + f"{path}.types: {whose}: unknown column {name!r}; "
                + did_you_mean.hint(
                    name, known, "its columns" if len(streams) == 1 else "their columns"
                )
            )
    return sorted(problems)


def _overrides_of(settings: StreamSettings, stream: Stream) -> StreamOverrides:
    sync, destination = settings.sync_mode, settings.destination_sync_mode
    replaces = False
    if settings.mode is not None:
        if modes.canonical(settings.mode) in ("insert", "update") and not stream.compared:
            raise ConfigError(
                f"mode {settings.mode!r} needs a destination that can tell new rows from old ones "
                "while writing; tables take append, upsert or mirror"
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


def plan_stream(
    stream: Stream,
    settings: StreamSettings,
    rules: StreamRules,
    *,
    table_name: str,
    columns: Mapping[str, str],
    before: PlannedStream | None = None,
    showed: TransformColumns | None = None,
) -> PlannedStream:
    """Plans one stream. ``table_name``: cleaned. ``columns``: cleaned names of its columns so far.
    ``before``: the stream as it was planned before its source sent a change of it, which keeps its
    sync mode. ``showed``: the columns that rows of transform connectors had (``transforms.chain``).
    Raises ``ConfigError``, ``SchemaError``."""
    package = rules.package
    overrides = _as_before(_overrides_of(settings, stream), stream, package, rules.earlier)
    if before is not None:
        overrides = msgspec.structs.replace(overrides, sync_mode=before.configured.sync_mode.value)
    if rules.queried:
        overrides = msgspec.structs.replace(overrides, appends=_QUERIED)

    def with_overrides(overrides: StreamOverrides) -> PlannedStream:
        configured = source_rules(package).configure(stream, overrides)
        return _planned(configured, settings, rules, table_name, columns, before, showed)

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


_QUERIED = "a query over the whole stream makes its rows, and its key is known at the load only"


_SEVERAL = (
    "its transforms may make several rows of one record; say mode: upsert where the primary key "
    "still tells them apart"
)


class _KeyLost(ConfigError):
    """Raised where the primary key is no typed column of the rows that go into the table."""


def _planned(
    configured: ConfiguredStream,
    settings: StreamSettings,
    rules: StreamRules,
    table_name: str,
    columns: Mapping[str, str],
    before: PlannedStream | None,
    showed: TransformColumns | None,
) -> PlannedStream:
    """Adds columns and table to a configured stream. ``columns``: cleaned names that earlier runs
    gave."""
    package, transforms, queried = rules.package, rules.transforms, rules.queried
    record = package.schema.data_type(configured.stream.json_schema)
    whole = not record.fields
    if whole:
        record = WHOLE_RECORD
    reserved = () if rules.metadata is None else msgspec.structs.astuple(rules.metadata)
    columns = clean_columns((f.source for f in record.fields), columns, reserved)
    selected = configured.columns
    if selected is not None:
        needed = {p[0] for p in (*configured.primary_key, configured.cursor_field) if p}
        selected = tuple({*selected, *needed})
    schema = row_schema(record, columns, selected)
    if settings.types and not whole:
        schema = _retyped(schema, settings.types)
    schema = _pruned(schema, configured)
    given, chain = None, None
    if transforms:
        known = None if before is None else before.chain
        given, chain = schema, plan_chain(
            transforms, schema, configured, outline=rules.outline, before=known, showed=showed
        )  # fmt: skip
        schema = chain.schema
    mode = configured.destination_sync_mode
    dedup = mode is DestinationSyncMode.append_dedup
    arrival = dedup and configured.sync_mode is SyncMode.cdc
    cursor = () if arrival else cleaned_path(default_cursor(configured), schema)
    key = tuple(cleaned_path(path, schema) for path in configured.primary_key)
    if dedup and not all(key) and not queried:
        bad = [".".join(p) for p, k in zip(configured.primary_key, key, strict=True) if not k]
        after = " after its transforms" if transforms else ""
        raise _KeyLost(f"the primary key {', '.join(bad)} is no typed column of its schema{after}")
    deleted = columns.get(package.deleted_at_field or "")
    has_deleted = any(f.name == deleted for f in schema.fields)
    space, name = split_table(table_name)
    planned_stream = PlannedStream(
        configured=configured,
        schema=schema,
        given=given,
        chain=chain,
        columns=columns,
        disposition=WriteDisposition(
            mode=mode,
            primary_key=key if dedup else (),
            cursor=cursor if dedup else (),
            deleted_column=deleted if dedup and has_deleted else None,
            sync_id=rules.sync_id,
            replaces=configured.replaces,
            arrival=arrival,
        ),
        table=TableName(space, name),
        deferred=SINGLE_LOAD_REASON if queried else rules.destination.single_load_reason(mode),
        whole=whole,
        queried=queried,
        max_rejected=settings.max_rejected,
        retry_rejected=_retry_rejected(configured, settings),
    )
    if Change.removed in configured.sends and _deletions_lost(planned_stream, package):
        raise ConfigError(
            f"its transforms leave out {package.deleted_at_field}: removals would be written as"
            " rows that are there",
            code="config.deletions_lost",
            hint="select it too, or choose a mode that sends no removals",
        )
    return with_required(planned_stream, ())


def _key_text(key: Sequence[FieldPath]) -> str:
    return ", ".join(".".join(path) for path in key)


def _deletions_lost(stream: PlannedStream, package: ProtocolPackage) -> bool:
    """Whether transforms leave out the column which tells that a row is gone, though rows of a key
    take each other's place."""
    deleted = stream.columns.get(package.deleted_at_field or "")
    if stream.given is None or stream.queried or not stream.disposition.primary_key:
        return False
    had, has = ({f.name for f in schema.fields} for schema in (stream.given, stream.schema))
    return deleted in had - has


def _retry_rejected(configured: ConfiguredStream, settings: StreamSettings) -> int:
    """How often rejected rows are sent again. Raises ``ConfigError`` for a stream whose rows are
    not compared with what was sent: a rejected row would have to be read from its source again."""
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


def _retyped(schema: RowSchema, types: Mapping[str, DataType]) -> RowSchema:
    """Returns the schema with the user's types for the columns with these original names."""
    replace = msgspec.structs.replace
    fields = (replace(f, type=types.get(f.source, f.type)) for f in schema.fields)
    return replace(schema, fields=tuple(fields))


def _pruned(schema: RowSchema, configured: ConfiguredStream) -> RowSchema:
    """Returns the schema with only the selected parts of columns that are selected in part. Raises
    ``ConfigError``."""
    replace = msgspec.structs.replace
    fields: list[Field] = []
    for field in schema.fields:
        paths = [path for path in configured.nested if path[0] == field.source]
        missing = next((path for path in paths if _inside(field.type, path[1:]) is None), None)
        if missing is not None and not configured.stream.assumed:
            raise ConfigError(
                f"columns: {'.'.join(missing)} cannot be kept alone, as the source does not say "
                f"which fields it lies among ({field.source} is {type_text(field.type)})",
                hint=f"list {field.source}",
            )
        if paths and missing is None:
            field = replace(field, type=_parts(field.type, [path[1:] for path in paths]))
        fields.append(field)
    return replace(schema, fields=tuple(fields))


def _inside(type_: DataType, path: FieldPath) -> DataType | None:
    """Returns the type at a path of properties; None: the type has no such path."""
    for step in path:
        found = next((f.type for f in type_.fields if f.source == step), None)
        if found is None:
            return None
        type_ = found
    return type_


def _parts(type_: DataType, paths: Sequence[FieldPath]) -> DataType:
    """Returns an object type with only these properties."""
    if () in paths:
        return type_
    replace = msgspec.structs.replace
    kept: list[Field] = []
    for field in type_.fields:
        below = [path[1:] for path in paths if path[0] == field.source]
        if below:
            kept.append(replace(field, type=_parts(field.type, below)))
    return replace(type_, fields=tuple(kept))


def with_required(stream: PlannedStream, required: Collection[str]) -> PlannedStream:
    """Returns the stream with ``required`` (original names) and its key as its non-null columns."""
    keys = {path[0] for path in stream.key}
    schema = stream.schema.with_required({*required, *keys})
    return msgspec.structs.replace(stream, schema=schema)


def _sharded(
    stream: PlannedStream, resources: Resources, role: ShardRole, spec: ConnectorSpec, slots: int
) -> PlannedStream:
    found = role.shards(spec, stream.configured, resources, slots)
    configured = msgspec.structs.replace(stream.configured, shards=found.count)
    return msgspec.structs.replace(
        stream, configured=configured, shards=found.count, hints=found.hints
    )


def _named(stream: Stream, text: str) -> str:
    """Puts the stream's name before a problem that does not name it."""
    return text if f"stream {stream.id}" in text else f"stream {stream.id}: {text}"


def _lanes(
    pipeline: Pipeline, streams: int, states: Sequence[StoredState], cores: int
) -> tuple[int, list[str]]:
    """Returns the number of lanes and notes. One lane unless the pipeline asks for more; then as
    many as independent states allow."""
    wanted = pipeline.lanes
    if wanted == 1 or streams <= 1:
        return 1, []
    if any(s.scope.stream is None for s in states):
        return 1, ["the source shares one state between its streams: they are read in one lane"]
    if wanted == "auto":
        if not states:
            return 1, ["lanes: auto reads in one lane until the source has shown its kind of state"]
        wanted = cores
    return min(int(wanted), streams), []


def describe(
    plan: StreamsPlan,
    destination: PlannedDestination,
    target: Callable[[StreamId], StreamId] | None = None,
) -> list[dict[str, Any]]:
    """Returns the ``streams`` of ``penstock plan``. ``target``: names a stream at a destination
    connector; ``table`` and ``target`` are then as in a report. ``columns_known``: false where the
    result of a query decides the columns."""
    return [
        {
            "namespace": s.id.namespace,
            "name": s.id.name,
            "sync_mode": s.configured.sync_mode.value,
            "destination_sync_mode": s.disposition.mode.value,
            "mode_reason": s.configured.mode_reason,
            "newest_by": s.newest_by if target is None else _by_destination(s),
            "cursor_field": list(s.configured.cursor_field),
            "primary_key": [list(p) for p in s.configured.primary_key],
            "lane": s.lane,
            "shards": s.shards,
            "hints": [msgspec.to_builtins(h) for h in s.hints],
            "table": None if target is not None else destination.location(s.table),
            "target": None if target is None else str(target(s.id)),
            "retry_rejected": s.retry_rejected,
            "loads": "at the end of the sync" if s.deferred else "while the source reads",
            "columns_known": not s.queried,
            "columns": [
                {"name": f.name, "source": f.source, "type": type_text(f.type)}
                for f in (() if s.queried else s.schema.fields)
            ],
        }
        for s in plan.streams
    ]


def _by_destination(stream: PlannedStream) -> dict[str, Any] | None:
    """As ``newest_by``, for a destination connector: it gets the cursor, and decides itself."""
    return None if stream.newest_by is None else {"by": "destination", "field": []}
