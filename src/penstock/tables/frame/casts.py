"""Casts a column from one type to another: keeps each value that fits exactly, else gives NULL. A
number in text becomes the nearest double.

A :class:`Cast` is built once per column from two types and applied to Spark columns. Nested types
are cast field by field. The cast has a test for each field that can lose its value or digits of its
value, so that the row's change list can name the field (L9). Not here: which type a table's column
gets (``schema_evolution``), the change list (``load_frame``)."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.catalog import FieldPath
from penstock.model.types import DataType, Field, Kind
from penstock.spark.types import SOURCE_NAME, ddl, json_text
from penstock.tables.contract import TypeChange
from penstock.tables.wider_types import MOST_DIGITS, whole_digits

if TYPE_CHECKING:
    from pyspark.sql import Column

Apply = Callable[["Column"], "Column"]
Tests = tuple[tuple[FieldPath, Apply], ...]

_EXACT = (Kind.integer, Kind.decimal)
_NUMERIC = (Kind.integer, Kind.decimal, Kind.number)
_TEMPORAL = (Kind.date, Kind.timestamp, Kind.timestamp_ntz)
# Spark also takes `30d` and `1f` for numbers, `2024` for its first day, `08:30` for a time of today
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_SHORT_EXPONENT = r"^\s*[+-]?(?=[\d.]{1,16}[eE])\d*\.?\d*[eE][+-]?\d+\s*$"  # 15 digits and a point
_SAFE_DIGITS = 15  # that every double keeps
_LEAST_NORMAL = 2.2250738585072014e-308  # smaller doubles have fewer digits
_WHOLE = r"^\s*[+-]?\d+\s*$"
_BEYOND_MICROS = r"[.,]\d{6}\d*[1-9]"
_DAY = r"^\s*[+-]?\d{4,}-\d{1,2}-\d{1,2}(?!\d)"


class Cast(NamedTuple):
    """``value`` maps a column to the new type. ``failures``: for each field whose value the cast
    can lose, its path of column names and a map from the column to whether the value was lost;
    ``rounded``: the same for lost digits of a value that is kept; ``inexact``: the same for a value
    that cannot be a key in the column, since another value would equal it; ``texts``: by path, a
    map from the column to the text of what was lost."""

    value: Apply
    failures: Tests
    rounded: Tests = ()
    texts: Tests = ()
    inexact: Tests = ()


def casts_between(
    source: Sequence[Field], target: Sequence[Field], change: TypeChange
) -> dict[str, Cast]:
    """Returns a cast, by name, for each column that both sides have. ``change``: ``null`` gives
    NULL for every value whose type differs."""
    wanted = {f.name: f.type for f in target}
    return {
        f.name: _cast(f.type, wanted[f.name], (f.name,), change) for f in source if f.name in wanted
    }


def _cast(have: DataType, want: DataType, path: FieldPath, change: TypeChange) -> Cast:
    from pyspark.sql import functions as F

    if have == want:
        return Cast(_same, ())
    if have.kind is want.kind is Kind.struct:
        return _struct_cast(have, want, path, change)
    if have.kind is want.kind is Kind.array and have.item and want.item:
        inner = _cast(have.item, want.item, path, change)

        def any_of(tests: Tests) -> Tests:
            def found(c: "Column") -> "Column":
                return F.coalesce(F.exists(c, lambda x: _any(tests, x)), F.lit(False))

            return ((path, found),) if tests else ()

        def each(c: "Column") -> "Column":
            return F.transform(c, inner.value)

        return Cast(each, any_of(inner.failures), any_of(inner.rounded), ((path, json_text),))
    if have.kind is Kind.string and keeps_parts(have, want) and change is not TypeChange.null:
        return _parsed_cast(want, path, change)
    return _scalar_cast(have, want, path, change)


def keeps_parts(have: DataType, want: DataType) -> bool:
    """Returns whether a cast reads JSON text as an object or a list with known parts, and leaves
    out other parts: a cast of a column that was such an object before, and is JSON now."""
    return have.kind is Kind.string and want.kind in (Kind.struct, Kind.array)


def _parsed_cast(want: DataType, path: FieldPath, change: TypeChange) -> Cast:
    """Casts JSON text to an object or a list. Its parts are texts, which are cast in turn, so that
    nested objects are read in the same way."""
    from pyspark.sql import functions as F

    text = DataType(Kind.string)
    have = DataType(Kind.array, item=text)
    if want.kind is Kind.struct:
        have = DataType(want.kind, fields=tuple(Field(f.name, f.source, text) for f in want.fields))
    inner = _cast(have, want, path, change)
    by_source = tuple(Field(f.source, f.source, f.type) for f in have.fields)
    read = ddl(DataType(have.kind, item=have.item, fields=by_source))

    def parsed(c: "Column") -> "Column":
        shape = F.json_object_keys(c) if want.kind is Kind.struct else F.json_array_length(c)
        return F.when(shape.isNotNull(), F.from_json(c, read).cast(ddl(have)))

    def once(c: "Column", use: Apply) -> "Column":
        """Applies ``use`` to the parsed value, which Spark would otherwise parse again for each
        part."""
        return F.transform(F.array(parsed(c)), use).getItem(0)

    def value(c: "Column") -> "Column":
        return once(c, inner.value)

    def lost(c: "Column") -> "Column":
        def any_lost(p: "Column") -> "Column":
            return p.isNull() | _any(inner.failures, p)

        return c.isNotNull() & F.coalesce(once(c, any_lost), F.lit(False))

    def rounded(c: "Column") -> "Column":
        return F.coalesce(once(c, functools.partial(_any, inner.rounded)), F.lit(False))

    roundings = ((path, rounded),) if inner.rounded else ()
    return Cast(value, ((path, lost),), roundings, ((path, _same),))


def _any(tests: Tests, c: "Column") -> "Column":
    from pyspark.sql import functions as F

    return functools.reduce(operator.or_, (test(c) for _, test in tests), F.lit(False))


def _same(c: "Column") -> "Column":
    return c


def _scalar_cast(have: DataType, want: DataType, path: FieldPath, change: TypeChange) -> Cast:
    def value(c: "Column") -> "Column":
        return null_of(want) if change is TypeChange.null else _exact(c, have, want)

    def lost(c: "Column") -> "Column":
        return c.isNotNull() & value(c).isNull()

    def text(c: "Column") -> "Column":
        return _exact(c, have, DataType(Kind.string))

    if change is not TypeChange.null and holds(want, have):
        return Cast(value, ())
    rounds = have.kind is Kind.string and want.kind is Kind.number
    roundings = ((path, _rounded),) if rounds else ()
    found = _INEXACT.get(want.kind) if have.kind is Kind.string else None
    inexact = ((path, found),) if found is not None else ()
    return Cast(value, ((path, lost),), roundings, ((path, text),), inexact)


def holds(want: DataType, have: DataType) -> bool:
    """Returns whether the scalar type ``want`` holds every value of ``have``, with all its
    digits."""
    if want.kind is Kind.string:
        return True
    if have.kind in _EXACT and want.kind in _EXACT:
        places = (want.scale or 0) >= (have.scale or 0)
        return places and whole_digits(want, most=False) >= whole_digits(have)
    if have.kind is Kind.decimal and want.kind is Kind.number:
        return (have.precision or MOST_DIGITS) <= _SAFE_DIGITS
    return have.kind is Kind.date and want.kind is Kind.timestamp_ntz


def _rounded(c: "Column") -> "Column":
    """Returns whether the nearest double of a number in text lacks digits of the number
    (``codec.values``): its own text differs, and it is not the same integer; or it is zero, and the
    number is not."""
    from pyspark.sql import functions as F

    number = c.try_cast("double")
    odd = (F.length(_digits(c)) > _SAFE_DIGITS) & (_digits(c) != _digits(number.cast("string")))
    whole = c.try_cast("bigint") == number.try_cast("bigint")
    same = c.rlike(_WHOLE) & F.coalesce(whole, F.lit(False))
    fits = _from_text(c, DataType(Kind.number)).isNotNull()
    gone = (number == 0) & (_digits(c) != "")
    return F.coalesce(fits & ((odd & ~same) | gone), F.lit(False))


def _is_no_double(c: "Column") -> "Column":
    """Returns whether a number in text differs from the one that its double represents as a key
    (``codec.values.inexact_doubles``)."""
    from pyspark.sql import functions as F

    number = c.try_cast("double")
    small = (F.abs(number) < _LEAST_NORMAL) & (_digits(c) != _digits(number.cast("string")))
    return _rounded(c) | F.coalesce(small & (number != 0), F.lit(False))


def _cut(c: "Column") -> "Column":
    from pyspark.sql import functions as F

    return F.coalesce(c.rlike(_BEYOND_MICROS), F.lit(False))


_INEXACT: dict[Kind, Apply] = {
    Kind.number: _is_no_double, Kind.timestamp: _cut, Kind.timestamp_ntz: _cut,
}  # fmt: skip


def _digits(c: "Column") -> "Column":
    """Returns the digits of a number in text, without its exponent, and without zeros at both
    ends."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.regexp_replace(c, "[eE].*$|[^0-9]", ""), "^0+|0+$", "")


