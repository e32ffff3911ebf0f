"""The transforms of one stream: what each is given and what comes out of it.

Pure: the same functions plan a stream before a run and follow it in a lane. Built-in transforms are
asked; one that is a connector is known by what its rows showed, or by an outline (``Outline``), and
until either is there its rows are taken to have the columns that it is given. Neighbours:
``engine.plan.streams`` plans, ``engine.worker.transforms.stages`` applies.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import groupby

import msgspec
import pyarrow as pa

from penstock.codec.arrow import arrow_type
from penstock.codec.columns import Columns
from penstock.codec.decode import RowReject, null_keys
from penstock.codec.system_columns import ascending
from penstock.codec.untyped import Array, Table
from penstock.codec.untyped import compute as pc
from penstock.errors import ConfigError
from penstock.model.catalog import ConfiguredStream, FieldPath
from penstock.model.events import Showed
from penstock.model.names import clean_columns
from penstock.model.types import Field, RowSchema
from penstock.transforms.config_errors import joined
from penstock.transforms.contract import BatchTransform, TransformJob
from penstock.transforms.open import open_transform

Outline = Callable[[TransformJob, ConfiguredStream, RowSchema], RowSchema | None]
"""(transform, stream, what it is given) -> its columns by their names as they stand, if it told."""


@dataclass(slots=True)
class Turned:
    """A row that was turned away: of the chain's rows the one with this ``index`` (None: nobody
    knows), of the table that the step was given the one at ``place``."""

    index: int | None
    reason: str
    field: str | None
    table: Table
    place: int

    def text(self) -> bytes:
        """The row as the step was given it, as JSON."""
        return Columns(self.table)[self.place]


@dataclass(slots=True)
class Made:
    """What became of a batch. ``origin``: for each row of ``table`` the row of the batch that it
    comes from; None where that is unknown. ``entered``: rows of the batch that came as far as the
    first step whose rows have no known origin (all of them, where there is none)."""

    table: Table
    origin: Array | None
    turned: list[Turned]
    entered: int


class Chain:
    """Built-in transforms of one stream, one after the other; ``given``: the schema of its records,
    ``schema``: of what comes out. ``tick``: see ``open_transform``. Raises ``ConfigError`` with the
    faults of all of them, as far as the columns that each is given are known."""

    def __init__(
        self,
        told: Sequence[TransformJob],
        schema: RowSchema,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._steps: list[BatchTransform] = []
        self.given = self.schema = schema
        self.counts: dict[str, int] = {}
        faults: list[ConfigError] = []
        for t in told:
            step = open_transform(
                t.use, t.config, where=t.where, on_failure=t.on_failure, limits=t.limits, tick=tick
            )
            self._steps.append(step)
            try:
                self.schema = step.output(self.schema)
            except ConfigError as e:
                faults.append(e)
                if not step.same_columns:
                    break
        if faults:
            raise joined(faults)

    def keeps(self, columns: Set[str]) -> bool:
        """As of ``BatchTransform``, of all of them together."""
        return all(step.keeps(columns) for step in self._steps)

    def apply(self, batch: Table, key: Sequence[FieldPath] = ()) -> Made:
        """``key``: the stream's, in original names; a row that comes out without a value in any
        column of it is turned away too. Raises ``SourceError``."""
        table, origin, entered = batch, ascending(0, batch.num_rows), batch.num_rows
        turned: list[Turned] = []

        def turn(rejects: Sequence[RowReject]) -> None:
            for r in rejects:
                index = None if origin is None else origin[r.index].as_py()
                turned.append(Turned(index, r.reason, r.field, table, r.index))

        for step in self._steps:
            done = step.apply(table)
            for name, count in done.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            turn(done.rejects)
            if origin is not None and done.origin is None:
                entered = pc.count_distinct(origin).as_py()
                origin = None
            elif origin is not None:
                origin = origin.take(done.origin)
            table = done.table
        missing = null_keys({path: _at(path, table, self.schema) for path in key})
        if missing:
            turn(missing)
            gone = {r.index for r in missing}
            kept = pa.array([i not in gone for i in range(table.num_rows)])
            table = table.filter(kept)
            origin = None if origin is None else origin.filter(kept)
        return Made(table, origin, turned, entered)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A chain as planned. ``given``, ``made``: of each transform that is a connector. ``schema``:
    of what comes out of all. ``one_to_one``: each row that comes out is surely one record of the
    source, no other is, and it has the record's primary key."""

    schema: RowSchema
    one_to_one: bool = False
    given: tuple[RowSchema, ...] = ()
    made: tuple[RowSchema, ...] = ()


