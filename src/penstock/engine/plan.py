"""What a run will do with each stream: pure decisions from the pipeline file, the source's catalog
and what earlier runs remember. Reads nothing, writes nothing (`penstock plan` prints it).

Neighbours: ``engine.run`` gathers the inputs and carries the plan out; modes, cursors and keys are
the protocol's rules (``SourceRole.configure``), columns are ``codec.json_schema``'s.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from difflib import get_close_matches
from typing import Any

import msgspec

from penstock.codec.json_schema import row_schema
from penstock.config import modes
from penstock.config.pipeline import Pipeline, StreamOptions, StreamSettings
from penstock.config.sections import Resources
from penstock.engine.chain import Outline, planned
from penstock.engine.chain import Planned as PlannedChain
from penstock.engine.job import TransformJob
from penstock.engine.table_names import misnamed, table_names
from penstock.errors import ConfigError, SchemaError
from penstock.model.catalog import (
    Catalog,
    ConfiguredStream,
    ConnectorSpec,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import Showed
from penstock.model.names import clean_columns, split_table
from penstock.model.segments import Shape
from penstock.model.state import SavedState
from penstock.model.types import DataType, Field, Kind, MetadataNames, RowSchema
from penstock.protocols.contract import Held, ProtocolPackage, ShardRole, StreamWish
from penstock.tables.contract import Place, TableName
from penstock.transforms.spark_sql import HELD

WHOLE_RECORD = DataType(Kind.struct, fields=(Field("record", "record", DataType(Kind.json)),))


class PlannedStream(msgspec.Struct, frozen=True, kw_only=True):
    """``columns``: original property -> cleaned column, as far as this run knows. ``held``: why its
    loads wait for the end of the sync, or None. ``key``: original paths. ``given``: what transforms
    are given, where there are any; ``schema`` is what they make of it. ``queried``: a load's rows
    go through queries (``engine.queries``), whose answer the key is of.
    ``chain``: the transforms as planned, which ends in that schema.
    ``whole``: no property is known, so a record is one JSON text (:data:`WHOLE_RECORD`)."""

    configured: ConfiguredStream
    schema: RowSchema
    given: RowSchema | None = None
    chain: PlannedChain | None = None
    columns: dict[str, str]
    shape: Shape
    table: TableName
    lane: int = 0
    held: str | None = None
    whole: bool = False
    queried: bool = False
    shards: int = 1
    hints: tuple[Held, ...] = ()

    @property
    def id(self) -> StreamId:
        return self.configured.id

    @property
    def key(self) -> tuple[FieldPath, ...]:
        dedup = self.shape.mode is DestinationSyncMode.append_dedup
        return self.configured.primary_key if dedup and not self.queried else ()


class StreamsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``gone``: streams, configured or synced before, that the source no longer has; their tables
    are kept. ``names``: what the store is to keep of their tables. ``open``: the source shows its
    streams only while it is read."""

    streams: tuple[PlannedStream, ...]
    lanes: int
    notes: tuple[str, ...]
    gone: tuple[StreamId, ...]
    names: dict[str, dict[str, str]]
    open: bool = False


def columns_key(stream: StreamId) -> str:
    """Where the store keeps the column names of a stream."""
    return f"columns:{stream.key}"


def plan_streams(
    pipeline: Pipeline,
    catalog: Catalog,
    package: ProtocolPackage,
    table: Place,
    *,
    names: Mapping[str, Mapping[str, str]],
    known: Set[StreamId],
    states: Sequence[SavedState],
    metadata: MetadataNames | None,
    cores: int,
    sync_id: int,
    transforms: Sequence[TransformJob] = (),
    outline: Outline | None = None,
    queried: bool = False,
    spec: ConnectorSpec | None = None,
    slots: int | None = None,
    changes_config: bool = False,
) -> StreamsPlan:
    """``changes_config``: the source has sent CONTROL before. Raises ``ConfigError`` with every
    problem of every stream at once."""
    problems: list[str] = []
    chosen, gone = _choose(pipeline, catalog, known, problems)
    problems += misnamed(pipeline.destination, [s.id for s, _ in chosen], names)
    called = table_names(pipeline.destination, [s.id for s in catalog.streams], names)
    streams: list[PlannedStream] = []
    for stream, settings in chosen:
        try:
            streams.append(
                plan_stream(
                    stream,
                    settings,
                    package,
                    table,
                    table_name=called.tables[stream.id.key],
                    columns=names.get(columns_key(stream.id), {}),
                    metadata=metadata,
                    sync_id=sync_id,
                    transforms=transforms,
                    outline=outline,
                    queried=queried,
                )
            )
        except ConfigError as e:
            problems += [_named(stream, text) for text in e.problems or [e.message]]
        except SchemaError as e:
            problems.append(f"stream {stream.id}: {e.message}")
    if problems:
        raise ConfigError(
            f"the pipeline {pipeline.pipeline!r} cannot run as it is",
            code="config.streams",
            problems=problems,
            hint="`penstock discover` shows the source's streams and what each supports",
        )
    lanes, notes = _lanes(pipeline, len(streams), states, cores)
    if package.sharding is not None and pipeline.resources is not None and spec is not None:
        role, told, most = package.sharding, pipeline.resources, slots or cores
        streams = [_sharded(s, told, role, spec, most) for s in streams]
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
    notes += [f"the source no longer has the stream {s}; its table is kept as it is" for s in gone]
    planned = [msgspec.structs.replace(s, lane=index % lanes) for index, s in enumerate(streams)]
    return StreamsPlan(
        streams=tuple(planned),
        lanes=lanes,
        notes=tuple(notes),
        gone=tuple(gone),
        names=called.kept(s.id for s in streams),
        open=catalog.open,
    )


