"""Parts that have their table's shape become its files: read by nobody on the way, repeated exactly
(L2, L3), and left to Spark where the table needs more than to be appended to."""

import datetime as dt
import errno
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from shaped import inodes, shaped
from tasks_here import LOCAL, by_spark

from penstock.codec.arrow import internal_fields
from penstock.codec.table_rows import part_rows
from penstock.model.types import CHANGES, EXTRACTED_AT, RAW_ID, SEQ, MetadataNames
from penstock.tables import conflicts
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.files import direct_parts, linked_parts
from penstock.tables.parquet import folders as parquet_folders
from penstock.tables.parquet import publish as parquet_publish
from penstock.tables.parquet.tables import ParquetTables

T = TableName(None, "t")
NO_SPARK: Any = None  # a load that reads or writes a row by Spark fails with it
EVERY_TYPE = {
    "id": "integer",
    "text": "string",
    "yes": "boolean",
    "size": "number",
    "price": (20, 4),
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "hour": "time",
    "raw": "binary",
    "any": "json",
    "tags": ["string"],
    "geo": {"lat": "number", "when": "timestamp", "names": ["json"]},
    "Weird é name": "string",
}
ROWS = [
    {
        "id": 1,
        "text": "é" * 40,
        "yes": True,
        "size": float("nan"),
        "price": Decimal("1.2500"),
        "day": dt.date(1500, 1, 2),
        "at": dt.datetime(1500, 1, 2, 3, 4, 5, 6, dt.UTC),
        "wall": dt.datetime(2024, 1, 2, 3, 4, 5, 6),
        "hour": "03:04:05",
        "raw": b"\x00\xff",
        "any": '{"a": 1.10}',
        "tags": ["a", None],
        "geo": {"lat": 1.5, "when": dt.datetime(2024, 1, 2, tzinfo=dt.UTC), "names": ["1"]},
        "Weird é name": "w",
    },
    {"id": 2},
]
CHANGED = [None, [{"field": "size", "change": "NULLED", "reason": "TYPE_MISFIT"}]]


class Died(BaseException):
    """What a killed process does: nothing after it runs."""


@pytest.fixture
def tables(tmp_path: Path) -> ParquetTables:
    return ParquetTables(str(tmp_path / "lake"))


def files(tables: ParquetTables) -> list[Path]:
    return sorted(Path(tables.location(T)).glob("*.parquet"))


def ids(tables: ParquetTables) -> list[int]:
    return sorted(ds.dataset(tables.location(T), format="parquet").to_table()["id"].to_pylist())


def test_a_load_is_published_without_reading_it_L2(tables: Any, loads: Any) -> None:
    first, second = shaped(loads.load(1, [{"id": 1}])), shaped(loads.load(2, [{"id": 2}]))
    assert tables.commit(NO_SPARK, LOCAL, [first]) == [LoadResult(1)]
    assert tables.commit(NO_SPARK, LOCAL, [second]) == [LoadResult(1)]
    assert tables.commit(NO_SPARK, LOCAL, [second]) == [LoadResult(0, repeated=True)]
    assert inodes(files(tables)) == inodes(first.parts) | inodes(second.parts)
    umask = os.umask(0)
    os.umask(umask)
    assert all(f.stat().st_mode & 0o777 == 0o666 & ~umask for f in files(tables))
    for part in (*first.parts, *second.parts):
        Path(part).unlink()  # as the log does once the load is committed
    assert ids(tables) == [1, 2]


