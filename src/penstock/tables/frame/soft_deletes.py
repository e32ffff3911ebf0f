"""Reads the column that marks deletes, in Spark, and keeps the columns of rows that soft deletes
mark.

The mark's value decides whether its row is gone or present, by ``model.delete_marks``
(``codec.delete_marks`` does the same in Arrow).

A delete often has only its key, mark and cursor, plus properties of the source's change log,
because the source sends no more, or a filter passes no more (``transforms.deletes``). Such a *bare*
delete marks the existing row but does not empty it: it stores the values that it has, including its
cursor, and all other columns stay. Any other delete brings its own columns. A delete without a
cursor, bare or not, keeps the cursor of the row, by which it is ordered. The existing row is the
newest of those that came before the delete, so that the grouping of rows into loads does not
matter. Neighbours: ``load_frame`` keeps the newest rows in Spark; ``newest_rows`` leaves loads with
such deletes to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.delete_marks import LIVE_TEXT, TIMES
from penstock.model.types import EXTRACTED_AT, Field, Kind
from penstock.spark.types import ddl, quoted
from penstock.tables.contract import TableLoad
from penstock.tables.load_columns import has_soft_deletes, kept_columns, own_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

_OLDER = "_penstock_older"  # what the existing row has


def keeping_sql(load: TableLoad, fields: Sequence[Field], cursorless: str) -> str | None:
    """Returns a SQL condition: the row is a soft delete that keeps columns of the existing row.
    None: no row is one. ``cursorless``: a condition: the row is a delete without a cursor, where
    rows are ordered by one."""
    names = [f.name for f in fields]
    if not has_soft_deletes(load, names):
        return None
    bare = _bare_sql(load, fields)
    if not own_columns(load, names):
        lacks = [f"{quoted(name)} IS NULL" for name in kept_columns(load, fields)]
        bare = f"{bare} AND ({' OR '.join(lacks) or 'false'})"
    return f"(({bare}) OR {cursorless})"


def _bare_sql(load: TableLoad, fields: Sequence[Field]) -> str:
    mark = next(f for f in fields if f.name == load.deleted_column)
    empty = (f"{quoted(name)} IS NULL" for name in own_columns(load, [f.name for f in fields]))
    return " AND ".join((marked_sql(mark), *empty))


def filled(
    rows: "DataFrame",
    load: TableLoad,
    fields: Sequence[Field],
    newest_first: "WindowSpec",
    *,
    won: str,
    cursorless: str,
) -> "DataFrame":
    """Returns ``rows``, which have soft deletes, with the columns that those of :func:`keeping_sql`
    keep. ``newest_first``: the rows of a key, in order; ``won``: a column: the row was the newest
    of those up to it."""
    from pyspark.sql import functions as F

    own = own_columns(load, [f.name for f in fields])
    window = newest_first.rowsBetween(1, _unbounded())
    bare, without = F.expr(_bare_sql(load, fields)), F.expr(cursorless)
    older: dict[str, Column] = {}
    kept: dict[str, Column] = {}

    def keep(names: Sequence[str], deletes: "Column", has: "Column") -> None:
        """Fills ``names`` in ``deletes`` from the newest row before each that ``has`` them."""
        found = F.when(F.col(won) & has, F.struct(*(F.col(quoted(name)) for name in names)))
        column = f"{_OLDER}_{names[0]}"
        older[column] = F.first(found, ignorenulls=True).over(window)
        for name in names:
            there = F.when(deletes, F.col(quoted(column))[name])
            kept[name] = F.coalesce(F.col(quoted(name)), there)

    if own:
        keep(own, bare, ~bare)
    ordering = load.cursor[:1] if cursorless != "false" else ()
    for name in kept_columns(load, fields):
        if name in ordering:
            keep([name], without, ~without)
        else:
            keep([name], bare, ~bare | F.col(quoted(name)).isNotNull())
    return rows.withColumns(older).withColumns(kept).drop(*older)


def _unbounded() -> int:
    from pyspark.sql import Window

    return Window.unboundedFollowing


def marked_sql(field: Field, alias: str = "") -> str:
    """Returns a SQL condition, never NULL: the row is gone by the mark in the column ``field``."""
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
    """Returns the mark of a load's row, cast to the table's column ``target``; one that does not
    fit gets a value with the same meaning."""
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
