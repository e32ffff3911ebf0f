"""Delta tables by name: ``delta:catalog:CATALOG.DATABASE``, on Spark's own catalog (L3, L6)."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tasks_here import LOCAL

from penstock.errors import ConfigError, DestinationError, PenstockError
from penstock.tables.contract import LoadResult, TableAhead, TableName
from penstock.tables.delta.locations import table_name
from penstock.tables.delta.tables import DeltaTables


@pytest.fixture
def tables(spark: Any) -> Iterator[DeltaTables]:
    database = f"d{uuid.uuid4().hex[:8]}"
    yield DeltaTables(f"catalog:spark_catalog.{database}")
    spark.sql(f"DROP DATABASE IF EXISTS spark_catalog.{database} CASCADE")


def put(tables: DeltaTables, spark: Any, *loads: Any) -> list[LoadResult]:
    outcomes = tables.commit(spark, LOCAL, loads)
    for outcome in outcomes:
        if isinstance(outcome, PenstockError):
            raise outcome
    return outcomes  # type: ignore[return-value]


T = TableName(None, "t")


def ids(tables: DeltaTables, spark: Any, table: TableName = T) -> list[Any]:
    return sorted(tuple(r) for r in spark.table(tables.location(table)).select("id", "v").collect())


REPEATED = LoadResult(0, repeated=True)


@pytest.mark.spark
def test_append_by_name_and_its_repetition_L3(tables: Any, spark: Any, loads: Any) -> None:
    tables.check()
    spaced = TableName("shop", "t")
    first, second = (
        loads.load(n, [{"id": n, "v": "a"}], table=spaced, key="birth/t") for n in (1, 2)
    )
    assert put(tables, spark, first) == [LoadResult(1)]
    assert put(tables, spark, first, second, second) == [
        REPEATED,
        LoadResult(1),
        REPEATED,
    ]
    assert ids(tables, spark, spaced) == [(1, "a"), (2, "a")]
    assert tables.location(spaced).endswith(".shop__t")
    wider = loads.load(
        3, [{"id": 3, "v": "c", "w": 1.5}], {"id": "integer", "v": "string", "w": "number"},
        table=spaced, key="birth/t",
    )  # fmt: skip
    put(tables, spark, wider)
    assert spark.table(tables.location(spaced)).filter("w = 1.5").count() == 1
    schema = spark.table(tables.location(spaced)).schema
    assert schema["id"].metadata == {"penstock.source": "id"}


@pytest.mark.spark
def test_overwrite_by_name_is_one_commit_and_repeats_safely_L6(
    tables: Any, spark: Any, loads: Any
) -> None:
    put(tables, spark, loads.load(1, [{"id": 1}, {"id": 2}], mode="overwrite", replaces=True))
    new = loads.load(
        2, [{"id": "9", "v": 1.5}], {"id": "string", "v": "number"}, mode="overwrite", replaces=True
    )
    assert put(tables, spark, new) == [LoadResult(1)]
    assert put(tables, spark, loads.load(3, [{"id": "8"}], {"id": "string", "v": "number"})) == [
        LoadResult(1)
    ]
    (outcome,) = tables.commit(spark, LOCAL, [new])
    assert isinstance(outcome, TableAhead)  # or 8 were gone
    assert ids(tables, spark) == [("8", None), ("9", 1.5)]
    history = spark.sql(f"DESCRIBE HISTORY {tables.location(TableName(None, 't'))}")
    assert history.count() == 3


@pytest.mark.spark
def test_append_dedup_by_name_merges(tables: Any, spark: Any, loads: Any) -> None:
    def load(number: int, *rows: tuple[int, str | None, int]) -> Any:
        made = [{"id": i, "v": v, "at": at} for i, v, at in rows]
        columns = {"id": "integer", "v": "string", "at": "integer"}
        return loads.load(number, made, columns, mode="append_dedup", cursor=("at",))

    first = load(1, (1, "a", 1), (1, "b", 2), (2, "c", 5))
    assert put(tables, spark, first) == [LoadResult(2, superseded=1)]
    second = load(2, (1, "x", 1), (2, "y", 6), (3, "z", 1))
    assert put(tables, spark, second, second) == [LoadResult(2, superseded=1), REPEATED]
    assert ids(tables, spark) == [(1, "b"), (2, "y"), (3, "z")]


@pytest.mark.spark
def test_a_column_widens_by_name(tables: Any, spark: Any, loads: Any) -> None:
    put(tables, spark, loads.load(1, [{"id": 1, "v": 3}], {"id": "integer", "v": "integer"}))
    put(tables, spark, loads.load(2, [{"id": 2, "v": 1.5}], {"id": "integer", "v": "number"}))
    assert ids(tables, spark) == [(1, 3.0), (2, 1.5)]


@pytest.mark.spark
def test_a_table_of_another_format_is_left_alone(tables: Any, spark: Any, loads: Any) -> None:
    put(tables, spark, loads.load(1, [{"id": 1}], table="other"))
    place = tables.location(TableName(None, "t"))
    spark.sql(f"CREATE TABLE {place} USING parquet AS SELECT 5 AS id, 'theirs' AS v")
    outcome = tables.commit(
        spark, LOCAL, [loads.load(1, [{"id": 1}], mode="overwrite", replaces=True)]
    )[0]
    assert isinstance(outcome, DestinationError) and outcome.code == "destination.not_ours"
    assert ids(tables, spark) == [(5, "theirs")]


@pytest.mark.spark
def test_a_catalog_that_ends_with_the_session_is_refused(
    spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables would be lost with exit 0 (L1)."""
    from penstock.tables.delta import locations as delta_locations

    monkeypatch.setattr(delta_locations, "SCRATCH_WAREHOUSE", "lasting warehouse")
    outcome = DeltaTables("catalog:spark_catalog.gone").commit(
        spark, LOCAL, [loads.load(1, [{"id": 1}])]
    )
    assert isinstance(outcome[0], ConfigError)
    assert outcome[0].code == "destination.catalog_in_memory"
    assert not spark.catalog.databaseExists("spark_catalog.gone")


@pytest.mark.parametrize("text", ["catalog:", "catalog:shop", "catalog:a.b.c", "catalog:a.b c"])
def test_a_catalog_is_named_with_its_database(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DeltaTables(text)
    assert "CATALOG.DATABASE" in (caught.value.hint or "")


def test_names_in_a_database_are_plain_and_never_shared() -> None:
    assert table_name(TableName(None, "users")) == "users"
    assert table_name(TableName("shop", "users")) == "shop__users"
    alike = [(None, "a__b"), ("a", "b"), ("a_", "b"), ("a", "_b"), ("a__b", "c"), ("a", "b__c")]
    alike += [
        (None, "é"),
        (None, "è"),
        (None, "x" * 200),
        (None, "x" * 199),
        ("a", "é"),
        ("é", "a"),
    ]
    made = [table_name(TableName(*pair)) for pair in alike]
    assert len({m.lower() for m in made}) == len(alike)
    assert all(len(m) <= 120 and m.replace("_", "a").isalnum() and m.isascii() for m in made)
