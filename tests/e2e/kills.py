"""The crash matrix (issue 3, layer b): SIGKILL of one process at one point of a real run, then run
again until complete, then look: every id exactly once, no state ahead, nothing left running.

``python tests/e2e/kills.py --all`` runs every cell, with the store on SQLite and on Postgres, and
writes ``docs/kill-matrix.md`` and its log (``kill_log``); ``--only TEXT`` those whose name holds
TEXT; ``--store sqlite|postgres`` those of one store; ``--warm`` those of tables, with a Spark that
an earlier run left; ``test_kills.py`` runs a few in CI. A cell is ``SHAPE/POINT/TARGET``, with
``postgres/`` before it where the store is on a Postgres of the cell's own. On Postgres there are
two more targets, the server and its sessions (``postgres_kills``).
Cells whose destination is a connector are ``push_kills``'s and ``syncmaven_kills``'s, those with
components at both ends ``wasm_kills``'s.

The source hangs, once, near its end, so that a target is alive whenever it is wanted; whatever
loads only at the end of a sync is struck there, where only the program is left to kill.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import kill_log
from api_kills import ApiCell, api_cells, run_api_cell
from e2e_harness import Ended, Place, assert_adds_up
from postgres_kills import STORE_TARGETS, failpoint, on_postgres
from push_kills import POINTS, PushCell, push_cells, run_push_cell
from push_kills import SHAPES as PUSH_SHAPES
from push_kills import TARGETS as PUSH_TARGETS
from syncmaven_kills import MOMENTS, SyncmavenCell, run_syncmaven_cell, syncmaven_cells
from syncmaven_kills import TARGETS as SYNCMAVEN_TARGETS
from wasm_kills import POINTS as WASM_POINTS
from wasm_kills import SHAPES as WASM_SHAPES
from wasm_kills import TARGETS as WASM_TARGETS
from wasm_kills import WasmCell, run_wasm_cell, wasm_cells

import warm_spark
from penstock.spark.warm import folder_of_all, stop

RECORDS = 400
BEFORE = 100  # records of the sync before the one that is killed, where the table is replaced
KEYS = 37  # of the dedup shapes: each is updated about ten times
LEFT_SECONDS = 15.0
STRUCK_SECONDS = 240.0
STREAMS = ("s0", "s1")


@dataclass(frozen=True)
class Shape:
    """``held``: loads only when the source has ended. ``resumes``: a full refresh goes on where an
    epoch was lost (L6); else it begins anew."""

    name: str
    destination: str
    mode: str
    sync_mode: str = "incremental"
    held: bool = False
    resumes: bool = False


SHAPES = (
    Shape("parquet-append", "parquet", "append"),
    Shape("parquet-dedup", "parquet", "append_dedup", held=True),
    Shape("parquet-overwrite", "parquet", "overwrite", "full_refresh", held=True),
    Shape("delta-append", "delta", "append"),
    Shape("delta-dedup", "delta", "append_dedup"),
    Shape("delta-overwrite", "delta", "overwrite", "full_refresh", held=True, resumes=True),
)
LANE_POINTS = ("mid-part", "after-seal")
DRIVER_POINTS = ("after-intent", "after-commit", "after-ledger")
TARGETS = ("connector", "child", "worker", "program")


@dataclass(frozen=True)
class Cell:
    shape: Shape
    point: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.shape.name}/{self.point}/{self.target}"

    @property
    def at_end(self) -> bool:
        return self.shape.held and self.point in DRIVER_POINTS

    @property
    def possible(self) -> bool:
        """Where everything loads at the end, the lane's processes are gone by then."""
        return not self.at_end or self.target in ("program", *STORE_TARGETS)

    @property
    def failpoint(self) -> str:
        """Not at the first passing where there are several: something is committed before."""
        nth = 1 if self.at_end else 2 if self.point in DRIVER_POINTS else 3
        return f"{self.point}:{nth}@{self.target}"


def cells(targets: Sequence[str] = TARGETS) -> Iterator[Cell]:
    for shape in SHAPES:
        for point in (*LANE_POINTS, *DRIVER_POINTS):
            for target in targets:
                yield Cell(shape, point, target)


def cell(name: str) -> Cell:
    return next(c for c in cells((*TARGETS, *STORE_TARGETS)) if c.name == name)


