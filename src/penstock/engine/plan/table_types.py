"""Decides which columns of a stream are decoded by the type in their table, not by the type that
the source declares now.

A column that is text in its table stores the text that the source sends: a JSON string without its
quotes, a number with its digits. A column that is JSON in its table (made for a union or for `{}`)
still holds JSON. So rows from before and after a change of the declaration have the same form, and
a key stays one key. A column of another type gets the values that fit it, as exactly as if the
source had declared that type (L9).

Reads the table only if a declared type differs from that of earlier rows. Not here: values that no
lane decodes by the table's type (``tables.frame.casts``), columns that become wider
(``tables.frame.schema_evolution``). Neighbours: ``engine.plan.stream_plan`` calls,
``engine.plan.prepare`` makes :class:`TableTypes`."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec

from penstock.model.catalog import ConfiguredStream, FieldPath, StreamId
from penstock.model.table_columns import stored
from penstock.model.type_words import type_text
from penstock.model.types import EXTRA, DataType, Field, Kind, Origin, RowSchema
from penstock.short_texts import shown
from penstock.tables.contract import TableName, TypeChange

_STRING = DataType(Kind.string)
_TIMES = (Kind.time, Kind.time_tz)
_TEXT = (Kind.string, Kind.number_text, Kind.json, *_TIMES)  # kinds that a table keeps as text
_NESTED = (Kind.array, Kind.struct)
_EXACT = (*_TEXT, Kind.integer, Kind.boolean, Kind.date)  # kinds whose values lose no digits


@dataclass(frozen=True, slots=True)
class TableTypes:
    """The known types in the tables of a run. ``columns_of``: as in ``TableFormat``. ``newest``:
    the newest stored schema of each stream; ``versions`` returns all schemas of a stream, by their
    number. ``change``: the pipeline's ``schema_evolution.type_change``."""

    columns_of: Callable[[TableName], Sequence[Field] | None]
    newest: Mapping[StreamId, RowSchema]
    versions: Callable[[StreamId], Mapping[int, RowSchema]]
    change: TypeChange

    def kept(
        self,
        stream: StreamId,
        table: TableName,
        fields: Sequence[Field],
        before: RowSchema | None,
        *,
        compared: Set[str] = frozenset(),
        transformed: bool = False,
    ) -> dict[str, DataType]:
        """Returns the types by which columns are decoded, by original name, where the source
        declares others. ``before``: the schema of rows that this run has read already; None: there
        are no such rows. ``compared``: the properties by which rows are merged: their numbers must
        not be rounded here, as the load proves that it lost nothing. ``transformed``: transforms
        expect the declared types, so that only text stays text."""
        rows = before or self.newest.get(stream)
        had = {f.source: f.type for f in rows.fields} if rows is not None else {}
        changed = [f for f in fields if had.get(f.source) != f.type]
        if before is None and rows is not None and rows.version > 1:
            # earlier versions stored types that the table may not have
            other = self._other_types(stream, had)
            changed += [f for f in fields if f.source in other and f not in changed]
        if not changed:
            return {}
        columns = None if before is not None else self.columns_of(table)
        types = {f.name: f.type for f in columns or ()}
        if columns is None:  # the load finds out whether a column has another type than text
            types = {f.name: f.type for f in rows.fields if f.type.kind in _TEXT} if rows else {}
        kept: dict[str, DataType] = {}
        for field in changed:
            at = types.get(field.name)
            found = None if at is None else self._type(stream, field, at, had, transformed)
            if found is None or found == field.type:
                continue
            if found.kind in _EXACT or field.source not in compared:
                kept[field.source] = found
        return kept

    def as_in_table(self, stream: StreamId, table: TableName, newest: RowSchema) -> RowSchema:
        """Returns the ``newest`` stored schema with the table's types, where the stored schemas
        differ: the table's column may have another type than in the newest one."""
        had = {f.source: f.type for f in newest.fields}
        other = self._other_types(stream, had) if newest.version > 1 else set[str]()
        columns = self.columns_of(table) if other else None
        types = {f.name: f.type for f in columns or ()}
        found = {
            f.source: types[f.name]
            for f in newest.fields
            if f.source in other
            and f.name in types
            and f.type.kind not in _NESTED
            and types[f.name] != stored(f.type)
        }
        return with_types(newest, found)

    def of_others(self, table: TableName, schema: RowSchema) -> RowSchema:
        """Returns the columns of ``schema`` whose table another pipeline or another home made, so
        that no schema is stored, with their types in that table. Leaves out texts, because a table
        does not show how they were written."""
        types = {f.name: f.type for f in self.columns_of(table) or ()}
        known = (f for f in schema.fields if f.name in types and types[f.name].kind not in _TEXT)
        replace = msgspec.structs.replace
        return replace(schema, fields=tuple(replace(f, type=types[f.name]) for f in known))

    def _type(
        self,
        stream: StreamId,
        field: Field,
        at: DataType,
        had: Mapping[str, DataType],
        transformed: bool,
    ) -> DataType | None:
        """Returns the type by which ``field`` is decoded. ``at``: the type of its column."""
        text, coerces = field.type.kind in _TEXT, self.change is TypeChange.coerce
        if at.kind in _TEXT and (text or (coerces and not transformed)):
            return self._text(stream, field, had)
        # any short text is base64 of something
        apart = at.kind in (*_TEXT, *_NESTED, Kind.binary)
        if apart or not text or not coerces or transformed:
            return None
        return at

    def _text(self, stream: StreamId, field: Field, had: Mapping[str, DataType]) -> DataType | None:
        """Returns the kind of text in the column: that of its newest rows."""
        last = had.get(field.source)
        if last is None or last.kind not in _TEXT:
            last = next(self._earlier(stream, field.source), None)
        if last is None:
            return None if field.type.kind in _TEXT else _STRING
        if last.kind in (Kind.json, Kind.number_text):
            return last
        return None if last.kind in _TIMES and field.type.kind in _TIMES else _STRING

    def _other_types(self, stream: StreamId, had: Mapping[str, DataType]) -> set[str]:
        """Returns the columns that had another type than in the newest stored schema."""
        every = (f for schema in self.versions(stream).values() for f in schema.fields)
        return {f.source for f in every if had.get(f.source, f.type) != f.type}

    def _earlier(self, stream: StreamId, source: str) -> Iterator[DataType]:
        """Yields the kinds of text in the column so far, the newest first."""
        versions = self.versions(stream)
        for number in sorted(versions, reverse=True):
            yield from (
                f.type
                for f in versions[number].fields
                if f.source == source and f.type.kind in _TEXT
            )


