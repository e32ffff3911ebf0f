"""Plans the schemas along one stream's transforms, and applies the built-in ones to a batch.

Pure: the same functions plan a stream before a run and follow it in a lane. A built-in transform
computes its output schema itself. That of a connector is taken from the rows that it emitted, or
from an outline (:data:`Outline`); until either exists, its output is assumed to have its input's
columns. Not here: running a connector. Neighbours: ``engine.plan.stream_plan`` plans,
``engine.worker.transforms.stages`` applies."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from penstock.codec.arrow import arrow_type
from penstock.codec.columns import Columns
from penstock.codec.decode import RowReject, null_keys
from penstock.codec.system_columns import ascending
from penstock.codec.untyped import Array, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.errors import ConfigError
from penstock.model.catalog import ConfiguredStream, FieldPath
from penstock.model.events import TransformColumns
from penstock.model.names import clean_columns
from penstock.model.types import Field, RowSchema
from penstock.transforms.config_errors import join_errors
from penstock.transforms.contract import BatchTransform, TransformJob
from penstock.transforms.deletes import DeleteColumns, bare, in_order, marked, with_lost
from penstock.transforms.open import open_transform

Outline = Callable[[TransformJob, ConfiguredStream, RowSchema], RowSchema | None]
"""(transform, stream, input schema) -> the output's columns by the names that the transform gives
them; None where it declares none."""


@dataclass(slots=True)
class StepReject:
    """A row that a step rejected: row ``position`` of ``table``, the step's input. ``index``: its
    original row in the chain's batch; None if unknown."""

    index: int | None
    reason: str
    field: str | None
    table: Table
    position: int

    def text(self) -> bytes:
        """Returns the row of the step's input, as JSON."""
        return Columns(self.table)[self.position]


@dataclass(slots=True)
class ChainResult:
    """The result of a chain on one batch. ``table``: the output rows. ``origin``: for each of them
    its original row in the batch; None if unknown. ``entered``: how many rows of the batch reached
    the first step whose output has no known origin (all of them, if there is no such step).
    ``removed``: the rows of the batch that a delete replaced (:class:`SentRows`)."""

    table: Table
    origin: Array | None
    rejected: list[StepReject]
    entered: int
    removed: Array | None = None


@dataclass(slots=True)
class SentRows:
    """What is known about the rows of a batch that were compared with what was sent before.
    ``held`` (booleans): the destination has a row with the same key. ``at``: when the rows were
    read. ``removes``: rows that the destination has are removed there, if a row is left out, and by
    deletes."""

    held: Array
    at: Any
    removes: bool = True