def _at(path: FieldPath, table: Table, schema: RowSchema) -> Array | None:
    """The column that a path of original names leads to; None: there is none."""
    level, found = schema.fields, table
    for step in path:
        field = next((f for f in level if f.source == step), None)
        if field is None:
            return None
        top = found is table
        found = found.column(field.name) if top else pc.struct_field(found, field.name)
        level = field.type.fields
    return found.combine_chunks()


def stages(told: Sequence[TransformJob]) -> Iterator[tuple[bool, list[TransformJob]]]:
    """In order: built-in transforms that follow each other (False), and each connector by itself
    (True)."""
    for connector, group in groupby(told, lambda t: t.launch is not None):
        if connector:
            yield from ((True, [t]) for t in group)
        else:
            yield False, list(group)


def planned(
    told: Sequence[TransformJob],
    schema: RowSchema,
    configured: ConfiguredStream,
    *,
    outline: Outline | None = None,
    before: Planned | None = None,
    showed: Showed | None = None,
) -> Planned:
    """``schema``: of the records. ``before``: as it was planned last, where that is known.
    ``showed``: what a lane has met since; what comes before that transform stays. Raises
    ``ConfigError``."""
    given: list[RowSchema] = []
    made: list[RowSchema] = []
    top = {path[0] for path in configured.primary_key}
    key = {f.name for f in schema.fields if f.source in top}
    one_to_one = True
    for connector, group in stages(told):
        if not connector:
            chain = Chain(group, schema)
            schema, one_to_one = chain.schema, one_to_one and chain.keeps(key)
            continue
        one_to_one = False
        number = len(made)
        given.append(schema)
        known = _known(before, number)
        if showed is not None and number == showed.number:
            schema = made_of(schema, showed.columns)
        elif showed is not None and number < showed.number and known is not None:
            schema = known[1]
        else:
            found = outline(group[0], configured, schema) if outline is not None else None
            schema = made_of(schema, found) if found is not None else _assumed(schema, known)
        made.append(schema)
    return Planned(schema=schema, one_to_one=one_to_one, given=tuple(given), made=tuple(made))


def _known(before: Planned | None, number: int) -> tuple[RowSchema, RowSchema] | None:
    if before is None or number >= len(before.made):
        return None
    return before.given[number], before.made[number]


def _assumed(schema: RowSchema, known: tuple[RowSchema, RowSchema] | None) -> RowSchema:
    """What it is given; or what its rows have shown, and columns that it is given now only."""
    if known is None:
        return schema
    given, made = known
    had = {f.name for f in (*given.fields, *made.fields)}
    return RowSchema((*made.fields, *(f for f in schema.fields if f.name not in had)))


def made_of(given: RowSchema, came: RowSchema) -> RowSchema:
    """The columns of rows that came out, of which ``came`` has the names as they stand. A column
    called as one that went in is that one, and keeps its original name; text carries what it
    carried before."""
    known = {f.name: f for f in given.fields}
    names = [f.name for f in came.fields]
    cleaned = clean_columns(names, {n: n for n in names if n in known})
    fields: list[Field] = []
    for name, found in {f.name: f for f in came.fields}.items():
        original, data_type = name, found.type
        if (kept := known.get(name)) is not None:
            if kept.source == name or kept.source not in cleaned:
                original = kept.source
            if arrow_type(kept.type) == arrow_type(found.type):
                data_type = kept.type
        fields.append(Field(cleaned[name], original, data_type))
    return RowSchema(tuple(fields))


def standing(given: RowSchema, made: RowSchema) -> dict[str, Field]:
    """The columns of ``made`` by the names under which they come out of the transform."""
    kept = {f.name: f.source for f in given.fields}
    return {f.name if kept.get(f.name) == f.source else f.source: f for f in made.fields}


def misfit(given: RowSchema, made: RowSchema, came: RowSchema, *, first: bool) -> RowSchema | None:
    """The columns under which rows like ``came`` fit as well; None: they do already. The ``first``
    rows of a run say what its columns are; later ones may lack some."""
    known = standing(given, made)
    new = {
        f.name: f
        for f in came.fields
        if f.name not in known or arrow_type(known[f.name].type) != arrow_type(f.type)
    }
    gone = known.keys() - {f.name for f in came.fields}
    if not new and not (first and gone):
        return None
    if first:
        return came
    rest = (Field(n, n, f.type) for n, f in known.items() if n not in new)
    return RowSchema((*rest, *new.values()))


def as_given(configured: ConfiguredStream, given: RowSchema) -> ConfiguredStream:
    """Its key, cursor and selection by the names that its columns have now."""
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
