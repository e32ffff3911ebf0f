"""Casts between two types of one column: the value where nothing of it is lost, else NULL.

Built once per column and applied to a Spark column; nested types cast field by field, and each
field that can lose a value says so, so that the row's changes can name it (L9).
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.types import DataType, Field, Kind
from penstock.spark.types import SOURCE_NAME, ddl
from penstock.tables.contract import TypeChange

if TYPE_CHECKING:
    from pyspark.sql import Column

Apply = Callable[["Column"], "Column"]

_NUMERIC = (Kind.integer, Kind.decimal, Kind.number)
_TEMPORAL = (Kind.date, Kind.timestamp, Kind.timestamp_ntz)


class Cast(NamedTuple):
    """``value`` gives the value in its new type; ``misfits``: the path of a field, and whether its
    value was lost."""

    value: Apply
    misfits: tuple[tuple[str, Apply], ...]


def casts_between(
    source: Sequence[Field], target: Sequence[Field], change: TypeChange
) -> dict[str, Cast]:
    """A cast for each column that both sides have."""
    wanted = {f.name: f.type for f in target}
    return {
        f.name: _cast(f.type, wanted[f.name], f.name, change) for f in source if f.name in wanted
    }


def _cast(have: DataType, want: DataType, path: str, change: TypeChange) -> Cast:
    from pyspark.sql import functions as F

    if have == want:
        return Cast(_same, ())
    if have.kind is want.kind is Kind.struct:
        return _struct_cast(have, want, path, change)
    if have.kind is want.kind is Kind.array and have.item and want.item:
        inner = _cast(have.item, want.item, path, change)

        def any_lost(c: "Column") -> "Column":
            found = F.exists(
                c, lambda x: functools.reduce(operator.or_, (m(x) for _, m in inner.misfits))
            )
            return F.coalesce(found, F.lit(False))

        def each(c: "Column") -> "Column":
            return F.transform(c, inner.value)

        return Cast(each, ((path, any_lost),) if inner.misfits else ())
    return _scalar_cast(have, want, path, change)


def _same(c: "Column") -> "Column":
    return c


def _scalar_cast(have: DataType, want: DataType, path: str, change: TypeChange) -> Cast:
    def value(c: "Column") -> "Column":
        return null_of(want) if change is TypeChange.null else _exact(c, have, want)

    def lost(c: "Column") -> "Column":
        return c.isNotNull() & value(c).isNull()

    return Cast(value, ((path, lost),))


def _struct_cast(have: DataType, want: DataType, path: str, change: TypeChange) -> Cast:
    from pyspark.sql import functions as F

    wanted = {f.name: f.type for f in want.fields}
    inner = {
        f.name: _cast(f.type, wanted[f.name], f"{path}.{f.name}", change)
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

    def reach(name: str, lost: Apply) -> Apply:
        def at_field(c: "Column") -> "Column":
            return lost(c.getField(name))

        return at_field

    misfits = tuple(
        (at, reach(name, lost)) for name, cast in inner.items() for at, lost in cast.misfits
    )
    return Cast(value, misfits)


def null_of(kind: DataType) -> "Column":
    """A NULL of that type."""
    from pyspark.sql import functions as F

    return F.lit(None).cast(ddl(kind))


def _exact(c: "Column", have: DataType, want: DataType) -> "Column":
    """The value as ``want`` where nothing of it is lost, else NULL."""
    from pyspark.sql import functions as F

    if want.kind is Kind.string:
        if have.kind in (Kind.struct, Kind.array):
            return F.to_json(c)
        return F.base64(c) if have.kind is Kind.binary else c.cast("string")
    if have.kind is Kind.string:
        return _from_text(c, want)
    numbers = have.kind in _NUMERIC and want.kind in _NUMERIC
    if numbers or (have.kind in _TEMPORAL and want.kind in _TEMPORAL):
        there = c.try_cast(ddl(want))
        return F.when(there.try_cast(ddl(have)).eqNullSafe(c), there)
    return null_of(want)


def _from_text(c: "Column", want: DataType) -> "Column":
    from pyspark.sql import functions as F

    there = c.try_cast(ddl(want))
    if want.kind in (Kind.integer, Kind.date):
        return F.when(there.cast("string") == c, there)
    if want.kind is Kind.boolean:
        return F.when(F.lower(c).isin("true", "false"), there)
    if want.kind is Kind.decimal:
        return F.when(there == c.try_cast("decimal(38,18)"), there)
    if want.kind is Kind.timestamp_ntz:
        return F.when(~c.rlike(r"(Z|[+-]\d\d:?\d\d)$"), there)
    if want.kind in (Kind.number, Kind.timestamp):
        return there
    return null_of(want)
