"""Merges as real processes (L13): what they import, and what a table has after one that died, ran
twice, outlived its run's lease or met a full disk (L2, L3, L12)."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from merge_cases import dedup, numbered
from shaped import shaped
from tasks_here import LOCAL

from penstock.errors import LeaseLost, PenstockError
from penstock.tables.contract import LoadResult, LoadTasks, TableName
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.files.load_tasks import TOGETHER_BYTES
from penstock.tables.files.merge_job import MergeTaskJob
from penstock.tables.parquet.tables import ParquetTables
from penstock.tasks.spark_job import here, on_spark

T = TableName(None, "t")
NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))
PROCESS = LOCAL._replace(submit=here)
pytestmark = pytest.mark.dear
FORMATS = {"delta": DeltaTables, "parquet": ParquetTables}


@pytest.fixture(params=[*FORMATS])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return FORMATS[request.param](str(tmp_path / "lake [1] +% é"))


def put(tables: Any, load: Any, tasks: LoadTasks, spark: Any = NO_SPARK) -> Any:
    outcome = tables.commit(spark, tasks, [load])[0]
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def rows(tables: Any, name: str = "t") -> list[Any]:
    place = tables.location(TableName(None, name))
    if tables.name == "delta":
        found = DeltaTable(place).to_pyarrow_table(columns=["id", "v"])
    else:
        found = ds.dataset(place, format="parquet").to_table(columns=["id", "v"])
    return sorted(tuple(r.values()) for r in found.to_pylist())


def files(tables: Any) -> set[str]:
    return {p.name for p in Path(tables.location(T)).glob("*.parquet")}


def counted(tables: Any) -> set[str]:
    """The names of the files that are the table's."""
    if tables.name == "delta":
        return {Path(f).name for f in DeltaTable(tables.location(T)).file_uris()}
    return files(tables)


def test_the_process_of_a_merge_imports_no_spark_L13() -> None:
    code = (
        "import sys, penstock.tables.files.merge_task, penstock.tables.files.merged_files\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('pyspark', 'py4j', 'sqlalchemy')"
        " or m.startswith('penstock.spark')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_driver_of_a_merge_imports_no_duckdb_L13(tmp_path: Path) -> None:
    """Nor what reads rows: the driver has no way to."""
    code = (
        "import sys, penstock.tables.delta.tables, penstock.tables.parquet.tables\n"
        "import penstock.tables.files.load_tasks\n"
        "files = ('penstock.tables.files.merged', 'penstock.tables.files.newest')\n"
        "print([m for m in sys.modules if m == 'duckdb' or m.startswith(files)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_tables_of_a_call_are_merged_by_one_process_and_committed_in_order_L3_L13(
    tables: Any, loads: Any
) -> None:
    seen: list[int] = []

    def submit(module: str, job: bytes) -> bytes:
        seen.append(len(msgspec.json.decode(job, type=MergeTaskJob).merges))
        return here(module, job)

    tasks = LOCAL._replace(submit=submit, at_once=2)
    many = [dedup(loads, 1, [{"id": 1, "v": name}], table=name) for name in ("a", "b", "c")]
    more = [dedup(loads, 2, [{"id": 1, "v": "new"}, {"id": 2, "v": "x"}], table="a")]
    outcomes = tables.commit(NO_SPARK, tasks, [*many, *more])
    assert outcomes == [LoadResult(1), LoadResult(1), LoadResult(1), LoadResult(2)]
    assert seen == [3, 1]
    assert [rows(tables, n) for n in "abc"] == [[(1, "new"), (2, "x")], [(1, "b")], [(1, "c")]]


def test_a_large_merge_has_a_process_of_its_own(
    tables: Any, loads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def submit(module: str, job: bytes) -> bytes:
        seen.append(len(msgspec.json.decode(job, type=MergeTaskJob).merges))
        return LOCAL.submit(module, job)

    def grown(load: Any) -> Any:
        part = msgspec.structs.replace(load.load.parts[0], size=TOGETHER_BYTES + 1)
        inner = msgspec.structs.replace(load.load, parts=(part,))
        return msgspec.structs.replace(load, load=inner)

    made = [dedup(loads, 1, [{"id": 1, "v": name}], table=name) for name in ("a", "b", "c")]
    made[1] = grown(made[1])
    outcomes = tables.commit(NO_SPARK, LOCAL._replace(submit=submit, at_once=2), made)
    assert outcomes == [LoadResult(1)] * 3
    assert sorted(seen) == [1, 2]


def test_a_new_table_in_one_that_the_same_call_makes_is_refused_L8(
    tmp_path: Path, loads: Any
) -> None:
    tables = DeltaTables(str(tmp_path / "lake"))
    outer = dedup(loads, 1, [{"id": 1, "v": "a"}], table="a")
    inner = dedup(loads, 1, [{"id": 1, "v": "b"}], table=TableName("a", "b"))
    made, refused = tables.commit(NO_SPARK, LOCAL, [outer, inner])
    assert made == LoadResult(1) and refused.code == "destination.nested"
    assert not Path(tables.location(TableName("a", "b")), "_delta_log").exists()


def test_small_parts_are_gathered_by_a_process(tables: Any, loads: Any) -> None:
    load = numbered(shaped(loads.load(1, [[{"id": 1, "v": "a"}], [{"id": 2, "v": "b"}]])), 0)
    assert put(tables, load, PROCESS) == LoadResult(2)
    assert rows(tables) == [(1, "a"), (2, "b")] and len(files(tables)) == 1


def test_a_result_says_which_way_its_rows_came(tables: Any, loads: Any) -> None:
    """Parts become files; a task gathers small ones, and compares keys (issue 37, part 1)."""

    def sent(number: int, *parts: Any, **how: Any) -> Any:
        return numbered(shaped(loads.load(number, [[part] for part in parts], **how)), number - 1)

    first, second = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}
    ways = [put(tables, sent(1, first), LOCAL).way, put(tables, sent(2, first, second), LOCAL).way]
    ways.append(put(tables, sent(3, second, mode="overwrite", replaces=True), LOCAL).way)
    keyed = loads.load(1, [first], table="keyed", mode="append_dedup")
    ways.append(put(tables, numbered(keyed, 0), LOCAL).way)
    assert ways == ["publish", "merge", "publish", "merge"]


def test_a_merge_that_runs_twice_counts_once_L2_L3(tables: Any, loads: Any) -> None:
    """Spark retries tasks and runs copies of slow ones; the result of either is whole."""
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]), PROCESS)

    def twice(module: str, job: bytes) -> bytes:
        here(module, job)
        return here(module, job)

    load = dedup(loads, 2, [{"id": 1, "v": "new"}, {"id": 2, "v": "new"}])
    assert put(tables, load, PROCESS._replace(submit=twice)) == LoadResult(2)
    assert rows(tables) == [(1, "new"), (2, "new")]
    assert len(counted(tables)) == 1
    again = dedup(loads, 3, [{"id": 2, "v": "newer"}])
    assert put(tables, again, PROCESS) == LoadResult(1)
    assert rows(tables) == [(1, "new"), (2, "newer")]