class Chain:
    """Applies built-in transforms of one stream, one after the other. ``given``: the schema of the
    input; ``schema``: of the output; ``counts``: metrics so far. ``tick``: see ``open_transform``.
    ``deletes``: the columns of deletes, if these are carried out. Raises ``ConfigError`` with the
    faults of all transforms whose input schema is known."""

    def __init__(
        self,
        jobs: Sequence[TransformJob],
        schema: RowSchema,
        tick: Callable[[], None] = lambda: None,
        deletes: DeleteColumns | None = None,
    ) -> None:
        self._steps: list[BatchTransform] = []
        self.deletes = deletes
        self._passed: list[Set[str] | None] = []  # columns that deletes keep; None: not known
        self.given = self.schema = schema
        self.counts: dict[str, int] = {}
        faults: list[ConfigError] = []
        for t in jobs:
            step = open_transform(
                t.use,
                t.config,
                where=t.where,
                on_failure=t.on_failure,
                v4=t.v4,
                limits=t.limits,
                tick=tick,
            )
            self._steps.append(step)
            try:
                self.schema = step.output(self.schema)
            except ConfigError as e:
                faults.append(e)
                if not step.same_columns:
                    break
            self._passed.append(None if deletes is None else _passed(step, deletes))
        if faults:
            raise join_errors(faults)

    def keeps(self, columns: Set[str]) -> bool:
        """Returns whether every step keeps ``columns`` (``BatchTransform.keeps``)."""
        return all(step.keeps(columns) for step in self._steps)

    def apply(
        self, batch: Table, key: Sequence[FieldPath] = (), sent: SentRows | None = None
    ) -> ChainResult:
        """Applies the steps to ``batch``. ``key``: the stream's primary key, in original names; an
        output row with NULL in one of its fields is rejected too (L9). ``sent``: set for rows that
        were compared with what was sent before. Raises ``SourceError``."""
        table, origin, entered = batch, ascending(0, batch.num_rows), batch.num_rows
        rejected: list[StepReject] = []

        def reject(rejects: Sequence[RowReject]) -> None:
            for r in rejects:
                index = None if origin is None else origin[r.index].as_py()
                rejected.append(StepReject(index, r.reason, r.field, table, r.index))

        for step, passed in zip(self._steps, self._passed, strict=True):
            deletes = None if passed is None else self._passing(table, origin, sent)
            done = step.apply(table, deletes)
            if deletes is not None and passed is not None:
                with_lost(done, table, deletes, passed)
            for name, count in done.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            reject(done.rejects)
            if origin is not None and done.origin is None:
                entered = pc.count_distinct(origin).as_py()
                origin = None
            elif origin is not None:
                origin = origin.take(done.origin)
            table = done.table
        missing = null_keys({path: _at(path, table, self.schema) for path in key})
        if missing:
            reject(missing)
            keyless = {r.index for r in missing}
            kept = pa.array([i not in keyless for i in range(table.num_rows)])
            table = table.filter(kept)
            origin = None if origin is None else origin.filter(kept)
        result = ChainResult(table, origin, rejected, entered)
        if sent is not None and sent.removes:
            self._remove(result, batch, sent)
        return result

    def _passing(self, table: Table, origin: Array | None, sent: SentRows | None) -> Array | None:
        """Returns which rows of a step's input are deletes that pass; None: there are none."""
        deletes = None if self.deletes is None else marked(table, self.deletes)
        if deletes is None or sent is None or origin is None or not sent.removes:
            return deletes
        return pc.and_(deletes, sent.held.take(origin))

    def _remove(self, result: ChainResult, batch: Table, sent: SentRows) -> None:
        """Puts a delete in place of each row that was left out and whose key the destination
        has."""
        if self.deletes is None or result.origin is None or None in self._passed:
            return
        out = pa.array([r.index for r in result.rejected], pa.int64())
        out = pa.concat_arrays([result.origin.cast(pa.int64()), out])
        lost = pc.indices_nonzero(sent.held).cast(pa.int64())
        lost = result.removed = lost.filter(pc.invert(pc.is_in(lost, value_set=out)))
        if len(lost):
            rows, name = batch.take(lost), self.deletes.mark
            mark = rows.column(name)
            at = pa.repeat(sent.at.cast(mark.type), len(lost))
            rows = rows.set_column(rows.column_names.index(name), name, at)
            rows = bare(rows, result.table, self.deletes.needed)
            result.table, result.origin = in_order(result.table, result.origin, rows, lost)


class PlannedChain(msgspec.Struct, frozen=True, kw_only=True):
    """The planned schemas of a stream's transforms. ``schema``: of the last output. ``given``,
    ``made``: input and output schema of each transform that is a connector. ``one_to_one``: every
    output row comes from exactly one record, no record gives two, and the row keeps the record's
    primary key. ``passes_deletes``: so do deletes, with their mark."""

    schema: RowSchema
    one_to_one: bool = False
    passes_deletes: bool = False
    given: tuple[RowSchema, ...] = ()
    made: tuple[RowSchema, ...] = ()


def _passed(step: BatchTransform, deletes: DeleteColumns) -> Set[str] | None:
    """Returns the columns that a delete keeps in a step; None: unknown."""
    every = deletes.needed | deletes.cursor
    if step.keeps(every):
        return every
    return deletes.needed if step.keeps(deletes.needed) else None


def _at(path: FieldPath, table: Table, schema: RowSchema) -> Array | None:
    """Returns the column at a path of original names; None if there is none."""
    level, column = schema.fields, table
    for step in path:
        field = next((f for f in level if f.source == step), None)
        if field is None:
            return None
        top = column is table
        column = column.column(field.name) if top else pc.struct_field(column, field.name)
        level = field.type.fields
    return column.combine_chunks()


def stages(jobs: Sequence[TransformJob]) -> Iterator[tuple[bool, list[TransformJob]]]:
    """Yields, in order, runs of built-in transforms as (False, jobs) and each connector by itself
    as (True, [job])."""
    for connector, group in groupby(jobs, lambda t: t.launch is not None):
        if connector:
            yield from ((True, [t]) for t in group)
        else:
            yield False, list(group)


