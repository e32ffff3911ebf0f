"""Everything before the first record: the connector, its configuration, its catalog, the plan.

No JVM, no record. Neighbours: ``engine.run`` and the verbs that move no data start here;
``engine.plan.streams`` makes the decisions; ``connectors`` knows how to run a source.
"""

import os
import time
from collections.abc import Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.connectors.same_connector import lasting
from penstock.engine.plan.earlier_modes import Names, columns_key, grown
from penstock.engine.plan.endpoints import Destination, Save, Source
from penstock.engine.plan.source_protocol import refuse_other_protocol
from penstock.engine.plan.state_names import state_role, to_keep
from penstock.engine.plan.streams import (
    StreamsPlan,
    plan_streams,
    with_required,
)
from penstock.engine.plan.transform_endpoint import Outlines, TransformEnd, transform_jobs
from penstock.engine.plan.unsupported import not_held, permissions_asked, refused
from penstock.engine.specs.lane import KeysAt
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    FieldPath,
    Stream,
    StreamId,
)
from penstock.model.types import NEUTRAL_METADATA, DataType, Kind, MetadataNames, RowSchema
from penstock.protocols.contract import Held
from penstock.spark.query import Query
from penstock.spark.session import choose_master, local_slots
from penstock.state.contract import Lease, Store
from penstock.tables.contract import SchemaEvolution, TableFormat
from penstock.tables.open import open_table
from penstock.transforms.open import SPARK_SQL
from penstock.transforms.spark_sql import queries as queries_of


class Prepared(msgspec.Struct, kw_only=True):
    """``source``: a ``Source``. ``place``: a ``TableFormat``, or the ``Destination`` where that is
    a connector. ``served``: the source is our own input (``engine.serve``), whose end does not show
    that all of the streams in ``must_say`` has come. ``keys``: where components keep their own
    state; None: no component is in this pipeline. ``queries``: over whole streams. ``states``: a
    ``StateRole`` that knows what states call the source's streams."""

    source: Any
    place: Any
    catalog: Catalog
    plan: StreamsPlan
    metadata: MetadataNames | None
    sync_id: int
    states: Any = None
    queries: tuple[Query, ...] = ()
    schemas: dict[StreamId, RowSchema] = {}
    served: bool = False
    must_say: Set[StreamId] = frozenset()
    keys: KeysAt | None = None
    transforms: tuple[Any, ...] = ()  # TransformEnd
    outline: Any = None
    names: Names = {}
    """The pipeline's names as they were before this run."""
    modes: dict[str, dict[str, str]] = {}
    """What is to be added to them of the modes that were planned."""
    passed: set[StreamId] = set()
    """Streams that the source sent in this run and that were not taken."""

    def ends(self) -> "list[Source | TransformEnd | Destination]":
        """The connectors."""
        ends = (self.source, *self.transforms, self.place)
        return [e for e in ends if isinstance(e, (Source, TransformEnd, Destination))]

    def held(self) -> tuple[dict[str, list[Held]], list[str]]:
        """What manifest and pipeline let each component reach and use, by its place, and what there
        is to say of manifests and of how its environment was made."""
        lines: dict[str, list[Held]] = {}
        notes: list[str] = []
        for end in self.ends():
            its, said = end.connector.held(end.config)
            if its:
                lines[end.role_name] = its
            notes += [f"{end.role_name}: {text}" for text in (*said, *end.connector.built())]
        return lines, notes


def destination_of(
    pipeline: Pipeline, home: Home, store: Store, observer: RunObserver, *, save: Save
) -> TableFormat | Destination:
    """A table format, or a connector. Raises ``ConfigError``, ``SourceError``."""
    ref = parse_ref(pipeline.destination.use)
    if ref.kind is not RefKind.table:
        return Destination(pipeline, home, store, observer, save=save)
    return table_of(pipeline)


def table_of(pipeline: Pipeline) -> TableFormat:
    """The table format of a destination that is a table. Raises ``ConfigError``."""
    ref = parse_ref(pipeline.destination.use)
    options = {k: str(v) for k, v in pipeline.destination.config.items()}
    place = options.pop("path", None) or ref.target
    if not place:
        raise ConfigError(
            f"the destination {pipeline.destination.use!r} has no path",
            code="config.destination",
            hint="write `config: {path: ./lake}`",
        )
    return open_table(ref.format or "", place, options)