@pytest.mark.spark
def test_files_of_both_kinds_are_one_table(tables: Any, spark: Any, loads: Any) -> None:
    plain = loads.load(1, ROWS, EVERY_TYPE, changes=CHANGED)
    tables.commit(spark, LOCAL, [plain])
    own = loads.load(2, [{**r, "id": r["id"] + 10} for r in ROWS], EVERY_TYPE, changes=CHANGED)
    tables.commit(NO_SPARK, LOCAL, [shaped(own)])
    place, columns = tables.location(T), "* EXCLUDE (id, _raw_id, _extracted_at)"
    by_duck = [
        duckdb.sql(
            f"SELECT id % 10, {columns} FROM read_parquet('{file}') ORDER BY id"
        )  # each file by its own schema
        for file in files(tables)
    ]
    assert len(by_duck) == 2
    assert by_duck[0].columns == by_duck[1].columns and by_duck[0].types == by_duck[1].types
    one, other = (repr(d.to_arrow_table().to_pylist()) for d in by_duck)
    assert one == other
    assert duckdb.sql(f"SELECT count(*) FROM '{place}/*.parquet'").fetchall() == [(4,)]
    rows = spark.read.parquet(place)
    assert [f.metadata for f in rows.schema.fields] == [
        f.metadata for f in spark.read.parquet(str(files(tables)[0])).schema.fields
    ]
    found = rows.drop("_raw_id", "_extracted_at").orderBy("id").collect()
    assert [r.id for r in found] == [1, 2, 11, 12]
    assert repr([r[1:] for r in found[:2]]) == repr([r[1:] for r in found[2:]])
    assert found[2]["day"] == dt.date(1500, 1, 2)
    assert [[c.field for c in r["_meta"].changes] for r in found] == [[], ["size"]] * 2
    assert ds.dataset(place, format="parquet").to_table().num_rows == 4


STEPS = {"link": [1], "take_files": [1], "half_taken": [1, 2], "marker": [1, 2, 3, 4]}
"""Steps of a load of the rows 2, 3 and 4, and what a reader sees once it died there."""


