"""Plans streams and schemas that a source sends only while it is read.

``engine.plan.stream_plan`` decides, as before a run; this module makes the decision durable (names,
schema version) and adds it to the run's plan. Neighbours: ``engine.sync.sync`` calls,
``engine.run.lane_runner`` answers the lane.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.engine.plan.earlier_modes import modes_of
from penstock.engine.plan.nested_names import nested_so_far
from penstock.engine.plan.nested_tables import nested_tables
from penstock.engine.plan.prepare import Prepared
from penstock.engine.plan.repeats import repeats
from penstock.engine.plan.stream_columns import lacks_properties, undeclared_columns
from penstock.engine.plan.stream_plan import StreamRules, as_shown, plan_stream
from penstock.engine.plan.streams import (
    key_text,
    table_notes,
    to_remember,
    undeclared_notes,
)
from penstock.engine.plan.table_names import misnamed, record_names, table_names
from penstock.engine.specs.lane import LaneQuestion
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError, SchemaError
from penstock.model.catalog import Stream, StreamId, SyncMode
from penstock.model.type_words import type_text
from penstock.model.types import MissingColumns, RowSchema
from penstock.protocols.contract import SchemaRole
from penstock.protocols.json_schema.paths import closed
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered, TableNames


class Planner:
    """Implements ``engine.sync.ports.StreamPlanner`` over a prepared run, and keeps that run's plan
    up to date. ``note``: adds a note to the report. ``settle``: plans the result of queries over
    whole streams, where there are any."""

    def __init__(
        self,
        prepared: Prepared,
        store: Store,
        lease: Lease,
        note: Callable[[str], None],
        settle: Callable[[PlannedStream], PlannedStream] | None = None,
    ) -> None:
        self._prepared, self._store, self._lease, self._settle = prepared, store, lease, settle
        self._note = note

    def plan(self, ask: LaneQuestion, lane: int, *, filling: bool) -> PlannedStream | None:
        prepared, stream_id = self._prepared, ask.stream
        settings = prepared.pipeline.stream_settings(stream_id)
        if settings is None:
            # before a state that covers its rows is saved
            self.pass_over(stream_id)
            return None
        before = prepared.by_id().get(stream_id)
        if ask.required is not None and before is not None:
            return self._shown(ask, before, lane)
        known = self._store.remembered(self._lease.pipeline, [stream_id])
        section = prepared.pipeline.destination
        stream = _stream(ask, before, prepared.rules.package.schema)
        records = record_names([stream], known.tables)
        problems = misnamed(section, [stream_id], known.tables, records)
        if problems:
            raise ConfigError(problems[0], code="config.streams")
        tables = table_names(section, [stream_id], known.tables, records)
        rules = prepared.rules
        if before is not None and not ask.fresh:
            rules = _going_on(rules, before)
        planned = plan_stream(
            stream,
            settings,
            rules,
            table_name=tables.tables[stream_id.key],
            columns=known.columns.get(stream_id, {}),
            nested=self._nested(stream_id, known),
            before=before,
            showed=ask.showed,
            undeclared=self._undeclared(ask, before),
        )
        shards = 1 if before is None else before.shards
        configured = msgspec.structs.replace(planned.configured, shards=shards)
        planned = msgspec.structs.replace(planned, configured=configured, lane=lane, shards=shards)
        if filling and before is not None and not (ask.fresh and _is_guess(ask, before)):
            # another lane may have rows of a sharded stream
            first = ask.fresh and before.shards == 1
            planned = _widened(planned, before.schema, first=first)
            if not ask.fresh and _rekeyed(planned, before):
                raise _other_key(planned, before)
        newest = self._schema_before(stream_id, before)
        if newest is not None:
            planned = as_shown(planned, newest.required, newest.frame_types)
        notes = table_notes(planned, rules, known.columns.get(stream_id, {}))
        if ask.missing is not None:
            notes = undeclared_notes(planned, ask.missing, to_tables=rules.merges)
        elif before is not None and ask.fresh:
            notes += _first_key(planned, before)
        if before is None:
            nested, more = nested_tables([planned], rules.destination)
            if nested:
                raise ConfigError(nested[0], code="config.streams", stream=str(stream_id))
            notes += [*repeats([planned], rules.destination), *more]
        for text in notes:
            self._note(text)
        return self._remember(self._settle(planned) if self._settle else planned, tables)

    def _nested(self, stream: StreamId, known: Remembered) -> dict[str, str]:
        """Returns the names of the fields inside the stream's columns so far."""
        if self._prepared.pipeline.transforms:
            return known.nested.get(stream, {})
        return nested_so_far(self._store, self._lease.pipeline, [stream], known).get(stream, {})

    def pass_over(self, stream: StreamId) -> None:
        self._prepared.passed.add(stream)
        self._store.remember(self._lease, Remembered(passed_over=frozenset([stream])))

    def version(self, stream: StreamId, version: int, *, goes_on: bool) -> tuple[int, bool]:
        known = self._store.remembered(self._lease.pipeline, [stream])
        visible = known.visible.get(stream, {})
        refreshed = {version: generation for generation, version in visible.items()}
        generation = {**refreshed, **known.versions.get(stream, {})}.get(version)
        newest = known.newest_visible(stream)
        if goes_on and generation is not None and generation < newest:
            return newest, False
        if generation is not None:
            return generation, generation != newest
        generation = self._store.new_generation(self._lease, [stream])[stream]
        more = Remembered(
            versions={stream: {version: generation}},
            visible={} if visible else {stream: {generation: version}},
        )
        self._store.remember(self._lease, more)
        return generation, bool(visible)

    def _shown(self, ask: LaneQuestion, before: PlannedStream, lane: int) -> PlannedStream:
        """Plans a stream again whose rows showed other non-null columns, or other frame types, than
        planned."""
        section = self._prepared.pipeline.destination
        table = self._prepared.destination.has_tables
        if ask.lost and table and section.schema_evolution.nullability_change == "fail":
            raise _nullable_now(ask, before)
        planned = as_shown(before, ask.required or (), ask.frame_types)
        planned = msgspec.structs.replace(planned, lane=lane)
        return self._remember(planned, TableNames())

    def _undeclared(self, ask: LaneQuestion, before: PlannedStream | None) -> MissingColumns | None:
        """Returns the columns of undeclared properties, including those that the rows lack; None:
        those that the stream has."""
        if before is None:
            newest = self._schema_before(ask.stream, None)
            return None if newest is None else undeclared_columns(newest)
        if ask.missing is None:
            return None
        had, more = undeclared_columns(before.given or before.schema), ask.missing
        names = dict.fromkeys((*had.names, *more.names))
        return MissingColumns((*names,), had.extra or more.extra)

    def _schema_before(self, stream: StreamId, before: PlannedStream | None) -> RowSchema | None:
        if before is not None:
            return before.schema
        return self._store.newest_schemas(self._lease.pipeline, [stream]).get(stream)

    def _remember(self, planned: PlannedStream, tables: TableNames) -> PlannedStream:
        """Saves the planned stream in store and plan, and returns it with its schema version."""
        prepared, stream = self._prepared, planned.id
        self._store.remember(self._lease, to_remember(prepared.rules, [planned], tables))
        schema = self._store.schema_version(self._lease, stream, planned.schema)
        planned = msgspec.structs.replace(planned, schema=schema)
        kept = tuple(s for s in prepared.plan.streams if s.id != stream)
        prepared.plan = msgspec.structs.replace(prepared.plan, streams=(*kept, planned))
        return planned


