"""Memory of a whole run: the driver, the lane's and the loads' processes together, the JVM beside.

    python bench/memory.py [--records 600000] [--table parquet,delta] [--mode append_dedup]

The connector copies a prepared file to its stdout (592 bytes a record), as in ``whole``. Peaks of
proportional set sizes (PSS), read five times a second, of the second run into each table, which
merges all its keys again; Spark's Python workers are listed beside. A process that lives for less
than a fifth of a second may be missed. Linux only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from messages import prepare

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
SCRIPT = Path(sys.executable).with_name("penstock")
OURS = ("driver", "lane", "load")
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.M)


def kind(command: str) -> str | None:
    if "penstock.engine.worker.lane" in command:
        return "lane"
    if "penstock.tables.files.merge_task" in command:
        return "load"
    if "penstock.tasks.worker_daemon" in command or "penstock.tasks.fork_server" in command:
        return "Spark's workers"
    if "SparkSubmit" in command:
        return "JVM"
    return None


def parts(driver: int) -> dict[str, int]:
    """Bytes by kind of process, of those below ``driver`` and itself."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
        except OSError:
            continue
    found: dict[str, int] = {}
    for pid in parents:
        at = pid
        while at not in (0, 1, driver):
            at = parents.get(at, 0)
        if at != driver:
            continue
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            size = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
        except OSError:
            continue
        name = "driver" if pid == driver else kind(command)
        if name is not None and size is not None:
            found[name] = found.get(name, 0) + (int(size[1]) << 10)
    return found


def watched(command: list[str], environ: dict[str, str]) -> tuple[dict[str, int], str]:
    """The peaks of a run by kind, and of :data:`OURS` ``together``; its answer."""
    peaks: dict[str, int] = {}
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, env=environ, stdout=out)
        while process.poll() is None:
            now = parts(process.pid)
            now["together"] = sum(now.get(name, 0) for name in OURS)
            peaks = {name: max(peaks.get(name, 0), now.get(name, 0)) for name in {*peaks, *now}}
            time.sleep(0.2)
        out.seek(0)
        answer = out.read()
    if process.returncode:
        raise SystemExit(f"{command[:3]} failed: {answer[-3000:]}")
    return peaks, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--table", default="parquet,delta")
    parser.add_argument("--mode", default="append_dedup")
    told = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    path, schema = prepare(DATA, told.records)
    config = json.dumps({"file": str(path), "schema": str(schema)})
    source = f"airbyte:{sys.executable} -S {HERE / 'file_source.py'}"
    with tempfile.TemporaryDirectory(prefix="memory-", dir=DATA) as folder:
        environ = {**os.environ, "PENSTOCK_HOME": f"{folder}/home"}
        for table in told.table.split(","):
            words = [
                "run",
                source,
                f"{table}:{folder}/{table}",
                "--config",
                config,
                "--full-refresh",
            ]
            words += ["--destination-sync-mode", told.mode, "--primary-key", '[["id"]]']
            words += ["--name", table, "--no-daemon", "--json", "-q"]
            for number in ("first", "second"):
                peaks, out = watched([str(SCRIPT), *words], environ)
                ways = json.loads(out)["streams"][0]["load_ways"]
                shown = ", ".join(f"{n} {b >> 20} MB" for n, b in sorted(peaks.items()))
                print(
                    f"{table} {number} run, {told.records:,} records, {ways}: {shown}", flush=True
                )


if __name__ == "__main__":
    main()
