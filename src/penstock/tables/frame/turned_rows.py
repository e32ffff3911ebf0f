"""Converts the rows of a table that begins a history to versions, and back where its history ends.

The rows of a table with one row per key become the first versions, starting at their cursor, or at
their time of extraction. In the other direction, the current versions become the rows. The formats
write either in a separate commit before the load's, so that a repeated load meets a table of its
kind. Neighbours: ``refused_histories`` decides which tables turn, ``history.columns`` names the
columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.segments import CursorOrder
from penstock.model.types import Field, RowSchema
from penstock.spark.types import ddl, quoted
from penstock.tables.contract import TableLoad
from penstock.tables.frame.soft_deletes import marked_sql
from penstock.tables.history.columns import COLUMNS, CURRENT, END, START, history_fields
from penstock.tables.load_columns import load_history
from penstock.tables.newest import OTHER, SPARK, order_of
from penstock.tables.refused_histories import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def turned_fields(load: TableLoad, old: Sequence[Field]) -> tuple[Field, ...]:
    """Returns the columns of a table with the columns ``old`` after it has turned."""
    if not load.history:
        return tuple(f for f in old if f.name not in COLUMNS)
    cursor = () if load.arrival else load.cursor
    known = bool(cursor) and any(f.name == cursor[0] for f in old)
    # the cursor may become wider with the load
    return (*old, *(history_fields(RowSchema((*old,)), cursor) if known else load_history(load)))


def turned(rows: "DataFrame", load: TableLoad, old: Sequence[Field]) -> "DataFrame":
    """Returns the rows of a table with the columns ``old`` as versions or, if the load ends its
    history, its current versions as rows. Raises ``DestinationError`` (``destination.history``)."""
    if not load.history:
        return rows.filter(quoted(CURRENT)).drop(*COLUMNS)
    _refuse(rows, load, old)
    return _versions(rows, load, old)


def _refuse(rows: "DataFrame", load: TableLoad, old: Sequence[Field]) -> None:
    have = {f.name: f for f in old}
    keys = [path[0] for path in load.primary_key]
    absent = [key for key in keys if key not in have]
    if absent:
        raise refused(load.table.name, f"the table has no column {absent[0]}, which is of the key")
    mark = have.get(load.deleted_column or "")
    if mark is not None and not rows.filter(marked_sql(mark)).isEmpty():
        raise refused(
            load.table.name, f"the table has rows that {mark.name} marks as deleted (deletes: soft)"
        )
    if not rows.groupBy(*map(quoted, keys)).count().filter("count > 1").isEmpty():
        raise refused(load.table.name, f"the table has several rows of a key {', '.join(keys)}")


def _versions(rows: "DataFrame", load: TableLoad, old: Sequence[Field]) -> "DataFrame":
    from pyspark.sql import functions as F

    have = {f.name: f for f in old}
    fields = {f.name: f for f in turned_fields(load, old) if f.name in COLUMNS}
    names = load.policy.metadata
    if load.arrival or not load.cursor:
        begins = None if names is None else quoted(names.extracted_at)
        begins = begins if names is not None and names.extracted_at in have else None
    elif load.cursor[0] in have:
        cursor, as_text = have[load.cursor[0]], load.cursor_order is CursorOrder.text
        order = order_of(quoted(cursor.name), cursor.type.kind, SPARK, as_text=as_text)
        for name, sql in order.steps:
            rows = rows.withColumn(name, F.expr(sql))
        begins = f"CASE WHEN {order.form} <> {OTHER} THEN {quoted(cursor.name)} END"
    else:
        begins = None
    kind = ddl(fields[START].type)
    return rows.select(
        *(F.col(quoted(f.name)) for f in old),
        F.expr(f"CAST({begins or 'NULL'} AS {kind})").alias(START),
        F.expr(f"CAST(NULL AS {kind})").alias(END),
        F.lit(True).alias(CURRENT),
    )
