"""Prepares a run before the first record: checks the connectors and their configuration, discovers
the catalog, makes the plan.

Uses no JVM and reads no record. Neighbours: ``engine.run`` and the commands that move no data start
here; ``engine.plan.streams`` makes the decisions; ``connectors`` runs a source.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.connectors.same_connector import lasting
from penstock.engine.plan.destination import DestinationEnd
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.empty_namespaces import with_earlier_ids
from penstock.engine.plan.endpoint import running_folder
from penstock.engine.plan.histories import KeptHistories
from penstock.engine.plan.kept_json import referring, with_kept_json
from penstock.engine.plan.named_packages import used
from penstock.engine.plan.nested_names import nested_so_far
from penstock.engine.plan.saved_cursors import SavedCursor, saved_cursors
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.plan.source_protocol import refuse_other_protocol
from penstock.engine.plan.state_names import state_role
from penstock.engine.plan.stream_columns import undeclared_columns
from penstock.engine.plan.stream_plan import StreamRules, as_shown
from penstock.engine.plan.streams import StreamsPlan, plan_streams
from penstock.engine.plan.table_types import TableTypes
from penstock.engine.plan.transform_endpoint import Outlines, TransformEndpoint, transform_jobs
from penstock.engine.plan.unread import brought_by_user, separable, with_own
from penstock.engine.plan.unsupported import not_enforced, permissions_asked, refused
from penstock.engine.specs.lane import KeysAt
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.state import StoredState
from penstock.model.types import (
    EXTRA,
    NEUTRAL_METADATA,
    DataType,
    Kind,
    MetadataNames,
    UndeclaredPolicy,
)
from penstock.protocols.column_patterns import is_plain
from penstock.protocols.contract import EffectiveLimit, StateRole
from penstock.spark.query import Query
from penstock.spark.session import choose_master, local_slots
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered
from penstock.store.rules import HISTORY_KEPT
from penstock.tables.contract import SchemaChangePolicies
from penstock.transforms.contract import TransformJob
from penstock.transforms.open import SPARK_SQL
from penstock.transforms.spark_sql import queries as queries_of


class Prepared(msgspec.Struct, kw_only=True):
    """A prepared run; its plan grows while sources send new streams and schemas. ``states``: the
    protocol's rules for states, with the stream names that its states use. ``served``: the source
    is another program (``engine.serve``), whose end does not complete the streams in
    ``requires_complete_status``. ``keys``: where connectors keep their own keys; None: no connector
    keeps any. ``queries``: over whole streams. ``passed``: unselected streams that the source sent
    in this run. ``anew``: the states of this run's streams were deleted (``--full-refresh``)."""

    pipeline: Pipeline
    source: SourceEndpoint
    destination: DestinationEnd
    catalog: Catalog
    plan: StreamsPlan
    rules: StreamRules
    states: StateRole
    transforms: tuple[TransformEndpoint, ...] = ()
    queries: tuple[Query, ...] = ()
    served: bool = False
    requires_complete_status: Set[StreamId] = frozenset()
    keys: KeysAt | None = None
    passed: set[StreamId] = set()
    anew: bool = False

    def by_id(self) -> dict[StreamId, PlannedStream]:
        """Returns the planned streams by id."""
        return {s.id: s for s in self.plan.streams}

    def endpoints(self) -> list[SourceEndpoint | TransformEndpoint | DestinationEndpoint]:
        """Returns the connectors: source, transforms, destination."""
        return [self.source, *self.transforms, *self.destination.connectors]

    def secrets(self) -> set[str]:
        """Returns the secrets of the pipeline file and of all connectors."""
        own = (secret for end in self.endpoints() for secret in end.secrets())
        return {*self.pipeline.secret_values, *own}

    def effective_limits(self) -> tuple[dict[str, list[EffectiveLimit]], list[str]]:
        """Returns the permissions and limits of each component, as manifest and pipeline grant
        them, by role; and notes about manifests and about how connectors were installed."""
        lines: dict[str, list[EffectiveLimit]] = {}
        notes: list[str] = []
        for endpoint in self.endpoints():
            granted, remarks = endpoint.connector.effective_limits(endpoint.config)
            if granted:
                lines[endpoint.role_name] = granted
            remarks = (*remarks, *endpoint.connector.built())
            notes += [f"{endpoint.role_name}: {text}" for text in remarks]
        return lines, notes


def metadata_names(pipeline: Pipeline, native: MetadataNames) -> MetadataNames | None:
    """Returns the names of the metadata columns that the pipeline requests; None: it requests no
    such columns. ``native``: those of the source's protocol."""
    names = {"native": native, "neutral": NEUTRAL_METADATA, "none": None}
    return names[pipeline.destination.metadata_columns]


