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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import warm_spark
from forked_cli import SCRIPT
from penstock.spark.warm import folder_of_all, status
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
STREAMS = ["append", "overwrite", "append_dedup"]
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}
ABOUT = {"schema": SCHEMA, "key_properties": ["id"]}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [{"tap_stream_id": s, "stream": s, **ABOUT} for s in STREAMS]}))
    sys.exit()
for stream in STREAMS:
    print(json.dumps({"type": "SCHEMA", "stream": stream, **ABOUT}))
    for key in range(*KEYS):
        text = "".join(hashlib.sha256(b"%d %d" % (key, n)).hexdigest() for n in range(6))
        record = {"id": key, "text": text}
        print(json.dumps({"type": "RECORD", "stream": stream, "record": record}))
bookmarks = {stream: {"keys": KEYS} for stream in STREAMS}
print(json.dumps({"type": "STATE", "value": {"bookmarks": bookmarks}}))
"""
MODES = {
    "append": {},
    "overwrite": {"sync_mode": "full_refresh"},
    "append_dedup": {},
}
"""Of the tap's streams, each named as its mode."""


class Lake:
    """A home, a lake of one format and a tap. ``jobs``: descriptions of those of the last run."""

    def __init__(self, folder: Path, format: str, spark: "StayingSpark") -> None:
        self.folder, self._format, self._spark = folder, format, spark
        self.jobs: list[str] = []
        folder.mkdir()
        (folder / "tap.py").write_text(TAP)
        (folder / "tap.py").chmod(0o755)

    def run(self, keys: range, trace: Path | None = None) -> None:
        """One run that sends the keys, as a user starts it."""
        streams = [
            {"name": mode, "destination_sync_mode": mode, **more} for mode, more in MODES.items()
        ]
        config = {"keys": [keys.start, keys.stop]}
        self.run_from({"use": "singer:./tap.py", "config": config, "streams": streams}, trace)

    def run_from(self, source: dict[str, Any], trace: Path | None = None) -> None:
        """One run of a source, as a user starts it."""
        before = len(self._spark.jobs())
        if trace is not None:
            self._spark.await_idle()
        file = self.folder / "rows.yml"
        file.write_text(json.dumps({
            "pipeline": source["streams"][0]["name"],
            "source": source,
            "destination": {"use": f"{self._format}:./lake"},
        }))  # fmt: skip
        done = subprocess.run(
            [*(traced(trace, reads=True) if trace else ()), str(SCRIPT), "run", str(file)],
            capture_output=True,
            cwd=self.folder,
            env=self._spark.environment(PENSTOCK_HOME=str(self.folder / "home")),
            timeout=300,
        )
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-3000:])
        self.jobs = self._spark.jobs()[before:]

    def files(self, table: str) -> list[Path]:
        found = (self.folder / "lake" / table).rglob("*.parquet")
        return [file for file in found if "_delta_log" not in file.parts]

    def ids(self, table: str) -> list[int]:
        """The ids of the table's rows, sorted."""
        place = self.folder / "lake" / table
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

    def await_idle(self) -> None:
        """Waits until the Spark can be lent: a traced run that starts another one would not end
        before that one, 15 minutes later."""
        keepers, deadline = folder_of_all(self.cache / "penstock"), time.monotonic() + 120
        while [each["state"] for each in status(keepers)] != ["idle"]:
            assert time.monotonic() < deadline, status(keepers)
            time.sleep(0.1)

    def jobs(self) -> list[str]:
        """The descriptions of all jobs so far, in their order."""
        lines = (x for log in self._events.iterdir() for x in log.read_text().splitlines())
        jobs = [json.loads(line) for line in lines if "JobStart" in line]
        jobs.sort(key=lambda job: job["Submission Time"])
        return [job["Properties"].get("spark.job.description", "") for job in jobs]


@pytest.fixture(scope="module")
def staying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StayingSpark]:
    folder = tmp_path_factory.mktemp("staying")
    made = StayingSpark(folder)
    try:
        Lake(folder / "first", "delta", made).run(range(1))
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


@pytest.mark.parametrize("lake", ["parquet", "delta"], indirect=True)
def test_l13_spark_s_jobs_have_the_rows_and_the_driver_reads_no_more_than_footers(
    lake: Lake,
) -> None:
    """In each mode; each lane, verification and merge is a job. New tables, and tables that have
    rows: half of the second run's keys are there."""
    first, second = range(RECORDS), range(RECORDS // 2, RECORDS * 3 // 2)
    for number, keys in enumerate((first, second)):
        trace = lake.folder / f"{number}.trace"
        lake.run(keys, trace)
        assert lake.rows_read(trace) == {}
        for job in ("penstock runs lane", "penstock verifies", "penstock runs merge_task"):
            assert sum(job in description for description in lake.jobs) == 1, lake.jobs
    right = {
        "append": sorted([*first, *second]),
        "overwrite": [*second],
        "append_dedup": [*range(RECORDS * 3 // 2)],
    }
    assert {mode: lake.ids(mode) for mode in MODES} == right
    for mode in MODES:
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
    name = f"query_{mode}"
    trace = lake.folder / f"{name}.trace"
    stream = {"name": name, "mode": mode, "primary_key": ["id"]}
    url = f"postgresql://penstock@/postgres?host={database}"
    source = {"use": f"spark:{query}", "config": {"datasource": url, "stream": name}}
    lake.run_from(source | {"streams": [stream]}, trace)
    assert lake.ids(name) == [*range(RECORDS)]
    rows = max(file.stat().st_size for file in lake.files(name))
    assert rows > 4 * FOOTER
    assert received(calls(trace)) < rows // 2
    assert not [path for path in written(calls(trace)) if path.endswith(".parquet")]
    assert lake.rows_read(trace) == {}
