"""A whole run of the command line, start to end, beside PyAirbyte's of the same rows.

    python bench/whole.py [--records 600000] [--table parquet,delta] [--runs 3]
    python bench/whole.py --pyairbyte PYTHON   # of an environment with airbyte==0.71.3

The connector copies a prepared file to its stdout (592 bytes a record). Each round runs, in turn,
each table cold and warm, and PyAirbyte into its DuckDB cache (offline mode, a new cache); seconds
of the wall of each process, its start included, and how many times faster than PyAirbyte it is:
medians. All appended, into new tables. The first run, which fetches jars and fills caches, and the
one that leaves a warm Spark are not counted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from messages import prepare

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
SCRIPT = Path(sys.executable).with_name("penstock")
ANCHOR = """
import json, sys, airbyte
from airbyte.caches import DuckDBCache
executable, config, cache = sys.argv[1:]
source = airbyte.get_source(
    "source-bench", local_executable=executable, config=json.loads(config), install_if_missing=False
)
source.select_all_streams()
source.set_cursor_key("bench", "updated_at")
done = source.read(cache=DuckDBCache(db_path=cache), write_strategy="append")
print(done.processed_records)
"""


def timed(command: list[str], environ: dict[str, str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[:3]} failed: {(done.stderr or done.stdout)[-3000:]}")
    return time.perf_counter() - began, done.stdout


def ours(table: str, start: str, config: str, folder: Path, environ: dict[str, str]) -> float:
    """``start``: ``cold`` has a Spark of its own; ``first`` starts the one
    that stays, if there is none."""
    place = tempfile.mkdtemp(dir=folder)
    words = ["run", f"airbyte:{sys.executable} -S {HERE / 'file_source.py'}", f"{table}:{place}"]
    words += ["--config", config, "--destination-sync-mode", "append", "--name", Path(place).name]
    how = ["--no-daemon"] if start == "cold" else []
    spent, out = timed([str(SCRIPT), *words, *how, "--json", "-q"], environ)
    report = json.loads(out)
    assert start in ("first", report["start"]), report
    assert report["status"] == "succeeded", report
    return spent


def theirs(python: str, config: str, folder: Path, records: int, environ: dict[str, str]) -> float:
    place = Path(tempfile.mkdtemp(dir=folder))
    program = place / "source-bench"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {HERE / "file_source.py"} "$@"\n')
    program.chmod(0o755)
    more = {"AIRBYTE_OFFLINE_MODE": "1", "DO_NOT_TRACK": "1"}
    command = [python, "-c", ANCHOR, str(program), config, str(place / "cache.duckdb")]
    spent, out = timed(command, {**environ, **more})
    assert int(out.split()[-1]) == records, out[-500:]
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--table", default="parquet,delta")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pyairbyte", metavar="PYTHON")
    told = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    path, schema = prepare(DATA, told.records)
    config = json.dumps({"file": str(path), "schema": str(schema)})
    megabytes = path.stat().st_size / 1e6
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="whole-", dir=DATA) as name:
        folder = Path(name)
        environ = {**kept, "PENSTOCK_HOME": f"{folder}/home", "PENSTOCK_DAEMON": "1"}
        tables = told.table.split(",")
        for table in tables:  # jars, caches, a warm Spark for each
            ours(table, "first", config, folder, environ)
        for _ in range(told.runs):
            for table in tables:
                for start in ("cold", "warm"):
                    spent = ours(table, start, config, folder, environ)
                    found.setdefault(f"{table} {start}", []).append(spent)
            if told.pyairbyte:
                spent = theirs(told.pyairbyte, config, folder, told.records, environ)
                found.setdefault("PyAirbyte", []).append(spent)
        subprocess.run([str(SCRIPT), "spark", "stop", "-q"], env=environ, capture_output=True)
    medians = {kind: statistics.median(spent) for kind, spent in found.items()}
    print(f"{told.records:,} records, {megabytes:,.0f} MB; load average {os.getloadavg()[0]:.1f}")
    for kind, spent in medians.items():
        more = f", {medians['PyAirbyte'] / spent:.1f} x" if told.pyairbyte else ""
        least, speed = min(found[kind]), megabytes / spent
        print(f"{kind:<14} {spent:6.1f} s (least {least:.1f}), {speed:6.1f} MB/s{more}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
