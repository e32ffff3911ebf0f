"""A program on a cluster whose second worker does not share a folder: loads into tables there, and
rows of a model into a log there. Prints one JSON document of what it saw.

Usage: unshared_tables.py FOLDER ALONE BESIDE; on stdin the master and settings as JSON. FOLDER: all
share it; ALONE: the folder that the worker does not share; BESIDE: ALONE as that worker has it.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tables"))

from read_back import rows_of

from conftest import Loads
from penstock.errors import PenstockError
from penstock.runtimes.worker_name import worker_namer
from penstock.spark.model import Model, write
from penstock.spark.session import open_session
from penstock.tables.contract import LoadTasks, NotSeen
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.parquet.tables import FEW_LOADS, ParquetTables
from penstock.tasks.spark_job import on_spark

FOLDER, ALONE, BESIDE = map(Path, sys.argv[1:])
ODD = {"id": "integer", "v (1)": "string", "n": "number"}
"""A name for which Spark has to write the table, and a key that Spark has to compare."""


def rows(*ids: int) -> list[list[dict[str, Any]]]:
    return [[{"id": i, "v": f"v{i}", "v (1)": "x" * 2000, "n": i / 2}] for i in ids]


def told(outcome: Any) -> list[Any]:
    """A load's outcome: the error's code, message and hint; else the rows written."""
    if isinstance(outcome, NotSeen):
        outcome.add_hint("shop")
    if isinstance(outcome, PenstockError):
        return [outcome.code, outcome.message, outcome.hint]
    return [None, outcome.written, outcome.repeated]


class Busy:
    """Keeps the worker that does not share the folder busy until it is let go."""

    def __init__(self, spark: Any) -> None:
        self.go, self.begun = FOLDER / f"go-{time.time_ns()}", FOLDER / f"begun-{time.time_ns()}"
        self._thread = threading.Thread(target=self._hold, args=(spark,))
        self._thread.start()
        while not self.begun.exists():
            time.sleep(0.02)
        time.sleep(1.0)  # the other worker's task has ended

    def _hold(self, spark: Any) -> None:
        from pyspark.sql import functions as F

        go, begun, mark = str(self.go), str(self.begun), str(ALONE / "shared")

        def hold(_: int) -> int:
            import os
            import time

            if not os.path.exists(mark):
                open(begun, "w").close()
                while not os.path.exists(go):
                    time.sleep(0.02)
            else:
                time.sleep(0.5)  # so that each worker gets one
            return 1

        held = F.udf(hold, "int", useArrow=False).asNondeterministic()
        spark.range(0, 2, 1, 2).select(held("id")).collect()

    def let_go(self) -> None:
        self.go.touch()
        self._thread.join()

    @contextmanager
    def until_written(self, table: Path) -> Iterator[None]:
        """Lets the worker go once the other one has begun to write into ``table``."""
        before = set(table.glob("*.parquet"))

        def watch() -> None:
            deadline = time.monotonic() + 60
            while not set(table.glob("*.parquet")) - before and time.monotonic() < deadline:
                time.sleep(0.005)
            self.go.touch()

        watching = threading.Thread(target=watch)
        watching.start()
        yield
        watching.join()
        self._thread.join()


def main() -> None:
    given = json.load(sys.stdin)
    os.environ["PENSTOCK_DAEMON"] = "0"
    (ALONE / "shared").touch()
    (FOLDER / "parts").mkdir()
    made = Loads(FOLDER / "parts")
    delta, parquet = DeltaTables(str(ALONE / "delta")), ParquetTables(str(ALONE / "parquet"))
    spark = open_session(
        delta.needs(),
        master=given["master"],
        conf=given["conf"]
        | {
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.files.maxPartitionBytes": "1m",  # a task for each part
        },
        lanes=1,
        scratch_dir=FOLDER,
    )
    await_workers(spark, 2)
    submit = on_spark(spark, FOLDER / "mailbox", local=False)
    tasks = LoadTasks(submit, 2, "lease", elsewhere=True, prove_lease=lambda: None)
    seen: dict[str, Any] = {}

    def commit(tables: Any, *loads: Any) -> list[Any]:
        return [told(outcome) for outcome in tables.commit(spark, tasks, list(loads))]

    for name, tables in (("delta", delta), ("parquet", parquet)):
        for mode in ("append", "overwrite", "append_dedup"):
            load = made.load(
                1,
                rows(1, 2, 3, 4),
                ODD,
                table=f"{mode}_1",
                mode=mode,
                replaces=mode == "overwrite",
                primary_key=(("n",),),
            )
            seen[f"{name}/{mode}"] = commit(tables, load)
    many = [made.load(1, rows(n), table=f"many_{n}") for n in range(FEW_LOADS + 1)]
    seen["parquet/many"] = commit(parquet, *many)
    odd = [
        made.load(1, rows(n), {**ODD, "v": "string"}, table=f"odd_{n}")
        for n in range(FEW_LOADS + 1)
    ]
    seen["parquet/odd"] = commit(parquet, *odd)
    seen["tables"] = sorted(
        p.parent.name for p in ALONE.rglob("*") if p.name in ("_delta_log", "_penstock.json")
    )
    model = Model(name="m", query="SELECT id FROM range(0, 100, 1, 4)")
    for place in ("alone", "shared"):
        folder = (ALONE if place == "alone" else FOLDER) / "log" / "model"
        folder.parent.mkdir(parents=True)
        try:
            files = write(spark.sql("SELECT id AS c0 FROM range(0, 100, 1, 4)"), folder, model)
            seen[f"model/{place}"] = [None, spark.read.parquet(*files).count()]
        except PenstockError as error:
            seen[f"model/{place}"] = [error.code, error.message, error.hint]
    seen |= late(spark, delta, made, commit)
    seen |= merged(spark, made, tasks)
    seen["left"] = [str(p) for p in ALONE.rglob(".penstock-probe-*")]
    print(json.dumps(seen))
    sys.stdout.flush()
    spark.stop()


def await_workers(spark: Any, wanted: int) -> None:
    """Waits until Spark gives tasks to so many workers."""
    from pyspark.sql import functions as F

    mine, deadline = worker_namer(), time.monotonic() + 60

    def named(_: int) -> str:
        import time

        time.sleep(0.3)
        return mine()

    name = F.udf(named, "string", useArrow=False).asNondeterministic()
    while time.monotonic() < deadline:
        found = spark.range(0, wanted, 1, wanted).select(name("id")).collect()
        if len({row[0] for row in found}) == wanted:
            return
    raise AssertionError("the workers never came")


def planned(delta: DeltaTables, load: Any, **changed: Any) -> Any:
    """The load as the ledger has it: with the version of the table on which it is planned."""
    at = delta.planned_on(load.table)
    return msgspec.structs.replace(
        load, load=msgspec.structs.replace(load.load, planned=at, **changed)
    )


def late(spark: Any, delta: DeltaTables, made: Loads, commit: Callable[..., Any]) -> dict[str, Any]:
    """A worker that was busy when the others were asked, and writes files that nobody sees."""
    seen: dict[str, Any] = {}
    root, table = ALONE / "delta", ALONE / "delta" / "late"
    load = planned(delta, made.load(1, rows(*range(20)), table="late"))
    with Busy(spark).until_written(table):
        seen["late/new"] = commit(delta, load)
    busy = Busy(spark)  # or it is refused first, since it still does not share the folder
    seen["late/new again"] = commit(delta, load)
    shutil.copytree(BESIDE / "delta" / "late", table, dirs_exist_ok=True)
    seen["late/new brought"] = commit(delta, load)
    busy.let_go()
    seen["late/rows"] = ids(table)
    gone = planned(delta, made.load(1, rows(*range(20)), table="gone"))
    with Busy(spark).until_written(root / "gone"):
        outcome = commit(delta, gone)[0]
    subprocess.run(next(c for c in outcome[2].split("`") if "rm -r" in c), shell=True, check=True)
    busy = Busy(spark)
    seen["late/gone"] = [outcome, *commit(delta, gone)]
    again = planned(delta, made.load(2, rows(*range(20, 40)), table="late"), follows=1)
    with busy.until_written(table):
        seen["late/next"] = commit(delta, again)
    seen["late/gone rows"] = ids(root / "gone")
    command = next(c for c in seen["late/next"][0][2].split("`") if "restore(" in c)
    subprocess.run(command, shell=True, check=True)
    busy = Busy(spark)
    seen["late/adopted"] = commit(delta, planned(delta, again, number=3, follows=None))
    busy.let_go()
    seen["late/all rows"] = ids(table)
    return seen


def merged(spark: Any, made: Loads, tasks: LoadTasks) -> dict[str, Any]:
    """The same keyed loads into tables in a folder that all workers share: the way and the rows
    written of each load, then the table's rows."""
    seen: dict[str, Any] = {}
    delta, parquet = FOLDER / "lake" / "delta", FOLDER / "lake" / "parquet"
    tables = {"delta": DeltaTables(str(delta)), "parquet": ParquetTables(str(parquet))}
    for name, place in tables.items():
        outcomes: list[Any] = []
        for number, sent in enumerate(([(1, "a"), (2, "b")], [(2, "c"), (3, "d")]), 1):
            parts = [[{"id": key, "v": value}] for key, value in sent]
            columns = {"id": "integer", "v": "string"}
            load = made.load(number, parts, columns, table="t", mode="append_dedup")
            inner = msgspec.structs.replace(load.load, follows=number - 1)
            load = msgspec.structs.replace(load, load=inner)
            (outcome,) = place.commit(spark, tasks, [load])
            failed = isinstance(outcome, PenstockError)
            outcomes.append(told(outcome) if failed else [outcome.way, outcome.written])
        seen[f"merged/{name}"] = [*outcomes, sorted(map(list, rows_of(place, "id", "v")))]
    return seen


def ids(table: Path) -> list[int]:
    import deltalake

    return sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


if __name__ == "__main__":
    main()