def _choose(
    pipeline: Pipeline, catalog: Catalog, known: Set[StreamId], problems: list[str]
) -> tuple[list[tuple[Stream, StreamSettings]], list[StreamId]]:
    """The streams to sync; configured ones that are gone; unknown names become problems."""
    named = pipeline.source.streams is not None
    wanted = [s for s in catalog.streams if named or s.selected]
    chosen = [(s, w) for s in wanted if (w := pipeline.wish(s.id)) is not None]
    gone: list[StreamId] = []
    if catalog.open:
        return chosen, gone
    if pipeline.source.streams is None:
        gone += sorted(known - {s.id for s in catalog.streams}, key=lambda s: s.key)
    for entry in pipeline.source.streams or ():
        found = [s.id for s in catalog.streams if entry.matches(s.id)]
        if len(found) > 1 and not entry.namespace and entry.name not in map(str, found):
            listed = ", ".join(map(str, found))
            problems.append(f"stream {entry.name!r} is ambiguous: {listed}; say its namespace")
        if not found:
            before = [s for s in known if entry.matches(s)]
            gone += before
            if not before:
                problems.append(_unknown(entry, catalog))
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


def _wish(settings: StreamSettings) -> StreamWish:
    sync, destination = settings.sync_mode, settings.destination_sync_mode
    if settings.mode is not None:
        if modes.canonical(settings.mode) in ("insert", "update"):
            raise ConfigError(
                f"mode {settings.mode!r} needs a destination that can tell new rows from old ones "
                "while writing; tables take append, upsert or mirror"
            )
        both = modes.mode(settings.mode)
        sync, destination = both.sync_mode or sync, both.destination_sync_mode or destination
    return StreamWish(
        sync_mode=sync,
        destination_sync_mode=destination,
        cursor_field=settings.cursor_field,
        primary_key=settings.primary_key,
        columns=settings.columns,
    )


def plan_stream(
    stream: Stream,
    settings: StreamSettings,
    package: ProtocolPackage,
    table: Place,
    *,
    table_name: str,
    columns: Mapping[str, str],
    metadata: MetadataNames | None,
    sync_id: int,
    transforms: Sequence[TransformJob] = (),
    queried: bool = False,
    outline: Outline | None = None,
    before: PlannedStream | None = None,
    showed: Showed | None = None,
) -> PlannedStream:
    """``table_name``: cleaned. ``columns``: names that earlier runs gave. ``queried``: queries over
    the whole stream follow, which decide what its columns are. ``outline``, ``before``, ``showed``:
    what is known of transforms that are connectors (``engine.chain``). Raises ``ConfigError``,
    ``SchemaError``."""
    configured = package.source.configure(stream, _wish(settings))
    record = package.schema.data_type(configured.stream.json_schema)
    whole = not record.fields
    if whole:
        record = WHOLE_RECORD
    reserved = () if metadata is None else msgspec.structs.astuple(metadata)
    columns = clean_columns((f.source for f in record.fields), columns, reserved)
    selected = configured.columns
    if selected is not None:
        needed = {p[0] for p in (*configured.primary_key, configured.cursor_field) if p}
        selected = tuple({*selected, *needed})
    schema = row_schema(record, columns, selected)
    given, chain = None, None
    if transforms:
        known = None if before is None else before.chain
        given, chain = schema, planned(
            transforms, schema, configured, outline=outline, before=known, showed=showed
        )  # fmt: skip
        schema = chain.schema
    dedup = configured.destination_sync_mode is DestinationSyncMode.append_dedup
    cursor = cleaned_path(default_cursor(configured), schema)
    key = tuple(cleaned_path(path, schema) for path in configured.primary_key)
    if dedup and not all(key) and not queried:
        bad = [".".join(p) for p, k in zip(configured.primary_key, key, strict=True) if not k]
        after = " after its transforms" if transforms else ""
        raise ConfigError(
            f"the primary key {', '.join(bad)} is no typed column of its schema{after}"
        )
    deleted = columns.get(package.deleted_at_field or "")
    has_deleted = any(f.name == deleted for f in schema.fields)
    mode = configured.destination_sync_mode
    space, name = split_table(table_name)
    return PlannedStream(
        configured=configured,
        schema=schema,
        given=given,
        chain=chain,
        columns=columns,
        shape=Shape(
            mode=mode,
            primary_key=key if dedup else (),
            cursor=cursor if dedup else (),
            deleted_column=deleted if dedup and has_deleted else None,
            sync_id=sync_id,
        ),
        table=TableName(space, name),
        held=HELD if queried else table.loads_once(mode),
        whole=whole,
        queried=queried,
    )


