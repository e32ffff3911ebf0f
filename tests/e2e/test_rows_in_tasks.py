"""L13: every row is read and written in Spark's tasks. By the system calls of real runs, no process
but Spark's own (its JVM, its Python workers and their children) reads more of a part or of a data
file than its footer; by Spark's event log each lane, verification, merge and rewrite is a job.

A first run, which is not traced, leaves a warm Spark; the driver of the runs after it has no
process of Spark below it. So what strace sees of the command is all that is not Spark's.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import warm_spark
from forked_cli import SCRIPT
from postgres_cluster import running_cluster
from system_calls import calls, read_of, received, traced, written

pytestmark = [
    pytest.mark.spark,
    pytest.mark.dear,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

FOOTER = 64 << 10
"""What Arrow reads of a file's end at once, lest its footer needs a second read; the footers of
these files are a tenth of it, and each file is more than four times as large."""
RECORDS = 3000
TAP = """#!/usr/bin/env python3
import hashlib, json, sys

KEYS = json.load(open(sys.argv[sys.argv.index("--config") + 1]))["keys"]
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}
ABOUT = {"stream": "s", "schema": SCHEMA, "key_properties": ["id"]}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [{"tap_stream_id": "s", **ABOUT}]}))
    sys.exit()
print(json.dumps({"type": "SCHEMA", **ABOUT}))
for key in range(*KEYS):
    text = "".join(hashlib.sha256(b"%d %d" % (key, n)).hexdigest() for n in range(6))
    print(json.dumps({"type": "RECORD", "stream": "s", "record": {"id": key, "text": text}}))
print(json.dumps({"type": "STATE", "value": {"keys": KEYS}}))
"""
MODES = {
    "append": {},
    "overwrite": {"sync_mode": "full_refresh"},
    "append_dedup": {},
}


class Lake:
    """A home, a lake of one format and a tap; each mode has a pipeline of its own. ``conf``: of
    Spark, which is then the run's own."""

    def __init__(self, folder: Path, format: str, conf: dict[str, str] | None = None) -> None:
        self.folder, self._format, self._conf = folder, format, conf or {}
        self.cache = warm_spark.cache_in(folder / "cache")
        (folder / "tap.py").write_text(TAP)
        (folder / "tap.py").chmod(0o755)

    def run(self, mode: str, keys: tuple[int, int], trace: Path | None = None) -> None:
        """One run that sends the keys from the first to before the second, as a user starts it."""
        stream = {"name": "s", "destination_sync_mode": mode, **MODES[mode]}
        source = {"use": "singer:./tap.py", "config": {"keys": keys}, "streams": [stream]}
        self.run_from(source, mode, trace)

    def run_from(self, source: dict[str, Any], mode: str, trace: Path | None = None) -> None:
        """One run of a source's stream ``s``, as a user starts it."""
        file = self.folder / f"{mode}.yml"
        file.write_text(json.dumps({
            "pipeline": f"rows-{mode}",
            "source": source,
            "destination": {"use": f"{self._format}:./{mode}"},
            "spark": {"conf": self._conf},
        }))  # fmt: skip
        done = subprocess.run(
            [*(traced(trace, reads=True) if trace else ()), str(SCRIPT), "run", str(file)],
            capture_output=True,
            cwd=self.folder,
            env=warm_spark.as_environment(
                PENSTOCK_HOME=str(self.folder / "home"), XDG_CACHE_HOME=str(self.cache)
            ),
            timeout=300,
        )
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-3000:])

    def files(self, mode: str) -> list[Path]:
        found = (self.folder / mode).rglob("*.parquet")
        return [file for file in found if "_delta_log" not in file.parts]

    def ids(self, mode: str) -> list[int]:
        """The ids of the table's rows, sorted."""
        place = self.folder / mode / "s"
        if self._format == "delta":
            from deltalake import DeltaTable

            rows: Any = DeltaTable(str(place)).to_pyarrow_table(columns=["id"])
            return sorted(rows["id"].to_pylist())
        found = duckdb.sql(f"SELECT id FROM '{place}/*.parquet' ORDER BY 1").fetchall()
        return [row[0] for row in found]

    def rows_read(self, trace: Path) -> dict[str, tuple[int, int]]:
        """The parts and data files of which the command, or a child of it, read more than footers:
        how often each was opened, and the bytes that were read."""
        read = read_of(calls(trace))
        assert str(self.folder / "home" / "state.db") in read, "the driver was not traced"
        assert not any("/libjvm.so" in path for path in read), "Spark was traced too"
        return {
            path: (opened, size)
            for path, (opened, size) in read.items()
            if path.startswith(f"{self.folder}/")
            and path.endswith(".parquet")
            and "/_delta_log/" not in path
            and size > FOOTER * opened
        }