def evolution(pipeline: Pipeline) -> SchemaChangePolicies:
    """Returns the pipeline's schema evolution as the tables' contract defines it."""
    return msgspec.convert(
        msgspec.to_builtins(pipeline.destination.schema_evolution), SchemaChangePolicies
    )


def prepare(
    pipeline: Pipeline,
    source: SourceEndpoint,
    destination: DestinationEnd,
    store: Store,
    transforms: Sequence[TransformEndpoint] = (),
    *,
    first: bool = True,
    recovers: bool = False,
    stateless: bool = False,
    recreate: bool = False,
    ends_histories: bool = False,
    sealed: Sequence[StoredState] = (),
) -> Prepared:
    """Checks the pipeline, discovers the streams, makes the plan. ``transforms``: from
    ``transforms_of``. ``first`` False: the source may be read during its discovery; this does not
    apply where the plan cannot use the kept catalog, nor to streams read by cdc. ``recovers``: as
    in ``SourceEndpoint.discover``. ``stateless``: give the source no state, whatever is saved.
    ``sealed``: states that this run saves before it reads. ``recreate``: refresh the run's streams.
    ``ends_histories``: tables of streams without a requested history lose theirs. Raises
    ``ConfigError``, ``SourceError``, ``DestinationError``."""

    def made(*, first: bool) -> Prepared:
        found = partial(source.discover, first=first, recovers=recovers)
        return _prepared(
            pipeline, source, destination, store, transforms, found,
            stateless=stateless, recreate=recreate, ends_histories=ends_histories, sealed=sealed,
        )  # fmt: skip

    try:
        prepared = made(first=first)
        if source.undiscovered is not None or not source.kept:
            return prepared
        if all(s.configured.sync_mode is not SyncMode.cdc for s in prepared.plan.streams):
            return prepared
    except ConfigError:
        if not source.kept:
            raise
    return made(first=True)


def _prepared(
    pipeline: Pipeline,
    source: SourceEndpoint,
    destination: DestinationEnd,
    store: Store,
    transforms: Sequence[TransformEndpoint],
    discover: Callable[[], Catalog],
    *,
    stateless: bool,
    recreate: bool,
    ends_histories: bool,
    sealed: Sequence[StoredState],
) -> Prepared:
    queries = queries_of(pipeline.transforms)
    _check(pipeline, source, destination, store, transforms, queries)
    catalog = _with_named(pipeline, source, discover(), store)
    earlier, known = store.remembered(pipeline.pipeline), store.known_streams(pipeline.pipeline)
    catalog = with_earlier_ids(catalog, known)
    if not pipeline.transforms:
        ids = [s.id for s in catalog.streams]
        nested = nested_so_far(store, pipeline.pipeline, ids, earlier)
        earlier = msgspec.structs.replace(earlier, nested={**earlier.nested, **nested})
    if not recreate:
        catalog = _with_kept_json(pipeline, source, catalog, store, earlier)
    if not destination.has_tables:
        earlier = msgspec.structs.replace(earlier, refresh={})  # only tables have refreshes
    role = state_role(source.package, earlier, known, catalog.streams)
    saved = store.states(pipeline.pipeline)
    given = with_own(role, saved, separable(role, saved, earlier.unread))
    given = [] if stateless else role.merge(given, sealed)
    outline = Outlines(transforms)
    mark = source.package.deleted_at_field
    rules = _rules(
        pipeline, source, destination,
        outline=outline,
        transforms=() if source.unread else transform_jobs(pipeline, transforms, mark),
        earlier=earlier,
        cursors=saved_cursors(role, given, earlier, pipeline.pipeline),
        recreate=recreate,
        ends_histories=ends_histories,
    )  # fmt: skip
    rules = _with_stored(pipeline, rules, catalog, store, destination)
    cores = os.cpu_count() or 1
    plan = plan_streams(
        pipeline, catalog, rules, known=known, states=saved, sealed=() if stateless else sealed,
        cores=cores, spec=source.connector.spec() if source.package.sharding is not None else None,
        slots=local_slots(choose_master(pipeline.spark.master, cores, 1)),
        changes_config=source.changed_before, stateless=stateless,
        brought=lambda: brought_by_user(store.state_history(pipeline.pipeline, HISTORY_KEPT)),
    )  # fmt: skip
    prepared = Prepared(
        pipeline=pipeline, source=source, destination=destination, catalog=catalog, plan=plan,
        rules=rules, states=role if plan.open else role.reading(_positions(plan, earlier)),
        transforms=tuple(transforms), queries=queries,
    )  # fmt: skip
    prepared.plan = msgspec.structs.replace(plan, notes=_notes(prepared, outline))
    _reads(source, plan)
    _fits(destination, plan)
    return prepared


