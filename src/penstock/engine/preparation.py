"""Everything before the first record: the connector, its configuration, its catalog, the plan.

No JVM, no record. Neighbours: ``engine.run`` and the verbs that move no data start here;
``engine.plan`` makes the decisions; ``connectors`` knows how to run a source.
"""

import os
import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline, Transform
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.buffers import Bounds, LaneStream
from penstock.engine.contract import SyncPlan
from penstock.engine.ends import Destination, Save, Source
from penstock.engine.epochs import LaneStart, SyncStream
from penstock.engine.job import KeysAt, LaneJob, StreamJob, TransformJob
from penstock.engine.known import refuse_other_protocol
from penstock.engine.plan import (
    PlannedStream,
    StreamsPlan,
    columns_key,
    permissions_asked,
    plan_streams,
)
from penstock.engine.progress import RunObserver
from penstock.engine.transform_end import Outlines, TransformEnd
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    ConfiguredStream,
    DestinationSyncMode,
    Shard,
    StreamId,
    SyncMode,
)
from penstock.model.types import NEUTRAL_METADATA, MetadataNames, RowSchema
from penstock.protocols.contract import Held
from penstock.spark.query import Query
from penstock.spark.session import choose_master, is_remote, local_slots
from penstock.state.contract import Lease, Store
from penstock.tables.contract import SchemaEvolution, TableFormat
from penstock.tables.open import open_table
from penstock.transforms.open import BUILT_IN, SPARK_SQL
from penstock.transforms.spark_sql import queries as queries_of


class Prepared(msgspec.Struct, kw_only=True):
    """``source``: a ``Source``. ``place``: a ``TableFormat``, or the ``Destination`` where that is
    a connector. ``served``: the source is our own input (``engine.serve``), whose end does not show
    that all of the streams in ``must_say`` has come. ``keys``: where components keep their own
    state; None: no component is in this pipeline. ``queries``: over whole streams."""

    source: Any
    place: Any
    catalog: Catalog
    plan: StreamsPlan
    metadata: MetadataNames | None
    sync_id: int
    queries: tuple[Query, ...] = ()
    schemas: dict[StreamId, RowSchema] = {}
    served: bool = False
    must_say: Set[StreamId] = frozenset()
    keys: KeysAt | None = None
    transforms: tuple[Any, ...] = ()  # TransformEnd
    outline: Any = None

    def ends(self) -> "list[Source | TransformEnd | Destination]":
        """The connectors."""
        ends = (self.source, *self.transforms, self.place)
        return [e for e in ends if isinstance(e, (Source, TransformEnd, Destination))]

    def held(self) -> tuple[dict[str, list[Held]], list[str]]:
        """What manifest and pipeline let each component reach and use, by its place, and what there
        is to say of manifests."""
        lines: dict[str, list[Held]] = {}
        notes: list[str] = []
        for end in self.ends():
            its, said = end.connector.held(end.config)
            if its:
                lines[end.role_name] = its
            notes += [f"{end.role_name}: {text}" for text in said]
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


def prepare(
    pipeline: Pipeline,
    source: Source,
    place: TableFormat | Destination,
    store: Store,
    transforms: Sequence[TransformEnd] = (),
) -> Prepared:
    """Check what was asked, discover, plan. ``transforms``: of ``transforms_of``. Raises
    ``ConfigError``, ``SourceError``, ``DestinationError``."""
    _, _, problems = permissions_asked(pipeline)
    problems += _unsupported(pipeline, place)
    problems += _unprotected(pipeline)
    problems += _keys_unreachable(pipeline)
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
    catalog = source.discover()
    metadata = metadata_names(pipeline, source.package.metadata_names)
    sync_id = int(time.time() * 1000)
    plan = plan_streams(
        pipeline,
        catalog,
        source.package,
        place,
        names=store.names(pipeline.pipeline),
        known=store.known_streams(pipeline.pipeline),
        states=store.states(pipeline.pipeline),
        metadata=metadata,
        cores=os.cpu_count() or 1,
        sync_id=sync_id,
        transforms=transform_jobs(pipeline, transforms),
        outline=outline,
        queried=bool(queries),
        spec=source.connector.spec(),
        slots=local_slots(choose_master(pipeline.spark.master, os.cpu_count() or 1, 1)),
        changes_config=source.changed_before,
    )
    plan = msgspec.structs.replace(plan, notes=(*plan.notes, *outline.notes))
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
        transforms=tuple(transforms),
        outline=outline,
    )


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


