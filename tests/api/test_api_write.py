"""``penstock.write``: any DataFrame to any destination, by a run like any other."""

import json
import sys
import threading
import uuid
from datetime import time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.engine.run.spark import RunSpark
from penstock.errors import ConfigError, DestinationError, Locked, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Api

pytestmark = pytest.mark.spark
STUBS = Path(__file__).parents[1] / "stubs"
ROWS = [{"id": n, "name": f"n{n}"} for n in range(1, 6)]


def table(api: "Api", stream: str = "people") -> dict[int, str]:
    files = sorted((api.folder / "lake" / stream).glob("*.parquet"))
    found = pa.concat_tables([pq.ParquetFile(f).read(["id", "name"]) for f in files]).to_pylist()
    rows = {row["id"]: row["name"] for row in found}
    assert len(rows) == len(found)
    return rows


def write(api: "Api", rows: Any, **given: Any) -> penstock.Report:
    return penstock.write(rows, api.lake, "people", home=api.home, **given)


def test_any_kind_of_table_and_upsert(spark_api: "Api", shared_spark: "SparkSession") -> None:
    upsert: dict[str, Any] = {"mode": "upsert", "primary_key": ["id"]}
    first = write(spark_api, pandas.DataFrame(ROWS[:2]), **upsert)
    assert (first.status, first.streams[0].committed) == ("succeeded", 2)
    write(spark_api, polars.DataFrame([{"id": 2, "name": "two"}, ROWS[2]]), **upsert)
    write(spark_api, (row for row in [ROWS[3], {"id": 2, "name": "two"}]), **upsert)
    frame = shared_spark.createDataFrame([(5, "n5"), (1, "one")], "id BIGINT, name STRING")
    write(spark_api, frame, **upsert)
    assert table(spark_api) == {1: "one", 2: "two", 3: "n3", 4: "n4", 5: "n5"}
    assert not list((spark_api.home / "frames").glob("*"))
    assert not [t for t in shared_spark.catalog.listTables("global_temp") if "penstock" in t.name]


def test_append_is_the_default_and_overwrite_replaces(spark_api: "Api") -> None:
    write(spark_api, pandas.DataFrame(ROWS[:2]))
    write(spark_api, pandas.DataFrame(ROWS[2:]))
    assert sorted(table(spark_api)) == [1, 2, 3, 4, 5]
    other: dict[str, Any] = {"mode": "overwrite", "name": "other"}
    with pytest.raises(ConfigError, match="write-people") as refused:  # which would not come again
        write(spark_api, pandas.DataFrame(ROWS[:1]), **other)
    assert refused.value.code == "config.other_pipeline"
    assert sorted(table(spark_api)) == [1, 2, 3, 4, 5]
    write(spark_api, pandas.DataFrame(ROWS[:1]), yes=True, **other)
    write(spark_api, pandas.DataFrame(ROWS[:1]), **other)
    assert sorted(table(spark_api)) == [1]


def test_B4_a_type_of_nulls_widens_to_what_comes(
    spark_api: "Api", shared_spark: "SparkSession"
) -> None:
    """L9: a column without a value has no type that a later value could fail to fit."""
    come: list[dict[str, Any]] = [
        {"v": "text", "n": 1.5, "l": ["x"], "s": {"a": "text", "b": 2}, "only": {"a": 7}},
        {"v": None, "n": None, "l": [], "s": {"a": None, "b": 3}, "only": {"a": None}},
    ]
    first = {"v": None, "n": None, "l": [], "s": {"a": None, "b": 1}, "only": {"a": None}}
    rows = [{"id": n, **row} for n, row in enumerate([first, *come])]
    for row in rows:
        report = write(spark_api, pa.Table.from_pylist([row]))
        assert report.streams[0].committed == 1
    for query in ("SELECT 8L AS id, NULL AS x", "SELECT 9L AS id, 0.5D AS x"):
        assert write(spark_api, shared_spark.sql(query)).streams[0].committed == 1
    files = sorted((spark_api.folder / "lake" / "people").glob("*.parquet"))
    parts = [pq.ParquetFile(f).read() for f in files]
    found = pa.concat_tables(parts, promote_options="permissive").sort_by("id").to_pylist()
    wanted = ["id", "v", "n", "l", "s", "only"]
    assert [row["x"] for row in found[3:]] == [None, 0.5]
    assert [{name: row[name] for name in wanted} for row in found[:3]] == [
        {**rows[0], "only": None}, rows[1], rows[2],
    ]  # fmt: skip