def run_cell(it: Cell, folder: Path, *, warm: bool = False, cold: bool = False) -> str:
    """Kill and recover; raises ``AssertionError`` with the reason. Gives how it came back: ``same
    run`` or ``next run``. ``warm``: the run that is killed has a Spark of another run; ``cold``:
    each has its own. Else it depends on what ran before."""
    place = _place(it, folder)
    place.cold = cold
    if warm:
        place.cache = warm_spark.cache_in(folder / "cache")
        before = replace(place, folder=folder / "before")
        assert before.run(records=1).code == 0
    if it.shape.sync_mode == "full_refresh":
        _assert_done(place, it, place.run(records=BEFORE), BEFORE)
    struck = folder / "struck"
    environ = {
        "PENSTOCK_FAILPOINT": failpoint(it.failpoint, place.state),
        "PENSTOCK_FAILPOINT_ONCE": str(struck),
    }
    faults: dict[str, Any] = {}
    if not it.at_end:
        at = int(RECORDS * len(STREAMS) * 0.8)
        faults = {"hang_after": at, "once": str(folder / "hung"), "delay": 0.003}
        if it.target in STORE_TARGETS:  # this run goes on, and with it the source
            faults = {"delay": 0.003}
    running = place.start(environ, records=RECORDS, **faults)
    deadline = time.monotonic() + STRUCK_SECONDS
    while running.process.poll() is None and time.monotonic() < deadline and not struck.exists():
        time.sleep(0.02)
    (folder / "hung").touch()  # whoever reads next goes on to the end
    killed = running.wait(STRUCK_SECONDS if struck.exists() else 1)
    if warm and killed.report is not None:
        assert killed.report["start"] == "warm"
    assert struck.exists(), f"never struck (exit {killed.code}): {killed.told[-2000:]}"
    left = place.left_after(LEFT_SECONDS)
    assert not left, f"left running: {left}"
    _assert_sound(place, it)
    _assert_ended_as_killed(it, killed)
    same = killed.code == 0
    last = killed if same else place.run(records=RECORDS)
    _assert_done(place, it, last, RECORDS)
    if same:  # and there is nothing more to bring
        _assert_done(place, it, place.run(records=RECORDS), RECORDS)
    return "same run" if same else "next run"


def _place(it: Cell, folder: Path) -> Place:
    dedup = it.shape.mode == "append_dedup"
    return Place(
        folder,
        it.shape.destination,
        config={
            "streams": [{"name": s, "is_resumable": it.shape.resumes} for s in STREAMS],
            "resumes": it.shape.resumes,
            "interleave": True,
            "state_every": 20,
            **({"key_space": KEYS} if dedup else {}),
        },
        options={"sync_mode": it.shape.sync_mode, "destination_sync_mode": it.shape.mode},
        told={
            "bounds": {"part_bytes": 8_000, "seal_bytes": 16_000, "seal_seconds": 0.5},
            "load": {"max_pending_bytes": 1, "max_pending_time": 0.1},
            "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
        },
    )


def _assert_ended_as_killed(it: Cell, killed: Ended) -> None:
    """Who is killed decides how the run ends: a lane that lost its process is begun again by the
    same run, a source that died is a failed source, a Postgres that is away for seconds is
    outlasted."""
    if it.target == "program":
        assert killed.code == -9, killed.told[-2000:]
    elif it.target == "connector":
        assert killed.code in (1, 4), (killed.code, killed.told[-2000:])
        assert killed.error["code"] == "source.exited", killed.error
    elif it.target in STORE_TARGETS:
        assert killed.code == 0, (killed.code, killed.report, killed.told[-2000:])
        assert "answers again" in killed.told, "the run did not meet the outage"
    else:
        assert killed.code == 0, (killed.code, killed.report, killed.told[-2000:])
        assert killed.report is not None
        assert any("begun again" in note for note in killed.report["notes"])


