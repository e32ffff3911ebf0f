"""Keeps the columns of rows that soft deletes mark.

A delete often has its key, mark and cursor alone: the source sends no more, or a filter let no more
pass (``transforms.deletes``). Such a *bare* delete marks the row that is there; it does not empty
it. Any other delete brings its own columns. Neighbours: ``load_frame`` keeps the newest rows in
Spark; ``newest_rows`` leaves loads with bare deletes to it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.model.types import Field
from penstock.spark.types import quoted
from penstock.tables.contract import TableLoad
from penstock.tables.load_columns import cursors, own_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, WindowSpec

_OLDER = "_penstock_older"  # the columns of the newest row of the key that is older and no bare one


def bare_sql(load: TableLoad, fields: Sequence[Field]) -> str | None:
    """A SQL condition: the row is a bare delete; None: no row is one."""
    own = own_columns(load, [f.name for f in fields])
    if not own:
        return None
    empty = (f"{quoted(name)} IS NULL" for name in own)
    return f"({quoted(load.deleted_column or '')} IS NOT NULL AND {' AND '.join(empty)})"


def filled(
    rows: "DataFrame", load: TableLoad, fields: Sequence[Field], newest_first: "WindowSpec"
) -> "DataFrame":
    """Returns ``rows`` with the columns of older rows in bare deletes. ``newest_first``: the rows
    of a key, in order."""
    from pyspark.sql import functions as F

    bare = bare_sql(load, fields)
    if bare is None:
        return rows
    names = [*own_columns(load, [f.name for f in fields]), *cursors(load)]
    names = [name for name in dict.fromkeys(names) if any(f.name == name for f in fields)]
    window = newest_first.rowsBetween(1, _unbounded())
    whole = F.when(~F.expr(bare), F.struct(*(F.col(quoted(name)) for name in names)))
    rows = rows.withColumn(_OLDER, F.first(whole, ignorenulls=True).over(window))
    older = {
        name: F.coalesce(F.col(quoted(name)), F.when(F.expr(bare), F.col(_OLDER)[name]))
        for name in names
    }
    return rows.withColumns(older).drop(_OLDER)


def is_bare(row: Mapping[str, Any], load: TableLoad) -> bool:
    """Whether ``row``, of a table in memory, is a bare delete."""
    names = [f.name for f in load.schema.fields]
    own = own_columns(load, names)
    marked = row.get(load.deleted_column or "") is not None
    return bool(own) and marked and all(row.get(name) is None for name in own)


def _unbounded() -> int:
    from pyspark.sql import Window

    return Window.unboundedFollowing