def test_L8_a_reader_that_gives_no_rows_empties_no_table(spark_api: "Api") -> None:
    """It may have been read before, as by a try that failed, or by the program itself."""
    overwrite: dict[str, Any] = {"mode": "overwrite"}
    rows = pa.Table.from_pylist(ROWS)

    def reader() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())

    first = reader()
    write(spark_api, first, **overwrite)
    with pytest.raises(ConfigError, match="an earlier write has read this"):
        write(spark_api, first, **overwrite)
    read = reader()
    read.read_all()
    batches = iter([rows.slice(0, 0)])
    for given in (read, batches):
        with pytest.raises(ConfigError, match="the table would be emptied") as refused:
            write(spark_api, given, **overwrite)
        assert refused.value.code == "write.rows" and "allow_empty" in (refused.value.hint or "")
    assert sorted(table(spark_api)) == [1, 2, 3, 4, 5]
    assert not list((spark_api.home / "frames").glob("*"))
    empty = pa.RecordBatchReader.from_batches(rows.schema, [])
    write(spark_api, empty, allow_empty=True, **overwrite)
    assert table(spark_api) == {}


def test_types_that_parquet_lacks_come_in_one_that_holds_each_value(spark_api: "Api") -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))
    half = pa.array([1.5, None, -0.25], pa.float16())
    write(spark_api, pa.table({"id": [1, 2, 3], "runs": runs, "half": half}))
    [file] = (spark_api.folder / "lake" / "people").glob("*.parquet")
    found = sorted(pq.read_table(file, columns=["id", "runs", "half"]).to_pylist(), key=str)
    assert [tuple(row.values()) for row in found] == [
        (1, "a", 1.5),
        (2, "a", None),
        (3, None, -0.25),
    ]


def test_a_named_index_of_pandas_is_a_column(spark_api: "Api") -> None:
    write(spark_api, pandas.DataFrame(ROWS[:2]).set_index("id"))
    assert table(spark_api) == {1: "n1", 2: "n2"}


def test_to_a_destination_connector(spark_api: "Api") -> None:
    sink = spark_api.folder / "sink.jsonl"
    told = json.dumps({"save": str(sink)})
    target = f"singer:{sys.executable} {STUBS / 'stub_target.py'} '{told}'"
    report = penstock.write(pandas.DataFrame(ROWS), target, "people", home=spark_api.home)
    assert (report.streams[0].committed, report.guarantee) == (5, "at-least-once")
    assert report.streams[0].target == "people"
    assert all(f"n{n}" in sink.read_text() for n in range(1, 6))


def test_rows_of_a_halted_destination_wait_and_others_are_not_taken_for_written(
    spark_api: "Api",
) -> None:
    """L1: rows without a state. A later write's are refused, as no run could read them again."""
    sink = spark_api.folder / "sink.jsonl"

    def rows_to(told: dict[str, Any], first: int) -> penstock.Report:
        stub = STUBS / "stub_syncmaven.py"
        use = f"syncmaven:{sys.executable} {stub} '{json.dumps({'sink': str(sink), **told})}'"
        frame = pa.Table.from_pylist([{"id": first + n} for n in range(3)])
        return penstock.write(frame, use, "people", name="halted", home=spark_api.home)

    quota = {"halt": {"at": "row", "after": 2, "status": "ok"}}
    assert rows_to(quota, 10).streams[0].committed == 0
    with pytest.raises(DestinationError) as refused:
        rows_to(quota, 20)
    assert refused.value.code == "destination.halted" and refused.value.report.exit_code == 0
    before = len(sink.read_text().splitlines())
    assert rows_to({}, 30).streams[0].committed == 6
    told = [json.loads(line) for line in sink.read_text().splitlines()[before:]]
    sent = [m["payload"]["row"]["id"] for m in told if m["type"] == "row"]
    assert sent == [10, 11, 12, 30, 31, 32]