def metadata_names(pipeline: Pipeline, native: MetadataNames) -> MetadataNames | None:
    names = {"native": native, "neutral": NEUTRAL_METADATA, "none": None}
    return names[pipeline.destination.metadata_columns]


def evolution(pipeline: Pipeline) -> SchemaEvolution:
    return msgspec.convert(
        msgspec.to_builtins(pipeline.destination.schema_evolution), SchemaEvolution
    )


def other_keys(prepared: Prepared) -> list[tuple[StreamId, str, str]]:
    """Streams of which the source told another primary key while it was read than its catalog has:
    (stream, the catalog's, the one told)."""
    known = {s.id: s.source_defined_primary_key for s in prepared.catalog.streams if not s.assumed}
    found: list[tuple[StreamId, str, str]] = []
    for planned in prepared.plan.streams:
        now = planned.configured.stream.source_defined_primary_key or ()
        if planned.id in known and set(known[planned.id] or ()) != set(now):
            found.append((planned.id, _key_text(known[planned.id] or ()), _key_text(now)))
    return found


def _key_text(key: tuple[FieldPath, ...]) -> str:
    return ", ".join(".".join(path) for path in key) or "none"


def prepare(
    pipeline: Pipeline,
    source: Source,
    place: TableFormat | Destination,
    store: Store,
    transforms: Sequence[TransformEnd] = (),
    *,
    refresh: bool = False,
    stateless: bool = False,
) -> Prepared:
    """Check what was asked, discover, plan. ``transforms``: of ``transforms_of``. ``refresh``: the
    source is asked for its streams now, whatever it said within the last day; so it is where the
    plan fails with what it said then. ``stateless``: it is given no state, whatever is saved.
    Raises ``ConfigError``, ``SourceError``, ``DestinationError``."""
    made = partial(_prepared, pipeline, source, place, store, transforms, stateless=stateless)
    try:
        return made(refresh=refresh)
    except ConfigError:
        if source.cached_at is None:
            raise
    return made(refresh=True)


def _prepared(
    pipeline: Pipeline,
    source: Source,
    place: TableFormat | Destination,
    store: Store,
    transforms: Sequence[TransformEnd],
    *,
    refresh: bool,
    stateless: bool,
) -> Prepared:
    _, _, problems = permissions_asked(pipeline)
    problems += refused(pipeline, place)
    if problems:
        raise ConfigError(
            "the pipeline asks for what cannot be done",
            code="config.unsupported",
            problems=problems,
            hint="what cannot be enforced is refused, never ignored",
        )
    queries = queries_of(pipeline.transforms)
    if queries and isinstance(place, Destination):
        raise _not_pushed(queries, place)
    refuse_other_protocol(store, pipeline.pipeline, source.package.name)
    source.validate()
    for transform in transforms:
        transform.check()
    place.check()
    outline = Outlines(transforms)
    catalog = _with_named(pipeline, source, source.discover(refresh=refresh), store)
    metadata = metadata_names(pipeline, source.package.metadata_names)
    sync_id = int(time.time() * 1000)
    names = store.names(pipeline.pipeline)
    plan = plan_streams(
        pipeline,
        catalog,
        source.package,
        place,
        names=names,
        known=store.known_streams(pipeline.pipeline),
        states=store.states(pipeline.pipeline),
        metadata=metadata,
        cores=os.cpu_count() or 1,
        sync_id=sync_id,
        transforms=transform_jobs(pipeline, transforms),
        outline=outline,
        queried=bool(queries),
        spec=source.connector.spec() if source.package.sharding is not None else None,
        slots=local_slots(choose_master(pipeline.spark.master, os.cpu_count() or 1, 1)),
        changes_config=source.changed_before,
        stateless=stateless,
    )
    ends = [source, *transforms, *([place] if isinstance(place, Destination) else [])]
    notes = (*(n for e in ends for n in e.notes), *plan.notes, *outline.notes, *not_held(pipeline))
    plan = msgspec.structs.replace(plan, notes=notes)
    _reads(source, plan)
    _fits(source, place, plan)
    return Prepared(
        source=source,
        place=place,
        catalog=catalog,
        plan=plan,
        metadata=metadata,
        sync_id=sync_id,
        queries=queries,
        states=state_role(
            source.package,
            store.names(pipeline.pipeline),
            store.known_streams(pipeline.pipeline),
            catalog.streams,
        ),
        transforms=tuple(transforms),
        outline=outline,
        names=names,
        modes={k: v for s in plan.streams for k, v in grown(names, s.configured).items()},
    )