def plan_chain(
    jobs: Sequence[TransformJob],
    schema: RowSchema,
    configured: ConfiguredStream,
    *,
    outline: Outline | None = None,
    before: PlannedChain | None = None,
    showed: TransformColumns | None = None,
    mark: str | None = None,
) -> PlannedChain:
    """Plans the transforms of one stream. ``schema``: of the records. ``before``: the last plan, if
    any. ``showed``: the columns of one connector's output that a lane has met since; the outputs of
    connectors before that one stay as in ``before``. ``mark``: the column that marks deletes.
    Raises ``ConfigError``."""
    given: list[RowSchema] = []
    made: list[RowSchema] = []
    top = {path[0] for path in configured.primary_key}
    key = {f.name for f in schema.fields if f.source in top}
    one_to_one, passes = True, mark is not None
    for connector, group in stages(jobs):
        if not connector:
            chain = Chain(group, schema)
            schema, one_to_one = chain.schema, one_to_one and chain.keeps(key)
            passes = passes and chain.keeps(key | {mark or ""})
            continue
        if not group[0].applies(configured.id):
            given.append(schema)
            made.append(schema)
            continue
        one_to_one = passes = False
        number = len(made)
        given.append(schema)
        previous = _previous_schemas(before, number)
        if showed is not None and number == showed.number:
            schema = output_schema(schema, showed.columns)
        elif showed is not None and number < showed.number and previous is not None:
            schema = previous[1]
        else:
            columns = outline(group[0], configured, schema) if outline is not None else None
            if columns is not None:
                schema = output_schema(schema, columns)
            else:
                schema = _assumed_schema(schema, previous)
        made.append(schema)
    return PlannedChain(
        schema=schema,
        one_to_one=one_to_one,
        passes_deletes=passes,
        given=tuple(given),
        made=tuple(made),
    )


def _previous_schemas(
    before: PlannedChain | None, number: int
) -> tuple[RowSchema, RowSchema] | None:
    if before is None or number >= len(before.made):
        return None
    return before.given[number], before.made[number]


def _assumed_schema(schema: RowSchema, previous: tuple[RowSchema, RowSchema] | None) -> RowSchema:
    """Returns a connector's output if it declared none: its previous output and the input columns
    that are new since; without a previous plan, its input."""
    if previous is None:
        return schema
    given, made = previous
    had = {f.name for f in (*given.fields, *made.fields)}
    return RowSchema((*made.fields, *(f for f in schema.fields if f.name not in had)))


def output_schema(given: RowSchema, emitted: RowSchema) -> RowSchema:
    """Returns the schema of a connector's output. ``given``: of its input; ``emitted``: the columns
    of its rows, under the connector's names. A column with the name of an input column counts as
    that column: it keeps its original name, and its type if the Arrow type is the same (JSON stays
    JSON)."""
    inputs = {f.name: f for f in given.fields}
    names = [f.name for f in emitted.fields]
    cleaned = clean_columns(names, {n: n for n in names if n in inputs})
    fields: list[Field] = []
    for name, field in {f.name: f for f in emitted.fields}.items():
        original, data_type = name, field.type
        if (kept := inputs.get(name)) is not None:
            if kept.source == name or kept.source not in cleaned:
                original = kept.source
            if arrow_type(kept.type) == arrow_type(field.type):
                data_type = kept.type
        fields.append(Field(cleaned[name], original, data_type))
    return RowSchema(tuple(fields))


def columns_by_output_name(given: RowSchema, made: RowSchema) -> dict[str, Field]:
    """Returns the columns of ``made`` by the names that the transform gives them. ``given``: its
    input."""
    kept = {f.name: f.source for f in given.fields}
    return {f.name if kept.get(f.name) == f.source else f.source: f for f in made.fields}


def refitted_schema(
    given: RowSchema, made: RowSchema, emitted: RowSchema, *, first: bool
) -> RowSchema | None:
    """Returns the output columns under which rows with the columns ``emitted`` fit too; None if
    they fit ``made`` already. The ``first`` rows of a run define its columns; later rows may lack
    some."""
    planned = columns_by_output_name(given, made)
    new = {
        f.name: f
        for f in emitted.fields
        if f.name not in planned or arrow_type(planned[f.name].type) != arrow_type(f.type)
    }
    absent = planned.keys() - {f.name for f in emitted.fields}
    if not new and not (first and absent):
        return None
    if first:
        return emitted
    rest = (Field(n, n, f.type) for n, f in planned.items() if n not in new)
    return RowSchema((*rest, *new.values()))


def with_current_names(configured: ConfiguredStream, given: RowSchema) -> ConfiguredStream:
    """Returns ``configured`` with key, cursor and selection in the column names of ``given``
    (cleaned), in place of the source's names."""
    names = {f.source: f.name for f in given.fields}

    def named(path: FieldPath) -> FieldPath:
        return (names.get(path[0], path[0]), *path[1:]) if path else path

    selected = configured.columns
    return msgspec.structs.replace(
        configured,
        cursor_field=named(configured.cursor_field),
        primary_key=tuple(named(p) for p in configured.primary_key),
        columns=None if selected is None else tuple(names.get(c, c) for c in selected),
        nested=tuple(named(p) for p in configured.nested),
    )
