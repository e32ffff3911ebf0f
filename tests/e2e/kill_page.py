"""Writes docs/kill-matrix.md: a table for each kind of cells of a kill matrix that was played whole
(``kills.py``): who was killed, where, and how it came back. The log of it is ``kill_log``'s."""

import re
from collections.abc import Callable, Iterator, Sequence

import kill_log
from api_kills import api_cells
from postgres_kills import STORE_TARGETS
from push_kills import POINTS, PushCell
from push_kills import SHAPES as PUSH_SHAPES
from push_kills import TARGETS as PUSH_TARGETS
from syncmaven_kills import MOMENTS, SyncmavenCell
from syncmaven_kills import TARGETS as SYNCMAVEN_TARGETS
from table_kills import DRIVER_POINTS, LANE_POINTS, SHAPES, TARGETS, Cell
from wasm_kills import POINTS as WASM_POINTS
from wasm_kills import SHAPES as WASM_SHAPES
from wasm_kills import TARGETS as WASM_TARGETS
from wasm_kills import WasmCell

_HEAD = """# Kill matrix

*Presupposes:* that you have read [Guarantees](guarantees.md). To play it again you need a checkout.

What `python tests/e2e/kills.py --all` found: real runs on local Spark, in which SIGKILL hits one
process at one point. The log of every cell, which code was played, and what was lost, doubled or
left running, is in `docs/kill-matrix.txt`. The process: the **connector**; the **child**, which
reads, decodes and seals beside it; the Spark Python **worker** that supervises the child; or the
whole **program**. A program that is killed has a Spark of its own, which must end with it; the
other runs have the Spark that earlier cells left. Each cell then says who made the sync complete:
the `same run`, with a new epoch, or the `next run`.

A cell passes only if, right after the kill, no row was there twice and no saved state was ahead of
the table; if at the end DuckDB or delta-rs found every record exactly once (the newest of its key
for dedup), the report added up, and the states were the source's last; and if nothing was left
running 15 seconds after each process ended. `-`: what loads once, at the end of a sync, does so
when the lane's processes are gone; there is no such process to kill.

Points: `mid-part` (rows are decoded and not sealed), `after-seal` (sealed, the driver not told),
`after-intent` (a load is written down, not committed), `after-commit` (the table has it, the ledger
does not), `after-ledger` (both have it).
"""

_POSTGRES_HEAD = """## With the store on Postgres

The same cells, each with a Postgres of its own for the store, and two more that SIGKILL hits: the
**server** (every process of it; it is back two seconds later) and the **backend** (the sessions of
the run, upon which the server ends all others and recovers). A run outlasts both: the `same run`
goes on.
"""

_PUSH_HEAD = """## Destinations that are connectors

SIGKILL hits the **destination**, the **pusher** (which feeds it), the Spark Python worker that
supervises the pusher (**push-worker**), or the whole **program**; the next run completes the sync.
A cell says how many of the rows the destination heard twice. It passes only if nothing was lost,
nothing came twice that was acked and settled before, and the report told at least as many rows as
sent again.

Points: `mid-push` (a part is fed), `after-order` (the push task is told what to feed),
`before-settle` and `after-settle` (around the ledger's entry for an ack), `before-ack` and
`after-ack` (around an ack being written down).
"""

_SYNCMAVEN_HEAD = """## Syncmaven destinations

Two streams into a destination that was written from the protocol's page; every second cell speaks
the page's words, the others those of the code. Half of the cells, those marked *, divide each
stream among two processes (`parallelism`). SIGKILL hits as above, between two rows (`row`),
before the destination gives a stream's result (`asked`), and after it (`told`). A cell says how
many rows were sent twice. It passes only if every row that a state covers is in a stream of which
the destination gave a result, right after the kill and at the end, none of these came again, and
the report told at least as many rows as sent again.
"""

_API_HEAD = """## The Python interface

`penstock.read(incremental=True)` and `penstock.write` in a program of their own; the same call
again completes it. A read passes only if the program was given every row exactly once, and a third
call gives none. A write passes only if the table had the rows before or whole writes right after
the kill, and each row once after the second call (`append`: twice, as the first write is finished
too); of a connector, if nothing was lost, no row was heard more often than it was sent, and the
second report counts what it sent again (the second call sends its own 400 rows in any case).
"""

