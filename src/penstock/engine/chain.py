"""The transforms of one stream as schemas: what each is given and what comes out of it.

Pure: the same functions plan a stream before a run and follow it in a lane. Built-in transforms are
asked; one that is a connector is known by what its rows showed, or by an outline (``Outline``), and
until either is there its rows are taken to have the columns that it is given. Neighbours:
``engine.plan`` plans, ``engine.transforming`` applies.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from penstock.codec.arrow import arrow_type
from penstock.codec.untyped import Array, Table
from penstock.engine.job import TransformJob
from penstock.model.catalog import ConfiguredStream, FieldPath
from penstock.model.events import Showed
from penstock.model.names import clean_columns
from penstock.model.types import Field, RowSchema
from penstock.transforms.open import open_transform

Outline = Callable[[TransformJob, ConfiguredStream, RowSchema], RowSchema | None]
"""(transform, stream, what it is given) -> its columns by their names as they stand, if it told."""


class Chain:
    """Built-in transforms of one stream, one after the other; ``given``: the schema of its records,
    ``schema``: of what comes out."""

    def __init__(self, told: Sequence[TransformJob], schema: RowSchema) -> None:
        self._steps = [
            open_transform(t.use, t.config, where=t.where, on_failure=t.on_failure) for t in told
        ]
        self.given = self.schema = schema
        for step in self._steps:
            self.schema = step.output(self.schema)
        self.counts: dict[str, int] = {}

    def apply(
        self, table: Table
    ) -> "tuple[Table, Array | None, list[tuple[int, str, str | None]]]":
        """(rows, for each of them the row of ``table`` that it comes from where that is known,
        rejected rows of ``table``)."""
        origin: Array | None = None
        known = True
        rejects: list[tuple[int, str, str | None]] = []
        for step in self._steps:
            done = step.apply(table)
            for name, count in done.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            for reject in done.rejects:
                at = reject.index if origin is None else origin[reject.index].as_py()
                rejects.append((at if known else -1, reject.reason, reject.field))
            known &= done.origin is not None
            if done.origin is not None and known:
                origin = done.origin if origin is None else origin.take(done.origin)
            table = done.table
        return table, origin if known else None, rejects


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A chain as planned. ``given``, ``made``: of each transform that is a connector. ``schema``:
    of what comes out of all."""

    schema: RowSchema
    given: tuple[RowSchema, ...] = ()
    made: tuple[RowSchema, ...] = ()


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
    for connector, group in stages(told):
        if not connector:
            schema = Chain(group, schema).schema
            continue
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
    return Planned(schema=schema, given=tuple(given), made=tuple(made))


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
    )
