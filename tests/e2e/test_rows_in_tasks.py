"""L13: every row is read and written in Spark's tasks. By the system calls of real runs, no process
but Spark's own (its JVM, its Python workers and their children) reads more of a part or of a data
file than its footer; by Spark's event log, each lane, verification, merge and rewrite is a job.

A first run, which is not traced, leaves a warm Spark; the driver of the runs after it has no
process of Spark below it. So what strace sees of the command is all that is not Spark's.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipelines import NAME, Site

import warm_spark
from forked_cli import SCRIPT
from system_calls import calls, read_of, traced

pytestmark = [
    pytest.mark.spark,
    pytest.mark.dear,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

FOOTER = 64 << 10
"""What Arrow reads of a file's end at once, lest its footer needs a second read; the footers of
these files are a tenth of it, and each file is more than four times as large."""
RECORDS, PAD = 3000, 400
MERGES_IN_THE_DRIVER = pytest.mark.xfail(
    strict=True, reason="the driver merges keyed rows itself, until merges are Spark jobs (L13)"
)
CASES = {
    "append": {"streams": [{"name": "s0", "destination_sync_mode": "append"}]},
    "overwrite": {
        "streams": [
            {"name": "s0", "sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
        ]
    },
    "append_dedup": {"streams": [{"name": "s0", "destination_sync_mode": "append_dedup"}]},
}


class Traced:
    """A pipeline whose runs are traced, on a warm Spark of its own that logs its events."""

    def __init__(self, folder: Path, format: str) -> None:
        self.site = Site(folder / "site", format, streams=1, pad=PAD)
        self.cache = warm_spark.cache_in(folder / "cache")
        self.events = folder / "events"
        self.events.mkdir()
        self._conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        self._traces = folder / "traces"
        self._traces.mkdir()

    def run(self, name: str, mode: str, *, trace: bool = True, **stub: Any) -> "Seen":
        """One run into the tables of a pipeline ``name``, as a user starts it."""
        self.site.lake = self.site.folder / name
        file = self.site.write(
            stub, spark={"master": "local[2]", "conf": self._conf}, **CASES[mode]
        )
        document = json.loads(file.read_text()) | {"pipeline": f"{NAME}-{name}"}
        file.write_text(json.dumps(document))
        before = len(self.jobs())
        into = self._traces / f"{name}-{len(list(self._traces.iterdir()))}"
        done = subprocess.run(
            [*(traced(into, reads=True) if trace else ()), str(SCRIPT), "run", str(file)],
            capture_output=True,
            env=warm_spark.as_environment(
                PENSTOCK_HOME=str(self.site.home.path), XDG_CACHE_HOME=str(self.cache)
            ),
            timeout=200,
        )
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-3000:])
        return Seen(self, into if trace else None, self.jobs()[before:])

    def jobs(self) -> list[str]:
        """The descriptions of all jobs so far, in their order."""
        lines = [line for log in self.events.iterdir() for line in log.read_text().splitlines()]
        events = [json.loads(x) for x in lines if '"SparkListenerJobStart"' in x]
        return [e["Properties"].get("spark.job.description", "") for e in events]


class Seen:
    """What one run did. ``jobs``: their descriptions."""

    def __init__(self, place: Traced, trace: Path | None, jobs: list[str]) -> None:
        self.jobs = jobs
        self.read = {} if trace is None else read_of(calls(trace))
        self._place, self._trace = place, trace

    def rows_read(self) -> dict[str, tuple[int, int]]:
        """The parts and data files of which the command, or a child of it, read more than footers:
        how often each was opened, and the bytes that were read."""
        roots = tuple(f"{p}/" for p in (self._place.site.home.path, self._place.site.folder))
        return {
            path: (opened, size)
            for path, (opened, size) in self.read.items()
            if path.startswith(roots)
            and path.endswith(".parquet")
            and "/_delta_log/" not in path
            and size > FOOTER * opened
        }

    def started(self, word: str) -> list[str]:
        return [job for job in self.jobs if word in job]

    def is_all_of_the_driver(self) -> bool:
        """Whether the trace has the command's own work (its ledger), and no Java below it."""
        ledger = str(self._place.site.home.path / "state.db")
        return ledger in self.read and not any("/libjvm.so" in path for path in self.read)


@pytest.fixture(scope="module", params=["parquet", "delta"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    made = Traced(tmp_path_factory.mktemp("rows"), request.param)
    try:
        made.run("warm", "append", trace=False, records=1)
        yield made
    finally:
        warm_spark.end_in(made.cache)


@pytest.mark.parametrize(
    "mode", ["append", "overwrite", pytest.param("append_dedup", marks=MERGES_IN_THE_DRIVER)]
)
def test_l13_the_driver_reads_of_parts_and_data_files_no_more_than_footers(
    place: Traced, mode: str
) -> None:
    new = place.run(mode, mode, records=RECORDS)
    more = place.run(mode, mode, records=2 * RECORDS, key_space=RECORDS + 500)
    rows = RECORDS * (1 if mode == "append_dedup" else 2) + 500 * (mode == "append_dedup")
    assert len(place.site.rows("s0")) == rows
    files = [*place.site.lake.rglob("*.parquet")]
    assert max(f.stat().st_size for f in files) > 4 * FOOTER
    for seen in (new, more):
        assert seen.is_all_of_the_driver()
        assert len(seen.started("penstock runs lane")) == 1, seen.jobs
        assert len(seen.started("penstock verifies")) == 1, seen.jobs
        assert seen.rows_read() == {}
