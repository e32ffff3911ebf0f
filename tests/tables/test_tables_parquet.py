"""What is Parquet's own: files by rename, the exchange, crashes in between (L3, L6), batches."""

import datetime as dt
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from shaped import shaped
from tasks_here import LOCAL, by_spark

from penstock.errors import ConfigError, DestinationError
from penstock.tables import conflicts
from penstock.tables.contract import LoadResult, TableName
from penstock.tables.formats import open_table
from penstock.tables.parquet import folders as parquet_folders
from penstock.tables.parquet import publish as parquet_publish
from penstock.tables.parquet import tables as parquet
from penstock.tables.parquet.tables import ParquetTables

T = TableName(None, "t")


class Died(BaseException):
    """What a killed process does: nothing after it runs."""


@pytest.fixture
def tables(tmp_path: Path) -> ParquetTables:
    return ParquetTables(str(tmp_path / "lake"))


def ids(tables: ParquetTables, table: TableName = T) -> list[int]:
    return sorted(ds.dataset(tables.location(table), format="parquet").to_table()["id"].to_pylist())


def die_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int, after: bool = False) -> None:
    owner = parquet_folders if hasattr(parquet_folders, name) else parquet_publish
    real, calls = getattr(owner, name), []

    def dying(*given: Any) -> None:
        calls.append(given)
        if len(calls) == call and not after:
            raise Died
        real(*given)
        if len(calls) == call:
            raise Died

    for module in (parquet_folders, parquet_publish, parquet):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, dying)


@pytest.mark.spark
def test_a_load_that_died_file_by_file_is_repeated_exactly_L3(
    tables: Any, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1}])])
    spark.conf.set("spark.sql.files.openCostInBytes", str(256 << 20))  # one file a part
    second = loads.load(2, [[{"id": 2}], [{"id": 3}], [{"id": 4}]])
    with monkeypatch.context() as patch:
        die_at(patch, "_appear", 1)
        with pytest.raises(Died):
            tables.commit(spark, LOCAL, [second])
    assert ids(tables) == [1, 2, 3, 4]  # visible, and not yet remembered
    assert len(list(Path(tables.location(T)).glob("*.parquet"))) == 4
    other = loads.load(1, [{"id": 9, "w": 1}], {"id": "integer", "w": "integer"}, key="other")
    tables.commit(spark, LOCAL, [other])  # rewrites the table: unfinished files are left out
    assert ids(tables) == [1, 9]
    assert tables.commit(spark, LOCAL, [second]) == [LoadResult(3)]
    assert tables.commit(spark, LOCAL, [second]) == [LoadResult(0, repeated=True)]
    spark.conf.unset("spark.sql.files.openCostInBytes")
    assert ids(tables) == [1, 2, 3, 4, 9]


@pytest.mark.spark
def test_fewer_files_of_a_second_try_remove_the_first_ones(
    tables: Any, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1}])])
    second = loads.load(2, [[{"id": 2}], [{"id": 3}], [{"id": 4}]])
    spark.conf.set("spark.sql.files.openCostInBytes", str(256 << 20))
    with monkeypatch.context() as patch:
        die_at(patch, "_appear", 1)
        with pytest.raises(Died):
            tables.commit(spark, LOCAL, [second])
    spark.conf.unset("spark.sql.files.openCostInBytes")
    tables.commit(spark, LOCAL, [second])
    assert len(list(Path(tables.location(T)).glob("*.parquet"))) < 4
    assert ids(tables) == [1, 2, 3, 4]


@pytest.mark.spark
@pytest.mark.parametrize("after", [False, True])
def test_an_exchange_happens_or_does_not_L6(
    tables: Any, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1}])])
    new = loads.load(2, [{"id": 5}, {"id": 6}], mode="overwrite", replaces=True)
    with monkeypatch.context() as patch:
        die_at(patch, "put_folder", 1, after)
        with pytest.raises(Died):
            tables.commit(spark, LOCAL, [new])
    assert ids(tables) == ([5, 6] if after else [1])
    assert tables.commit(spark, LOCAL, [new])[0].repeated is after
    assert ids(tables) == [5, 6]
    assert not list(Path(tables.location(T)).parent.glob(".penstock/*.staging"))