def _check(
    pipeline: Pipeline,
    source: SourceEndpoint,
    destination: DestinationEnd,
    store: Store,
    transforms: Sequence[TransformEndpoint],
    queries: Sequence[Query],
) -> None:
    """Checks the pipeline's settings and every configuration, before any discovery."""
    _refuse_unsupported(pipeline, destination, queries)
    refuse_other_protocol(store, pipeline.pipeline, source.package.name)
    source.validate()
    for transform in transforms:
        transform.check()
    destination.place.check()


def _with_kept_json(
    pipeline: Pipeline, source: SourceEndpoint, catalog: Catalog, store: Store, earlier: Remembered
) -> Catalog:
    """Keeps the columns as JSON text that are JSON text in the tables of earlier runs."""
    ids = referring(catalog.streams, earlier.modes)
    if not ids:
        return catalog
    before = store.newest_schemas(pipeline.pipeline, ids)
    return with_kept_json(catalog, before, source.package.schema)


def _positions(plan: StreamsPlan, earlier: Remembered) -> list[StreamId]:
    """Returns the streams whose states this run moves. A stream read by cdc misses changes while it
    is not read: continuing from an older position would skip them."""
    moving = [id for id, modes in earlier.modes.items() if modes.sync_mode is SyncMode.cdc]
    return [*(s.id for s in plan.streams), *moving]


def _rules(
    pipeline: Pipeline,
    source: SourceEndpoint,
    destination: DestinationEnd,
    *,
    outline: Outlines,
    transforms: tuple[TransformJob, ...],
    earlier: Remembered,
    cursors: Mapping[StreamId, SavedCursor],
    recreate: bool,
    ends_histories: bool,
) -> StreamRules:
    """Returns the rules for every stream of the run."""
    package, changes = source.package, pipeline.destination.schema_evolution
    return StreamRules(
        package=package,
        destination=destination.place,
        earlier=earlier,
        metadata=metadata_names(pipeline, package.metadata_names),
        sync_id=int(time.time() * 1000),
        transforms=transforms,
        outline=outline,
        queried=bool(queries_of(pipeline.transforms)),
        recreate=recreate,
        cursors=cursors,
        adds_columns=not destination.has_tables or changes.new_column == "add",
        takes_undeclared=destination.takes_undeclared,
        names_extra=any(EXTRA in str(t.config) for t in pipeline.transforms),
        merges=destination.has_tables,
        coerces=changes.type_change == "coerce",
        kept_histories=KeptHistories(
            local=destination.takes_parts,
            queried=bool(queries_of(pipeline.transforms)),
            soft=pipeline.destination.deletes == "soft",
            columns_of=destination.columns_of if destination.has_tables else None,
            had={id: modes.primary_key for id, modes in earlier.modes.items() if modes.history},
            ends=ends_histories,
        ),
    )


def _with_stored(
    pipeline: Pipeline,
    rules: StreamRules,
    catalog: Catalog,
    store: Store,
    destination: DestinationEnd,
) -> StreamRules:
    """Adds what the schemas of earlier runs fix: the columns of undeclared properties, unless all
    are dropped, and the types of tables."""
    settings = (pipeline.source.defaults, *(pipeline.source.streams or ()))
    keeps = any(rules.policy(s) is not UndeclaredPolicy.drop for s in settings)
    if not keeps and not destination.has_tables:
        return rules
    before = store.newest_schemas(pipeline.pipeline, [s.id for s in catalog.streams])
    made = {stream: undeclared_columns(schema) for stream, schema in before.items()}
    types = TableTypes(
        destination.columns_of,
        before,
        partial(store.schemas, pipeline.pipeline),
        evolution(pipeline).type_change,
    )
    return dataclasses.replace(
        rules,
        undeclared=made if keeps else rules.undeclared,
        schemas=before,
        table_types=types if destination.has_tables else None,
    )


def _notes(prepared: Prepared, outline: Outlines) -> tuple[str, ...]:
    """Returns the plan's notes, including those of its connectors and transforms."""
    plan, source = prepared.plan, prepared.source
    asked = (
        f"{s.id}: the source does not list this stream, and it is requested by its name"
        for s in plan.streams
        if s.configured.stream.assumed and source.package.undiscovered is not None
    )
    ends = [note for endpoint in prepared.endpoints() for note in endpoint.notes]
    named = (end.model_target for end in prepared.destination.connectors)
    ends += [target.note for target in named if target is not None and target.note is not None]
    return (*ends, *plan.notes, *outline.notes, *not_enforced(prepared.pipeline), *asked)