def with_types(schema: RowSchema, types: Mapping[str, DataType]) -> RowSchema:
    """Returns the schema with these column types, by original name."""
    if not types:
        return schema
    replace = msgspec.structs.replace
    fields = tuple(replace(f, type=types.get(f.source, f.type)) for f in schema.fields)
    return replace(schema, fields=fields)


def decoded_whole(
    configured: ConfiguredStream, schema: RowSchema, apart: Set[str | None]
) -> list[Field]:
    """Returns the columns that may be decoded by another type: each is a whole property, or is part
    of the key or the cursor. ``apart``: properties with decoding rules of their own."""
    paths = (*configured.primary_key, configured.cursor_field, *configured.nested)
    looked_into = {path[0] for path in paths if len(path) > 1}
    return [
        f
        for f in schema.fields
        if f.source not in looked_into
        and f.source not in apart
        and f.name != EXTRA
        and f.origin is not Origin.record
    ]


def json_texts(schema: RowSchema, declared: Mapping[str, DataType]) -> tuple[str, ...]:
    """Returns the properties that are declared as text and decoded as JSON. Parameters as in
    :func:`kept_notes`."""
    json = (f.source for f in schema.fields if f.type.kind is Kind.json)
    return tuple(s for s in json if s in declared and declared[s].kind in (Kind.string, *_TIMES))


def kept_notes(stream: StreamId, schema: RowSchema, declared: Mapping[str, DataType]) -> list[str]:
    """Returns notes about columns that are decoded by their table's type. ``schema``: as decoded;
    ``declared``: the source's types, or those of the pipeline file, by original name."""
    as_text: list[str] = []
    as_json: list[str] = []
    typed: list[str] = []
    for field in schema.fields:
        if (now := declared.get(field.source)) is None:
            continue
        if field.type.kind is Kind.number_text and now.kind is Kind.string:
            continue
        kind = field.type.kind
        of_kind = as_json if kind is Kind.json else as_text if kind in _TEXT else typed
        known = "JSON" if kind is Kind.json else type_text(field.type)
        of_kind.append(
            f"{field.name} ({'text' if known == 'string' else known}; now declared as"
            f" {type_text(now)})"
        )
    notes: list[str] = []
    if as_text:
        notes.append(
            f"stream {stream}: the source's values of {', '.join(as_text)} are written as text, as"
            " they were sent, since the table has columns of text for them (`penstock run"
            " --recreate` gives the table the new type)"
        )
    if as_json:
        notes.append(
            f"stream {stream}: the source's values of {', '.join(as_json)} are written as JSON, a"
            " text in quotes, since the table's column holds JSON (`penstock run --recreate` gives"
            " the table the new type)"
        )
    if typed:
        notes.append(
            f"stream {stream}: the table keeps the type of {', '.join(typed)}: values that do not"
            " fit it become NULL, with an entry in the row's change list, and in a key their rows"
            " are rejected (`penstock run --recreate` gives the table the new type;"
            " `schema_evolution: {type_change: fail}` refuses them)"
        )
    return notes


def double_notes(stream: StreamId, schema: RowSchema, before: RowSchema | None) -> list[str]:
    """Returns a note about columns that the source declared as decimals in the rows ``before``, and
    now as numbers, which are doubles."""
    known = {} if before is None else dict(_types(before.fields))
    changed = [
        f"{shown('.'.join(path))} ({type_text(known[path])} until now)"
        for path, now in _types(schema.fields)
        if now.kind is Kind.number and path in known and known[path].kind is Kind.decimal
    ]
    if not changed:
        return []
    return [
        f"stream {stream}: the source declares {', '.join(changed)} as a number now, which is a"
        " double: of more than 15 digits it may lose some (`types` of the stream gives the column"
        " its decimal again)"
    ]


def _types(fields: Sequence[Field], at: FieldPath = ()) -> Iterator[tuple[FieldPath, DataType]]:
    """Yields the type at each path of original names. Skips lists on the path."""
    for field in fields:
        path, type_ = (*at, field.source), field.type
        while type_.kind is Kind.array and type_.item is not None:
            type_ = type_.item
        yield path, type_
        yield from _types(type_.fields, path)