@pytest.mark.spark
def test_another_writer_in_between_is_a_conflict_not_a_loss(
    tables: Any, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.commit(spark, LOCAL, [loads.load(1, [{"id": 1}])])
    upsert = loads.load(2, [{"id": 1, "v": "mine"}], mode="append_dedup")
    real = parquet.sync_file_system
    theirs = [loads.load(1, [{"id": 7}], key="theirs")]

    def meanwhile(path: Path) -> None:
        real(path)
        if theirs:
            load = theirs.pop()
            assert ParquetTables(str(tables._root.path)).commit(spark, LOCAL, [load]) == [
                LoadResult(1)
            ]

    monkeypatch.setattr(parquet, "sync_file_system", meanwhile)
    with monkeypatch.context() as patch:
        patch.setattr(conflicts, "CONFLICT_TRIES", 1)
        outcome = tables.commit(spark, LOCAL, [upsert])[0]
    assert isinstance(outcome, DestinationError) and outcome.code == "destination.conflict"
    assert ids(tables) == [1, 7]
    theirs.append(loads.load(2, [{"id": 8}], key="theirs"))
    outcome = tables.commit(spark, LOCAL, [upsert])[0]  # tried again
    wanted = LoadResult(1, notes=("another writer changed table t: committed at try 2",))
    assert by_spark(outcome, "several rows of a key") == wanted
    assert ids(tables) == [1, 7, 8]


@pytest.mark.spark
def test_many_loads_of_one_shape_share_a_job(
    tables: Any, spark: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    stage = parquet._Wave._stage

    def counted(self: Any, batch: Any) -> Any:
        batches.append(len(batch))
        return stage(self, batch)

    monkeypatch.setattr(parquet._Wave, "_stage", counted)
    names = [TableName("ns" if n % 2 else None, f"t{n}") for n in range(25)]
    first = [
        loads.load(1, [[{"id": n}], [{"id": n + 100}]], table=name) for n, name in enumerate(names)
    ]
    odd = loads.load(1, [{"id": 1, "x": 1.0}], {"id": "integer", "x": "number"}, table="odd")
    second = [loads.load(2, [{"id": n + 200}], table=name) for n, name in enumerate(names)]
    outcomes = tables.commit(spark, LOCAL, [*first, odd, *second, *second])
    assert outcomes[:26] == [LoadResult(2)] * 25 + [LoadResult(1)]
    assert outcomes[26:51] == [LoadResult(1)] * 25
    assert outcomes[51:] == [LoadResult(0, repeated=True)] * 25
    assert sorted(batches) == [1, 25, 25]
    for n, name in enumerate(names):
        assert ids(tables, name) == [n, n + 100, n + 200]
    broken = [loads.load(3, [{"id": n}], table=name) for n, name in enumerate(names[:5])]
    Path(broken[2].parts[0]).write_bytes(b"broken")
    failed = tables.commit(spark, LOCAL, broken)
    assert [isinstance(o, DestinationError) for o in failed] == [False, False, True, False, False]
    meta = duckdb.sql(f"select distinct _meta.sync_id from '{tables.location(names[1])}/*.parquet'")
    assert meta.fetchall() == [(7,)]


@pytest.mark.spark
def test_a_shared_job_writes_what_spark_writes(tables: Any, spark: Any, loads: Any) -> None:
    """Types, metadata and values of files that Arrow wrote are those of Spark's writer (L9)."""
    columns = {
        "s": "string", "flag": "boolean", "n": "integer", "f": "number", "big": (38, 0),
        "money": (10, 2), "d": "date", "ts": "timestamp", "ntz": "timestamp_ntz", "clock": "time",
        "bytes": "binary", "deep": [{"a": ["integer"], "when": "timestamp"}], "any": "json",
    }  # fmt: skip
    utc = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    row = {
        "s": "é", "flag": True, "n": 2**63 - 1, "f": 0.1, "big": Decimal(10**37),
        "money": Decimal("1.25"), "d": dt.date(1, 1, 1), "ts": utc, "ntz": utc.replace(tzinfo=None),
        "clock": "10:11:12", "bytes": b"\0\xff", "deep": [{"a": [1, None], "when": utc}],
        "any": "{}",
    }  # fmt: skip
    entry = {"field": "s", "change": "NULLED", "reason": "x"}

    def load(name: str) -> Any:
        made = [row, {"deep": []}, {}]
        return loads.load(1, made, columns, table=name, changes=[[entry], None, []])

    tables.commit(spark, LOCAL, [load("alone")])
    assert tables.commit(spark, LOCAL, [load("a"), load("b")]) == [LoadResult(3)] * 2
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "EXCEPTION")  # Spark's default
    try:
        names = ("alone", "a", "b")
        alone, a, b = (spark.read.parquet(tables.location(TableName(None, name))) for name in names)
        assert a.dtypes == b.dtypes == alone.dtypes
        for field in alone.schema:
            assert a.schema[field.name].metadata == field.metadata
        assert a.schema["s"].metadata == {"penstock.source": "s"}
        want = [r.asDict(True) for r in alone.drop("_raw_id", "_extracted_at").collect()]
        for frame in (a, b):
            found = [r.asDict(True) for r in frame.drop("_raw_id", "_extracted_at").collect()]
            assert found == want
        assert a.select("_raw_id").distinct().count() == 3
    finally:
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")


def test_what_dead_processes_left_is_swept_and_what_lives_stays(tmp_path: Path) -> None:
    root = parquet_folders.Root(tmp_path)
    root.prepare()
    for token in ("dead", "live"):
        (root.own / f"{token}.alive").write_bytes(b"")
        (root.own / f"{token}.staging").mkdir()
    with (root.own / "live.alive").open("rb+") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        with root.staging() as mine:
            assert mine.is_dir()
            left = {p.name for p in root.own.glob("*.staging")}
            assert left == {"live.staging", mine.name}


def test_staging_that_cannot_be_removed_hides_no_failure(tmp_path: Path) -> None:
    """As on a disk that became read-only: its failure is what the user has to see."""
    root = parquet_folders.Root(tmp_path)
    root.prepare()
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="the disk failed"), root.staging():
        (alive,) = root.own.glob("*.alive")
        alive.unlink()
        (alive / "a folder").mkdir(parents=True)  # which no unlink removes
        raise ValueError("the disk failed")
    assert len(os.listdir("/proc/self/fd")) == opened


