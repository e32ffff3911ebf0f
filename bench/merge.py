"""A load of 100,000 rows merged into a Delta table of a million, beside deltalake's own merge.

    python bench/merge.py [--rows 1000000] [--load 100000] [--rounds 5] [--keys spread,recent]

Both merge the same rows into a copy of the same table, in turn, in one process, on a Spark session
that is open: seconds of the wall and of the processor (of this process and all its children; the
JVM's just-in-time compiler among them). ``spread``: nine of ten rows have keys from all over the
table; ``recent``: from its newest tenth. One of ten is new. Memory is the greatest PSS of the
Python process and of the JVM after the rounds.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from model_diff import processor_seconds

from penstock.codec.parquet_parts import write_part
from penstock.errors import PenstockError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import Load, PartRef, SegmentId, WriteDisposition
from penstock.model.types import DataType, Field, Kind, MetadataNames, RowSchema
from penstock.spark.session import close_session, open_session
from penstock.tables.contract import LoadTasks, TableLoad, TableName, TablePolicy
from penstock.tables.formats import open_table
from penstock.tasks.spark_job import on_spark

NAMES = MetadataNames("_raw_id", "_extracted_at", "_meta", "_generation_id")
KINDS = {"id": "integer", "name": "string", "email": "string", "text": "string",
         "amount": "decimal", "at": "timestamp", "score": "number"}  # fmt: skip
SCHEMA = RowSchema(
    tuple(
        Field(n, n, DataType(Kind.decimal, 18, 2) if k == "decimal" else DataType(Kind(k)))
        for n, k in KINDS.items()
    ),
    1,
)
PART_ROWS = 60_000
TABLE = "people"


def rows(ids: str, count: int, number: int) -> Any:
    """An Arrow table of a load's rows, of about 185 bytes: data and internal columns."""
    return duckdb.sql(f"""
        SELECT id, 'name ' || id AS name, 'person' || id || '@example.com' AS email,
          repeat(md5((id * {number})::VARCHAR), 2) AS text,
          (id % 10000000 / 100)::DECIMAL(18, 2) AS amount,
          make_timestamptz((1700000000::BIGINT + {number} * 1000000 + id % 1000) * 1000000) AS at,
          id / 7.0::DOUBLE AS score,
          ({number}::BIGINT << 40) + i AS _penstock_seq,
          uuid()::VARCHAR AS _penstock_id,
          make_timestamptz((1700000000::BIGINT + {number} * 1000) * 1000000)
            AS _penstock_extracted_at,
          NULL::STRUCT(field VARCHAR, change VARCHAR, reason VARCHAR)[] AS _penstock_changes
        FROM (SELECT i, {ids} AS id FROM range({count}) t(i))""").to_arrow_table()


def load(folder: Path, number: int, ids: str, count: int) -> TableLoad:
    """A load under append_dedup whose parts lie in ``folder``, cut as a lane cuts them."""
    whole = rows(ids, count, number)
    paths: list[str] = []
    refs: list[PartRef] = []
    for start in range(0, count, PART_ROWS):
        part = whole.slice(start, PART_ROWS)
        path = folder / f"part-{number}-{start}.parquet"
        size, crc = write_part(path, part, sync=False)
        refs.append(PartRef(path.name, part.num_rows, part.num_rows * 185, size, crc))
        paths.append(str(path))
    return TableLoad(
        load=Load(
            key="bench/people",
            number=number,
            stream=StreamId(None, TABLE),
            disposition=WriteDisposition(
                mode=DestinationSyncMode.append_dedup,
                primary_key=(("id",),),
                cursor=("at",),
                sync_id=1,
            ),
            segments=(SegmentId(1, number),),
            parts=tuple(refs),
            schema_version=1,
            generation=1,
            follows=number - 1 or None,
            token=str(number),
        ),
        table=TableName(None, TABLE),
        parts=tuple(paths),
        schema=SCHEMA,
        policy=TablePolicy(metadata=NAMES),
    )