def _assert_sound(place: Place, it: Cell) -> None:
    """Right after the kill: nothing twice, and nothing missing up to what the states say (L1)."""
    saved = place.saved()
    for stream in STREAMS:
        rows, state = place.rows(stream), saved.get(stream, 0)
        if it.shape.mode == "append_dedup":
            found = dict(rows)
            assert len(found) == len(rows), f"{stream}: a key twice"
            behind = {k: v for k, v in _newest(state).items() if found.get(k, 0) < v}
            assert not behind, f"{stream}: the state {state} is ahead of the table: {behind}"
            continue
        seqs = [seq for _, seq in rows]
        assert len(set(seqs)) == len(seqs), f"{stream}: rows twice"
        missing = set(range(1, state + 1)) - set(seqs)
        assert not missing, f"{stream}: the state {state} is ahead: {sorted(missing)[:10]}"
        if it.shape.mode == "overwrite":
            assert seqs in (_all(BEFORE), _all(RECORDS)), f"{stream}: half a generation"


def _assert_done(place: Place, it: Cell, ended: Ended, records: int) -> None:
    assert ended.code == 0, (ended.code, ended.report, ended.told[-3000:])
    assert ended.report is not None
    # a source might send the rows at its cursor again; this one does not, as the rows show
    label = "at-least-once" if it.shape.mode == "append" else "exactly-once"
    assert ended.report["guarantee"] == label
    assert not any("no state covers" in note for note in ended.report["notes"])
    assert_adds_up(ended)
    left = place.left_after(LEFT_SECONDS)
    assert not left, f"left running: {left}"
    saved = place.saved()
    for stream in STREAMS:
        rows = place.rows(stream)
        if it.shape.mode == "append_dedup":
            assert rows == sorted(_newest(records).items()), stream
        else:
            assert [seq for _, seq in rows] == _all(records), stream
        assert saved[stream] == records, saved


def _all(records: int) -> list[int]:
    return list(range(1, records + 1))


def _newest(records: int) -> dict[int, int]:
    """id -> its newest seq, as the stub numbers them."""
    return {seq % KEYS: seq for seq in range(1, records + 1)}


# -- the whole matrix by one command

OneCell = Cell | ApiCell | PushCell | SyncmavenCell | WasmCell
POSTGRES = "postgres/"


@dataclass(frozen=True)
class OnPostgres:
    """A cell whose store is on a Postgres of its own."""

    cell: OneCell

    @property
    def name(self) -> str:
        return f"{POSTGRES}{self.cell.name}"


AnyCell = OneCell | OnPostgres


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every cell, into docs/kill-matrix.*")
    parser.add_argument("--only", help="cells whose name holds this text")
    parser.add_argument("--jobs", type=int, default=1, help="cells at the same time")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="with --only: of one store")
    parser.add_argument("--warm", action="store_true", help="of tables, with a Spark that was left")
    asked = parser.parse_args()
    if asked.all == (asked.only is not None) or (asked.all and (asked.warm or asked.store)):
        parser.error("say --all or --only TEXT, and --warm and --store with --only")
    if not asked.all:
        among = cells_of_tables() if asked.warm else every_cell(asked.store)
        chosen = [it for it in among if asked.only in it.name]
        print(f"{len(chosen)} cells", file=sys.stderr)
        return _failures(play(chosen, asked.jobs, sys.stderr, warm=asked.warm))
    trees = kill_log.trees_of(kill_log.ROOT)
    if trees is None:
        parser.error("the log names what git says of the code: not in a checkout")
    unfinished = kill_log.KEPT.with_suffix(".part")
    with unfinished.open("w") as log:
        log.write(kill_log.head(trees))
        ends = play(every_cell(), asked.jobs, log)
    if kill_log.trees_of(kill_log.ROOT) != trees:
        parser.error(f"the code changed while it was played: {unfinished} is not kept")
    unfinished.replace(kill_log.KEPT)
    kill_log.KEPT.with_suffix(".md").write_text(_page(ends) + "\n")
    return _failures(ends)


def cells_of_tables(targets: Sequence[str] = TARGETS) -> list[Cell]:
    return [it for it in cells(targets) if it.possible]


def every_cell(store: str | None = None) -> list[AnyCell]:
    """``store``: sqlite or postgres; None: both. The Python interface has its store in a file."""
    found: list[AnyCell] = []
    if store != "postgres":
        found += cells_of_tables()
        found += chain(push_cells(), syncmaven_cells(), wasm_cells(), api_cells())
    if store != "sqlite":
        others = chain(
            cells_of_tables((*TARGETS, *STORE_TARGETS)),
            push_cells((*PUSH_TARGETS, *STORE_TARGETS)),
            syncmaven_cells(),
            wasm_cells((*WASM_TARGETS, *STORE_TARGETS)),
        )
        found += map(OnPostgres, others)
    return found