@pytest.fixture(scope="module", params=["parquet", "delta"])
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    made = Lake(tmp_path_factory.mktemp("rows"), request.param)
    try:
        made.run("append", (0, 1))
        yield made
    finally:
        warm_spark.end_in(made.cache)


@pytest.mark.parametrize("mode", MODES)
def test_l13_the_driver_reads_of_parts_and_data_files_no_more_than_footers(
    lake: Lake, mode: str
) -> None:
    """New tables, and tables that have rows: half of the second run's keys are there."""
    traces = [lake.folder / f"{mode}-{number}.trace" for number in range(2)]
    lake.run(mode, (0, RECORDS), traces[0])
    lake.run(mode, (RECORDS // 2, RECORDS * 3 // 2), traces[1])
    first, second = range(RECORDS), range(RECORDS // 2, RECORDS * 3 // 2)
    right = {
        "append": sorted([0, *first, *second]),
        "overwrite": [*second],
        "append_dedup": [*range(RECORDS * 3 // 2)],
    }
    assert lake.ids(mode) == right[mode]
    assert max(file.stat().st_size for file in lake.files(mode)) > 4 * FOOTER
    assert [lake.rows_read(trace) for trace in traces] == [{}, {}]


@pytest.mark.parametrize("mode", ["append", "upsert", "mirror"])
def test_l13_the_driver_gets_no_row_of_a_query_that_a_database_runs(lake: Lake, mode: str) -> None:
    """By its sockets and by what it writes; all rows are there. In mode mirror Spark compares them
    with those that were sent before."""
    text = "(SELECT string_agg(md5(n::text || ' ' || m), '') FROM generate_series(1, 12) m)"
    query = f"SELECT n AS id, {text} AS text FROM generate_series(0, {RECORDS - 1}) n"
    trace = lake.folder / f"query-{mode}.trace"
    with running_cluster() as folder:
        url = f"postgresql://penstock@/postgres?host={folder}"
        stream = {"name": "s", "mode": mode, "primary_key": ["id"]}
        source = {"use": f"spark:{query}", "config": {"datasource": url, "stream": "s"}}
        lake.run_from(source | {"streams": [stream]}, f"query-{mode}", trace)
    assert lake.ids(f"query-{mode}") == [*range(RECORDS)]
    rows = max(file.stat().st_size for file in lake.files(f"query-{mode}"))
    assert rows > 4 * FOOTER
    assert received(calls(trace)) < rows // 2
    assert not [path for path in written(calls(trace)) if path.endswith(".parquet")]
    assert lake.rows_read(trace) == {}


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_l13_each_lane_verification_and_merge_is_a_job_of_spark(
    tmp_path: Path, format: str
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    made = Lake(tmp_path, format, conf)
    made.run("append_dedup", (0, RECORDS))
    made.run("append_dedup", (RECORDS // 2, RECORDS))
    logs = sorted(events.iterdir(), key=lambda log: log.stat().st_mtime)
    assert len(logs) == 2
    for log in logs:
        lines = [json.loads(x) for x in log.read_text().splitlines() if "JobStart" in x]
        jobs = [x["Properties"].get("spark.job.description", "") for x in lines]
        assert sum("penstock runs lane" in job for job in jobs) == 1, jobs
        assert sum("penstock verifies" in job for job in jobs) == 1, jobs
        assert sum("penstock runs merge_task" in job for job in jobs) == 1, jobs
    assert made.ids("append_dedup") == [*range(RECORDS)]
