"""Writes docs/kill-matrix.md: for each kind of run and each process that is killed, how the run
came back, over all points of the kill (``kills.py``). The log of every cell is ``kill_log``'s."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

import kill_log

_HEAD = """# Kill matrix

*You want to* see what happens when a process is killed at any point of a run.
*Presupposes:* that you have read [Guarantees](guarantees.md). To play it again you need a checkout.

`python tests/e2e/kills.py --all` plays real runs on local Spark. In each, SIGKILL hits one process
at one point. `docs/kill-matrix.txt` has every cell, and which code was played.

The killed process is the **connector** (or **destination**); the **child**, which reads, decodes
and seals beside it; the Spark Python **worker** that supervises the child; the **pusher**, which
feeds a destination, and the **push-worker** that supervises it; or the whole **program**.
The **same run** goes on with a new epoch, or the **next run** completes the sync.

A cell passes only if

- right after the kill no row was in the table twice, and no saved state was ahead of the table;
- at the end DuckDB or delta-rs found every record exactly once (the newest of its key for dedup),
  the report added up, and the states were the source's last;
- nothing was left running 15 seconds after each process ended.

Points into tables: `mid-part` (rows are decoded and not sealed), `after-seal` (sealed, the driver
does not know it), `after-intent` (a load is written down, not committed), `after-commit` (the table
has it, the ledger does not), `after-ledger` (both have it). A number in brackets is how many points
were played. What loads once, at the end of a sync, has no lane to kill then.
"""

_CONNECTORS = """## Destinations that are connectors

A cell passes only if nothing was lost, no row came twice that was acknowledged and settled before,
and the report counted at least as many rows as were sent again. The table shows how many rows the
destination got twice; into Airbyte, Singer and Syncmaven the next run completed each sync. Of
components, append repeated at most what came after the last settled checkpoint; upsert and replace
repeated nothing. Points: while a part is fed, and before and after each entry of an acknowledgement
in log and ledger; for Syncmaven between two rows, and before and after the destination's result.
"""

_PYTHON = """## The Python interface

`penstock.read(incremental=True)` and `penstock.write` in a program of their own; the same call
again completes it. A read passes only if the program got every row exactly once. A write passes
only if the table had the rows before or whole writes right after the kill, and each row once after
the second call (`append`: twice, as the first write is finished too); to a connector, if nothing
was lost and the second report counts what it sent again.
"""

_SHARED = """## A Spark that runs share

`tests/e2e/test_warm.py` kills where a Spark stays between runs, and where two runs use it. Every
table is exact in the end.

| killed | what follows |
|---|---|
| Java, between runs | the next run starts one |
| Java, under one run or two | they fail (`spark.java_died`, exit code 5); the next runs are exact |
| the driver of the only run | Spark ends with lane and connector; the next run starts one |
| the driver of one of two runs | its jobs are cancelled; its lane and connector end within 25 s; \
the other run goes on |
| the keeper | Java ends; runs that use it fail as above |
""".replace("\\\n", "")

_POSTGRES = """## With the store on Postgres

The same cells, each with a Postgres of its own for the store, and two more processes: the
**server** (all of it; it is back two seconds later) and the **backend** (the sessions of the run,
upon which the server ends all others and recovers). The same run outlasts both.
"""

_INTO_TABLES = ("parquet-", "delta-")
_IN_PYTHON = ("read", "write-")
_TWICE = re.compile(r"(\d+) twice(?: \*)?(?:, )?")


def page(log: kill_log.KillLog) -> str:
    failed = log.failed()
    here: dict[tuple[str, str], list[str]] = defaultdict(list)
    there: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, end in log.cells.items():
        on_postgres = name.startswith(kill_log.POSTGRES)
        shape, _, target = name.removeprefix(kill_log.POSTGRES).split("/")
        end = kill_log.FAILED if name in failed else _short(end)
        (there if on_postgres else here)[shape, target].append(end)
    connectors = {key: ends for key, ends in here.items() if not _is(key, *_INTO_TABLES)}
    parts = [
        _HEAD,
        *_table({key: ends for key, ends in here.items() if _is(key, *_INTO_TABLES)}),
        _CONNECTORS,
        *_table({key: ends for key, ends in connectors.items() if not _is(key, *_IN_PYTHON)}),
        _PYTHON,
        *_table({key: ends for key, ends in connectors.items() if _is(key, *_IN_PYTHON)}),
        _SHARED,
        _POSTGRES,
        *_table(there),
        f"{len(log.cells) - len(failed)} of {len(log.cells)} cells passed.",
    ]
    return "\n".join(parts) + "\n"


def _is(key: tuple[str, str], *beginnings: str) -> bool:
    return key[0].startswith(beginnings)


def _table(ends: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    """Shapes whose killed processes came back alike share a row."""
    if not ends:
        return
    yield "| run | killed | how it came back |"
    yield "|---|---|---|"
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (shape, target), found in ends.items():
        rows[shape, _summary(found)].append(f"{target} ({len(found)})")
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (shape, came), targets in rows.items():
        alike[", ".join(targets), came].append(shape)
    for (targets, came), shapes in alike.items():
        yield f"| {', '.join(shapes)} | {targets} | {came} |"
    yield ""


def _summary(ends: list[str]) -> str:
    """How the cells came back; of rows that came twice, the fewest and the most."""
    twice = [int(found[1]) for end in ends if (found := _TWICE.match(end))]
    ways = [way for way in dict.fromkeys(_TWICE.sub("", end, count=1) for end in ends) if way]
    low, high = min(twice, default=0), max(twice, default=0)
    rows = [f"{low} rows twice" if low == high else f"{low} to {high} rows twice"] if twice else []
    return ", ".join([*filter(None, [" or ".join(ways)]), *rows])


def _short(end: str) -> str:
    came, again, _ = end.partition(kill_log.AGAIN)
    return f"{came} (the second time)" if again else came