def test_a_merge_that_outlives_the_lease_commits_nothing_L12(tables: Any, loads: Any) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]), PROCESS)
    load = dedup(loads, 2, [{"id": 1, "v": "new"}])
    before, taken = counted(tables), list[str]()

    def submit(module: str, job: bytes) -> bytes:
        done = here(module, job)
        taken.append("by another run, while the merge ran")
        return done

    def prove_lease() -> None:
        if taken:
            raise LeaseLost("another run has taken the pipeline over")

    with pytest.raises(LeaseLost):
        put(tables, load, PROCESS._replace(submit=submit, prove_lease=prove_lease))
    assert rows(tables) == [(1, "old")] and counted(tables) == before
    assert put(tables, load, PROCESS) == LoadResult(1)  # the other run repeats the load
    assert rows(tables) == [(1, "new")]


# -- a process that is killed


@pytest.fixture
def killed_while_reading() -> Iterator[Callable[[Any], Any]]:
    """Makes a load whose only part cannot be read before its merge was killed by SIGKILL: a FIFO in
    the place of the file, which is there again afterwards."""
    threads: list[threading.Thread] = []

    def prepare(load: Any) -> Any:
        part = Path(load.parts[0])
        content = part.read_bytes()
        part.unlink()
        os.mkfifo(part)

        def kill() -> None:
            pid = _reader(part)
            part.unlink()
            part.write_bytes(content)
            os.kill(pid, signal.SIGKILL)

        threads.append(threading.Thread(target=kill))
        threads[-1].start()
        return load

    yield prepare
    for thread in threads:
        thread.join(timeout=60)


def _reader(part: Path) -> int:
    """The process of a merge that waits for the other end of a FIFO."""
    name, deadline = b"penstock.tables.files.merge_task", time.monotonic() + 60
    while time.monotonic() < deadline:
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                opens = (entry / "wchan").read_text() in ("wait_for_partner", "fifo_open")
                opens |= (entry / "syscall").read_text().startswith(("257 ", "56 "))  # openat
                if opens and name in (entry / "cmdline").read_bytes():
                    return int(entry.name)
        time.sleep(0.02)
    raise AssertionError(f"no merge waits for {part}")


def test_a_merge_that_is_killed_leaves_the_table_as_it_was_L2_L3(
    tables: Any, loads: Any, killed_while_reading: Callable[[Any], Any]
) -> None:
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]), PROCESS)
    load = dedup(loads, 2, [{"id": 1, "v": "new"}])
    with pytest.raises(PenstockError):  # there is no Spark here that could go on
        put(tables, killed_while_reading(load), PROCESS)
    assert rows(tables) == [(1, "old")]
    assert put(tables, load, PROCESS) == LoadResult(1)
    assert rows(tables) == [(1, "new")]


@pytest.mark.spark
def test_spark_itself_writes_a_load_whose_merge_is_killed_in_its_task_L3_L13(
    tables: Any,
    loads: Any,
    spark: Any,
    tmp_path: Path,
    killed_while_reading: Callable[[Any], Any],
) -> None:
    tasks = LOCAL._replace(submit=on_spark(spark, tmp_path / "run", local=True))
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]), tasks)
    load = dedup(loads, 2, [{"id": 1, "v": "new"}, {"id": 2, "v": "new"}])
    done = put(tables, killed_while_reading(load), tasks, spark)
    assert done.written == 2 and rows(tables) == [(1, "new"), (2, "new")]
    assert (
        "a Spark query, not a task, wrote loads into table" in done.notes[-1]
        and "signal 9" in done.notes[-1]
    )


# -- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("kind", [*FORMATS])
def test_a_full_disk_in_a_task_is_named_and_leaves_no_file_that_counts_L2(
    small_disk: Path, loads: Any, kind: str
) -> None:
    tables: Any = FORMATS[kind](str(small_disk / "lake"))
    put(tables, dedup(loads, 1, [{"id": 1, "v": "old"}]), PROCESS)
    before = files(tables)
    large = [{"id": i, "v": os.urandom(500).hex()} for i in range(4000)]
    load = dedup(loads, 2, large)
    with pytest.raises(PenstockError, match="full") as caught:
        put(tables, load, PROCESS)
    assert caught.value.code == "destination.disk_full"
    assert rows(tables) == [(1, "old")] and files(tables) == before
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert put(tables, load, PROCESS) == LoadResult(4000)
    assert len(rows(tables)) == 4000
