"""Finds, in Spark, the table's rows whose key is the other form (text or JSON) of a load's key
(``tables.key_forms``, which the files' merge uses too).

A Parquet table gets such rows under the load's key before they are compared (:func:`rekeyed`); a
MERGE into a Delta table finds a row by the table's form of the key (:func:`matched`)."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.spark.types import quoted
from penstock.tables.contract import TableLoad
from penstock.tables.key_forms import mixed_keys, of_load, of_table
from penstock.tables.newest import SPARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MATCH = "_penstock_match_"  # and the number of a field of the key: that of the table's row
EXTRA = "_penstock_extra"  # the table has another row of the key, which is merged in its place
_OURS, _THEIRS, _FORM = "_penstock_ours_", "_penstock_theirs_", "_penstock_key_form_"


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{index}" for index in range(count)]


def _same(one: "DataFrame", other: "DataFrame", names: Sequence[tuple[str, str]]) -> "Column":
    pairs = (one[a].eqNullSafe(other[b]) for a, b in names)
    return functools.reduce(operator.and_, pairs)


def _pairs(
    rows: "DataFrame",
    sent: "DataFrame",
    table: "DataFrame",
    load: TableLoad,
    keys: Sequence[str],
) -> "DataFrame":
    """Pairs keys of the load's ``rows`` with the keys of ``table`` in the other form that no row of
    the load has unchanged. ``sent``: all rows of the load, also those that are older than the
    table's. ``keys``: expressions of all."""
    from pyspark.sql import functions as F

    mixed, count = mixed_keys(load), len(keys)
    json = [mixed.get(path[0]) if len(path) == 1 else None for path in load.primary_key]
    ours, theirs, forms = (_names(p, count) for p in (_OURS, _THEIRS, _FORM))

    def keyed(frame: "DataFrame", names: list[str], form: Callable[..., str]) -> "DataFrame":
        plain = frame.select(*(F.expr(k).alias(n) for k, n in zip(keys, names, strict=True)))
        both = zip(names, forms, json, strict=True)
        made = {f: F.expr(n if j is None else form(n, SPARK, json=j)) for n, f, j in both}
        return plain.distinct().withColumns(made)

    loaded, had = keyed(rows, ours, of_load), keyed(table, theirs, of_table)
    unchanged = loaded if sent is rows else keyed(sent, ours, of_load)
    as_is = _same(had, unchanged, [*zip(theirs, ours, strict=True)])
    had = had.join(unchanged, as_is, "left_anti")
    in_form = _same(loaded, had, [*zip(forms, forms, strict=True)])
    return loaded.join(had, in_form).select(*ours, *theirs)


def rekeyed(
    table: "DataFrame", rows: "DataFrame", load: TableLoad, keys: Sequence[str]
) -> "DataFrame":
    """Returns ``table`` with the keys of the load's ``rows`` in place of their other form.
    ``keys``: expressions of both."""
    from pyspark.sql import functions as F

    mixed = mixed_keys(load)
    if not mixed:
        return table
    pairs = _pairs(rows, rows, table, load, keys)
    ours, theirs = (_names(p, len(keys)) for p in (_OURS, _THEIRS))
    same = (F.expr(k).eqNullSafe(pairs[t]) for k, t in zip(keys, theirs, strict=True))
    found = table.join(F.broadcast(pairs), functools.reduce(operator.and_, same), "left")
    at = {path[0]: ours[index] for index, path in enumerate(load.primary_key)}
    return found.withColumns(
        {name: F.coalesce(F.col(at[name]), F.col(quoted(name))) for name in mixed}
    ).drop(*ours, *theirs)


def match_sql(load: TableLoad, alias: str) -> list[str]:
    """Returns the columns of :func:`matched` with the key of the table's row."""
    return [f"{alias}.{MATCH}{index}" for index, _ in enumerate(load.primary_key)]


def matched(
    newest: "DataFrame",
    sent: "DataFrame",
    table: "DataFrame",
    load: TableLoad,
    keys: Sequence[str],
) -> "DataFrame":
    """Returns the ``newest`` rows of a load with the key of the table's row that each replaces
    (:data:`MATCH`). ``sent``: as in :func:`_pairs`. Repeats a row, with :data:`EXTRA`, for
    each other row of its key in the table."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    count = len(keys)
    ours, theirs = _names(_OURS, count), _names(_THEIRS, count)
    had = table.select(*(F.expr(k).alias(n) for k, n in zip(keys, theirs, strict=True)))
    own = newest.select(*(F.expr(k).alias(n) for k, n in zip(keys, ours, strict=True)))
    exact = own.join(had.distinct(), _same(own, had, [*zip(ours, theirs, strict=True)]))
    found = exact.select(*ours, *theirs, F.lit(0).alias("rank")).unionByName(
        _pairs(newest, sent, table, load, keys).withColumn("rank", F.lit(1))
    )
    turn = F.row_number().over(Window.partitionBy(*ours).orderBy("rank", *theirs))
    found = found.withColumn(EXTRA, turn > 1)
    of_key = [F.expr(k).eqNullSafe(found[n]) for k, n in zip(keys, ours, strict=True)]
    both = newest.join(found, functools.reduce(operator.and_, of_key), "left")
    match = {
        f"{MATCH}{i}": F.when(F.col(EXTRA).isNull(), F.expr(k)).otherwise(F.col(theirs[i]))
        for i, k in enumerate(keys)
    }
    both = both.withColumns({**match, EXTRA: F.coalesce(F.col(EXTRA), F.lit(False))})
    return both.drop(*ours, *theirs, "rank")
