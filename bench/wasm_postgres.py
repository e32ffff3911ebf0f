"""Postgres to Postgres through ``penstock run`` with the Rust connectors, against psycopg's binary
COPY pipe.

    python bench/wasm_postgres.py [--rows N] [--runs N] [--shards N]

The same rows in the same run, from one table of a private server on loopback into another. Counted
of ``penstock run`` is what moves rows: the seconds of ``extract`` and ``load`` in its report, one
after the other, as they are where everything loads at the end (``rows/s``); and the whole command,
start of Java included (``whole``). Each way is run in turn, the fastest run of each counts;
compiling is not included. Prints JSON, with the load average, for the figures depend on it. To
reach: 0.45 of psycopg.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "examples"))
from rust_guests import Server, checksum, loopback_postgres, make_rows, rust_guest

SCRIPT = Path(sys.executable).with_name("penstock")


def psycopg_pipe(server: Server) -> None:
    with psycopg.connect(server.url) as one, psycopg.connect(server.url) as other:
        other.execute("CREATE TABLE landed.rows AS TABLE public.rows WITH NO DATA")
        with (
            one.cursor().copy("COPY public.rows TO STDOUT (FORMAT binary)") as given,
            other.cursor().copy("COPY landed.rows FROM STDIN (FORMAT binary)") as taken,
        ):
            for piece in given:
                taken.write(piece)


def pipeline(folder: Path, server: Server, method: str, shards: int) -> Path:
    document: dict[str, Any] = {
        "pipeline": f"bench-{method}-{shards}",
        "source": {
            "use": str(folder / "source.wasm"),
            "config": server.config(),
            "streams": [{"name": "rows"}],
            "defaults": {"sync_mode": "full_refresh", "destination_sync_mode": "append"},
        },
        "destination": {
            "use": str(folder / "destination.wasm"),
            "config": server.config(schema="landed", load_method=method),
        },
    }
    if shards > 1:
        document["resources"] = {"autotune": {"pin_parallelism": shards}}
    path = folder / f"{method}-{shards}.yaml"
    path.write_text(json.dumps(document))
    return path


def run(path: Path, home: Path) -> dict[str, Any]:
    done = subprocess.run(
        [str(SCRIPT), "run", str(path), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_DAEMON": "0"},
        timeout=1800,
    )
    if done.returncode:
        raise SystemExit(f"{path.stem}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shards", type=int, default=2, help="of the third way; 1: without it")
    options = parser.parse_args()
    ways = {"copy": ("copy", 1), "insert": ("insert", 1)}
    if options.shards > 1:
        ways[f"copy, {options.shards} shards"] = ("copy", options.shards)
    best: dict[str, dict[str, float]] = {}
    pipe = 0.0
    with tempfile.TemporaryDirectory() as place, loopback_postgres() as server:
        folder = Path(place)
        for role in ("source", "destination"):
            (folder / f"{role}.wasm").write_bytes(rust_guest(role, quick=False))
        server.ask("CREATE SCHEMA landed")
        make_rows(server, "public.rows", 1, 10)
        for method, shards in ways.values():  # compiles, and makes what is made once
            run(pipeline(folder, server, method, shards), folder / "home")
        server.ask("TRUNCATE public.rows")
        make_rows(server, "public.rows", 1, options.rows)
        server.ask("VACUUM ANALYZE public.rows")
        wanted = checksum(server, "public.rows")
        for _ in range(options.runs):
            server.ask("DROP TABLE IF EXISTS landed.rows")
            began = time.perf_counter()
            psycopg_pipe(server)
            pipe = max(pipe, options.rows / (time.perf_counter() - began))
            for way, (method, shards) in ways.items():
                server.ask("DROP TABLE IF EXISTS landed.rows")
                report = run(pipeline(folder, server, method, shards), folder / "home")
                if checksum(server, "landed.rows") != wanted:
                    raise SystemExit(f"{way}: the rows are not the same")
                spent = report["time"]
                moving = spent["extract"] + spent["load"]
                figures = best.setdefault(way, {"seconds": moving})
                if moving <= figures["seconds"]:
                    best[way] = {
                        "rows/s": round(options.rows / moving),
                        "ratio": 0.0,
                        "seconds": round(moving, 2),
                        "extract": round(spent["extract"], 2),
                        "load": round(spent["load"], 2),
                        "whole": round(report["seconds"], 1),
                    }
    for figures in best.values():
        figures["ratio"] = round(figures["rows/s"] / pipe, 2)
    print(
        json.dumps(
            {
                "rows": options.rows,
                "psycopg rows/s": round(pipe),
                "penstock run": best,
                "load average": round(os.getloadavg()[0], 1),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
