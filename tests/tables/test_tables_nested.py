"""A table inside another one's folder (issue 36, 2; L8): a new one is refused in every format, what
is there goes on, and nothing of an inner table goes with a rewrite of the outer one."""

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from merge_cases import dedup
from shaped import shaped
from tasks_here import LOCAL

from penstock.errors import DestinationError, PenstockError
from penstock.tables import nested_folders
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.delta.spec import SPEC
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.formats import open_table
from penstock.tables.nested_folders import NestedFolders
from penstock.tables.parquet import folders as parquet_folders

pytestmark = pytest.mark.dear

OUTER, INNER = TableName(None, "a"), TableName("a", "x")


NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # settings, and no row by Spark


def first(loads: Any, table: TableName, number: int = 1) -> Any:
    load = shaped(loads.load(number, [{"id": number}], table=table))
    inner = msgspec.structs.replace(load.load, follows=number - 1, token=f"t{number}")
    return msgspec.structs.replace(load, load=inner)


def ids(place: Path, format: str) -> list[int]:
    if format == "delta":
        return sorted(DeltaTable(str(place)).to_pyarrow_table(columns=["id"])["id"].to_pylist())
    return sorted(ds.dataset(place, format="parquet").to_table()["id"].to_pylist())


def code(outcome: LoadResult | PenstockError) -> str:
    assert isinstance(outcome, PenstockError), outcome
    return outcome.code


