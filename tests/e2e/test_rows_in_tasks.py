"""L13: every row is read and written in Spark's tasks. By the system calls of real runs, no process
but Spark's own (its JVM, its Python workers and their children) reads more of a part or of a data
file than its footer; by Spark's event log each lane, verification and merge is a job.

A first run, which is not traced, leaves a warm Spark; the driver of the runs after it has no
process of Spark below it. So what strace sees of the command is all that is not Spark's.
"""

import json
import os
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
    """A home, a lake of one format and a tap; each mode has a pipeline of its own."""

    def __init__(self, folder: Path, format: str, spark: "StayingSpark") -> None:
        self.folder, self._format, self._spark = folder, format, spark
        folder.mkdir()
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
        }))  # fmt: skip
        done = subprocess.run(
            [*(traced(trace, reads=True) if trace else ()), str(SCRIPT), "run", str(file)],
            capture_output=True,
            cwd=self.folder,
            env=self._spark.environment(PENSTOCK_HOME=str(self.folder / "home")),
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


class StayingSpark:
    """The Spark of these tests, which keeps an event log."""

    def __init__(self, folder: Path) -> None:
        self.cache, self._events = warm_spark.cache_in(folder / "cache"), folder / "events"
        self._events.mkdir()
        settings = {
            "enabled": "true",
            "dir": self._events.as_uri(),
            "rolling.enabled": "false",
            "compress": "false",
        }
        words = (f"-Dspark.eventLog.{name}={value}" for name, value in settings.items())
        self._java = " ".join([os.environ["JDK_JAVA_OPTIONS"], *words])

    def environment(self, **more: str) -> dict[str, str]:
        return warm_spark.as_environment(
            XDG_CACHE_HOME=str(self.cache), JDK_JAVA_OPTIONS=self._java, **more
        )

    def jobs(self) -> list[str]:
        """The descriptions of all jobs so far, in their order."""
        (log,) = self._events.iterdir()
        lines = [json.loads(x) for x in log.read_text().splitlines() if "JobStart" in x]
        return [x["Properties"].get("spark.job.description", "") for x in lines]


@pytest.fixture(scope="module")
def staying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StayingSpark]:
    folder = tmp_path_factory.mktemp("staying")
    made = StayingSpark(folder)
    try:
        Lake(folder / "first", "delta", made).run("append", (0, 1))
        yield made
    finally:
        warm_spark.end_in(made.cache)


@pytest.fixture(scope="module")
def lake(
    request: pytest.FixtureRequest,
    staying: StayingSpark,
    tmp_path_factory: pytest.TempPathFactory,
) -> Lake:
    return Lake(tmp_path_factory.mktemp("rows") / "lake", request.param, staying)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with running_cluster() as folder:
        yield folder


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lake", ["parquet", "delta"], indirect=True)
def test_l13_spark_s_jobs_have_the_rows_and_the_driver_reads_no_more_than_footers(
    lake: Lake, staying: StayingSpark, mode: str
) -> None:
    """Each lane, verification and merge is a job. New tables, and tables that have rows: half of
    the second run's keys are there."""
    first, second = range(RECORDS), range(RECORDS // 2, RECORDS * 3 // 2)
    for number, keys in enumerate((first, second)):
        before, trace = len(staying.jobs()), lake.folder / f"{mode}-{number}.trace"
        lake.run(mode, (keys.start, keys.stop), trace)
        assert lake.rows_read(trace) == {}
        jobs = staying.jobs()[before:]
        assert sum("penstock runs lane" in job for job in jobs) == 1, jobs
        assert sum("penstock verifies" in job for job in jobs) == 1, jobs
        merges = sum("penstock runs merge_task" in job for job in jobs)
        assert merges == (mode == "append_dedup"), jobs
    right = {
        "append": sorted([*first, *second]),
        "overwrite": [*second],
        "append_dedup": [*range(RECORDS * 3 // 2)],
    }
    assert lake.ids(mode) == right[mode]
    assert max(file.stat().st_size for file in lake.files(mode)) > 4 * FOOTER


@pytest.mark.parametrize(
    ("lake", "mode"),
    [("parquet", "append"), ("delta", "upsert"), ("parquet", "mirror")],
    indirect=["lake"],
)
def test_l13_the_driver_gets_no_row_of_a_query_that_a_database_runs(
    lake: Lake, mode: str, database: str
) -> None:
    """By its sockets and by what it writes; all rows are there. In mode mirror Spark compares them
    with those that were sent before."""
    text = "(SELECT string_agg(md5(n::text || ' ' || m), '') FROM generate_series(1, 12) m)"
    query = f"SELECT n AS id, {text} AS text FROM generate_series(0, {RECORDS - 1}) n"
    trace = lake.folder / f"query-{mode}.trace"
    stream = {"name": "s", "mode": mode, "primary_key": ["id"]}
    url = f"postgresql://penstock@/postgres?host={database}"
    source = {"use": f"spark:{query}", "config": {"datasource": url, "stream": "s"}}
    lake.run_from(source | {"streams": [stream]}, f"query-{mode}", trace)
    assert lake.ids(f"query-{mode}") == [*range(RECORDS)]
    rows = max(file.stat().st_size for file in lake.files(f"query-{mode}"))
    assert rows > 4 * FOOTER
    assert received(calls(trace)) < rows // 2
    assert not [path for path in written(calls(trace)) if path.endswith(".parquet")]
    assert lake.rows_read(trace) == {}
