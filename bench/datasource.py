"""Seconds of a million rows from Postgres into tables, beside dlt:

    python bench/datasource.py --dlt PYTHON [--rows N] [--runs N]

``PYTHON``: of an environment that has dlt[deltalake,parquet,sql_database], connectorx and
psycopg2-binary. 15 typed columns of a private server, through ``penstock run`` (a query with
``datasource``, warm) and through dlt's ``sql_table`` (backend connectorx), each as a process of its
own, in turn. Four cases: a Parquet table, a Delta table that is appended to, a new Delta table
with a key, and 1 % of the rows merged into that. Prints JSON: the medians of the whole commands,
their ratio (dlt's seconds by Penstock's; to reach: 1.2), and the load average, for the figures
depend on it.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_cluster import running_cluster, tcp_port

SCRIPT = Path(sys.executable).with_name("penstock")
TABLE = """
CREATE TABLE big AS SELECT g::bigint AS id, (g * 7)::int AS a, (g % 100)::smallint AS s,
  g * 1.5::float8 AS d, ((g % 100000)::numeric / 100)::numeric(12, 2) AS price,
  ((g * 13)::numeric / 10000)::numeric(18, 4) AS amount, g % 2 = 0 AS flag,
  date '2020-01-01' + (g % 2000)::int AS day,
  timestamp '2020-01-01' + g * interval '1 second' AS wall,
  timestamptz '2020-01-01' + g * interval '1.000123 second' AS at, 'user ' || g AS name,
  'user' || g || '@example.com' AS email, md5(g::text) AS hash,
  ('city ' || (g % 500))::varchar(40) AS city,
  CASE WHEN g % 3 = 0 THEN 'note ' || g END AS note FROM generate_series(1, {rows}) g;
ALTER TABLE big ADD PRIMARY KEY (id);
CREATE TABLE part AS SELECT * FROM big WHERE id % 100 = 0;
ALTER TABLE part ADD PRIMARY KEY (id);
ANALYZE;
"""
CASES = ("parquet", "delta append", "delta keyed", "delta merge")
DLT = """
import sys
import dlt
from dlt.destinations import filesystem
from dlt.sources.sql_database import sql_table
url, folder, table, format, mode = sys.argv[1:]
found = sql_table(url, table=table, backend="connectorx", reflection_level="full")
found.apply_hints(table_name="big", primary_key="id" if mode == "merge" else None)
if mode == "merge":
    found.apply_hints(write_disposition={"disposition": "merge", "strategy": "upsert"})
pipeline = dlt.pipeline("bench", destination=filesystem(f"file://{folder}/lake"),
                        dataset_name="d", pipelines_dir=f"{folder}/state")
made = {"loader_file_format": "parquet"}
if format == "delta":
    made["table_format"] = "delta"
    found.apply_hints(table_format="delta")
    made.pop("loader_file_format")
pipeline.run(found, **({"write_disposition": "append"} if mode == "append" else {}), **made)
"""


def timed(command: list[str], folder: Path) -> float:
    began = time.monotonic()
    env = os.environ | {
        "PENSTOCK_HOME": str(folder / "home"), "RUNTIME__DLTHUB_TELEMETRY": "false",
    }  # fmt: skip
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[:3]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return time.monotonic() - began


class Bench:
    """Runs each case of both. ``port``: of the server on loopback, which dlt's driver needs."""

    def __init__(self, folder: Path, port: int, dlt: str) -> None:
        self._folder, self._dlt = folder, dlt
        self._url = f"postgresql://penstock:x@127.0.0.1:{port}/postgres"
        (folder / "with_dlt.py").write_text(DLT)
        self._number = 0

    def penstock(self, case: str, place: str) -> float:
        format = case.partition(" ")[0]
        keyed = case in ("delta keyed", "delta merge")
        table = "part" if case == "delta merge" else "big"
        stream: dict[str, Any] = {"name": "big", "sync_mode": "full_refresh"}
        stream |= {"destination_sync_mode": "append_dedup" if keyed else "append"}
        if keyed:
            stream |= {"primary_key": ["id"]}
        file = self._folder / "bench.yml"
        file.write_text(json.dumps({
            "pipeline": f"bench-{place}",
            "source": {
                "use": f"spark:SELECT * FROM {table}",
                "config": {"datasource": self._url, "stream": "big"},
                "streams": [stream],
            },
            "destination": {"use": f"{format}:./{place}"},
        }))  # fmt: skip
        return timed([str(SCRIPT), "run", str(file)], self._folder)

    def dlt(self, case: str, place: str) -> float:
        format = case.partition(" ")[0]
        mode = "merge" if case in ("delta keyed", "delta merge") else "append"
        table = "part" if case == "delta merge" else "big"
        made = self._folder / place
        made.mkdir(exist_ok=True)
        script = str(self._folder / "with_dlt.py")
        return timed([self._dlt, script, self._url, str(made), table, format, mode], self._folder)

    def round(self, which: str) -> dict[str, float]:
        """All cases by one of the two, into new places."""
        self._number += 1
        run = self.penstock if which == "penstock" else self.dlt
        places = {case: f"{which}-{self._number}-{case.split()[-1]}" for case in CASES}
        places["delta merge"] = places["delta keyed"]
        found = {case: run(case, places[case]) for case in CASES}
        for place in places.values():
            shutil.rmtree(self._folder / place, ignore_errors=True)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dlt", required=True, help="the Python that has dlt")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with (
        running_cluster() as server,
        tcp_port(server) as port,
        tempfile.TemporaryDirectory() as place,
    ):
        with psycopg.connect(f"host={server} user=penstock dbname=postgres") as connection:
            connection.execute(TABLE.format(rows=given.rows).encode())
        bench = Bench(Path(place), port, given.dlt)
        for case in CASES:  # the Java of each format, its jars
            bench.penstock(case, f"warming-{case.split()[-1]}")
        found: dict[str, list[dict[str, float]]] = {"penstock": [], "dlt": []}
        for _ in range(given.runs):
            for which, rounds in found.items():
                rounds.append(bench.round(which))
        subprocess.run([str(SCRIPT), "spark", "stop"], capture_output=True)
    for case in CASES:
        ours, theirs = (statistics.median(r[case] for r in found[w]) for w in found)
        print(json.dumps({
            "case": case, "penstock": round(ours, 2), "dlt": round(theirs, 2),
            "ratio": round(theirs / ours, 2), "load": round(os.getloadavg()[0], 1),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