@pytest.mark.parametrize(
    ("rows", "given", "says"),
    [
        (pandas.DataFrame(ROWS), {"mode": "upsert", "primary_key": ["key"]}, "key"),
        (pandas.DataFrame(ROWS), {"mode": "upsert"}, "primary"),
        (pandas.DataFrame(ROWS), {"mode": "upsurt"}, "upsert"),
        ([1, 2], {}, "row 1 is an int"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), {}, "Duplicate column names"),
        (pandas.DataFrame({"a": [1, "x"]}), {}, "a whole number (row 1) and text (row 2)"),
        (
            pandas.DataFrame({"a": pandas.period_range("2024-01", periods=2, freq="M")}),
            {},
            "a holds periods",
        ),
        (pandas.DataFrame({"a": pandas.arrays.SparseArray([0, 1])}), {}, "Sparse"),
        (pandas.DataFrame({"a": [uuid.UUID(int=7)]}), {}, "a holds UUIDs"),
        (pandas.DataFrame({"a": [time(1, 2)]}), {}, "a holds times of a day"),
        (pa.table({"a": [[{"b": time(1, 2)}]]}), {}, "a holds times of a day"),
        (polars.DataFrame({"a": [1]}, schema={"a": polars.Int128}), {}, "a is Int128"),
        (polars.DataFrame({"a": [object()]}), {}, "a is Object"),
        (pandas.DataFrame({"a": pandas.Series([2**70], dtype=object)}), {}, "too large"),
        (
            pa.table({"a": pa.array([Decimal("1E+5")], pa.decimal128(10, -3))}),
            {},
            "a is decimal128(10, -3)",
        ),
        (pandas.Series([1, 2], name="a"), {}, "Series is not a table"),
        (polars.Series("a", [1, 2]), {}, "Series is not a table"),
        (pandas.DataFrame({"a": [pandas.Timedelta("1s")]}), {}, "a holds spans of time"),
        (pa.table({"a": [[{"b": timedelta(1)}]]}), {}, "a holds spans of time"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    spark_api: "Api", rows: Any, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        write(spark_api, rows, **given)
    assert says in " ".join([refused.value.message, *refused.value.problems])
    assert refused.value.code.startswith(("write.", "config."))
    assert not (spark_api.folder / "lake" / "people").exists()


@pytest.mark.parametrize("mode", ["upsert", "update", "incremental_append_dedup"])
def test_a_key_that_is_missing_is_told_before_spark_starts(
    api: "Api", monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(RunSpark, "start_early", started)
    monkeypatch.setattr(RunSpark, "open", started)
    with pytest.raises(ConfigError, match="needs a primary_key") as refused:
        write(api, pandas.DataFrame(ROWS), mode=mode)
    assert refused.value.code == "write.primary_key"


def test_a_mirror_of_no_rows_removes_them_only_where_that_is_said(spark_api: "Api") -> None:
    mirror: dict[str, Any] = {"mode": "mirror", "primary_key": ["id"]}
    rows = pa.Table.from_pylist(ROWS)
    write(spark_api, rows, **mirror)
    with pytest.raises(SourceError) as refused:
        write(spark_api, rows.slice(0, 0), **mirror)
    assert refused.value.code == "source.empty_model"
    assert "keyword of penstock.write" in (refused.value.hint or "")
    without_types = pa.table({name: pa.array([], pa.null()) for name in ROWS[0]})
    with pytest.raises(SourceError) as refused:
        write(spark_api, without_types, **mirror)
    assert refused.value.code == "source.empty_model"
    assert sorted(table(spark_api)) == [1, 2, 3, 4, 5]
    write(spark_api, without_types, allow_empty=True, **mirror)
    assert table(spark_api) == {}


def test_two_writers_of_one_name(spark_api: "Api") -> None:
    """L12: the second is refused while the first goes on."""
    told: list[object] = []
    barrier = threading.Barrier(2)

    def work() -> None:
        barrier.wait()
        try:
            told.append(write(spark_api, pandas.DataFrame(ROWS), name="one"))
        except Locked as error:
            told.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(type(each).__name__ for each in told) == ["Locked", "Report"]
    assert len(table(spark_api)) == 5
