"""Gives Spark's conditions and values for the column that marks deletes.

As ``codec.delete_marks`` for Arrow: a value says that its row is gone, or that it is there, by
``model.delete_marks``. Neighbours: ``load_frame``, ``soft_deletes``.
"""

from typing import TYPE_CHECKING

from penstock.model.delete_marks import LIVE_TEXT, TIMES
from penstock.model.types import EXTRACTED_AT, Field, Kind
from penstock.spark.types import ddl, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column


def marked_sql(field: Field, alias: str = "") -> str:
    """A SQL condition, never NULL: the mark in the column ``field`` says that the row is gone."""
    column = f"{alias}{'.' if alias else ''}{quoted(field.name)}"
    match field.type.kind:
        case Kind.boolean:
            return f"coalesce({column}, false)"
        case Kind.integer | Kind.decimal:
            return f"coalesce({column} <> 0, false)"
        case Kind.number:
            return f"coalesce({column} <> 0 AND NOT isnan({column}), false)"
        case Kind.string | Kind.number_text | Kind.json | Kind.time | Kind.time_tz:
            live = LIVE_TEXT.replace("\\", "\\\\").replace("'", "\\'")
            return f"({column} IS NOT NULL AND NOT {column} RLIKE '{live}')"
        case Kind.binary:
            return f"coalesce(length({column}) > 0, false)"
        case Kind.array:
            return f"coalesce(size({column}) > 0, false)"
        case _:
            return f"({column} IS NOT NULL)"


def as_stored(mark: Field, cast: "Column", target: Field) -> "Column":
    """The mark of a load's row, cast to the table's column ``target``: one that does not fit says
    the same there."""
    from pyspark.sql import functions as F

    gone = F.expr(marked_sql(mark))
    kind = target.type.kind
    if kind in TIMES:
        cast = F.when(gone, cast)
        fill = F.col(EXTRACTED_AT).cast(ddl(target.type))
    elif kind is Kind.boolean:
        fill = F.lit(True)
    elif kind in (Kind.integer, Kind.number, Kind.decimal):
        fill = F.lit(1).cast(ddl(target.type))
    elif kind in (Kind.struct, Kind.array):  # Penstock made the column before it kept marks whole
        empty = F.lit("{}" if kind is Kind.struct else "[null]")
        return F.when(gone, F.coalesce(cast, F.from_json(empty, ddl(target.type))))
    else:
        return cast
    return F.when(gone & cast.isNull(), fill).otherwise(cast)
