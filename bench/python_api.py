"""Times the Python interface: imports, and one stream into Spark and pandas, beside PyAirbyte's
``read`` and dlt's pipeline of the same connector and rows.

    python bench/python_api.py [--records 100000] [--faker 20000] [--runs 3] [--no-peers]

Each peer has an environment of its own, made by uv in ``bench/data``, and so has source-faker. Two
sources: a prepared file that a connector copies to its stdout (592 bytes a record), and the stream
``users`` of ``airbyte-source-faker``; 0 records leave one out. Each round runs every program once,
in turn, as a process of its own: seconds of its wall, medians and least, and how many times those
of ``read().pandas() warm`` they are.
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
from typing import NamedTuple

from messages import prepare

HERE = Path(__file__).resolve().parent
FIRST = "read().pandas() warm"
CONNECTOR = f"{sys.executable} -S {HERE / 'file_source.py'}"
OURS = """
import json, sys, penstock
use, stream, config, place = sys.argv[1:]
with penstock.read(f"airbyte:{use}", stream, config=json.loads(config), home=place,
                   progress=False) as found:
    print(len(found.pandas()))
"""
OURS_IN_SPARK = """
import json, sys, penstock
from pyspark.sql import SparkSession
use, stream, config, place = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
with penstock.read(f"airbyte:{use}", stream, config=json.loads(config), home=place,
                   progress=False) as found:
    print(found.spark().selectExpr("count(*) + 0 * sum(length(email))").first()[0])
spark.stop()
"""
PYAIRBYTE = """
import json, os, sys, airbyte
from airbyte.caches import DuckDBCache
use, stream, config, place = sys.argv[1:]
program = os.path.join(place, "source-bench")
with open(program, "w") as f:
    f.write(f'#!/bin/sh\\nexec {use} "$@"\\n')
os.chmod(program, 0o755)
source = airbyte.get_source(
    "source-bench", local_executable=program, config=json.loads(config), install_if_missing=False
)
source.select_streams([stream])
done = source.read(cache=DuckDBCache(db_path=os.path.join(place, "cache.duckdb")))
print(len(done[stream].to_pandas()))
"""
DLT = """
import json, os, subprocess, sys, dlt
use, stream, config, place = sys.argv[1:]
@dlt.resource(name="bench", write_disposition="append")
def bench():
    path = os.path.join(place, "config.json")
    with open(path, "w") as f:
        f.write(config)
    told = subprocess.run([*use.split(), "discover", "--config", path], stdout=subprocess.PIPE)
    found = [json.loads(line) for line in told.stdout.splitlines()]
    (streams,) = [m["catalog"]["streams"] for m in found if m["type"] == "CATALOG"]
    chosen = os.path.join(place, "catalog.json")
    with open(chosen, "w") as f:
        json.dump({"streams": [
            {"stream": s, "sync_mode": "full_refresh", "destination_sync_mode": "append"}
            for s in streams if s["name"] == stream]}, f)
    command = [*use.split(), "read", "--config", path, "--catalog", chosen]
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


def own_python(name: str, *packages: str) -> str:
    """The interpreter of an environment with these packages alone, made where it is not there."""
    folder = HERE / "data" / "peers" / name
    python, made = folder / "bin" / "python", folder / "made"
    if not made.exists() or made.read_text() != str(packages):
        base = [sys.executable, "-m", "uv"]
        subprocess.run([*base, "venv", "-q", "--clear", "--python", "3.11", folder], check=True)
        subprocess.run([*base, "pip", "install", "-q", "--python", python, *packages], check=True)
        made.write_text(str(packages))
    return str(python)


class Given(NamedTuple):
    """A source. ``use``: its command; ``size``: MB of what it sends, or None."""

    use: str
    stream: str
    config: str
    records: int
    size: float | None


def timed(python: str, code: str, given: Given, folder: str, *, warm: bool) -> float:
    environ = {**environment(), "XDG_CACHE_HOME": str(Path(folder) / "cache")}
    environ |= {} if warm else {"PENSTOCK_DAEMON": "0"}
    place = tempfile.mkdtemp(dir=folder)
    began = time.perf_counter()
    done = subprocess.run(
        [python, "-c", code, given.use, given.stream, given.config, place],
        env=environ, capture_output=True, text=True,
    )  # fmt: skip
    spent = time.perf_counter() - began
    said = done.stdout.strip().rpartition("\n")[2]
    if done.returncode or said != str(given.records):
        raise SystemExit(f"{done.returncode}: {(done.stderr or done.stdout)[-3000:]}")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--faker", type=int, default=20_000)
    parser.add_argument("--no-peers", action="store_true")
    asked = parser.parse_args()
    peers: dict[str, str] = {}
    if not asked.no_peers:
        peers["airbyte"] = own_python("pyairbyte", "airbyte==0.71.3")
        peers["dlt"] = own_python("dlt", "dlt[duckdb,parquet]==1.31.0", "pandas")

    imports = [(sys.executable, "penstock")]
    imports += [(sys.executable, f"penstock; penstock.{verb}") for verb in ("run", "read")]
    imports += [(python, name) for name, python in peers.items()]
    for python, what in imports:
        spent = processor(python, f"import {what}") - processor(python, "pass")
        print(f"{f'import {what}':<32} {1000 * spent:6.0f} ms of processor")

    if asked.records:
        messages, schema = prepare(HERE / "data", asked.records)
        config = json.dumps({"file": str(messages), "schema": str(schema)})
        size = messages.stat().st_size / 1e6
        compare(Given(CONNECTOR, "bench", config, asked.records, size), peers, asked.runs)
    if asked.faker:
        use = Path(own_python("faker", "airbyte-source-faker==7.2.1")).with_name("source-faker")
        config = json.dumps({"count": asked.faker, "seed": 1})
        compare(Given(str(use), "users", config, asked.faker, None), peers, asked.runs)


def compare(given: Given, peers: dict[str, str], runs: int) -> None:
    """Prints what each program takes for one source."""
    programs = {
        "read().pandas() cold": (sys.executable, OURS, False),
        FIRST: (sys.executable, OURS, True),
        "read().spark(), Spark's start too": (sys.executable, OURS_IN_SPARK, False),
    }
    if peers:
        programs["PyAirbyte to_pandas()"] = (peers["airbyte"], PYAIRBYTE, True)
        programs["dlt, DuckDB, df()"] = (peers["dlt"], DLT, True)
    found: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs + 1):  # the first one fills caches and leaves a Spark
            for name, (python, code, warm) in programs.items():
                spent = timed(python, code, given, folder, warm=warm)
                found[name] += [spent] if number else []
    load = os.getloadavg()[0]
    sent = "" if given.size is None else f", {given.size:.0f} MB"
    print(f"{Path(given.use.split()[-1]).stem}: {given.records:,} records{sent}; load {load:.1f}")
    ours = statistics.median(found[FIRST])
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        speed = f"{given.records / middle:9,.0f} records/s, {middle / ours:5.2f} times {FIRST!r}"
        print(f"{name:<36} {middle:6.1f} s (least {min(seconds):.1f}), {speed}", flush=True)


if __name__ == "__main__":
    main()