def dies_at(patch: pytest.MonkeyPatch, step: str) -> None:
    real, calls = os.replace, list[Any]()

    def dies(*_: Any, **__: Any) -> None:
        raise Died

    def dies_second(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise Died
        real(source, target)

    if step == "link":
        patch.setattr(linked_parts.os, "chmod", dies)
    elif step == "half_taken":
        patch.setattr(parquet_folders.os, "replace", dies_second)
    elif step == "marker":
        patch.setattr(parquet_publish, "_appear", dies)
    else:
        patch.setattr(parquet_publish, step, dies)


@pytest.mark.parametrize("step", STEPS)
def test_a_load_that_died_between_its_steps_is_repeated_exactly_L3(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(direct_parts, "SMALL_BYTES", 0)
    tables.commit(NO_SPARK, LOCAL, [shaped(loads.load(1, [{"id": 1}]))])
    second = shaped(loads.load(2, [[{"id": 2}], [{"id": 3}], [{"id": 4}]]))
    with monkeypatch.context() as patch, pytest.raises(Died):
        dies_at(patch, step)
        tables.commit(NO_SPARK, LOCAL, [second])
    assert ids(tables) == STEPS[step]
    assert tables.commit(NO_SPARK, LOCAL, [second]) == [LoadResult(3)]
    assert tables.commit(NO_SPARK, LOCAL, [second]) == [LoadResult(0, repeated=True)]
    assert ids(tables) == [1, 2, 3, 4]
    assert not list(Path(tables.location(T)).parent.glob(".penstock/*.staging"))


@pytest.mark.parametrize("again", ["same home", "other home"])
@pytest.mark.parametrize("step", STEPS)
def test_what_a_load_that_is_given_up_left_never_counts_L3(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, step: str, again: str
) -> None:
    """As after `state reset`: the rows come again in a load with a higher number, or under the key
    of a home that was made anew, and what the dead one left are no rows of the table's."""
    monkeypatch.setattr(direct_parts, "SMALL_BYTES", 0)
    tables.commit(NO_SPARK, LOCAL, [shaped(loads.load(1, [{"id": 1}]))])
    with monkeypatch.context() as patch, pytest.raises(Died):
        dies_at(patch, step)
        tables.commit(
            NO_SPARK, LOCAL, [shaped(loads.load(2, [[{"id": 2}], [{"id": 3}], [{"id": 4}]]))]
        )
    theirs = Path(tables.location(T), "theirs.parquet")
    pq.write_table(pa.table({"id": [9]}), theirs)  # another program's, which is none of a load
    key = "birth/t" if again == "same home" else "reborn/t"
    later = shaped(loads.load(3, [[{"id": 2}], [{"id": 3}]], key=key))
    with monkeypatch.context() as patch, pytest.raises(Died):
        dies_at(patch, "marker")
        tables.commit(NO_SPARK, LOCAL, [later])
    assert tables.commit(NO_SPARK, LOCAL, [later]) == [LoadResult(2)]
    assert ids(tables) == [1, 2, 3, 9]
    theirs.unlink()
    marker = parquet_folders.read_marker(Path(tables.location(T)))
    assert marker is not None
    kept = parquet_folders.finished_files(Path(tables.location(T)), marker)
    assert len(kept) == 3, "what a rewrite of the table would take"


@pytest.mark.parametrize("after", [False, True])
def test_a_generation_replaces_the_table_in_one_step_L6(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    tables.commit(NO_SPARK, LOCAL, [shaped(loads.load(1, [{"id": 1}]))])
    new = shaped(loads.load(2, [{"id": 5}, {"id": 6}], mode="overwrite", replaces=True))
    real = parquet_folders.put_folder

    def dying(one: Path, two: Path) -> None:
        if after:
            real(one, two)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(parquet_folders, "put_folder", dying)
        with pytest.raises(Died):
            tables.commit(NO_SPARK, LOCAL, [new])
    assert ids(tables) == ([5, 6] if after else [1])
    assert tables.commit(NO_SPARK, LOCAL, [new])[0].repeated is after
    assert ids(tables) == [5, 6] and inodes(files(tables)) == inodes(new.parts)


def test_a_table_that_was_dropped_or_changed_meanwhile_is_no_success_L3(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follows(load: Any, number: int) -> Any:
        inner = msgspec.structs.replace(load.load, follows=number, token=f"t{load.load.number}")
        return msgspec.structs.replace(load, load=inner)

    tables.commit(NO_SPARK, LOCAL, [follows(shaped(loads.load(1, [{"id": 1}])), 0)])
    second = follows(shaped(loads.load(2, [{"id": 2}])), 1)
    table, aside = Path(tables.location(T)), Path(tables.location(T) + "-aside")
    os.rename(table, aside)
    assert tables.commit(NO_SPARK, LOCAL, [second])[0].code == "destination.table_behind"
    assert not table.exists()
    os.rename(aside, table)
    real = linked_parts.linked

    def meanwhile(*given: Any) -> Any:
        found = real(*given)
        wider = parquet_folders.read_marker(table)
        assert wider is not None
        changed = msgspec.structs.replace(wider, columns=wider.columns[1:])
        parquet_folders.write_marker(table, changed)
        return found

    monkeypatch.setattr(linked_parts, "linked", meanwhile)
    monkeypatch.setattr(conflicts, "CONFLICT_TRIES", 1)  # the next try needs Spark
    assert tables.commit(NO_SPARK, LOCAL, [second])[0].code == "destination.conflict"
    assert ids(tables) == [1]


@pytest.mark.spark
@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_no_link_can_be_made_spark_writes(
    tables: Any, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    load = shaped(loads.load(1, [{"id": 1, "v": "a"}]))
    new = shaped(loads.load(2, [{"id": 2, "v": "b"}], mode="overwrite", replaces=True))

    def refused(*_: Any) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(linked_parts.os, "link", refused)
    for number, one in enumerate((load, new), 1):
        assert tables.commit(spark, LOCAL, [one]) == [LoadResult(1)]
        assert ids(tables) == [number]
        assert not inodes(files(tables)) & inodes(one.parts)


@pytest.mark.spark
def test_small_parts_of_a_load_are_written_together(tables: Any, spark: Any, loads: Any) -> None:
    many = shaped(loads.load(1, [[{"id": n, "v": "a"}] for n in range(20)]))
    other = shaped(loads.load(1, [[{"id": n}] for n in range(9)], table="u"))
    assert tables.commit(spark, LOCAL, [many, other]) == [LoadResult(20), LoadResult(9)]
    assert len(files(tables)) == 1 and ids(tables) == list(range(20))
    metas = pq.read_table(files(tables)[0])["_meta"].to_pylist()
    assert metas == [{"sync_id": 7, "changes": []}] * 20


@pytest.mark.spark
@pytest.mark.parametrize("drift", ["column", "generation", "names", "dedup"])
def test_what_a_table_does_not_take_as_it_is_goes_through_spark(
    tables: Any, spark: Any, loads: Any, drift: str
) -> None:
    tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1, "v": "a"}])])
    wider = {"id": "integer", "v": "string", "w": "integer"}
    if drift == "column":
        load = shaped(loads.load(2, [{"id": 2, "v": "b", "w": 3}], wider, changes=[CHANGED[1]]))
    elif drift == "generation":
        load = shaped(loads.load(2, [{"id": 2, "v": "b"}], changes=[CHANGED[1]]), generation=99)
    elif drift == "names":
        names = MetadataNames("r", "x", "m", "g")
        load = shaped(loads.load(2, [{"id": 2, "v": "b"}], changes=[CHANGED[1]]), names=names)
    else:
        rows = [{"id": 2, "v": "b"}]
        load = shaped(loads.load(2, rows, mode="append_dedup", changes=[CHANGED[1]]))
    parts = pq.read_table(load.parts[0])
    (done,) = tables.commit(spark, LOCAL, [load])
    assert (by_spark(done) if drift == "dedup" else done) == LoadResult(1)
    assert not inodes(files(tables)) & inodes(load.parts)
    rows = ds.dataset(tables.location(T), format="parquet").to_table().sort_by("id").to_pylist()
    assert [r["id"] for r in rows] == [1, 2]
    new = rows[1]
    assert new["_generation_id"] == 3 and new["_meta"]["sync_id"] == 7
    assert [c["field"] for c in new["_meta"]["changes"]] == ["size"]
    at = "x" if drift == "names" else "_extracted_at"
    raw = "r" if drift == "names" else "_raw_id"
    assert new["_raw_id"] == parts[raw][0].as_py()
    assert new["_extracted_at"] == parts[at][0].as_py()
    assert new.get("w") == (3 if drift == "column" else None)
    if drift == "column":  # the new column follows the metadata columns, and the next load's do not
        more = shaped(loads.load(3, [{"id": 3, "v": "c", "w": 4}], wider))
        assert tables.commit(NO_SPARK, LOCAL, [more]) == [LoadResult(1)]
        place = tables.location(T)
        found = duckdb.sql(f"SELECT id, v, w FROM '{place}/*.parquet' ORDER BY id").fetchall()
        assert found == [(1, "a", None), (2, "b", 3), (3, "c", 4)]
        in_spark = spark.read.parquet(place).select("id", "v", "w").orderBy("id").collect()
        assert [tuple(r) for r in in_spark] == found


def test_a_part_in_its_tables_shape_is_read_as_any_part(loads: Any) -> None:
    load = loads.load(1, ROWS, EVERY_TYPE, changes=CHANGED)
    before = pq.read_table(load.parts[0])
    part = shaped(load).parts[0]
    after = part_rows(pq.read_table(part), load.policy.metadata)
    assert after.column_names == before.column_names
    assert after.schema.field(CHANGES).type == internal_fields()[-1].type
    kept = [n for n in before.column_names if n not in (SEQ, CHANGES, "size")]
    assert after.select(kept).to_pylist() == before.select(kept).to_pylist()
    assert {RAW_ID, EXTRACTED_AT} <= set(kept)
    assert after[CHANGES].to_pylist() == [[], CHANGED[1]]
    for batch in pq.ParquetFile(part).iter_batches():
        assert isinstance(part_rows(batch, load.policy.metadata), pa.RecordBatch)
