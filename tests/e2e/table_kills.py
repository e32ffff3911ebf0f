"""The crash matrix of tables (issue 3, layer b): SIGKILL of one process at one point of a real run,
then run again until complete, then look: every id exactly once, no state ahead, nothing left
running. ``kills.py`` runs all of it, ``test_kills.py`` a few cells. A cell is
``SHAPE/POINT/TARGET``; where the store is on Postgres there are two more targets, the server and
its sessions (``postgres_kills``).

The source hangs, once, near its end, so that a target is alive whenever it is wanted; whatever
loads only at the end of a sync is struck there, where only the program is left to kill.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from e2e_harness import Ended, Place, assert_adds_up, assert_same_rows
from postgres_kills import STORE_TARGETS, failpoint

import warm_spark

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
    it has its own. Else, and of the runs before and after it, that depends on what ran before."""
    place = _place(it, folder)
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
    place.cold = cold
    running = place.start(environ, records=RECORDS, **faults)
    deadline = time.monotonic() + STRUCK_SECONDS
    while running.process.poll() is None and time.monotonic() < deadline and not struck.exists():
        time.sleep(0.02)
    (folder / "hung").touch()  # whoever reads next goes on to the end
    killed = running.wait(STRUCK_SECONDS if struck.exists() else 1)
    if warm and killed.report is not None:
        assert killed.report["start"] == "warm"
    assert struck.exists(), f"never struck (exit {killed.code}): {killed.told[-2000:]}"
    place.assert_nothing_left(LEFT_SECONDS)
    place.cold = False
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
        assert any("started again" in note for note in killed.report["notes"])


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
    place.assert_nothing_left(LEFT_SECONDS)
    saved = place.saved()
    for stream in STREAMS:
        rows = place.rows(stream)
        if it.shape.mode == "append_dedup":
            assert_same_rows(rows, _newest(records).items(), stream)
        else:
            assert_same_rows([seq for _, seq in rows], _all(records), stream)
        assert saved[stream] == records, saved


def _all(records: int) -> list[int]:
    return list(range(1, records + 1))


def _newest(records: int) -> dict[int, int]:
    """id -> its newest seq, as the stub numbers them."""
    return {seq % KEYS: seq for seq in range(1, records + 1)}
