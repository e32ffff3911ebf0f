"""Every mode of both formats on real Spark: L3 (a load repeated changes nothing), L6, the rules of
append_dedup. One scenario a format, so that Spark's jobs stay few."""

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from read_back import rows_of
from tasks_here import LOCAL

from penstock.errors import PenstockError, SchemaError
from penstock.tables.contract import LoadResult, TableLoad, TableName
from penstock.tables.formats import open_table

pytestmark = pytest.mark.spark


@pytest.fixture(params=["parquet", "delta"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return open_table(request.param, str(tmp_path / "lake é [x] +"))


def put(tables: Any, spark: Any, *loads: Any) -> list[LoadResult]:
    outcomes = tables.commit(spark, LOCAL, loads)
    for outcome in outcomes:
        if isinstance(outcome, PenstockError):
            raise outcome
    return outcomes


def read(tables: Any, spark: Any, table: str | TableName = "t") -> Any:
    name = table if isinstance(table, TableName) else TableName(None, table)
    from penstock.tables.frame.load_frame import literal_path

    place = tables.location(name)
    return spark.read.format(tables.name).load(
        literal_path(place) if tables.name == "parquet" else place
    )


def ids(tables: Any, *columns: str, table: str = "t") -> list[Any]:
    return sorted(rows_of(tables, *(columns or ("id", "v")), table=table))


def test_append_and_its_repetition_L3(tables: Any, spark: Any, loads: Any) -> None:
    first = loads.load(1, [[{"id": 1, "v": "a"}], [{"id": 2, "v": None}]])
    second = loads.load(2, [{"id": 3, "v": "c"}])
    assert put(tables, spark, first, second) == [LoadResult(2), LoadResult(1)]
    want = [(1, "a"), (2, None), (3, "c")]
    assert read(tables, spark).orderBy("id").select("id", "v").collect() == want
    assert put(tables, spark, second, second) == [LoadResult(0, repeated=True)] * 2
    assert read(tables, spark).count() == 3


def test_metadata_columns_carry_id_time_changes_and_generation(
    tables: Any, spark: Any, loads: Any
) -> None:
    entry = {"field": "v", "change": "NULLED", "reason": "x"}
    put(tables, spark, loads.load(1, [{"id": 1}], changes=[[entry]]))
    frame = read(tables, spark)
    assert frame.columns == ["id", "v", "_raw_id", "_extracted_at", "_meta", "_generation_id"]
    row = frame.collect()[0].asDict(recursive=True)
    assert row["_meta"] == {"sync_id": 7, "changes": [entry]}
    assert (row["_generation_id"], len(row["_raw_id"])) == (3, 36)
    assert frame.select("_extracted_at").dtypes == [("_extracted_at", "timestamp")]
    bare = TableName("ns", "bare")
    put(tables, spark, loads.load(1, [{"id": 1}], table=bare, metadata=None))
    assert read(tables, spark, bare).columns == ["id", "v"]


def test_overwrite_publishes_a_generation_in_one_commit_L6(
    tables: Any, spark: Any, loads: Any
) -> None:
    put(tables, spark, loads.load(1, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], mode="overwrite"))
    new = loads.load(
        2, [{"id": "9", "w": 1.5}], {"id": "string", "w": "number"}, mode="overwrite", replaces=True
    )
    assert put(tables, spark, new)[0].repeated is False
    assert put(tables, spark, new)[0].repeated is True
    assert ids(tables, "id", "w") == [("9", 1.5)]
    empty = loads.load(4, [], {"id": "string", "w": "number"}, mode="overwrite", replaces=True)
    assert put(tables, spark, empty) == [LoadResult(0)]
    assert read(tables, spark).count() == 0


def test_append_dedup_keeps_the_newest_within_and_across_loads(
    tables: Any, spark: Any, loads: Any
) -> None:
    columns = {"id": "integer", "at": "date", "v": "string"}

    def day(n: int) -> dt.date:
        return dt.date(2024, 1, n)

    def load(number: int, rows: list[dict[str, Any]]) -> Any:
        return loads.load(number, rows, columns, mode="append_dedup", cursor=("at",))

    first = load(
        1,
        [
            {"id": 1, "at": day(5), "v": "new"},
            {"id": 1, "at": day(4), "v": "older arrives later"},
            {"id": 2, "at": None, "v": "no cursor"},
            {"id": 2, "at": day(1), "v": "a cursor after none"},
            {"id": 3, "at": day(1), "v": "tie, first"},
            {"id": 3, "at": day(1), "v": "tie, last"},
        ],
    )
    assert put(tables, spark, first)[0].written == 3
    want = [(1, "new"), (2, "a cursor after none"), (3, "tie, last")]
    assert ids(tables) == want
    second = load(
        2,
        [
            {"id": 1, "at": day(4), "v": "older never wins"},
            {"id": 2, "at": None, "v": "without a cursor, and later"},
            {"id": 3, "at": day(1), "v": "tie: the load wins"},
            {"id": 4, "at": None, "v": "fresh"},
        ],
    )
    (done,) = put(tables, spark, second)
    assert (done.written, done.superseded) == (3, 1)
    want = [(1, "new"), (2, "without a cursor, and later"), (3, "tie: the load wins"), (4, "fresh")]
    assert ids(tables) == want
    assert put(tables, spark, second, second) == [LoadResult(0, repeated=True)] * 2
    assert ids(tables) == want


@pytest.mark.parametrize(
    ("tables", "deletes"), [("parquet", "hard"), ("delta", "soft")], indirect=["tables"]
)
def test_deletes_with_composite_nested_keys(
    tables: Any, spark: Any, loads: Any, deletes: str
) -> None:
    columns = {
        "k": {"a": "integer", "b": "string"},
        "n": {"at": "integer"},
        "v": "string",
        "gone": "string",
    }

    def load(number: int, *rows: tuple[Any, ...]) -> Any:
        made = [
            {"k": {"a": a, "b": b}, "n": {"at": at}, "v": v, "gone": g} for a, b, at, v, g in rows
        ]
        return loads.load(
            number,
            made,
            columns,
            mode="append_dedup",
            primary_key=(("k", "a"), ("k", "b")),
            cursor=("n", "at"),
            deleted="gone",
            deletes=deletes,
        )

    put(
        tables,
        spark,
        load(1, (1, None, 1, "x", None), (1, "b", 1, "y", None), (2, "c", 1, "z", None)),
    )
    result = put(
        tables,
        spark,
        load(
            2,
            (1, None, 2, None, "now"),  # null-safe: this key's row, not (1, b)
            (2, "c", 0, None, "too old to delete"),
            (9, "d", 1, None, "deletes nothing"),
        ),
    )
    have = sorted(
        (k["a"], k["b"] or "", v or "", gone or "")
        for k, v, gone in rows_of(tables, "k", "v", "gone")
    )
    if deletes == "hard":
        assert have == [(1, "b", "y", ""), (2, "c", "z", "")]
        assert [r.written for r in result] == [1]
    else:
        assert have == [
            (1, "", "x", "now"),
            (1, "b", "y", ""),
            (2, "c", "z", ""),
            (9, "d", "", "deletes nothing"),
        ]
        assert [r.written for r in result] == [2]


def test_append_dedup_by_a_column_that_is_new_in_the_table(
    tables: Any, spark: Any, loads: Any
) -> None:
    """The rows that are there have no value of it: they stay, as rows of no key of the load."""
    put(tables, spark, loads.load(1, [{"id": 1, "v": "a"}], mode="append_dedup"))
    wider = {"id": "integer", "v": "string", "shop": "string"}

    def load(number: int, *values: str) -> Any:
        rows = [{"id": 1, "v": v, "shop": "x"} for v in values]
        key = (("id",), ("shop",))
        return loads.load(number, rows, wider, mode="append_dedup", primary_key=key)

    assert put(tables, spark, load(2, "b", "c")) == [LoadResult(1, superseded=1)]
    put(tables, spark, load(3, "d"))
    assert ids(tables, "id", "v") == [(1, "a"), (1, "d")]
    put(tables, spark, loads.load(1, [{"id": 1, "v": "a"}], table="fixed", mode="append_dedup"))
    narrow = loads.load(
        2,
        [{"id": 1, "v": "b", "shop": "x"}],
        wider,
        table="fixed",
        mode="append_dedup",
        primary_key=(("shop",),),
        evolution={"new_column": "ignore"},
    )
    (refused,) = tables.commit(spark, LOCAL, [narrow])
    assert isinstance(refused, SchemaError) and "no column shop" in refused.message
    assert "schema_evolution.new_column" in (refused.hint or "")


def test_a_decimal_that_is_widened_loses_nothing(tables: Any, spark: Any, loads: Any) -> None:
    """Of no value the report says that it may have become NULL, in the table or in the load;
    whether rows are appended or merged."""
    from decimal import Decimal

    def load(number: int, mode: str, value: str, *digits: int) -> TableLoad:
        columns = {"id": "integer", "v": digits}
        return loads.load(number, [{"id": number, "v": Decimal(value)}], columns, mode=mode)

    for each in (
        load(1, "append", "123456789012345678.25", 20, 2),
        load(2, "append_dedup", "0.1234", 10, 4),  # the table becomes wider
        load(3, "append", "0.123456", 10, 6),  # and again
        load(4, "append_dedup", "7.5", 3, 1),
    ):
        assert put(tables, spark, each) == [LoadResult(1)]
    assert ids(tables, "id", "v") == [
        (1, Decimal("123456789012345678.250000")),
        (2, Decimal("0.123400")),
        (3, Decimal("0.123456")),
        (4, Decimal("7.500000")),
    ]


def test_a_load_that_fails_does_not_stop_the_others(tables: Any, spark: Any, loads: Any) -> None:
    good, bad = (
        loads.load(1, [{"id": 1, "v": "a"}], table="good"),
        loads.load(1, [{"id": 2}], table="bad"),
    )
    Path(bad.parts[0]).write_bytes(b"PAR1 not really")
    keyless = loads.load(1, [{"id": 3}], table="keyless", mode="append_dedup", primary_key=())
    outcomes = tables.commit(spark, LOCAL, [bad, good, keyless])
    assert isinstance(outcomes[0], PenstockError) and outcomes[0].exit_code == 5
    assert outcomes[1] == LoadResult(1)
    assert isinstance(outcomes[2], SchemaError) and outcomes[2].code == "schema.primary_key"
    assert ids(tables, table="good") == [(1, "a")]


def test_every_kind_and_odd_names_reach_all_readers(tables: Any, spark: Any, loads: Any) -> None:
    columns = {
        "é/x.y%`z": "string",
        "flag": "boolean",
        "n": "integer",
        "f": "number",
        "big": (38, 0),
        "money": (10, 2),
        "d": "date",
        "ts": "timestamp",
        "ntz": "timestamp_ntz",
        "clock": "time",
        "bytes": "binary",
        "tags": ["string"],
        "deep": [{"a": ["integer"], "when": "timestamp"}],
        "any": "json",
    }
    utc = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    from decimal import Decimal

    row = {
        "é/x.y%`z": "odd",
        "flag": True,
        "n": 2**63 - 1,
        "f": 0.1,
        "big": Decimal(10**37),
        "money": Decimal("1.25"),
        "d": dt.date(1, 1, 1),
        "ts": utc,
        "ntz": utc.replace(tzinfo=None),
        "clock": "10:11:12",
        "bytes": b"\0\xff",
        "tags": ["a", None],
        "deep": [{"a": [1], "when": utc}],
        "any": '{"x": 1}',
    }
    put(tables, spark, loads.load(1, [row], columns))
    assert read(tables, spark).selectExpr("n", "money", "any", "`é/x.y%``z`").collect() == [
        (2**63 - 1, Decimal("1.25"), '{"x": 1}', "odd")
    ]
    place = tables.location(TableName(None, "t"))
    if tables.name == "parquet":
        found = ds.dataset(place, format="parquet").to_table().select(list(columns)).to_pylist()
    else:
        from deltalake import DeltaTable

        found = DeltaTable(place).to_pyarrow_dataset().to_table().select(list(columns)).to_pylist()
    assert found == [row]
    if tables.name == "parquet":
        glob = place.replace("[", "[[]") + "/*.parquet"
        assert duckdb.sql(f"select n from '{glob}'").fetchall() == [(2**63 - 1,)]
