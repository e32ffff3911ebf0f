"""Keeps a primary key comparable if its column has another type than when rows were sent.

A type in a frame follows from its values: a missing one makes integers floats, a longer one makes a
decimal wider, and a frame without rows has no type at all. If each value is the same in both types,
the key is the same. Not here: what is compared (``diff``)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def fits(rows: "DataFrame", types: Mapping[str, str]) -> bool:
    """Returns whether each value is the same in other types. ``types``: of columns, in Spark's
    words. False for values that are not numbers. Runs the query."""
    from pyspark.sql import functions as F

    lost = F.lit(False)
    for name, wanted in types.items():
        value, given = F.col(quoted(name)), rows.schema[name].dataType.simpleString()
        if _number(given) and _number(wanted):
            lost = lost | ~value.eqNullSafe(value.try_cast(wanted).try_cast(given))
        else:
            lost = lost | value.isNotNull()
    return not rows.filter(lost).take(1)


def retyped(rows: "DataFrame", types: Mapping[str, str]) -> "DataFrame":
    """Returns the rows with these column types."""
    from pyspark.sql import functions as F

    return rows.withColumns({n: F.col(quoted(n)).cast(type) for n, type in types.items()})


def _number(type: str) -> bool:
    return type.lower().partition("(")[0] in _NUMBERS