@pytest.mark.parametrize("new", ["parquet", "delta"])
@pytest.mark.parametrize("there", ["parquet", "delta"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
def test_L8_a_new_table_above_or_below_another_one_is_refused(
    tmp_path: Path, loads: Any, there: str, new: str, inside: bool
) -> None:
    lake = str(tmp_path / "lake")
    old, wanted = (OUTER, INNER) if inside else (INNER, OUTER)
    had = open_table(there, lake)
    assert had.commit(NO_SPARK, LOCAL, [first(loads, old)]) == [LoadResult(1)]
    tables = open_table(new, lake)
    found = tables.nested([wanted]).get(wanted)
    assert found is not None and found.new
    assert (found.other, found.outer) == (had.location(old), inside)
    assert code(tables.commit(NO_SPARK, LOCAL, [first(loads, wanted)])[0]) in (
        ("destination.nested",) if inside or new == "delta" else
        ("destination.nested", "destination.not_ours")
    )  # fmt: skip
    assert ids(Path(had.location(old)), there) == [1]
    if inside:
        assert not Path(tables.location(wanted)).exists()
    # the table that was there goes on
    assert had.commit(NO_SPARK, LOCAL, [first(loads, old, 2)]) == [LoadResult(1)]
    assert ids(Path(had.location(old)), there) == [1, 2]
    assert not tables.nested([TableName("b", "x")])  # a neighbour
    assert tables.commit(NO_SPARK, LOCAL, [first(loads, TableName("b", "x"))]) == [LoadResult(1)]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L8_foreign_tables_and_lakes_in_tables_count(
    tmp_path: Path, loads: Any, format: str
) -> None:
    theirs = tmp_path / "theirs"
    write_deltalake(str(theirs), pa.table({"id": [1]}))
    for lake in (theirs, theirs / "some" / "lake"):  # `delta:./theirs` means the table itself
        tables = open_table(format, str(lake))
        assert (
            code(tables.commit(NO_SPARK, LOCAL, [first(loads, INNER)])[0]) == "destination.nested"
        )
    (tmp_path / "around" / "a" / "deep" / "down").mkdir(parents=True)
    os.symlink(theirs, tmp_path / "around" / "a" / "deep" / "linked")
    os.symlink(tmp_path / "around", tmp_path / "around" / "a" / "deep" / "down" / "loop")
    found = open_table(format, str(tmp_path / "around")).nested([OUTER])[OUTER]
    assert found is not None and not found.outer and found.other.endswith("linked")
    assert DeltaTable(str(theirs)).to_pyarrow_table()["id"].to_pylist() == [1]


def test_L8_a_new_delta_table_in_a_parquet_tables_folder_is_refused(
    tmp_path: Path, loads: Any
) -> None:
    """Its VACUUM would delete the Parquet table's files."""
    had, tables = (open_table(kind, str(tmp_path / "lake")) for kind in ("parquet", "delta"))
    assert had.commit(NO_SPARK, LOCAL, [first(loads, OUTER)]) == [LoadResult(1)]
    assert tables.nested([OUTER])[OUTER].new
    assert code(tables.commit(NO_SPARK, LOCAL, [first(loads, OUTER)])[0]) == "destination.nested"
    assert had.commit(NO_SPARK, LOCAL, [first(loads, OUTER, 2)]) == [LoadResult(1)]


def nest(lake: Path, loads: Any, format: str) -> tuple[Any, Path, Path]:
    """Two tables of an earlier version, of which one lies in the other's folder."""
    aside = open_table(format, str(lake.parent / "aside"))
    aside.commit(NO_SPARK, LOCAL, [first(loads, INNER)])
    tables = open_table(format, str(lake))
    tables.commit(NO_SPARK, LOCAL, [first(loads, OUTER)])
    outer, inner = Path(tables.location(OUTER)), Path(tables.location(INNER))
    os.rename(aside.location(INNER), inner)
    return tables, outer, inner


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L8_tables_that_are_nested_go_on_and_are_found(
    tmp_path: Path, loads: Any, format: str
) -> None:
    tables, outer, inner = nest(tmp_path / "lake", loads, format)
    above, below = (tables.nested([INNER, OUTER])[table] for table in (INNER, OUTER))
    assert above is not None and (above.other, above.outer, above.new) == (str(outer), True, False)
    assert below is not None and (below.other, below.outer, below.new) == (str(inner), False, False)
    more = [first(loads, OUTER, 2), first(loads, INNER, 2)]
    assert tables.commit(NO_SPARK, LOCAL, more) == [LoadResult(1), LoadResult(1)]
    assert ids(inner, format) == [1, 2]


def test_L8_an_inner_table_is_not_rewritten_away(tmp_path: Path, loads: Any) -> None:
    tables, _, inner = nest(tmp_path / "lake", loads, "parquet")
    again = shaped(loads.load(2, [{"id": 9}], table=OUTER, mode="overwrite", replaces=True))
    assert code(tables.commit(NO_SPARK, LOCAL, [again])[0]) == "destination.not_ours"
    assert ids(inner, "parquet") == [1]


def test_L8_one_that_comes_between_the_look_and_the_exchange_stays(
    tmp_path: Path, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = open_table("parquet", str(tmp_path / "lake"))
    tables.commit(NO_SPARK, LOCAL, [first(loads, OUTER)])
    outer = Path(tables.location(OUTER))
    real, calls = parquet_folders.put_folder, []

    def meanwhile(new: Path, target: Path) -> None:
        if not calls:
            (target / "x").mkdir()  # what a writer without this check does
            pq.write_table(pa.table({"id": [7]}), target / "x" / "rows.parquet")
        calls.append(target)
        real(new, target)

    monkeypatch.setattr(parquet_folders, "put_folder", meanwhile)
    again = shaped(loads.load(2, [{"id": 9}], table=OUTER, mode="overwrite", replaces=True))
    assert code(tables.commit(NO_SPARK, LOCAL, [again])[0]) == "destination.not_ours"
    assert pq.read_table(outer / "x" / "rows.parquet")["id"].to_pylist() == [7]
    assert pq.read_table(next(outer.glob("*.parquet")))["id"].to_pylist() == [1]


def test_a_large_table_is_not_searched_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    (table / "_delta_log").mkdir(parents=True)
    for name in range(30):
        (table / f"{name}.parquet").touch()
    (table / "x" / "_delta_log").mkdir(parents=True)
    assert NestedFolders(SPEC).nested(table) is not None
    monkeypatch.setattr(nested_folders, "MOST_ENTRIES", 0)
    assert NestedFolders(SPEC).nested(table) is None


@pytest.mark.spark
def test_L8_spark_finds_tables_on_an_object_store(tmp_path: Path, spark: Any, loads: Any) -> None:
    """``viewfs`` stands for a store: Penstock reaches it by a URI, through Spark alone."""
    for name, value in VIEW.items():
        spark.conf.set(name, value.format(tmp_path))
    (tmp_path / "store").mkdir()
    lake = DeltaTables("viewfs://penstock/store/lake")
    write_deltalake(str(tmp_path / "store" / "lake" / "a"), pa.table({"id": [1]}))
    write_deltalake(str(tmp_path / "store" / "lake" / "b" / "c" / "d"), pa.table({"id": [1]}))
    assert not lake.nested([INNER])  # known to Spark alone
    for table in (INNER, TableName(None, "b")):
        outcome = lake.commit(spark, LOCAL, [loads.load(1, [{"id": 1}], table=table)])[0]
        assert isinstance(outcome, DestinationError), outcome
        assert outcome.code == "destination.nested", outcome.message
    assert lake.commit(spark, LOCAL, [loads.load(1, [{"id": 1}], table="e")]) == [LoadResult(1)]


VIEW = {
    "fs.viewfs.mounttable.penstock.link./store": "file://{}/store",
    "fs.viewfs.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystem",
    "fs.AbstractFileSystem.viewfs.impl": "org.apache.hadoop.fs.viewfs.ViewFs",
}


# -- two writers of one Parquet table (issue 36, 10)


def test_L3_two_writers_of_one_parquet_table_both_commit(tmp_path: Path, loads: Any) -> None:
    """Each merge of one meets the other's: tried again, nothing is lost and nothing comes twice."""
    lake, rounds = str(tmp_path / "lake"), 12
    table = TableName(None, "t")
    given = {
        key: [
            dedup(loads, n, [{"id": n, "v": key}, {"id": ids_from + n, "v": key}], key=key)
            for n in range(1, rounds + 1)
        ]
        for key, ids_from in (("one", 1000), ("two", 2000))
    }
    outcomes: dict[str, list[Any]] = {"one": [], "two": []}
    begin = threading.Barrier(2)

    def write(key: str) -> None:
        tables = open_table("parquet", lake)
        begin.wait()
        for load in given[key]:
            outcomes[key] += tables.commit(None, LOCAL, [load])  # type: ignore[arg-type]

    threads = [threading.Thread(target=write, args=(key,)) for key in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notes = [n for done in outcomes.values() for o in done for n in o.notes]
    assert any("another writer changed table t" in n for n in notes)
    for key, done in outcomes.items():
        assert all(isinstance(o, LoadResult) for o in done), (key, done)
        assert not any(o.repeated for o in done)
    rows = ds.dataset(open_table("parquet", lake).location(table), format="parquet").to_table()
    wanted = [n + more for more in (0, 1000, 2000) for n in range(1, rounds + 1)]
    assert sorted(rows["id"].to_pylist()) == sorted(wanted)
    marker = json.loads((tmp_path / "lake" / "t" / "_penstock.json").read_text())
    assert marker["applied"] == {"one": rounds, "two": rounds}
