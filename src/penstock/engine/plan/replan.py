"""Streams and schemas that a source shows only while it is read: planned when they come.

``engine.plan.streams`` decides, as before a run; here the decision is made durable (names, schema
version) and becomes part of the run's plan. Neighbours: ``engine.sync.sync`` asks,
``engine.sync.lane_runner`` tells the lane.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.plan.earlier_modes import columns_key, grown
from penstock.engine.plan.endpoints import Destination
from penstock.engine.plan.lane_jobs import keys_are_asked, stream_job, sync_stream
from penstock.engine.plan.prepare import Prepared
from penstock.engine.plan.state_names import passing, to_keep
from penstock.engine.plan.streams import plan_stream, with_required
from penstock.engine.plan.table_names import misnamed, record_names, table_names
from penstock.engine.plan.transform_endpoint import transform_jobs
from penstock.engine.specs.keys import versions_key, visible_key
from penstock.engine.specs.lane import Ask, StreamJob
from penstock.engine.specs.plan import Planned, PlannedStream, SyncStream
from penstock.errors import ConfigError, SchemaError
from penstock.model.catalog import Stream, StreamId, SyncMode
from penstock.model.type_words import type_text
from penstock.model.types import RowSchema
from penstock.state.contract import Lease, Store


class Planner:
    """``engine.sync.ports.StreamPlanner`` over a prepared run, which it keeps up to date. ``added``
    hears of each stream that is new or goes on otherwise; ``settle``: what queries over whole
    streams make of one."""

    def __init__(
        self,
        pipeline: Pipeline,
        prepared: Prepared,
        store: Store,
        lease: Lease,
        added: Callable[[PlannedStream], None],
        settle: Callable[[PlannedStream], PlannedStream],
    ) -> None:
        self._pipeline, self._prepared, self._store = pipeline, prepared, store
        self._lease, self._added, self._settle = lease, added, settle
        self._sync_id = prepared.sync_id
        self._names: dict[str, dict[str, str]] | None = None  # as they were; only we add to them

    def plan(self, ask: Ask, lane: int, *, filling: bool) -> SyncStream | None:
        settings = self._pipeline.stream_settings(ask.stream)
        if settings is None:
            # before a state that speaks for its rows is saved
            self.pass_over(ask.stream)
            return None
        prepared, names = self._prepared, self._known_names()
        before = next((s for s in prepared.plan.streams if s.id == ask.stream), None)
        if ask.required is not None and before is not None:
            return self._proved(ask, before, lane)
        destination, stream = self._pipeline.destination, _stream(ask, before)
        records = record_names([stream], names)
        problems = misnamed(destination, [ask.stream], names, records)
        if problems:
            raise ConfigError(problems[0], code="config.streams")
        called = table_names(destination, [ask.stream], names, records)
        planned = plan_stream(
            stream,
            settings,
            prepared.source.package,
            prepared.place,
            table_name=called.tables[ask.stream.key],
            columns=names.get(columns_key(ask.stream), {}),
            earlier=prepared.names,  # what this run chose before its source showed it binds nothing
            metadata=prepared.metadata,
            sync_id=self._sync_id,
            transforms=transform_jobs(self._pipeline, prepared.transforms),
            queried=bool(prepared.queries),
            outline=prepared.outline,
            before=before,
            showed=ask.showed,
        )
        shards = 1 if before is None else before.shards
        told = msgspec.structs.replace(planned.configured, shards=shards)
        planned = msgspec.structs.replace(planned, configured=told, lane=lane, shards=shards)
        fresh = ask.showed is not None and ask.showed.fresh
        fresh = fresh or (ask.fresh and before is not None and before.configured.stream.assumed)
        if filling and before is not None and not fresh:
            planned = _widened(planned, before.schema)
        known = self._schema_before(ask.stream, before)
        if known is not None:
            planned = with_required(planned, known.required)
        planned = self._settle(planned)
        self._remember(planned, called.kept([planned.id]))
        return sync_stream(planned, prepared.schemas)

    def pass_over(self, stream: StreamId) -> None:
        self._prepared.passed.add(stream)
        passed = passing(self._known_names(), stream, over=True)
        if passed:
            self._store.grow_names(self._lease, passed)

    def _known_names(self) -> dict[str, dict[str, str]]:
        if self._names is None:
            self._names = self._store.names(self._pipeline.pipeline)
        return self._names

    def version(self, stream: StreamId, version: int) -> tuple[int, bool]:
        name = self._pipeline.pipeline
        names, text = self._store.names(name), str(version)
        visible = names.get(visible_key(stream), {})
        refreshed = {version: generation for generation, version in visible.items()}
        known = {**refreshed, **names.get(versions_key(stream), {})}
        if text in known:
            newest = max(map(int, visible), default=0)
            return int(known[text]), int(known[text]) != newest
        generation = self._store.new_generation(self._lease, [stream])[stream]
        new = {versions_key(stream): {text: str(generation)}}
        if not visible:
            new[visible_key(stream)] = {str(generation): text}
        self._store.grow_names(self._lease, new)
        return generation, bool(visible)

    def job(self, planned: Planned, lane: int) -> StreamJob:
        """What the lane is told."""
        stream = planned.stream.id
        found = next(s for s in self._prepared.plan.streams if s.id == stream)
        prepared = self._prepared
        must_say = stream in prepared.must_say
        generations = {stream: planned.generation}
        job = stream_job(
            found,
            prepared.schemas,
            generations,
            lane=lane,
            must_say=must_say,
            keyed=keys_are_asked(self._pipeline, prepared),
        )
        if planned.version is None:
            return job
        versioned = msgspec.structs.replace(
            job.lane,
            fills_generation=planned.fills,
            version=planned.version,
            must_say=must_say or (prepared.served and planned.fills),
        )
        return msgspec.structs.replace(job, lane=versioned)

    def _proved(self, ask: Ask, before: PlannedStream, lane: int) -> SyncStream:
        """Other columns than planned are never null."""
        destination = self._pipeline.destination
        table = not isinstance(self._prepared.place, Destination)
        if ask.lost and table and destination.schema_evolution.nullability_change == "fail":
            raise _nullable_now(ask, before)
        planned = msgspec.structs.replace(with_required(before, ask.required or ()), lane=lane)
        self._remember(planned, {})
        return sync_stream(planned, self._prepared.schemas)

    def _schema_before(self, stream: StreamId, before: PlannedStream | None) -> RowSchema | None:
        if before is not None:
            return before.schema
        return self._store.newest_schemas(self._pipeline.pipeline, [stream]).get(stream)

    def _remember(self, planned: PlannedStream, names: dict[str, dict[str, str]]) -> None:
        prepared, stream = self._prepared, planned.id
        names = {**names, columns_key(stream): planned.columns}
        names.update(grown(self._names or {}, planned.configured))
        names |= to_keep(prepared.source.package, [planned.configured.stream])
        self._store.grow_names(self._lease, names)
        for kind, added in names.items():
            (self._names or {}).setdefault(kind, {}).update(added)
        schema = self._store.schema_version(self._lease, stream, planned.schema)
        prepared.schemas[stream] = schema
        kept = tuple(s for s in prepared.plan.streams if s.id != stream)
        prepared.plan = msgspec.structs.replace(prepared.plan, streams=(*kept, planned))
        self._added(planned)


def _stream(ask: Ask, before: PlannedStream | None) -> Stream:
    """As the source tells it now. One that was never discovered goes on from the source's own
    state, as far as anybody can know."""
    if ask.showed is not None and before is not None:
        return before.configured.stream
    told: dict[str, Any] = {"json_schema": ask.json_schema or {}}
    if ask.primary_key is not None:
        told["source_defined_primary_key"] = ask.primary_key
    if ask.cursor_field is not None:
        told["default_cursor_field"] = ask.cursor_field
    if before is not None:
        return msgspec.structs.replace(before.configured.stream, assumed=False, **told)
    return Stream(
        id=ask.stream,
        sync_modes=(SyncMode.incremental,),
        source_defined_cursor=True,
        **told,
    )


def _nullable_now(ask: Ask, before: PlannedStream) -> SchemaError:
    named = {f.source: f.name for f in before.schema.fields}
    columns = ", ".join(named.get(source, source) for source in ask.lost)
    return SchemaError(
        f"stream {ask.stream}: columns that could not be null may be so now: {columns}",
        code="schema.nullability_change",
        stream=str(ask.stream),
        hint="allow it with schema_evolution.nullability_change",
    )


def _widened(planned: PlannedStream, before: RowSchema) -> PlannedStream:
    """With the columns that rows of the same generation already have."""
    now = {f.name: f for f in planned.schema.fields}
    changed = [f for f in before.fields if f.name in now and now[f.name].type != f.type]
    if changed:
        listed = ", ".join(
            f"{f.name} ({type_text(f.type)} -> {type_text(now[f.name].type)})" for f in changed
        )
        raise SchemaError(
            f"stream {planned.id}: its schema changed in the middle of a full refresh: {listed}",
            code="schema.changed",
            stream=str(planned.id),
            hint="run again: the refresh then begins with the new schema",
        )
    gone = tuple(f for f in before.fields if f.name not in now)
    schema = RowSchema((*planned.schema.fields, *gone))
    return msgspec.structs.replace(planned, schema=schema)