def _struct_cast(have: DataType, want: DataType, path: FieldPath, change: TypeChange) -> Cast:
    from pyspark.sql import functions as F

    wanted = {f.name: f.type for f in want.fields}
    inner = {
        f.name: _cast(f.type, wanted[f.name], (*path, f.name), change)
        for f in have.fields
        if f.name in wanted
    }

    def value(c: "Column") -> "Column":
        fields = [
            (inner[f.name].value(c.getField(f.name)) if f.name in inner else null_of(f.type)).alias(
                f.name, metadata={SOURCE_NAME: f.source}
            )
            for f in want.fields
        ]
        return F.when(c.isNotNull(), F.struct(*fields))

    def of_field(name: str, lost: Apply) -> Apply:
        def field_lost(c: "Column") -> "Column":
            return lost(c.getField(name))

        return field_lost

    def of_fields(tests_of: Callable[[Cast], Tests]) -> Tests:
        return tuple(
            (at, of_field(name, test))
            for name, cast in inner.items()
            for at, test in tests_of(cast)
        )

    return Cast(
        value,
        of_fields(lambda cast: cast.failures),
        of_fields(lambda cast: cast.rounded),
        of_fields(lambda cast: cast.texts),
        of_fields(lambda cast: cast.inexact),
    )


def null_of(kind: DataType) -> "Column":
    """Returns a Spark literal: NULL of type ``kind``."""
    from pyspark.sql import functions as F

    return F.lit(None).cast(ddl(kind))