def _stream(ask: LaneQuestion, before: PlannedStream | None, rules: SchemaRole) -> Stream:
    """Returns the stream as the source describes it now. A stream that was never discovered is
    assumed to be incremental with the source's own cursor. A source that first declared no
    properties and then some may still have undeclared ones, unless it declares that it has none."""
    if (ask.showed is not None or ask.missing is not None) and before is not None:
        return before.configured.stream
    shown: dict[str, Any] = {"json_schema": ask.json_schema or {}}
    if ask.primary_key is not None:
        shown["source_defined_primary_key"] = ask.primary_key
    if ask.cursor_field is not None:
        shown["default_cursor_field"] = ask.cursor_field
    if before is not None:
        known = before.configured.stream
        partial = not (known.assumed or closed(ask.json_schema)) and lacks_properties(known, rules)
        return msgspec.structs.replace(known, assumed=False, partial=partial, **shown)
    return Stream(
        id=ask.stream,
        sync_modes=(SyncMode.incremental,),
        source_defined_cursor=True,
        **shown,
    )


def _is_guess(ask: LaneQuestion, before: PlannedStream) -> bool:
    """Whether the columns before the first row were assumed: those of a stream that was never
    discovered, or of a transform's output."""
    return ask.showed is not None or before.configured.stream.assumed


