"""Everything before the first record: the connector, its configuration, its catalog, the plan.

No JVM, no record. Neighbours: ``engine.run`` and the verbs that move no data start here;
``engine.plan`` makes the decisions; ``connectors`` knows how to run a source.
"""

import os
import time
from collections.abc import Sequence, Set
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.ends import Destination, Save, Source
from penstock.engine.job import KeysAt
from penstock.engine.known import refuse_other_protocol
from penstock.engine.plan import (
    StreamsPlan,
    columns_key,
    plan_streams,
)
from penstock.engine.progress import RunObserver
from penstock.engine.refusals import not_held, permissions_asked, refused
from penstock.engine.transform_end import Outlines, TransformEnd, transform_jobs
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    StreamId,
)
from penstock.model.types import NEUTRAL_METADATA, MetadataNames, RowSchema
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
        spec=source.connector.spec() if source.package.sharding is not None else None,
        slots=local_slots(choose_master(pipeline.spark.master, os.cpu_count() or 1, 1)),
        changes_config=source.changed_before,
    )
    notes = (*plan.notes, *outline.notes, *not_held(pipeline))
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


def remember(prepared: Prepared, store: Store, lease: Lease) -> None:
    """Names and schemas into the store, before anything uses them."""
    connector = prepared.source.connector
    store.remember_source(lease, connector.protocol.name, connector.ref.text)
    names = {columns_key(s.id): s.columns for s in prepared.plan.streams}
    names.update(prepared.plan.names)
    store.grow_names(lease, names)
    schemas = {s.id: s.schema for s in prepared.plan.streams}
    prepared.schemas = store.schema_versions(lease, schemas)
