"""Keeps the columns of rows that soft deletes mark.

A delete often has its key, mark and cursor alone, beside properties of the source's change log: the
source sends no more, or a filter let no more pass (``transforms.deletes``). Such a *bare* delete
marks the row that is there; it does not empty it. What it has it stores, its cursor among it; all
else stays. Any other delete brings its own columns. Neighbours: ``load_frame`` keeps the newest
rows in Spark; ``newest_rows`` leaves loads with bare deletes to it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.model.delete_marks import marks_delete
from penstock.model.types import Field
from penstock.spark.types import quoted
from penstock.tables.contract import TableLoad
from penstock.tables.frame.delete_marks import marked_sql
from penstock.tables.load_columns import kept_columns, own_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

_OLDER = "_penstock_older"  # the columns of the newest older row of the key that is no bare one


def bare_sql(load: TableLoad, fields: Sequence[Field]) -> str | None:
    """A SQL condition: the row is a bare delete; None: no row is one."""
    own = own_columns(load, [f.name for f in fields])
    if not own:
        return None
    mark = next(f for f in fields if f.name == load.deleted_column)
    empty = (f"{quoted(name)} IS NULL" for name in own)
    return f"({marked_sql(mark)} AND {' AND '.join(empty)})"


def filled(
    rows: "DataFrame", load: TableLoad, fields: Sequence[Field], newest_first: "WindowSpec"
) -> "DataFrame":
    """Returns ``rows`` with the columns of older rows in bare deletes. ``newest_first``: the rows
    of a key, in order."""
    from pyspark.sql import functions as F

    bare = bare_sql(load, fields)
    if bare is None:
        return rows
    own = own_columns(load, [f.name for f in fields])
    names = [*own, *kept_columns(load, fields)]
    window = newest_first.rowsBetween(1, _unbounded())

    def of_older(names: Sequence[str], has: "Column") -> "Column":
        found = F.when(has, F.struct(*(F.col(quoted(name)) for name in names)))
        return F.first(found, ignorenulls=True).over(window)

    whole = ~F.expr(bare)
    rows = rows.withColumns(
        {_OLDER: of_older(own, whole)}
        | {
            f"{_OLDER}_{name}": of_older([name], whole | F.col(quoted(name)).isNotNull())
            for name in names[len(own) :]
        }
    )
    taken = {name: _OLDER if name in own else f"{_OLDER}_{name}" for name in names}
    older = {
        name: F.coalesce(
            F.col(quoted(name)), F.when(F.expr(bare), F.col(quoted(taken[name]))[name])
        )
        for name in names
    }
    return rows.withColumns(older).drop(*taken.values())


def is_bare(row: Mapping[str, Any], load: TableLoad) -> bool:
    """Whether ``row``, of a table in memory, is a bare delete."""
    names = [f.name for f in load.schema.fields]
    own = own_columns(load, names)
    marked = marks_delete(row.get(load.deleted_column or ""))
    return bool(own) and marked and all(row.get(name) is None for name in own)


def _unbounded() -> int:
    from pyspark.sql import Window

    return Window.unboundedFollowing