def _first_key(planned: PlannedStream, before: PlannedStream) -> list[str]:
    """Returns a note where the source sent a primary key before the first row, and none was known:
    its table keeps one row per key value."""
    if before.configured.primary_key or not planned.disposition.primary_key:
        return []
    key = key_text(planned.configured.primary_key)
    return [
        f"stream {planned.id}: the source named its primary key only when it was read: its table "
        f"keeps one row for each {key}"
    ]


def _rekeyed(planned: PlannedStream, before: PlannedStream) -> bool:
    """Whether another primary key than that of the rows before now identifies a row. Not where the
    user has set the key."""
    now, then = planned.configured.primary_key, before.configured.primary_key
    return bool(planned.disposition.primary_key) and set(now) != set(then)


def _going_on(rules: StreamRules, before: PlannedStream) -> StreamRules:
    """Returns the rules for a stream whose rows are being read: it keeps its mode and the types of
    its key, as between runs, and its text columns."""
    modes = {**rules.earlier.modes, before.id: modes_of(before.configured)}
    earlier = msgspec.structs.replace(rules.earlier, modes=modes)
    schemas = {**rules.schemas, before.id: before.schema}
    going_on = before.given or before.schema
    return dataclasses.replace(rules, earlier=earlier, schemas=schemas, going_on=going_on)


def _other_key(planned: PlannedStream, before: PlannedStream) -> SchemaError:
    """Returns the error of a generation with two keys: rows of the older key may lack the newer
    one."""
    return SchemaError(
        f"stream {planned.id}: its primary key changed in the middle of a full refresh: from"
        f" {key_text(before.configured.primary_key)} to {key_text(planned.configured.primary_key)}",
        code="schema.changed",
        stream=str(planned.id),
        hint="set primary_key for the stream, or run again where the source goes on with the new"
        " one",
    )


def _nullable_now(ask: LaneQuestion, before: PlannedStream) -> SchemaError:
    named = {f.source: f.name for f in before.schema.fields}
    columns = ", ".join(named.get(source, source) for source in ask.lost)
    return SchemaError(
        f"stream {ask.stream}: columns that could not be null may be so now: {columns}",
        code="schema.nullability_change",
        stream=str(ask.stream),
        hint="allow it with schema_evolution.nullability_change",
    )


def _widened(planned: PlannedStream, before: RowSchema, *, first: bool) -> PlannedStream:
    """Adds the columns that rows of the same generation may have, and that the catalog has.
    ``first``: the generation has no rows yet. Raises ``SchemaError`` where a column of existing
    rows changed its type."""
    now = {f.name: f for f in planned.schema.fields}
    changed = [f for f in before.fields if f.name in now and now[f.name].type != f.type]
    if changed and not first:
        listed = ", ".join(
            f"{f.name} ({type_text(f.type)} -> {type_text(now[f.name].type)})" for f in changed
        )
        raise SchemaError(
            f"stream {planned.id}: its schema changed in the middle of a full refresh: {listed}",
            code="schema.changed",
            stream=str(planned.id),
            hint="run again: the source is then discovered again; if it sends several schemas"
            " in every run, set the column's type with `types`",
        )
    gone = tuple(f for f in before.fields if f.name not in now)
    schema = RowSchema((*planned.schema.fields, *gone))
    return msgspec.structs.replace(planned, schema=schema)