def _sharded(
    stream: PlannedStream, resources: Resources, role: ShardRole, spec: ConnectorSpec, slots: int
) -> PlannedStream:
    found = role.shards(spec, stream.configured, resources, slots)
    told = msgspec.structs.replace(stream.configured, shards=found.count)
    return msgspec.structs.replace(stream, configured=told, shards=found.count, hints=found.hints)


def _named(stream: Stream, text: str) -> str:
    """Said of this stream."""
    return text if f"stream {stream.id}" in text else f"stream {stream.id}: {text}"


def default_cursor(configured: ConfiguredStream) -> FieldPath:
    """The cursor, or what the source says would be one."""
    return configured.cursor_field or configured.stream.default_cursor_field or ()


def cleaned_path(path: FieldPath, schema: RowSchema) -> FieldPath:
    """A path of properties as a path of columns; empty where no typed column is at its end."""
    fields, cleaned = schema.fields, list[str]()
    for index, step in enumerate(path):
        field = next((f for f in fields if f.source == step), None)
        if field is None:
            return ()
        cleaned.append(field.name)
        last = index == len(path) - 1
        if last and field.type.kind in (Kind.struct, Kind.array):
            return ()
        if not last and field.type.kind is not Kind.struct:
            return ()
        fields = field.type.fields
    return tuple(cleaned)


def _lanes(
    pipeline: Pipeline, streams: int, states: Sequence[SavedState], cores: int
) -> tuple[int, list[str]]:
    """One lane unless asked; then as many as states that are independent allow."""
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
    plan: StreamsPlan, place: Place, target: Callable[[StreamId], StreamId] | None = None
) -> list[dict[str, Any]]:
    """The ``streams`` of ``penstock plan``. ``target``: what a destination that is a connector
    calls a stream; ``table`` and ``target`` are then as in a report. ``columns_known``: false where
    the answer of a query decides what the columns are."""
    return [
        {
            "namespace": s.id.namespace,
            "name": s.id.name,
            "sync_mode": s.configured.sync_mode.value,
            "destination_sync_mode": s.shape.mode.value,
            "cursor_field": list(s.configured.cursor_field),
            "primary_key": [list(p) for p in s.configured.primary_key],
            "lane": s.lane,
            "shards": s.shards,
            "hints": [msgspec.to_builtins(h) for h in s.hints],
            "table": None if target is not None else place.location(s.table),
            "target": None if target is None else str(target(s.id)),
            "loads": "at the end of the sync" if s.held else "while the source reads",
            "columns_known": not s.queried,
            "columns": [
                {"name": f.name, "source": f.source, "type": type_text(f.type)}
                for f in (() if s.queried else s.schema.fields)
            ],
        }
        for s in plan.streams
    ]


def type_text(type_: DataType) -> str:
    """``decimal(10,2)``, ``array<integer>``, ``struct<a: string>``."""
    if type_.kind is Kind.decimal:
        return f"decimal({type_.precision},{type_.scale})"
    if type_.kind is Kind.array and type_.item is not None:
        return f"array<{type_text(type_.item)}>"
    if type_.kind is Kind.struct:
        inner = ", ".join(f"{f.name}: {type_text(f.type)}" for f in type_.fields)
        return f"struct<{inner}>"
    return type_.kind.value
