"""The kill matrix: SIGKILL of one process at one point of a real run, then run again until
complete, then look. The cells are those of ``table_kills`` (tables), ``push_kills`` and
``syncmaven_kills`` (destinations that are connectors), ``wasm_kills`` (components at both ends)
and ``api_kills`` (the Python interface); with ``postgres/`` before it, one has its store on a
Postgres of its own (``postgres_kills``).

``python tests/e2e/kills.py --all`` plays every cell that the kept log has not for today's code
(``kill_log``), and writes ``docs/kill-matrix.md`` when none is missing. It may be ended at any
time: the log has each cell that ended, and the next ``--all`` goes on. ``--workers N`` cells are
played at the same time (``kill_workers``); ``--minutes N``: none is begun later; ``--failed``:
those that failed are played again, and their lines say so. ``--only TEXT`` plays those whose name
holds TEXT, and keeps nothing; ``--store``: of one store; ``--warm``: of tables, with a Spark of the
cell's own that an earlier run left.

A program that is killed has a Spark of its own (cold), which must end with it; all other runs have
the one that earlier cells of this worker left.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import kill_log
import kill_page
import kill_workers
from api_kills import ApiCell, api_cells, run_api_cell
from kill_log import POSTGRES
from kill_workers import Ended, Played, Workers
from postgres_kills import STORE_TARGETS, on_postgres
from push_kills import TARGETS as PUSH_TARGETS
from push_kills import PushCell, push_cells, run_push_cell
from syncmaven_kills import SyncmavenCell, run_syncmaven_cell, syncmaven_cells
from table_kills import TARGETS, Cell, cells, run_cell
from wasm_kills import TARGETS as WASM_TARGETS
from wasm_kills import WasmCell, run_wasm_cell, wasm_cells

import warm_spark

OneCell = Cell | ApiCell | PushCell | SyncmavenCell | WasmCell


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
    parser.add_argument("--store", choices=kill_log.STORES, help="those of one store")
    parser.add_argument("--workers", type=int, default=_workers(), help="cells at the same time")
    parser.add_argument("--minutes", type=float, help="no cell is begun later")
    parser.add_argument("--failed", action="store_true", help="with --all: also what failed")
    parser.add_argument("--warm", action="store_true", help="of tables, with a Spark that was left")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        _serve(warm=asked.warm)
        return 0
    if asked.all == (asked.only is not None) or (asked.all and asked.warm):
        parser.error("say --all or --only TEXT, and --warm with --only")
    if asked.failed and not asked.all:
        parser.error("--failed is for --all: --only plays each cell in any case")
    if asked.workers < 1:
        parser.error("--workers is at least 1")
    if not asked.all:
        return _play_some(asked)
    try:
        with kill_log.alone(kill_log.KEPT):
            return _play_missing(asked)
    except kill_log.InUseError as e:
        parser.error(str(e))


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


# -- in the command's process


def _play_some(asked: argparse.Namespace) -> int:
    among = cells_of_tables() if asked.warm else every_cell(asked.store)
    chosen = [it.name for it in among if asked.only in it.name]
    print(f"{len(chosen)} cells", file=sys.stderr)
    failed: list[str] = []

    def ended(played: Played) -> bool:
        _say(played)
        if _failed(played):
            failed.append(played.cell)
        return True

    _workers_for(asked, chosen, ended).play()
    return 1 if failed else 0


def _play_missing(asked: argparse.Namespace) -> int:
    """Goes on with the kept log. Ends where the code is no longer what it was."""
    trees = kill_log.trees_of(kill_log.ROOT)
    if trees is None:
        sys.exit("the log names what git says of the code: not in a checkout")
    names = [it.name for it in every_cell()]
    log = kill_log.kept(kill_log.KEPT, trees)
    wanted = {it.name for it in every_cell(asked.store)}
    chosen = [name for name in log.missing(names) if name in wanted]
    if asked.failed:
        chosen += [name for name in log.failed() if name in wanted]
    print(f"{len(chosen)} of {len(names)} cells are to be played", file=sys.stderr)

    def ended(played: Played) -> bool:
        _say(played)
        if kill_log.trees_of(kill_log.ROOT) != trees:
            print("the code changed: this cell and later ones are not kept", file=sys.stderr)
            return False
        log.add(played.cell, played.end, played.seconds)
        log.keep(kill_log.KEPT, names)
        return True

    _workers_for(asked, chosen, ended).play()
    missing = log.missing(names)
    if not missing:
        log.keep(kill_log.KEPT, names)
        kill_log.KEPT.with_suffix(".md").write_text(kill_page.page(log))
    for name in log.failed():
        print(f"{name}: {log.cells[name]}", file=sys.stderr)
    print(f"{len(missing)} cells are missing, {len(log.failed())} failed", file=sys.stderr)
    return 1 if missing or log.failed() else 0


def _workers_for(asked: argparse.Namespace, chosen: Sequence[str], ended: Ended) -> Workers:
    seconds = None if asked.minutes is None else asked.minutes * 60
    return Workers(chosen, asked.workers, _command(asked), ended, seconds)


def _command(asked: argparse.Namespace) -> list[str]:
    return [sys.executable, __file__, "--worker", *(["--warm"] if asked.warm else [])]


def _workers() -> int:
    """One more than processors, as a cell waits half of its time."""
    return (os.cpu_count() or 1) + 1


def _say(played: Played) -> None:
    where = f" ({played.folder})" if played.folder else ""
    print(f"{played.cell}: {played.end} ({played.seconds:.0f} s){where}", file=sys.stderr)


def _failed(played: Played) -> bool:
    return played.end.startswith(kill_log.FAILED)


# -- in a worker


def _serve(*, warm: bool) -> None:
    of_name = {it.name: it for it in every_cell()}
    kill_workers.serve(lambda name, folder: _run(of_name[name], folder, warm=warm))


def _run(it: AnyCell, folder: Path, *, warm: bool) -> str:
    cold = it.name.endswith("/program")
    match it:
        case OnPostgres():
            with on_postgres():
                return _run(it.cell, folder, warm=warm)
        case Cell():
            try:
                return run_cell(it, folder, warm=warm, cold=cold and not warm)
            finally:
                if warm:
                    warm_spark.end_in(folder / "cache")
        case ApiCell():
            return run_api_cell(it, folder, cold=cold)
        case PushCell():
            return run_push_cell(it, folder, cold=cold)
        case SyncmavenCell():
            return run_syncmaven_cell(it, folder, cold=cold)
        case WasmCell():
            return run_wasm_cell(it, folder, cold=cold)


if __name__ == "__main__":
    sys.exit(main())
