"""Postgres to Postgres through the Rust connectors, against psycopg's binary COPY pipe.

    python bench/rust_guests.py [--rows N] [--runs N]

The same rows in the same run, from one table of a private server on loopback into another: psycopg
piping binary COPY from one connection to another; source and destination as two threads of this
process, by COPY and by INSERT; as two processes, frames through a pipe between them. Each way is
run in turn, the fastest run of each counts; compiling is not included, connecting is. Prints JSON:
rows/s, the ratio to psycopg (to reach: 0.45), and the load average, for the figures depend on it.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "examples"))
from rust_guests import (
    Server,
    checksum,
    context,
    ended,
    frames,
    loopback_postgres,
    make_rows,
    pump,
    rust_guest,
    stage,
)

from penstock.protocols.rapidbyte.guest import stream_run

TABLE = context("rows", mode="replace")


def psycopg_pipe(server: Server) -> None:
    with psycopg.connect(server.url) as one, psycopg.connect(server.url) as other:
        other.execute("DROP TABLE IF EXISTS landed.rows")
        other.execute("CREATE TABLE landed.rows AS TABLE public.rows WITH NO DATA")
        with (
            one.cursor().copy("COPY public.rows TO STDOUT (FORMAT binary)") as given,
            other.cursor().copy("COPY landed.rows FROM STDIN (FORMAT binary)") as taken,
        ):
            for piece in given:
                taken.write(piece)


def threads(server: Server, method: str = "copy") -> None:
    to = stage("destination", server.config(schema="landed", load_method=method), quick=False)
    for told in pump(stage("source", server.config(), quick=False), to, TABLE):
        if (error := ended(told).error) is not None:
            raise error


def processes(server: Server) -> None:
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=_read, args=(server, there))
    child.start()
    there.close()
    to = stage("destination", server.config(schema="landed"), quick=False)
    error = ended(list(stream_run.write(to, TABLE, _received(here)))).error
    child.join(60)
    if error is not None:
        raise error


def _read(server: Server, into: Connection) -> None:
    with into:
        for frame in frames(stream_run.read(stage("source", server.config(), quick=False), TABLE)):
            into.send_bytes(frame)
        into.send_bytes(b"")


def _received(given: Connection) -> Iterator[bytes]:
    while frame := given.recv_bytes():
        yield frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rust_guest("source", quick=False)
    ways: dict[str, Callable[[Server], None]] = {
        "psycopg": psycopg_pipe,
        "copy": threads,
        "copy, two processes": processes,
        "insert": lambda server: threads(server, "insert"),
    }
    with loopback_postgres(shared_buffers="512MB") as server:
        server.ask("CREATE SCHEMA landed")
        make_rows(server, "public.rows", 1, options.rows)
        server.ask("VACUUM ANALYZE public.rows")
        threads(server)  # compiles
        wanted = checksum(server, "public.rows")
        size = server.ask("SELECT pg_table_size('public.rows')")[0]
        rates: dict[str, float] = dict.fromkeys(ways, 0.0)
        for _ in range(options.runs):
            for way, run in ways.items():
                server.ask("CHECKPOINT")
                began = time.perf_counter()
                run(server)
                rates[way] = max(rates[way], options.rows / (time.perf_counter() - began))
                if checksum(server, "landed.rows") != wanted:
                    raise SystemExit(f"{way}: the rows are not the same")
    figures = {
        "rows": options.rows,
        "bytes a row": size // options.rows,
        "rows/s": {way: round(rate) for way, rate in rates.items()},
        "ratio to psycopg": {way: round(rate / rates["psycopg"], 2) for way, rate in rates.items()},
        "load average": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