def test_a_folder_with_other_content_is_refused(tables: Any, loads: Any) -> None:
    place = Path(tables.location(T))
    place.mkdir(parents=True)
    (place / "diary.txt").write_text("dear")
    outcome = tables.commit(None, LOCAL, [loads.load(1, [{"id": 1}])])[0]
    assert isinstance(outcome, DestinationError) and outcome.code == "destination.not_ours"
    assert (place / "diary.txt").exists()


def test_a_held_table_is_waited_for_within_a_bound_L11(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = parquet_folders.Root(tmp_path)
    root.prepare()
    monkeypatch.setattr(parquet_folders, "LOCK_SECONDS", 0.2)
    with (
        root.lock(T),
        pytest.raises(DestinationError, match="holds table t") as caught,
        root.lock(T),
    ):
        pass
    assert caught.value.code == "destination.table_locked"


def test_a_lock_whose_file_was_deleted_is_taken_once_L3(tmp_path: Path) -> None:
    """A cleaner of old files deletes a lock file that one run holds and a second waits for; a third
    makes it again. The second one gets the old file's lock, which locks nothing any more."""
    root = parquet_folders.Root(tmp_path)
    root.prepare()
    path, entered = root.own / root.lock_name(T), threading.Event()

    def second() -> None:
        with root.lock(T):
            entered.set()

    waiter = threading.Thread(target=second)
    with path.open("wb") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        waiter.start()
        inode = os.fstat(first.fileno()).st_ino
        while _openers(inode) < 2:  # ours, and the waiting thread's
            time.sleep(0.01)
        path.unlink()
        third = path.open("wb")
        fcntl.flock(third, fcntl.LOCK_EX)
    with third:
        assert not entered.wait(0.3)
    assert entered.wait(10)
    waiter.join()


def _openers(inode: int) -> int:
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.stat(f"/proc/self/fd/{each}").st_ino == inode
    return found


def test_a_lock_that_is_taken_is_no_old_file(tmp_path: Path) -> None:
    """What deletes old files goes by their times."""
    root = parquet_folders.Root(tmp_path)
    root.prepare()
    path = root.own / root.lock_name(T)
    path.touch()
    os.utime(path, (0, 0))
    with root.lock(T):
        assert path.stat().st_mtime > time.time() - 3600


def test_a_sync_tools_copy_of_a_file_is_not_the_tables(tables: Any, loads: Any) -> None:
    tables.commit(None, LOCAL, [shaped(loads.load(1, [{"id": 1}]))])
    folder = Path(tables.location(T))
    marker = parquet_folders.read_marker(folder)
    assert marker is not None
    (file,) = own = parquet_folders.finished_files(folder, marker)
    for end in (" (conflicted copy)", ".sync-conflict-20261127-101010-ABCDEFG", " - Copy"):
        shutil.copy(file, f"{file.removesuffix('.parquet')}{end}.parquet")
    shutil.copy(file, folder / f"{Path(file).name[:16]}-copy.parquet")
    assert parquet_folders.finished_files(folder, marker) == own


def test_places_that_cannot_exchange_are_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ParquetTables("s3a://bucket/lake")
    assert caught.value.code == "destination.not_local" and "delta" in (caught.value.hint or "")
    assert ParquetTables(f"file://{tmp_path}/a%20b").location(T) == f"{tmp_path}/a b/t"
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError) as refused:
        ParquetTables(str(tmp_path / "file" / "lake")).check()
    assert refused.value.code == "destination.not_writable"


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_check_creates_nothing(tmp_path: Path, kind: str) -> None:
    open_table(kind, str(tmp_path / "deep" / "lake")).check()
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError) as refused:
        open_table(kind, str(tmp_path / "file" / "lake")).check()
    assert refused.value.code == "destination.not_writable"


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_place_that_only_looks_writable_is_refused(kind: str) -> None:
    """The permission bits of /proc let root in; no file can be made there."""
    for place in ("/proc/x", "/proc/x/y"):
        with pytest.raises(DestinationError) as refused:
            open_table(kind, place).check()
        assert refused.value.code == "destination.not_writable"
        assert place in refused.value.message


def test_the_exchange_is_one_step(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("")
    parquet_folders.put_folder(tmp_path / "new", tmp_path / "old")
    assert os.listdir(tmp_path / "old") == ["new"] and os.listdir(tmp_path / "new") == ["old"]


def test_opening_a_table_imports_no_spark() -> None:
    code = (
        "import sys, json; from penstock.tables.formats import open_table\n"
        "for kind in ('parquet', 'delta'): open_table(kind, 'x').needs()\n"
        "print(json.dumps([m for m in sys.modules if m in ('pyspark', 'pyarrow', 'duckdb')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == []
