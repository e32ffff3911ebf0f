"""Seconds that Spark needs to tell which of a million rows changed: ``python bench/model_diff.py``.

Two runs of a model of ``--rows`` rows into a table: all of them, then the same with ``--changed``
per cent changed. Printed is what the second one's comparison took, the whole run beside it.
Processor seconds are those of this process and all its children, Spark's JVM with its just-in-time
compiler among them: they say what a machine that others use as well cannot show as seconds.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from penstock.config.command_line import pipeline_from_arguments
from penstock.config.home import Home
from penstock.engine.query import query_reader
from penstock.engine.run.start import run_pipeline

QUERY = (
    "spark:SELECT id, concat('user', id, '@example.com') AS email, id % 97 AS plan, "
    "CAST(id * 1.25 AS DECIMAL(18, 2)) AS amount, timestamp_micros(id * 1000000) AS seen, "
    "CASE WHEN id % {step} = 0 THEN '{word}' ELSE 'same' END AS word FROM range({rows})"
)


TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Of this process and all that descend from it, also those that ended."""
    found: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in found and ours(found[pid][0]))

    return sum(seconds for pid, (_, seconds) in found.items() if ours(pid))


class Quiet:
    """A run's observer that says nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changed", type=float, default=1.0, help="per cent")
    told = parser.parse_args()
    spent: list[tuple[float, float]] = []
    stage = query_reader.QueryReader._staged

    def timed(*args: object) -> object:
        began, used = time.monotonic(), processor_seconds()
        try:
            return stage(*args)
        finally:
            spent.append((time.monotonic() - began, processor_seconds() - used))

    query_reader.QueryReader._staged = timed
    with tempfile.TemporaryDirectory() as folder:
        for word in ("first", "second"):
            query = QUERY.format(rows=told.rows, step=int(100 / told.changed), word=word)
            pipeline = pipeline_from_arguments(
                query, f"delta:{folder}/lake", mode="upsert", primary_key="id", name="bench"
            )
            started = time.monotonic()
            report = run_pipeline(pipeline, Home(Path(folder) / "home"), observer=Quiet())
            assert report.exit_code == 0, report.error
            whole, (wall, used) = time.monotonic() - started, spent[-1]
            print(
                f"{word}: {report.streams[0].read:,} of {told.rows:,} rows sent, diff {wall:.1f} s "
                f"(processor {used:.1f} s), run {whole:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
