"""Times the Python interface: imports, and one stream into Spark and pandas, beside PyAirbyte's
``read`` and dlt's pipeline of the same connector and rows.

    python bench/python_api.py [--records 100000] [--runs 3] [--pyairbyte PYTHON] [--dlt PYTHON]

The interpreters are of environments with ``airbyte==0.71.3`` and ``dlt[duckdb,parquet]==1.31.0``
and ``pandas``. The connector copies a prepared file to its stdout (592 bytes a record). Each round
runs every program once, in turn, as a process of its own: seconds of its wall, medians and least.
dlt has no Airbyte sources, so its resource starts the connector and parses its lines. ``cold``: the
program has a Spark of its own; ``warm``: it finds the one that an earlier program left.
Imports: the least processor time of five fresh interpreters, an idle one taken off.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from messages import prepare

HERE = Path(__file__).resolve().parent
CONNECTOR = f"{sys.executable} -S {HERE / 'file_source.py'}"
OURS = """
import json, sys, penstock
use, config, place = sys.argv[1:]
with penstock.read(f"airbyte:{use}", "bench", config=json.loads(config), home=place,
                   progress=False) as found:
    print(len(found.pandas()))
"""
OURS_IN_SPARK = """
import json, sys, penstock
from pyspark.sql import SparkSession
use, config, place = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
with penstock.read(f"airbyte:{use}", "bench", config=json.loads(config), home=place,
                   progress=False) as found:
    print(found.spark().selectExpr("count(*) + 0 * sum(length(email))").first()[0])
spark.stop()
"""
PYAIRBYTE = """
import json, os, sys, airbyte
from airbyte.caches import DuckDBCache
use, config, place = sys.argv[1:]
program = os.path.join(place, "source-bench")
with open(program, "w") as f:
    f.write(f'#!/bin/sh\\nexec {use} "$@"\\n')
os.chmod(program, 0o755)
source = airbyte.get_source(
    "source-bench", local_executable=program, config=json.loads(config), install_if_missing=False
)
source.select_all_streams()
done = source.read(cache=DuckDBCache(db_path=os.path.join(place, "cache.duckdb")))
print(len(done["bench"].to_pandas()))
"""
DLT = """
import json, os, subprocess, sys, dlt
use, config, place = sys.argv[1:]
@dlt.resource(name="bench", write_disposition="append")
def bench():
    path = os.path.join(place, "config.json")
    with open(path, "w") as f:
        f.write(config)
    command = [*use.split(), "read", "--config", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        rows = []
        for line in child.stdout:
            message = json.loads(line)
            if message["type"] == "RECORD":
                rows.append(message["record"]["data"])
            if len(rows) == 10_000:
                yield rows
                rows = []
        yield rows
pipeline = dlt.pipeline(
    "bench", pipelines_dir=place, dataset_name="lake",
    destination=dlt.destinations.duckdb(os.path.join(place, "rows.duckdb")),
)
pipeline.run(bench(), loader_file_format="parquet")
with pipeline.sql_client() as client, client.execute_query("SELECT * FROM bench") as cursor:
    print(len(cursor.df()))
"""


def processor(python: str, code: str) -> float:
    """The least processor time of five interpreters, in seconds."""
    spent: list[float] = []
    for _ in range(6):
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, "-c", code], check=True, env=environment())
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
    return min(spent[1:])


def environment() -> dict[str, str]:
    return {
        **os.environ, "AIRBYTE_OFFLINE_MODE": "1", "DO_NOT_TRACK": "1",
        "RUNTIME__DLTHUB_TELEMETRY": "false", "PYTHONWARNINGS": "ignore",
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip


def timed(python: str, code: str, config: str, records: int, folder: str, *, warm: bool) -> float:
    environ = {**environment(), "XDG_CACHE_HOME": str(Path(folder) / "cache")}
    environ |= {} if warm else {"PENSTOCK_DAEMON": "0"}
    place = tempfile.mkdtemp(dir=folder)
    began = time.perf_counter()
    done = subprocess.run(
        [python, "-c", code, CONNECTOR, config, place],
        env=environ, capture_output=True, text=True,
    )  # fmt: skip
    spent = time.perf_counter() - began
    said = done.stdout.strip().rpartition("\n")[2]
    if done.returncode or said != str(records):
        raise SystemExit(f"{done.returncode}: {(done.stderr or done.stdout)[-3000:]}")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pyairbyte", metavar="PYTHON")
    parser.add_argument("--dlt", metavar="PYTHON")
    asked = parser.parse_args()

    imports = [(sys.executable, "penstock")]
    imports += [(sys.executable, f"penstock; penstock.{verb}") for verb in ("run", "read")]
    imports += [(asked.pyairbyte, "airbyte")] if asked.pyairbyte else []
    imports += [(asked.dlt, "dlt")] if asked.dlt else []
    for python, what in imports:
        spent = processor(python, f"import {what}") - processor(python, "pass")
        print(f"{f'import {what}':<32} {1000 * spent:6.0f} ms of processor")

    messages, schema = prepare(HERE / "data", asked.records)
    config = json.dumps({"file": str(messages), "schema": str(schema)})
    programs = {
        "read().pandas() cold": (sys.executable, OURS, False),
        "read().pandas() warm": (sys.executable, OURS, True),
        "read().spark(), Spark's start too": (sys.executable, OURS_IN_SPARK, False),
    }
    if asked.pyairbyte:
        programs["PyAirbyte to_pandas()"] = (asked.pyairbyte, PYAIRBYTE, True)
    if asked.dlt:
        programs["dlt, DuckDB, df()"] = (asked.dlt, DLT, True)
    found: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(asked.runs + 1):  # the first one fills caches and leaves a Spark
            for name, (python, code, warm) in programs.items():
                spent = timed(python, code, config, asked.records, folder, warm=warm)
                found[name] += [spent] if number else []
    load = os.getloadavg()[0]
    size = messages.stat().st_size / 1e6
    print(f"{asked.records:,} records, {size:.0f} MB; load average {load:.1f}")
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"{name:<36} {middle:6.1f} s (least {min(seconds):.1f}), {size / middle:6.1f} MB/s")


if __name__ == "__main__":
    main()
