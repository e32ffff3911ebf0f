"""Parts in their table's shape become files of a Delta table in one commit (L2, L3): with the
load's transaction id, statistics and note, or not at all where the table asks for more."""

import datetime as dt
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from read_back import rows_of
from shaped import inodes, shaped
from tasks_here import LOCAL

from penstock.tables.contract import LoadResult, TableName
from penstock.tables.delta import files as delta_files
from penstock.tables.delta import tables as delta
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.files import direct_parts, linked_parts
from penstock.tables.files.statistics import statistics

T = TableName(None, "t")
NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark


class Died(BaseException):
    """What a killed process does: nothing after it runs."""


def dies(*_: Any, **__: Any) -> None:
    raise Died


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path / "lake [1] +% é"))


def ids(tables: DeltaTables) -> list[int]:
    table = DeltaTable(tables.location(T))
    return sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())


def files(tables: DeltaTables) -> list[Path]:
    return list(Path(tables.location(T)).glob("*.parquet"))


def numbered(load: Any, follows: int) -> Any:
    inner = msgspec.structs.replace(load.load, follows=follows, token=f"t{load.load.number}")
    return msgspec.structs.replace(load, load=inner)


def log(tables: DeltaTables, version: int) -> list[dict[str, Any]]:
    path = Path(tables.location(T), "_delta_log", f"{version:020d}.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_load_is_one_commit_of_its_parts_L2_L3(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_parts, "SMALL_BYTES", 0)
    first = numbered(shaped(loads.load(1, [{"id": 1}])), 0)
    second = numbered(shaped(loads.load(2, [[{"id": 2}], [{"id": 3}]])), 1)
    assert tables.commit(NO_SPARK, LOCAL, [first, second]) == [LoadResult(1), LoadResult(2)]
    assert tables.commit(NO_SPARK, LOCAL, [second]) == [LoadResult(0, repeated=True)]
    assert ids(tables) == [1, 2, 3]
    assert inodes(files(tables)) == inodes(first.parts) | inodes(second.parts)
    table = DeltaTable(tables.location(T))
    assert table.version() == 1 and table.transaction_version(second.load.key) == 2
    commit = log(tables, 1)
    assert [*commit[0]] == ["commitInfo"]
    assert json.loads(commit[0]["commitInfo"]["userMetadata"]) == {
        "penstock": second.load.key, "number": 2, "token": "t2", "user": None
    }  # fmt: skip
    assert [json.loads(a["add"]["stats"])["numRecords"] for a in commit if "add" in a] == [1, 1]


@pytest.mark.parametrize("step", ["half_linked", "linked", "committed"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_load_that_died_between_its_steps_is_repeated_exactly_L3(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    monkeypatch.setattr(direct_parts, "SMALL_BYTES", 0)
    before = []
    if number == 2:
        tables.commit(NO_SPARK, LOCAL, [numbered(shaped(loads.load(1, [{"id": 1}])), 0)])
        before = [1]
    load = numbered(shaped(loads.load(number, [[{"id": 2}], [{"id": 3}]])), number - 1)
    with monkeypatch.context() as patch:
        if step == "half_linked":
            patch.setattr(linked_parts.os, "utime", dies)
        elif step == "linked":
            patch.setattr(delta_files.DeltaFiles, "commit", dies)
        else:
            patch.setattr(delta, "sync_file_system", dies)
        with pytest.raises(Died):
            tables.commit(NO_SPARK, LOCAL, [load])
    if step == "committed":
        assert ids(tables) == [*before, 2, 3]
    elif before:
        assert ids(tables) == before
    else:
        assert not Path(tables.location(T), "_delta_log").exists()
    again = tables.commit(NO_SPARK, LOCAL, [load])
    assert again == [LoadResult(0, repeated=True) if step == "committed" else LoadResult(2)]
    assert ids(tables) == [*before, 2, 3]


def test_an_error_after_the_commit_is_a_commit(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delta_files.DeltaFiles.commit

    def fails_after(self: Any, *given: Any) -> None:
        real(self, *given)
        raise RuntimeError("no checkpoint could be written")

    monkeypatch.setattr(delta_files.DeltaFiles, "commit", fails_after)
    assert tables.commit(NO_SPARK, LOCAL, [numbered(shaped(loads.load(1, [{"id": 1}])), 0)]) == [
        LoadResult(1)
    ]
    assert ids(tables) == [1]


@pytest.mark.parametrize("first", [True, False])
def test_another_writer_in_between_is_tried_again_and_nothing_lost(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    if not first:
        tables.commit(NO_SPARK, LOCAL, [shaped(loads.load(1, [{"id": 1}]))])
    theirs = shaped(loads.load(1, [{"id": 7}], key="theirs"))
    mine = shaped(loads.load(2, [{"id": 2}]))
    real, calls = delta_files.DeltaFiles.commit, list[int]()

    def meanwhile(self: Any, *given: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            assert DeltaTables(tables._root).commit(NO_SPARK, LOCAL, [theirs]) == [LoadResult(1)]
        real(self, *given)

    monkeypatch.setattr(delta_files.DeltaFiles, "commit", meanwhile)
    (done,) = tables.commit(NO_SPARK, LOCAL, [mine])
    assert done.written == 1 and "another writer" in done.notes[0]
    assert ids(tables) == ([2, 7] if first else [1, 2, 7])
    assert len(files(tables)) == len(ids(tables))  # those of the try that failed are gone


def test_a_copied_home_or_a_dropped_table_is_no_success_L3(tables: Any, loads: Any) -> None:
    tables.commit(NO_SPARK, LOCAL, [numbered(shaped(loads.load(1, [{"id": 1}])), 0)])
    two = numbered(shaped(loads.load(2, [{"id": 2}])), 1)
    tables.commit(NO_SPARK, LOCAL, [two])
    other = msgspec.structs.replace(two, load=msgspec.structs.replace(two.load, token="x"))
    assert tables.commit(NO_SPARK, LOCAL, [other])[0].code == "state.table_ahead"
    new = numbered(shaped(loads.load(1, [{"id": 9}])), 0)
    new = msgspec.structs.replace(new, load=msgspec.structs.replace(new.load, token="x"))
    assert tables.commit(NO_SPARK, LOCAL, [new])[0].code == "state.table_ahead"
    Path(tables.location(T)).rename(Path(tables.location(T) + "-aside"))
    three = numbered(shaped(loads.load(3, [{"id": 3}])), 2)
    assert tables.commit(NO_SPARK, LOCAL, [three])[0].code == "destination.table_behind"
    assert not Path(tables.location(T)).exists()


@pytest.mark.spark
def test_commits_of_both_kinds_are_one_table(
    tables: Any, spark: Any, loads: Any, tmp_path: Path
) -> None:
    columns = {"id": "integer", "at": "timestamp", "day": "date", "geo": {"lat": "number"}}
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)

    def rows(first: int) -> list[dict[str, Any]]:
        row = {"at": at, "day": dt.date(1500, 1, 2), "geo": {"lat": 1.5}}
        return [{"id": first, **row}, {"id": first + 1}]

    entry = [{"field": "at", "change": "NULLED", "reason": "TYPE_MISFIT"}]
    changes = [None, entry]
    made = [loads.load(n, rows(10 * n), columns, changes=changes) for n in (1, 2, 3, 4)]
    one, two, three, four = (numbered(load, load.load.number - 1) for load in made)
    assert tables.commit(NO_SPARK, LOCAL, [shaped(one)]) == [LoadResult(2)]
    assert tables.commit(spark, LOCAL, [two]) == [LoadResult(2)]
    third = shaped(three)
    assert tables.commit(spark, LOCAL, [third]) == [LoadResult(2)]
    assert inodes(third.parts) <= inodes(files(tables))
    assert tables.commit(spark, LOCAL, [third, four]) == [
        LoadResult(0, repeated=True),
        LoadResult(2),
    ]
    place, wanted = tables.location(T), [10, 11, 20, 21, 30, 31, 40, 41]
    found = spark.read.format("delta").load(place)
    assert found.schema["id"].metadata == {"penstock.source": "id"}
    collected = found.drop("_raw_id", "_extracted_at").orderBy("id").collect()
    assert [r.id for r in collected] == wanted and ids(tables) == wanted
    assert len({repr(r[1:]) for r in collected}) == 2
    assert found.where("at = timestamp'2024-01-02 03:04:05.000006Z'").count() == 4
    assert found.where("at > timestamp'2024-01-02 03:04:05.000005Z'").count() == 4
    assert found.where("id = 31 AND at IS NULL").count() == 1
    assert found.where("day < date'1600-01-01'").count() == 4
    found_types: set[str] = set()
    for index, file in enumerate(files(tables)):
        plain = tmp_path / f"{index}.parquet"  # DuckDB takes the folder's name for a pattern
        os.link(file, plain)
        found_types.add(str(duckdb.sql(f"SELECT * FROM '{plain}'").types))
    assert len(found_types) == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    "property",
    [
        "delta.enableChangeDataFeed=true",
        "delta.columnMapping.mode=name",
        "delta.enableDeletionVectors=true",
        "delta.constraints.positive=id > 0",
        "delta.dataSkippingNumIndexedCols=0",
        "partitioned",
        "length",
    ],
)
def test_a_table_that_asks_more_of_its_writers_is_left_to_spark(
    tables: Any, spark: Any, loads: Any, property: str
) -> None:
    tables.commit(NO_SPARK, LOCAL, [shaped(loads.load(1, [{"id": 1, "v": "a"}]))])
    place = tables.location(T)
    if property == "partitioned":
        content = spark.read.format("delta").load(place)
        writer = content.write.format("delta").mode("overwrite").partitionBy("v")
        writer.option("overwriteSchema", "true").save(place)
    elif property == "length":
        shutil.rmtree(place)
        rows = "id BIGINT, v VARCHAR(1)"
        spark.sql(f"CREATE TABLE delta.`{place}` ({rows}) USING delta")
        tables.commit(spark, LOCAL, [shaped(loads.load(2, [{"id": 1, "v": "a"}]))])
    elif property.startswith("delta.constraints"):
        spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT positive CHECK (id > 0)")
    else:
        key, _, value = property.partition("=")
        spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('{key}' = '{value}')")
    load = shaped(loads.load(3, [{"id": 2, "v": "b"}]))
    assert tables.commit(spark, LOCAL, [load]) == [LoadResult(1)]
    assert not inodes(load.parts) & inodes([*Path(place).rglob("*.parquet")])
    if property.startswith(("delta.columnMapping", "delta.enableDeletionVectors")):
        assert spark.read.format("delta").load(place).orderBy("id").collect()[1]["v"] == "b"
    else:
        assert sorted(rows_of(tables, "id", "v")) == [(1, "a"), (2, "b")]
    if property.startswith("delta.constraints"):
        bad = shaped(loads.load(4, [{"id": -1, "v": "b"}]))
        assert not isinstance(tables.commit(spark, LOCAL, [bad])[0], LoadResult)
    if property == "length":
        bad = shaped(loads.load(4, [{"id": 3, "v": "too long"}]))
        assert not isinstance(tables.commit(spark, LOCAL, [bad])[0], LoadResult)


@pytest.mark.parametrize("ask", ["not null", "invariant", "length", "partition", "reader"])
def test_a_table_that_asks_more_is_seen_by_its_log(tables: Any, loads: Any, ask: str) -> None:
    load = shaped(loads.load(1, [{"id": 1, "v": "a"}]))
    place = Path(tables.location(T))
    tables.commit(NO_SPARK, LOCAL, [load])
    assert delta_files.table_for(place, load, True) is not None
    entry = place / "_delta_log" / f"{0:020d}.json"
    text = entry.read_text()
    column = r"{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{"
    assert column in text
    if ask == "not null":
        text = text.replace(column, column.replace("true", "false"))
    elif ask == "invariant":
        rule = r"\"delta.invariants\":\"{}\","
        text = text.replace(column, column + rule)
    elif ask == "length":  # of a VARCHAR, as Spark writes it
        rule = r"\"__CHAR_VARCHAR_TYPE_STRING\":\"varchar(1)\","
        text = text.replace(column, column + rule)
    elif ask == "partition":
        text = text.replace('"partitionColumns":[]', '"partitionColumns":["v"]')
    else:
        text = text.replace(
            '{"minReaderVersion":1,"minWriterVersion":2}',
            '{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["fromTheFuture"],'
            '"writerFeatures":["fromTheFuture"]}',
        )
    entry.write_text(text)
    assert delta_files.table_for(place, load, True) is None


@pytest.mark.spark
def test_new_tables_with_columns_or_settings_of_their_own_are_made_by_spark(
    tables: Any, spark: Any, loads: Any
) -> None:
    odd = shaped(loads.load(1, [{"id": 1, "a b": "x"}], {"id": "integer", "a b": "string"}))
    assert tables.commit(spark, LOCAL, [odd]) == [LoadResult(1)]
    key = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
    spark.conf.set(key, "true")
    tables.commit(spark, LOCAL, [shaped(loads.load(1, [{"id": 1}], table="v"))])
    spark.conf.unset(key)
    settings = DeltaTable(tables.location(TableName(None, "v"))).metadata().configuration
    assert settings["delta.enableChangeDataFeed"] == "true"


@pytest.mark.spark
def test_times_without_a_zone_are_published_into_a_new_table_which_spark_reads_and_changes(
    tables: Any, spark: Any, loads: Any
) -> None:
    columns = {"id": "integer", "wall": "timestamp_ntz", "in": [{"wall": "timestamp_ntz"}]}
    days = [dt.datetime(2024, 1, day) for day in (2, 3)]
    rows = [{"id": n, "wall": day, "in": [{"wall": day}]} for n, day in enumerate(days)]
    first, more = (shaped(loads.load(n + 1, [row], columns)) for n, row in enumerate(rows))
    assert tables.commit(NO_SPARK, LOCAL, [first, more]) == [LoadResult(1), LoadResult(1)]
    assert inodes(files(tables)) == inodes(first.parts) | inodes(more.parts)
    place = tables.location(T)
    protocol = DeltaTable(place).protocol()
    assert protocol.reader_features == protocol.writer_features == ["timestampNtz"]
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id = 0")
    found = spark.read.format("delta").load(place).collect()
    assert [(r.wall, r["in"][0].wall) for r in found] == [(days[1], days[1])]


@pytest.mark.spark
def test_a_column_that_is_new_and_a_merge_go_through_spark(
    tables: Any, spark: Any, loads: Any
) -> None:
    tables.commit(NO_SPARK, LOCAL, [shaped(loads.load(1, [{"id": 1, "v": "a"}]))])
    wider = {"id": "integer", "v": "string", "w": "integer"}
    load = shaped(loads.load(2, [{"id": 2, "v": "b", "w": 3}], wider))
    assert tables.commit(spark, LOCAL, [load]) == [LoadResult(1)]
    more = shaped(loads.load(3, [{"id": 3, "w": 4}], wider))
    assert tables.commit(NO_SPARK, LOCAL, [more]) == [LoadResult(1)]
    narrower = shaped(loads.load(4, [{"id": 4, "v": "c"}]))
    assert tables.commit(spark, LOCAL, [narrower]) == [LoadResult(1)]
    merged = shaped(loads.load(5, [{"id": 1, "v": "z", "w": 9}], wider, mode="append_dedup"))
    assert tables.commit(spark, LOCAL, [merged]) == [LoadResult(1)]
    found = DeltaTable(tables.location(T)).to_pyarrow_table().sort_by("id")
    assert found.select(["id", "v", "w"]).to_pylist() == [
        {"id": 1, "v": "z", "w": 9},
        {"id": 2, "v": "b", "w": 3},
        {"id": 3, "v": None, "w": 4},
        {"id": 4, "v": "c", "w": None},
    ]


def test_bounds_are_never_further_in_than_the_values(tmp_path: Path) -> None:
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 6_001, dt.UTC)
    columns = {
        "id": pa.array([3, None, -5]),
        "text": pa.array(["é" * 40, "b" * 33, None]),
        "at": pa.array([at, at, None], pa.timestamp("us", "UTC")),
        "old": pa.array([dt.date(1500, 1, 2), dt.date(2024, 1, 2), None]),
        "day": pa.array([dt.date(2024, 1, 2), dt.date(2025, 1, 2), None]),
        "size": pa.array([float("nan"), 1.0, None]),
        "geo": pa.array([{"a": 1, "b": 2}] * 3),
        "edge": pa.array(["\U0010ffff" * 40, "a", "b"]),
        "none": pa.array([None] * 3, pa.string()),
        "last": pa.array([1, 2, 2**60]),
    }
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2)
    found = statistics(path)
    assert found["numRecords"] == 3
    assert found["nullCount"] == {
        "id": 1, "text": 1, "at": 1, "old": 1, "day": 1, "size": 1, "edge": 0,
        "none": 3, "last": 0,
    }  # fmt: skip
    assert found["minValues"] == {
        "id": -5,
        "text": "b" * 32,
        "at": "2024-01-02T03:04:05.006Z",
        "day": "2024-01-02",
        "last": 1,
    }
    assert found["maxValues"] == {
        "id": 3,
        "text": "é" * 32 + "\U0010ffff",
        "at": "2024-01-02T03:04:05.007Z",
        "day": "2025-01-02",
        "last": 2**60,
    }
    assert found["maxValues"]["text"].encode() > ("é" * 40).encode()
