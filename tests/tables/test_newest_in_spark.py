"""The rule of the newest row as Spark computes it, against the oracle: many keys a job."""

from typing import Any

import pytest
from newest_cases import TEXTS, Row, cases, oracle

from penstock.model.segments import CursorOrder
from penstock.tables.frame import load_frame
from penstock.tables.frame.arrival import SENT
from penstock.tables.load_columns import load_fields
from penstock.tables.newest import TWO

pytestmark = pytest.mark.spark
KEYS = 2000


def frame(spark: Any, rows: list[Row], kind: str) -> Any:
    column = "string" if kind == "string" else "double"
    return spark.createDataFrame(
        [(r.key, r.cursor, "x" if r.gone else None, r.seq, None) for r in rows],
        f"id BIGINT, c {column}, gone STRING, {load_frame.ARRIVAL} BIGINT, {SENT} STRING",
    )


@pytest.mark.parametrize(
    ("kind", "order", "values"),
    [
        ("string", CursorOrder.by_value, TEXTS),
        ("string", CursorOrder.text, [*TEXTS, "é", "\U0001f600", "\uffff"]),
        ("number", CursorOrder.by_value, [None, 0.0, -0.0, 1.5, float("inf"), float("nan")]),
    ],
)
def test_the_newest_row_is_the_oracle_s(
    spark: Any, loads: Any, kind: str, order: CursorOrder, values: list[Any]
) -> None:
    made = cases(11, KEYS, values)
    columns = {"id": "integer", "c": kind, "gone": "string"}
    load = loads.load(1, [{"id": 1}], columns, mode="append_dedup", cursor=("c",),
                      deleted="gone", cursor_order=order, metadata=None)  # fmt: skip
    target = load_fields(load)
    wanted = {case.rows[0].key: oracle(case, order is CursorOrder.text) for case in made}
    fresh = frame(spark, [row for case in made for row in case.rows], kind)
    table = frame(spark, [case.table for case in made if case.table], kind)
    table = table.drop(load_frame.ARRIVAL, SENT)

    from pyspark.sql import functions as F

    both = fresh.withColumn(load_frame.ORIGIN, F.lit(1)).unionByName(
        load_frame.with_table_order(table, load, target)
    )
    found = load_frame.newest(both, load, target).select("id", load_frame.ARRIVAL, TWO).collect()
    assert {r[0]: (r[1] or 0, r[2]) for r in found} == {
        key: (fold.row.seq, fold.mixed) for key, fold in wanted.items()
    }
    alone = load_frame.newest_beside(fresh, lambda: table, load, target).alias("s")
    condition = load_frame.replaces_sql(load, target, target)
    merged = alone.join(table.alias("t"), F.expr("s.id = t.id"), "left").selectExpr(
        "s.id", f"s.{load_frame.ARRIVAL}", f"t.id IS NULL OR ({condition})"
    )
    taken = {r[0]: r[1] for r in merged.collect() if r[2]}
    assert {key: taken.get(key, 0) for key in wanted} == {
        key: fold.row.seq for key, fold in wanted.items()
    }
