"""Decides the types of key columns in tables, so that different keys stay apart (L9).

A double represents 9007199254740993 and 9007199254740992 as one number. So a new table stores a key
of type ``number`` as a decimal, in which 1, 1.0 and 1e0 are one key; or, where the pipeline sets
`string`, as normalized text with any number of digits. An existing table keeps the type of its key,
unless it can be widened exactly. Records are decoded into the type that is chosen here. The lane
rejects a row whose key that type does not hold exactly (``codec.decode``), so that the stream
continues. Pure. Not here: the table's own columns (``tables.frame``), which fail a load as the last
guard. Neighbour: ``engine.plan.stream_plan`` calls.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from penstock.model.catalog import FieldPath
from penstock.model.table_columns import stored
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.tables.wider_types import widened

EXACT_NUMBER = DataType(Kind.decimal, precision=38, scale=18)
"""The stored type of a key of type ``number``: 20 digits before the point, enough for 64 bits, and
18 after it, enough for the shortest text of a double from 0.1 on."""

NUMBER_TEXT = DataType(Kind.number_text)
_NUMBERS = (Kind.integer, Kind.number, Kind.decimal)
_Change = Callable[[DataType], DataType]
_TEXT, _NESTED = (Kind.string,), (Kind.array, Kind.struct)


def exact_keys(
    schema: RowSchema, key: Sequence[FieldPath], given: Collection[str] = ()
) -> RowSchema:
    """Returns the schema with :data:`EXACT_NUMBER` for each ``number`` of ``key`` (paths of
    original names). ``given``: columns that keep the type which the pipeline sets."""

    def exact(declared: DataType) -> DataType:
        return EXACT_NUMBER if declared.kind is Kind.number else declared

    for path in key:
        if path[0] not in given:
            schema = _replaced(schema, path, exact)
    return schema


def number_texts(schema: RowSchema, declared: RowSchema, key: Sequence[FieldPath]) -> RowSchema:
    """Returns the schema with :data:`NUMBER_TEXT` for each path of ``key`` that is text in it and a
    number in ``declared``, the source's own types: 1 and 1.0 are one key as text too."""
    for path in key:
        given, own = _at(schema, path), _at(declared, path)
        text = given is not None and given.kind is Kind.string
        if text and own is not None and own.kind in _NUMBERS:
            schema = _replaced(schema, path, lambda _: NUMBER_TEXT)
    return schema


def kept_keys(
    schema: RowSchema, declared: RowSchema, before: RowSchema, key: Sequence[FieldPath], *,
    coerces: bool,
) -> RowSchema:  # fmt: skip
    """Returns the schema with the types that the columns of ``key`` have in an existing table.
    ``declared``: the schema without :func:`exact_keys`; ``before``: of the rows until now.
    ``coerces`` False: changes of type are not carried out, the table decides what happens."""
    for path in key:
        had, now = _at(before, path), _at(declared, path)
        if had is None or now is None:
            continue

        def kept(chosen: DataType, had: DataType = had, now: DataType = now) -> DataType:
            if had in (now, chosen):
                return had
            if had == NUMBER_TEXT and stored(now).kind in _TEXT:
                return had
            return _kept(had, now) if coerces else now

        schema = _replaced(schema, path, kept)
    return schema


def lasting_keys(schema: RowSchema, before: RowSchema, key: Sequence[FieldPath]) -> RowSchema:
    """Returns the schema with the types that keep the keys of ``before`` apart, where rows are only
    appended now. A wider type would lose the difference between keys, and rows of a key may be
    merged again later."""
    for path in key:
        had, now = _at(before, path), _at(schema, path)
        number = now is not None and had == EXACT_NUMBER and now.kind is Kind.number
        if number or (now is not None and had == NUMBER_TEXT and stored(now).kind in _TEXT):
            kept = EXACT_NUMBER if number else NUMBER_TEXT
            schema = _replaced(schema, path, lambda _, kept=kept: kept)
    return schema


def exact_columns(
    schema: RowSchema, declared: RowSchema, key: Sequence[FieldPath]
) -> tuple[str, ...]:
    """Returns the paths of ``key`` that :func:`exact_keys` has given another type, dotted."""
    return tuple(".".join(path) for path in key if _at(schema, path) != _at(declared, path))


def _kept(had: DataType, now: DataType) -> DataType:
    """Returns the type into which keys of type ``now`` are decoded, for a column of type
    ``had``."""
    if had == NUMBER_TEXT and now.kind not in _NESTED:
        return had
    if stored(had).kind in _TEXT or had.kind in _NESTED or now.kind in _NESTED:
        return now
    wider = widened(had, now)
    return had if wider == had or wider.kind is Kind.number else now


def _at(schema: RowSchema, path: FieldPath) -> DataType | None:
    """Returns the type at a path of original names; None where there is none."""
    fields, found = schema.fields, None
    for step in path:
        found = next((f.type for f in fields if f.source == step), None)
        if found is None:
            return None
        fields = found.fields
    return found


def _replaced(schema: RowSchema, path: FieldPath, new: _Change) -> RowSchema:
    return msgspec.structs.replace(schema, fields=_with(schema.fields, path, new))


def _with(fields: Sequence[Field], path: FieldPath, new: _Change) -> tuple[Field, ...]:
    """Returns the fields with another type at a path of original names."""
    replace, made = msgspec.structs.replace, list[Field]()
    for field in fields:
        type_ = field.type
        if path and field.source == path[0] and len(path) == 1:
            field = replace(field, type=new(type_))
        elif path and field.source == path[0] and type_.kind is Kind.struct:
            inside = replace(type_, fields=_with(type_.fields, path[1:], new))
            field = replace(field, type=inside)
        made.append(field)
    return tuple(made)