def measured(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """(seconds of the wall, of the processor, what ``work`` gives)."""
    began, used = time.perf_counter(), processor_seconds()
    given = work()
    return time.perf_counter() - began, processor_seconds() - used, given


def ours(spark: Any, tables: Any, given: TableLoad) -> int:
    jobs = Path(tables.location(given.table)).parent.parent / "jobs"
    jobs.mkdir(exist_ok=True)
    tasks = LoadTasks(
        on_spark(spark, jobs, local=True),
        at_once=2,
        token=str(given.load.token),
        elsewhere=False,
        prove_lease=lambda: None,
    )
    outcome = tables.commit(spark, tasks, [given])[0]
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome.written


def theirs(folder: Path, given: TableLoad) -> int:
    """deltalake's merge of the same rows in the table's shape; what it reports as changed."""
    from deltalake import DeltaTable

    table = DeltaTable(str(folder))
    names = [f.name for f in SCHEMA.fields]
    new = duckdb.sql(f"""
        SELECT {", ".join(f'"{n}"' for n in names)}, _penstock_id AS _raw_id,
          _penstock_extracted_at AS _extracted_at,
          {{'sync_id': 1::BIGINT, 'changes': coalesce(_penstock_changes, [])}} AS _meta,
          1::BIGINT AS _generation_id
        FROM read_parquet({list(given.parts)!r})""").to_arrow_table()
    done = (
        table.merge(new, "s.id = t.id", source_alias="s", target_alias="t")
        .when_matched_update_all("s.at >= t.at")
        .when_not_matched_insert_all()
        .execute()
    )
    return int(done["num_target_rows_updated"]) + int(done["num_target_rows_inserted"])


def pss() -> dict[str, int]:
    """Peak resident MB of this process and its JVM."""
    found: dict[str, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines()
            )
            ppid, pid = int(status["PPid"]), int(status["Pid"])
        except (OSError, ValueError, KeyError):
            continue
        if os.getpid() in (ppid, pid) and "VmHWM" in status:
            name = "python" if pid == os.getpid() else status["Name"].strip()
            found[name] = max(found.get(name, 0), int(status["VmHWM"].split()[0]) >> 10)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--load", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", default="spread,recent")
    told = parser.parse_args()
    duckdb.sql("SET TimeZone = 'UTC'")
    with tempfile.TemporaryDirectory(prefix="penstock-merge-") as name:
        folder = Path(name)
        tables = open_table("delta", str(folder / "ours"))
        spark = open_session(tables.needs(), master="local[2]", scratch_dir=folder / "spark")
        try:
            for keys in told.keys.split(","):
                _case(keys, folder, spark, tables, told)
        finally:
            close_session(spark)


def _case(keys: str, folder: Path, spark: Any, tables: Any, told: argparse.Namespace) -> None:
    mine, other = folder / "ours" / TABLE, folder / "theirs"
    for each in (mine, other):
        shutil.rmtree(each, ignore_errors=True)
    given = load(folder, 1, "i", told.rows)
    first, cpu, _ = measured(lambda: ours(spark, tables, given))
    size = sum(f.stat().st_size for f in mine.glob("*.parquet"))
    shutil.copytree(mine, other)
    files = len(list(mine.glob("*.parquet")))
    print(f"{keys}: table made in {first:.1f} s ({cpu:.1f} s CPU), {size >> 20} MB, {files} files")
    new, old = told.load // 10, told.load - told.load // 10
    step, begin = told.rows // old, 0
    if keys == "recent":
        step, begin = 1, told.rows - old
    walls: dict[str, list[float]] = {"ours": [], "deltalake": []}
    cpus: dict[str, list[float]] = {"ours": [], "deltalake": []}
    for number in range(2, told.rounds + 2):
        beyond = told.rows + (number - 2) * new - old
        given = load(folder, number, f"CASE WHEN i < {old} THEN {begin} + i * {step} "
                     f"ELSE {beyond} + i END", told.load)  # fmt: skip
        did: dict[str, int] = {}
        for who, work in (
            ("ours", lambda given=given: ours(spark, tables, given)),
            ("deltalake", lambda given=given: theirs(other, given)),
        ):
            wall, used, did[who] = measured(work)
            walls[who].append(wall)
            cpus[who].append(used)
        assert did["ours"] == did["deltalake"] == told.load, did
        print(*(f"{who} {walls[who][-1]:6.2f} s, {cpus[who][-1]:6.2f} s CPU;" for who in walls))
    wall = {who: statistics.median(w[1:] or w) for who, w in walls.items()}
    used = {who: statistics.median(c[1:] or c) for who, c in cpus.items()}
    print(
        f"{keys}: ours {wall['ours']:.2f} s ({used['ours']:.2f} CPU), deltalake "
        f"{wall['deltalake']:.2f} s ({used['deltalake']:.2f} CPU): "
        f"{wall['ours'] / wall['deltalake']:.2f} x ({used['ours'] / used['deltalake']:.2f} "
        f"of CPU); load {os.getloadavg()[0]:.1f}; {pss()}"
    )


if __name__ == "__main__":
    main()