def _with_named(pipeline: Pipeline, source: Source, catalog: Catalog, store: Store) -> Catalog:
    """Where the source tells of no streams and can be read all the same: those of the pipeline
    file, with the columns that it names and those that earlier rows had."""
    make, listed = source.package.undiscovered, pipeline.source.streams
    if catalog.streams or catalog.open or make is None or not listed:
        return catalog
    ids = [StreamId.of(entry.namespace, entry.name) for entry in listed]
    before = {} if pipeline.transforms else store.newest_schemas(pipeline.pipeline, ids)
    streams: list[Stream] = []
    for stream in ids:
        columns: dict[str, DataType | None] = {}
        if (schema := before.get(stream)) is not None:
            # JSON may be what was assumed of a stream without rows.
            kinds = {f.source: f.type for f in schema.fields if f.type.kind is not Kind.json}
            columns.update(kinds)
        wish = pipeline.stream_settings(stream)
        if wish is not None:
            columns.update(wish.types or {})
            paths = (*(wish.primary_key or ()), wish.cursor_field or ())
            kept = (c if isinstance(c, str) else c[0] for c in wish.columns or ())
            for name in (*(path[0] for path in paths if path), *kept):
                columns.setdefault(name, None)
        streams.append(make(stream, columns))
    return Catalog(tuple(streams))


def _not_pushed(queries: Sequence[Query], place: Destination) -> ConfigError:
    where = queries[0].where.removesuffix(".config.query")
    return ConfigError(
        f"{where}: {SPARK_SQL} before the destination connector {place.name}: rows leave the log "
        "for a connector while the source still reads, before Spark could see the whole stream",
        code="transform.destination",
        where=where,
        hint="use transform-sql, which works on batches, or a table as the destination",
    )


def _reads(source: Source, plan: StreamsPlan) -> None:
    manifest = source.package.manifest
    if manifest is None:
        return
    problems = manifest.problems(source.connector.spec(), [s.configured for s in plan.streams])
    if problems:
        raise ConfigError(
            f"the source {source.connector.ref.text} cannot read these streams",
            code="config.source",
            problems=problems,
            hint="`penstock spec` shows what its manifest names",
        )


def _fits(source: Source, place: TableFormat | Destination, plan: StreamsPlan) -> None:
    if not isinstance(place, Destination):
        return
    problems = place.problems(plan.streams)
    if problems:
        raise ConfigError(
            f"the destination {place.name} cannot take these streams",
            code="config.destination",
            problems=problems,
            hint="`penstock spec` shows what it supports",
        )


def remember(prepared: Prepared, store: Store, lease: Lease) -> None:
    """Names and schemas into the store, before anything uses them. Which columns are never null is
    as the last rows had it, until rows say otherwise (``engine.worker.lane_events``)."""
    connector = prepared.source.connector
    ref = connector.ref
    kept = ref.text if prepared.served else lasting(ref, Path.cwd())
    store.remember_source(lease, connector.protocol.name, kept)
    names = {columns_key(s.id): s.columns for s in prepared.plan.streams}
    names.update(prepared.plan.names)
    names.update(prepared.modes)
    streams = [s.configured.stream for s in prepared.plan.streams]
    names.update(to_keep(prepared.source.package, streams))
    store.grow_names(lease, names)
    before = store.newest_schemas(lease.pipeline, [s.id for s in prepared.plan.streams])
    streams = tuple(
        with_required(s, before[s.id].required) if s.id in before else s
        for s in prepared.plan.streams
    )
    prepared.plan = msgspec.structs.replace(prepared.plan, streams=streams)
    prepared.schemas = store.schema_versions(lease, {s.id: s.schema for s in streams})