def _keys_unreachable(pipeline: Pipeline) -> list[str]:
    """Components keep keys of their own in the store, from whichever worker they run on."""
    remote = is_remote(choose_master(pipeline.spark.master, 1, 1))
    if not remote or pipeline.state.backend == "postgres" or not _has_component(pipeline):
        return []
    return [
        "a WebAssembly connector on a cluster keeps its own state in the store, which every worker "
        "must reach: set state.backend: postgres"
    ]


def _unprotected(pipeline: Pipeline) -> list[str]:
    """A lane's task carries the connector's configuration: on a cluster without authentication
    anybody on its network can read it."""
    master = choose_master(pipeline.spark.master, 1, 1)
    secured = pipeline.spark.conf.get("spark.authenticate", "false").lower() == "true"
    if not is_remote(master) or secured or pipeline.spark.allow_unencrypted:
        return []
    return [
        f"the Spark master {master} would be sent the connector's configuration without "
        "spark.authenticate: turn that on in spark.conf, or set spark.allow_unencrypted: true"
    ]


def _of_tables(pipeline: Pipeline, place: TableFormat | Destination) -> dict[str, bool]:
    """Keys that mean something to one kind of destination only."""
    told, default = pipeline.destination, type(pipeline.destination)(use=pipeline.destination.use)
    connector = isinstance(place, Destination)
    kept = ("deletes", "schema_evolution", "metadata_columns")
    names = kept if connector and pipeline.dialect == "penstock" else ()
    whose = "a destination connector" if connector else "a table"
    if not connector:
        names = ("namespace", "prefix")
    return {
        f"destination.{name} on {whose}": getattr(told, name) != getattr(default, name)
        for name in names
    }


def _unsupported(pipeline: Pipeline, place: TableFormat | Destination) -> list[str]:
    """Keys that are read and that this version does not carry out."""
    destination, connector = pipeline.destination, isinstance(place, Destination)
    asked = {
        "destination.stream": destination.stream is not None,
        "destination.options": bool(destination.options),
        "destination.permissions": destination.permissions is not None and not connector,
        **{
            f"destination.limits.{name}": not connector
            for name in (destination.limits.asked() if destination.limits else ())
        },
        **_of_tables(pipeline, place),
        **{
            f"{where}.assume_manifest on a connector that is no component": (
                told.assume_manifest is not None
                and parse_ref(told.use).kind is not RefKind.component
            )
            for where, told in (("source", pipeline.source), ("destination", pipeline.destination))
        },
        "resources, which components are told, without a component": (
            pipeline.resources is not None
            and pipeline.dialect == "penstock"
            and not _has_component(pipeline)
        ),
    }
    return [f"{key} cannot be carried out yet" for key, told in asked.items() if told]


def _has_component(pipeline: Pipeline) -> bool:
    used = [pipeline.source.use, pipeline.destination.use]
    used += (t.use for t in pipeline.transforms if t.use not in BUILT_IN)
    return any(parse_ref(use).kind is RefKind.component for use in used)


def remember(prepared: Prepared, store: Store, lease: Lease) -> None:
    """Names and schemas into the store, before anything uses them."""
    connector = prepared.source.connector
    store.remember_source(lease, connector.protocol.name, connector.ref.text)
    names: dict[str, dict[str, str]] = {"tables": prepared.plan.table_names}
    names.update({columns_key(s.id): s.columns for s in prepared.plan.streams})
    store.grow_names(lease, names)
    schemas = {s.id: s.schema for s in prepared.plan.streams}
    prepared.schemas = store.schema_versions(lease, schemas)


def sync_stream(planned: PlannedStream, schemas: Mapping[StreamId, RowSchema]) -> SyncStream:
    return SyncStream(
        configured=planned.configured,
        shape=planned.shape,
        schema_version=schemas[planned.id].version,
        lane=planned.lane,
        held=planned.held is not None,
        shards=planned.shards,
    )