def _exact(c: "Column", have: DataType, want: DataType) -> "Column":
    """Casts ``c`` to ``want``; NULL if the cast would lose part of the value."""
    from pyspark.sql import functions as F

    if want.kind is Kind.string:
        if have.kind in (Kind.struct, Kind.array):
            return json_text(c)
        if have.kind is Kind.number:
            return _number_text(c)
        return F.base64(c) if have.kind is Kind.binary else c.cast("string")
    if have.kind is Kind.string:
        return _from_text(c, want)
    numbers = have.kind in _NUMERIC and want.kind in _NUMERIC
    if numbers or (have.kind in _TEMPORAL and want.kind in _TEMPORAL):
        cast = c.try_cast(ddl(want))
        return F.when(cast.try_cast(ddl(have)).eqNullSafe(c), cast)
    return null_of(want)


def _number_text(c: "Column") -> "Column":
    """Returns the text of a double as a source writes it: ``7``, ``12345678.5``; Spark writes
    ``7.0`` and ``1.23456785E7``. Very large and very small numbers keep Spark's text."""
    from pyspark.sql import functions as F

    whole, text = c.try_cast("bigint"), c.cast("string")
    plain = F.rtrim(text.try_cast("decimal(38,10)").cast("string"), F.lit("0"))
    large = F.abs(c).between(1e7, float(1 << 53))
    return (
        F.when(whole.cast("double") == c, whole.cast("string"))
        .when(large & (plain.try_cast("double") == c), plain)
        .otherwise(text)
    )


def _from_text(c: "Column", want: DataType) -> "Column":
    from pyspark.sql import functions as F

    cast = c.try_cast(ddl(want))
    if want.kind in (Kind.integer, Kind.date):
        return F.when(cast.cast("string") == c, cast)
    if want.kind is Kind.boolean:
        return F.when(F.lower(c).isin("true", "false"), cast)
    if want.kind is Kind.decimal:
        # two decimals are compared by what a type of 38 digits leaves of both: 2 equals 1.5
        plain = c.rlike(rf"^\s*[+-]?\d*\.?\d{{0,{want.scale or 0}}}0*\s*$")
        same = c.rlike(_SHORT_EXPONENT) & (cast.cast("double") == c.try_cast("double"))
        return F.when(plain | same, cast)
    if want.kind is Kind.timestamp_ntz:
        return F.when(c.rlike(_DAY) & ~c.rlike(r"[+-](?!00:?00)\d\d:?\d\d$"), cast)
    if want.kind is Kind.timestamp:
        return F.when(c.rlike(_DAY), cast)
    if want.kind is Kind.number:
        return F.when(c.rlike(_NUMBER) & (F.abs(cast) != float("inf")), cast)
    return null_of(want)
