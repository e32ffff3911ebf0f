"""A small sync as a whole process: what a second run costs beside its source's own time, with a
Spark of its own (cold) and with the one that the last run left (warm).

``python bench/start.py [--rows 20100] [--runs 5]``: for Parquet and Delta, seconds of the wall over
those that the source takes alone (medians, least), CPU of the driver and of lane and worker, and
what the report says of its time; then two runs of different tables at the same time. The source is
a Singer tap of this file, so that nothing is downloaded but Delta's jars, once. The load average is
printed: on a busy machine the least counts.
"""

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.executable).with_name("penstock")
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "at": {"type": "string"}},
}


def tap(rows: int) -> None:
    """What a process with ``--discover`` or a catalog prints."""
    stream = {"tap_stream_id": "users", "stream": "users", "schema": SCHEMA}
    if "--discover" in sys.argv:
        print(json.dumps({"streams": [{**stream, "key_properties": ["id"], "metadata": []}]}))
        return
    head = {"type": "SCHEMA", "stream": "users", "schema": SCHEMA, "key_properties": ["id"]}
    lines = [json.dumps(head)]
    for i in range(rows):
        record = {"id": i, "name": f"name {i}", "at": "2026-11-22T10:00:00Z"}
        lines.append(json.dumps({"type": "RECORD", "stream": "users", "record": record}))
    lines.append(json.dumps({"type": "STATE", "value": {"id": rows}}))
    print("\n".join(lines), flush=True)


def timed(command: list[str], environ: dict[str, str]) -> tuple[float, float, str]:
    """(seconds of the wall, of CPU of the process and what it waited for, stdout)."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    spent, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, cpu, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="cold or warm")
    told = parser.parse_args()
    source = [sys.executable, str(Path(__file__).resolve()), "--tap", str(told.rows)]
    with tempfile.TemporaryDirectory(prefix="penstock-start-") as folder:
        environ = {**os.environ, "PENSTOCK_HOME": f"{folder}/home", "PENSTOCK_DAEMON": "1"}
        alone = min(timed(source, environ)[0] for _ in range(3))
        print(f"{told.rows:,} rows; the source alone {alone:.2f} s; load {os.getloadavg()[0]:.1f}")
        for table in ("parquet", "delta"):
            words = ["run", f"singer:{shlex.join(source)}", f"{table}:{folder}/{table}"]
            command = [str(SCRIPT), *words, "--json", "-q"]
            timed([*command, "--no-daemon"], environ)  # jars, the first table
            for start in ("cold", "warm"):
                if told.only in ("", start):
                    _measure(command, start, alone, told.runs, environ)
            if told.only in ("", "warm"):
                other = [*command[:3], f"{table}:{folder}/{table}-2", *command[4:]]
                timed(other, environ)
                _together([command, other], alone, told.runs, environ)
        subprocess.run([str(SCRIPT), "spark", "stop", "-q"], env=environ, capture_output=True)


def _measure(
    command: list[str], start: str, alone: float, runs: int, environ: dict[str, str]
) -> None:
    if start == "warm":
        timed(command, environ)  # which starts it
    else:
        command = [*command, "--no-daemon"]
    walls: list[float] = []
    cpus: list[float] = []
    report: dict[str, Any] = {}
    for _ in range(runs):
        wall, cpu, out = timed(command, environ)
        report = json.loads(out)
        assert report["start"] == start and report["status"] == "succeeded", report
        walls.append(wall - alone)
        cpus.append(cpu)
    spent = {k: v for k, v in report["time"].items() if v}
    table = Path(str(report["streams"][0]["table"])).parent.name
    print(
        f"{table:<8} {start}: over the source {statistics.median(walls):5.2f} s"
        f" (least {min(walls):.2f}), CPU that ended with the run {statistics.median(cpus):5.2f} s,"
        f" load {os.getloadavg()[0]:.1f}; last run {report['seconds']} s: {spent}"
    )


def _together(
    commands: list[list[str]], alone: float, rounds: int, environ: dict[str, str]
) -> None:
    walls: list[float] = []
    starts: set[str] = set()
    for _ in range(rounds):
        with ThreadPoolExecutor(len(commands)) as pool:
            for wall, _, out in pool.map(lambda command: timed(command, environ), commands):
                walls.append(wall - alone)
                starts.add(json.loads(out)["start"])
    print(
        f"{len(commands)} at a time, {' and '.join(sorted(starts))}: each over the source"
        f" {statistics.median(walls):5.2f} s (least {min(walls):.2f}, greatest {max(walls):.2f}),"
        f" load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    if "--tap" in sys.argv:
        tap(int(sys.argv[sys.argv.index("--tap") + 1]))
    else:
        main()