def sync_plan(pipeline: Pipeline, prepared: Prepared) -> SyncPlan:
    return SyncPlan(
        pipeline=pipeline.pipeline,
        streams=tuple(sync_stream(s, prepared.schemas) for s in prepared.plan.streams),
        open=prepared.plan.open,
        max_epochs=1 if prepared.served else 3,
        keyed=prepared.keys is not None,
        resent=prepared.served,
        lanes=prepared.plan.lanes,
        slots=local_slots(
            choose_master(pipeline.spark.master, os.cpu_count() or 1, prepared.plan.lanes)
        ),
        load_bytes=pipeline.load.max_pending_bytes,
        load_seconds=pipeline.load.max_pending_time,
    )


def make_job(
    pipeline: Pipeline, prepared: Prepared, start: LaneStart, *, run: str, log_root: str,
    limit: int | None,
) -> LaneJob:  # fmt: skip
    """The message to a lane's process."""
    source: Source = prepared.source
    planned = {s.id: s for s in prepared.plan.streams}
    generations = dict(start.generations)
    return LaneJob(
        run=run,
        lane=start.lane,
        epoch=start.epoch,
        log_root=log_root,
        protocol=source.package.name,
        launch=msgspec.to_builtins(source.connector.launch()),
        config=source.config,
        config_hash=source.base_hash,
        streams=tuple(
            stream_job(
                planned[s.id],
                prepared.schemas,
                generations,
                lane=start.lane,
                must_say=s.id in prepared.must_say,
            )
            for s in start.streams
        ),
        transforms=transform_jobs(pipeline, prepared.transforms),
        states=start.states,
        secrets=tuple({s for e in (source, *prepared.transforms) for s in e.secrets()}),
        strict=pipeline.strict,
        on_data_error=pipeline.destination.on_data_error,
        change_words=source.package.change_words,
        limit=limit,
        shared_states=prepared.plan.lanes == 1,
        timeouts=source.timeouts,
        bounds=Bounds(),
        max_record_bytes=pipeline.max_record_bytes,
        abilities=source.abilities(),
        unchosen=tuple(s for s in prepared.catalog.streams if s.id not in planned),
        served=prepared.served,
        open=start.open,
        tries=start.tries,
        keys=prepared.keys,
    )


def transform_jobs(
    pipeline: Pipeline, connectors: Sequence[TransformEnd]
) -> tuple[TransformJob, ...]:
    """The pipeline's transforms that work on batches, in their order. ``connectors``: those of them
    that are."""
    ends = {end.index: end for end in connectors}

    def job(index: int, told: Transform) -> TransformJob:
        end = ends.get(index)
        plain = TransformJob(
            use=told.use,
            config=told.config if end is None else end.config,
            where=f"transforms[{index}]",
            on_failure=pipeline.destination.on_data_error,
        )
        if end is None:
            return plain
        return msgspec.structs.replace(
            plain,
            launch=msgspec.to_builtins(end.connector.launch()),
            place=end.place,
            timeouts=end.timeouts,
        )

    return tuple(
        job(index, told) for index, told in enumerate(pipeline.transforms) if told.use != SPARK_SQL
    )


def stream_job(
    stream: PlannedStream,
    schemas: Mapping[StreamId, RowSchema],
    generations: Mapping[StreamId, int],
    *,
    lane: int,
    must_say: bool = False,
) -> StreamJob:
    """A stream as a lane is told of it."""
    generation = generations[stream.id]
    configured: ConfiguredStream = stream.configured
    overwrites = stream.shape.mode is DestinationSyncMode.overwrite
    minimum = generation if overwrites and configured.fills_generation else 0
    return StreamJob(
        configured=msgspec.structs.replace(
            configured,
            generation_id=generation,
            minimum_generation_id=minimum,
            sync_id=stream.shape.sync_id,
        ),
        lane=LaneStream(
            stream=stream.id,
            shape=stream.shape,
            schema_version=schemas[stream.id].version,
            generation=generation,
            fills_generation=configured.fills_generation,
            must_say=must_say,
            consumes=configured.sync_mode is SyncMode.cdc,
            shard=Shard(lane, stream.shards) if stream.shards > 1 else None,
        ),
        schema=stream.schema,
        given=stream.given,
        made=() if stream.chain is None else stream.chain.made,
        key=stream.key,
        whole=stream.whole,
        ignored=tuple(
            stream.columns.keys() - {f.source for f in (stream.given or stream.schema).fields}
        ),
    )