def _refuse_unsupported(
    pipeline: Pipeline, destination: DestinationEnd, queries: Sequence[Query]
) -> None:
    _, _, problems = permissions_asked(pipeline)
    problems += refused(pipeline, destination)
    if problems:
        raise ConfigError(
            "the pipeline cannot be run as it is written",
            code="config.unsupported",
            problems=problems,
            hint="what cannot be enforced is refused, never ignored",
        )
    if queries and not destination.has_tables:
        where = queries[0].where.removesuffix(".config.query")
        raise ConfigError(
            f"{where}: {SPARK_SQL} before the destination connector {destination.place.name}: rows "
            "leave the log for a connector while the source still reads, before Spark could see the"
            " whole stream",
            code="transform.destination",
            where=where,
            hint="use transform-sql, which works on batches, or a table as the destination",
        )


def _with_named(
    pipeline: Pipeline, source: SourceEndpoint, catalog: Catalog, store: Store
) -> Catalog:
    """Adds the pipeline file's streams to the catalog of a source that discovers none and can be
    read without discovery (``package.undiscovered``), with the columns that the file names and
    those of earlier rows. For a version 4 file, whose host never discovers, adds every stream that
    the catalog lacks."""
    make, listed = source.package.undiscovered, pipeline.source.streams or ()
    if catalog.open or make is None or (catalog.streams and pipeline.dialect == "penstock"):
        return catalog
    absent = (e for e in listed if not any(e.matches(s.id) for s in catalog.streams))
    ids = [StreamId.of(entry.namespace, entry.name) for entry in absent]
    changed = pipeline.transforms or pipeline.enrichments
    before = {} if changed else store.newest_schemas(pipeline.pipeline, ids)
    streams: list[Stream] = []
    for stream in ids:
        columns: dict[str, DataType | None] = {}
        if (schema := before.get(stream)) is not None:
            # A JSON column may only be an assumption about a stream without rows.
            kinds = {f.source: f.type for f in schema.fields if f.type.kind is not Kind.json}
            columns.update(kinds)
        overrides = pipeline.stream_settings(stream)
        if overrides is not None:
            columns.update(overrides.types or {})
            paths = (*(overrides.primary_key or ()), overrides.cursor_field or ())
            plain = filter(is_plain, overrides.columns or ())
            kept = (c if isinstance(c, str) else c[0] for c in plain)
            for name in (*(path[0] for path in paths if path), *kept):
                columns.setdefault(name, None)
        streams.append(make(stream, columns))
    return msgspec.structs.replace(catalog, streams=(*catalog.streams, *streams))


def _reads(source: SourceEndpoint, plan: StreamsPlan) -> None:
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


def _fits(destination: DestinationEnd, plan: StreamsPlan) -> None:
    problems = destination.problems(plan.streams)
    if problems:
        raise ConfigError(
            f"the destination {destination.place.name} cannot take these streams",
            code="config.destination",
            problems=problems,
            hint="`penstock spec` shows what it supports",
        )


def remember(prepared: Prepared, store: Store, lease: Lease) -> None:
    """Saves the names and schemas of the plan in the store, before anything uses them. A column
    stays non-null, and keeps its frame type, as in the last rows, until rows show otherwise
    (``engine.worker.lane_events``)."""
    connector = prepared.source.connector
    ref = connector.ref
    kept = ref.text if prepared.served else lasting(ref, running_folder(prepared.pipeline.source))
    store.remember_source(lease, connector.protocol.name, kept)
    planned = prepared.plan.streams
    packages = used(end.connector for end in prepared.endpoints())
    ends = prepared.destination.connectors
    name = next((end.model_target.name for end in ends if end.model_target is not None), None)
    found = msgspec.structs.replace(
        prepared.plan.found, packages=packages, types=prepared.source.typed, model_name=name
    )
    store.remember(lease, found)
    before = store.newest_schemas(lease.pipeline, [s.id for s in planned])
    shown = {stream: (schema.required, schema.frame_types) for stream, schema in before.items()}
    planned = [as_shown(s, *shown[s.id]) if s.id in shown else s for s in planned]
    schemas = store.schema_versions(lease, {s.id: s.schema for s in planned})
    streams = tuple(msgspec.structs.replace(s, schema=schemas[s.id]) for s in planned)
    prepared.plan = msgspec.structs.replace(prepared.plan, streams=streams)