def play(
    chosen: Sequence[AnyCell], jobs: int, log: TextIO, *, warm: bool = False
) -> dict[str, str]:
    """How each ended; a line for each is written when it has."""

    def attempt(it: AnyCell) -> str:
        folder = Path(tempfile.mkdtemp(prefix="penstock-kill-"))
        began = time.monotonic()
        try:
            end = _run(it, folder, warm=warm)
            shutil.rmtree(folder, ignore_errors=True)
        except Exception as e:  # one that cannot be played leaves the others theirs
            end = f"{kill_log.FAILED} {e!r} ({folder})"
        line = kill_log.line(it.name, end, time.monotonic() - began)
        for place in {log, sys.stderr}:
            place.write(line)
            place.flush()
        return end

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip((it.name for it in chosen), pool.map(attempt, chosen), strict=True))


def _failures(ends: dict[str, str]) -> int:
    return 1 if any(_failed(end) for end in ends.values()) else 0


def _failed(end: str) -> bool:
    return end.startswith(kill_log.FAILED)


def _run(it: AnyCell, folder: Path, *, warm: bool) -> str:
    match it:
        case OnPostgres():
            with on_postgres():
                return _run(it.cell, folder, warm=warm)
        case Cell():
            try:
                return run_cell(it, folder, warm=warm, cold=not warm)
            finally:
                if warm:
                    stop(folder_of_all(folder / "cache" / "penstock"))
        case ApiCell():
            return run_api_cell(it, folder, cold=True)
        case PushCell():
            return run_push_cell(it, folder, cold=True)
        case SyncmavenCell():
            return run_syncmaven_cell(it, folder, cold=True)
        case WasmCell():
            return run_wasm_cell(it, folder, cold=True)


_HEAD = """# Kill matrix

What `python tests/e2e/kills.py --all` found: real runs on local Spark, in which SIGKILL hits one
process at one point. The log of every cell, and which code was played, is in
`docs/kill-matrix.txt`. The process: the **connector**; the **child**, which reads, decodes and
seals beside it; the Spark Python **worker** that supervises the child; or the whole **program**.
Each cell then says who made the sync complete: the `same run`,
with a new epoch, or the `next run`.

A cell passes only if, right after the kill, no row was there twice and no saved state was ahead of
the table; if at the end DuckDB or delta-rs found every record exactly once (the newest of its key
for dedup), the report added up, and the states were the source's last; and if nothing was left
running 15 seconds after each process ended. `-`: what loads once, at the end of a sync, does so
when the lane's processes are gone; there is no such process to kill.

Points: `mid-part` (rows are decoded and not sealed), `after-seal` (sealed, the driver not told),
`after-intent` (a load is written down, not committed), `after-commit` (the table has it, the ledger
does not), `after-ledger` (both have it).
"""

_POSTGRES_HEAD = """# With the store on Postgres

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


def _page(ends: dict[str, str]) -> str:
    results = {name: end.split(" ")[0] if _failed(end) else end for name, end in ends.items()}
    lines = [_HEAD, *_shapes(results)]
    lines += [_PUSH_HEAD, *_push(results)]
    lines += [_SYNCMAVEN_HEAD, *_syncmaven(results)]
    lines += [_WASM_HEAD, *_wasm(results)]
    lines.append(_API_HEAD)
    lines += ["| killed | how it came back |", "|---|---|"]
    lines += [f"| {it.name} | {results.get(it.name, '-')} |" for it in api_cells()]
    there = {n.removeprefix(POSTGRES): end for n, end in results.items() if n.startswith(POSTGRES)}
    lines += ["", _POSTGRES_HEAD, *_shapes(there, STORE_TARGETS), *_push(there, STORE_TARGETS)]
    lines += ["### syncmaven", "", *_syncmaven(there), *_wasm(there, STORE_TARGETS)]
    passed = sum(not _failed(end) for end in ends.values())
    lines.append(f"{passed} of {len(results)} cells passed.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