_WARM = """## A Spark that runs share

`tests/e2e/test_warm.py` kills (SIGKILL) where a Spark stays between runs and where two runs have
it, with real Spark and a source that hangs or waits. Every table is exact in the end.

| killed | what follows |
|---|---|
| Java, between runs | the next run starts one |
| Java, under one run or two | they fail (`spark.java_died`, exit code 5); the next runs are exact |
| the driver of the only run | Spark ends at once, lane and connector with it; the next run starts one and is exact |
| the driver of one of two runs | its jobs are cancelled, its lane and its connector are gone within 25 s; the other run goes on and is exact; nobody gets this Spark after them |
| the keeper | Java ends; an idle one is a cold start, one that is used a Java that died (`tests/spark/test_keeper.py`) |
"""  # noqa: E501

_WASM_HEAD = """## WebAssembly at both ends

A C source into a C destination that tells a peer each frame; the peer is its database. A component
is no process: what runs the source is the lane's **child**, what runs the destination the
**pusher**. A cell says how many rows are durable twice and which run went on. It passes only if
append repeated at most what came after the last checkpoint that was settled, and told it; upsert
and replace repeated nothing; no state was ahead; and the destination's own keys counted each frame
that was committed once, right after the kill and at the end. `-`: not struck there, as that process
takes no part.
"""


def _table(
    killed: Sequence[str], points: Sequence[str], at: Callable[[str, str], str]
) -> list[str]:
    """``at``: how the cell of a target and a point came back."""
    lines = [f"| killed | {' | '.join(points)} |", "|---|" + "---|" * len(points)]
    rows = ((target, " | ".join(at(target, point) for point in points)) for target in killed)
    return [*lines, *(f"| {target} | {row} |" for target, row in rows), ""]


def _shapes(results: dict[str, str], more: Sequence[str] = ()) -> Iterator[str]:
    for shape in SHAPES:
        yield f"## {shape.name.replace('-', ', ')}\n"
        yield from _table(
            (*TARGETS, *more),
            (*LANE_POINTS, *DRIVER_POINTS),
            lambda target, point, of=shape: results.get(Cell(of, point, target).name, "-"),
        )


def _push(results: dict[str, str], more: Sequence[str] = ()) -> Iterator[str]:
    for name in PUSH_SHAPES:
        yield f"### {name.replace('-', ', ')}\n"
        yield from _table(
            (*PUSH_TARGETS, *more),
            POINTS,
            lambda target, point, of=name: results.get(PushCell(of, point, target).name, "-"),
        )


def _syncmaven(results: dict[str, str]) -> list[str]:
    return _table(
        SYNCMAVEN_TARGETS,
        MOMENTS,
        lambda target, moment: results.get(SyncmavenCell(moment, target).name, "-"),
    )


def _wasm(results: dict[str, str], more: Sequence[str] = ()) -> Iterator[str]:
    for name in WASM_SHAPES:
        yield f"### {name.replace('-', ', ')}\n"
        yield from _table(
            (*WASM_TARGETS, *more),
            WASM_POINTS,
            lambda target, point, of=name: results.get(WasmCell(of, point, target).name, "-"),
        )


def _short(end: str) -> str:
    came, again, _ = end.partition(kill_log.AGAIN)
    return f"{came} (the second time)" if again else came


def page(log: kill_log.KillLog) -> str:
    failed = log.failed()
    results = {n: kill_log.FAILED if n in failed else _short(e) for n, e in log.cells.items()}
    lines = [_HEAD, *_shapes(results)]
    lines += [_PUSH_HEAD, *_push(results)]
    lines += [_SYNCMAVEN_HEAD, *_syncmaven(results), _WARM]
    lines += [_WASM_HEAD, *_wasm(results)]
    lines.append(_API_HEAD)
    lines += ["| killed | how it came back |", "|---|---|"]
    lines += [f"| {it.name} | {results.get(it.name, '-')} |" for it in api_cells()]
    there = {
        name.removeprefix(kill_log.POSTGRES): end
        for name, end in results.items()
        if name.startswith(kill_log.POSTGRES)
    }
    on_postgres = [*_shapes(there, STORE_TARGETS), *_push(there, STORE_TARGETS)]
    on_postgres += ["### syncmaven\n", *_syncmaven(there), *_wasm(there, STORE_TARGETS)]
    lines += ["", _POSTGRES_HEAD]
    lines += (re.sub(r"^#+ (.*)", r"### \1, store on Postgres", line) for line in on_postgres)
    lines.append(f"{len(results) - len(failed)} of {len(results)} cells passed.")
    return "\n".join(lines) + "\n"
