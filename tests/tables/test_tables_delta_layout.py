"""What a user gives a Delta table (partitions, NOT NULL, comments, properties, constraints) stays
where Penstock replaces its rows or widens a column."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tasks_here import LOCAL

from penstock.errors import PenstockError
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.delta.tables import DeltaTables

pytestmark = pytest.mark.spark
T = TableName(None, "t")
COLUMNS = {"id": "integer", "v": "string", "n": "integer"}
PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.constraints.positive": "id > 0",
    "theirs": "1",
}


@pytest.fixture(params=["path", "catalog"])
def tables(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Iterator[DeltaTables]:
    if request.param == "path":
        yield DeltaTables(str(tmp_path / "lake"))
        return
    database = f"d{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE DATABASE spark_catalog.{database}")
    yield DeltaTables(f"catalog:spark_catalog.{database}")
    spark.sql(f"DROP DATABASE spark_catalog.{database} CASCADE")


def name_of(tables: DeltaTables) -> str:
    place = tables.location(T)
    return f"delta.`{place}`" if "/" in place else place


def made_by_a_user(tables: DeltaTables, spark: Any) -> None:
    name = name_of(tables)
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL COMMENT 'a number', v STRING COMMENT 'a text', "
        "n BIGINT) USING delta PARTITIONED BY (v) "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true, theirs = 1)"
    )
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (id > 0)")


def put(tables: DeltaTables, spark: Any, load: Any) -> None:
    (outcome,) = tables.commit(spark, LOCAL, [load])
    if isinstance(outcome, PenstockError):
        raise outcome
    assert outcome == LoadResult(load.load.rows)


def layout(tables: DeltaTables, spark: Any) -> tuple[Any, ...]:
    """Partitions, properties, comments, and which columns are never null."""
    about = spark.sql(f"DESCRIBE DETAIL {name_of(tables)}").collect()[0]
    fields = spark.table(name_of(tables)).schema.fields
    comments = {f.name: f.metadata["comment"] for f in fields if "comment" in f.metadata}
    return about.partitionColumns, about.properties, comments, {
        f.name for f in fields if not f.nullable
    }  # fmt: skip


def rows(tables: DeltaTables, spark: Any, *columns: str) -> list[Any]:
    return sorted(tuple(r) for r in spark.table(name_of(tables)).select(*columns).collect())


def test_a_column_that_widens_and_an_overwrite_keep_what_a_user_gave_the_table(
    tables: DeltaTables, spark: Any, loads: Any
) -> None:
    made_by_a_user(tables, spark)
    first = [{"id": 1, "v": "a", "n": 1}, {"id": 2, "v": "b"}]
    put(tables, spark, loads.load(1, first, COLUMNS))
    comments = {"id": "a number", "v": "a text"}
    assert layout(tables, spark) == (["v"], PROPERTIES, comments, {"id"})
    wide = {**COLUMNS, "n": "number"}
    put(tables, spark, loads.load(2, [{"id": 3, "v": "b", "n": 0.5}], wide))
    before = layout(tables, spark)
    assert before[:3] == (["v"], PROPERTIES, comments), "a column became wider"
    assert rows(tables, spark, "id", "n") == [(1, 1.0), (2, None), (3, 0.5)]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        new = loads.load(3, [{"id": 3, "v": "a"}], wide, mode="overwrite", replaces=True)
        put(tables, spark, new)
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert layout(tables, spark) == before
    assert rows(tables, spark, "id", "v") == [(3, "a")]  # the partition b is gone, too
    more = {**wide, "w": "number"}
    new = loads.load(4, [{"id": 4, "v": "b", "w": 1.5}], more, mode="overwrite", replaces=True)
    put(tables, spark, new)
    assert layout(tables, spark) == before
    assert rows(tables, spark, "id", "v", "w") == [(4, "b", 1.5)]
    if "/" not in tables.location(T):
        return  # of a catalog's table the rest is the same code
    other = {"id": "string", "v": "string"}  # n is gone, and id has another type
    spark.sql(f"ALTER TABLE {name_of(tables)} DROP CONSTRAINT positive")
    new = loads.load(5, [{"id": "x", "v": "c"}], other, mode="append_dedup", replaces=True)
    put(tables, spark, new)
    kept = {k: v for k, v in PROPERTIES.items() if k != "delta.constraints.positive"}
    assert layout(tables, spark) == (["v"], kept, comments, set())
    assert rows(tables, spark, "id", "v") == [("x", "c")]
    new = loads.load(6, [{"id": "y"}], {"id": "string"}, mode="overwrite", replaces=True)
    put(tables, spark, new)
    assert layout(tables, spark) == ([], kept, {"id": "a number"}, set())
