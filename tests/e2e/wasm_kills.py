"""The crash matrix with WebAssembly components at both ends (issue 5, parts 5 and 6): SIGKILL of
one process at one point of a real run, then run again until complete, then look at what is durable.

The destination tells a TCP peer of ours each frame and does what it answers; the peer is its
database: append is durable by frame, upsert and replace when their run ends. What is held, by
write mode: a kill repeats nothing (upsert, replace) or at most the rows since the last checkpoint
that was settled (append), and the report tells them; nothing is lost; no state is ahead; the
connector's own keys count what was committed, once; nothing is left running. A component is no
process: what runs it is the lane's ``child`` or the ``pusher``. ``kills.py --only wasm`` runs all
of it, ``test_wasm_kills.py`` a few cells. A cell is ``SHAPE/POINT/TARGET``.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from e2e_harness import Ended, Place, assert_adds_up
from postgres_kills import STORE_TARGETS, failpoint

from penstock.protocols import load as load_protocol

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "protocols" / "rapidbyte"), str(TESTS / "examples")]

import built  # noqa: E402
from wasm_ends import Heard, Peer, obedient  # noqa: E402
from wasm_sites import share_compiled  # noqa: E402

RECORDS, BEFORE, STEP = 1200, 300, 20
ANSWER_SECONDS = 0.03
LEFT_SECONDS = 15.0
STRUCK_SECONDS = 120.0
STREAM = "numbers"
SHAPES = {
    "wasm-append": ("incremental", "append"),
    "wasm-upsert": ("incremental", "append_dedup"),
    "wasm-replace": ("full_refresh", "overwrite"),
}
LANE_POINTS = ("mid-part", "after-seal")
PUSH_POINTS = (
    "mid-push", "after-order", "before-ack", "after-ack", "before-settle", "after-settle",
)  # fmt: skip
POINTS = (*LANE_POINTS, *PUSH_POINTS)
TARGETS = ("child", "pusher", "push-worker", "program")


@dataclass(frozen=True)
class WasmCell:
    shape: str
    point: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.shape}/{self.point}/{self.target}"

    @property
    def mode(self) -> str:
        return SHAPES[self.shape][1]

    @property
    def possible(self) -> bool:
        """A lane's points strike its own processes, the others those of the destination; which is
        not there yet at its first order, nor any more when its last word is settled."""
        if self.target in ("program", *STORE_TARGETS):
            return True
        if self.point in LANE_POINTS or self.target == "child":
            return self.point in LANE_POINTS and self.target == "child"
        ends = ("before-settle", "after-settle") if self.mode != "append" else ()
        begins = ("after-order",) if self.mode == "overwrite" else ()
        return self.point not in (*begins, *ends)

    @property
    def records(self) -> int:
        """So many that the source still reads when the first order's process has begun, where an
        order is to meet that process."""
        meets = self.point == "after-order" and self.target != "program"
        return 6 * RECORDS if meets else RECORDS

    @property
    def failpoint(self) -> str:
        """Not at the first passing where there are several: something is committed before. What
        replaces goes out once, what upserts is acknowledged once."""
        once = self.mode == "overwrite"
        once |= self.mode == "append_dedup" and self.point in PUSH_POINTS
        several = 2 if self.point == "after-order" else 3  # one order may be all the rest
        return f"{self.point}:{1 if once else several}@{self.target}"


def wasm_cells(targets: tuple[str, ...] = TARGETS) -> Iterator[WasmCell]:
    for shape in SHAPES:
        for point in POINTS:
            for target in targets:
                it = WasmCell(shape, point, target)
                if it.possible:
                    yield it


def wasm_cell(name: str) -> WasmCell:
    return next(c for c in wasm_cells((*TARGETS, *STORE_TARGETS)) if c.name == name)


@dataclass
class Database:
    """What the destination's runs have made durable: ids, as often as they are there."""

    mode: str
    rows: list[int] = field(default_factory=list[int])
    staged: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def answer(self, heard: Heard) -> str:
        if heard.kind == "F":
            time.sleep(ANSWER_SECONDS)
            if self.mode == "append":
                self.rows += heard.seqs
                return "c"
            self.staged.setdefault(heard.run, []).extend(heard.seqs)
        elif heard.kind == "E" and self.mode != "append":
            old = [] if self.mode == "overwrite" else self.rows
            self.rows = sorted({*old, *self.staged.pop(heard.run, [])})
        return "k"


def run_wasm_cell(it: WasmCell, folder: Path, *, cold: bool = False) -> str:
    """Kill and recover; raises ``AssertionError`` with the reason. Gives how many rows the kill
    repeated, and whether the same run or the next one went on. ``cold``: the run that is
    killed starts a Spark of its own."""
    database = Database(it.mode)
    with Peer(database.answer) as peer:
        place = _place(it, folder, peer)
        if it.mode == "overwrite":
            first = place.run(rows=BEFORE)
            assert first.code == 0, (first.report, first.told[-3000:])
            assert database.rows == _all(BEFORE)
        place.cold = cold
        return _killed(it, place, database)


def _killed(it: WasmCell, place: Place, database: Database) -> str:
    struck = place.folder / "struck"
    environ = {
        "PENSTOCK_FAILPOINT": failpoint(it.failpoint, place.state),
        "PENSTOCK_FAILPOINT_ONCE": str(struck),
    }
    killed = place.start(environ).wait(STRUCK_SECONDS)
    assert struck.exists(), f"never struck (exit {killed.code}): {killed.told[-2000:]}"
    place.assert_nothing_left(LEFT_SECONDS)
    place.cold = False
    assert (killed.code == -9) == (it.target == "program"), (killed.code, killed.told[-2000:])
    saved = _saved(place)
    _assert_sound(it, place, database, saved)
    same = killed.code == 0
    last = killed if same else place.run()
    assert last.code == 0, (last.code, last.report, last.told[-3000:])
    assert_adds_up(last)
    place.assert_nothing_left(LEFT_SECONDS)
    twice = _assert_done(it, database, 0 if same else saved, last)
    if it.mode != "overwrite":
        assert _saved(place) == it.records
        _assert_keys(place, it.records)
    return f"{twice} twice, {'same' if same else 'next'} run"


def _place(it: WasmCell, folder: Path, peer: Peer) -> Place:
    sync, mode = SHAPES[it.shape]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("source", built.c_source().read_bytes()), ("sink", obedient())):
        (folder / f"{name}.wasm").write_bytes(content)
    place = Place(
        folder,
        "rapidbyte",
        config={"rows": it.records, "batch_rows": STEP},
        options={
            "sync_mode": sync,
            "destination_sync_mode": mode,
            "destination_config": json.dumps(peer.config),
        },
        source=str(folder / "source.wasm"),
        to=str(folder / "sink.wasm"),
        told={
            "bounds": {"seal_bytes": 1, "seal_seconds": 0.01},
            "load": {"max_pending_bytes": 1, "max_pending_time": 0.1},
            "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
        },
    )
    share_compiled(place.home)
    return place


def _all(last: int) -> list[int]:
    return list(range(1, last + 1))


def _saved(place: Place) -> int:
    """The cursor of the saved state; 0: there is none."""
    store = place.open_store()
    try:
        described = load_protocol("rapidbyte").state.describe(store.states("e2e"))
    finally:
        store.close()
    found = [s["state"]["cursor_value"]["value"] for s in described["streams"]]
    return int(found[0]) if found else 0


def _assert_sound(it: WasmCell, place: Place, database: Database, saved: int) -> None:
    """Right after the kill."""
    rows = Counter(database.rows)
    if it.mode == "overwrite":
        assert sorted(rows) in (_all(BEFORE), _all(it.records)), "half a generation"
    else:
        missing = set(_all(saved)) - set(rows)
        assert not missing, f"the state {saved} is ahead: {sorted(missing)[:10]}"
        _assert_keys(place, saved)
    early = [n for n, times in rows.items() if times > 1]
    assert it.mode == "append" or not early, "a key twice"


def _assert_keys(place: Place, saved: int) -> None:
    """A frame is ``STEP`` rows, and counts once, when its checkpoint is saved."""
    store = place.open_store()
    try:
        found = {p.key: int(v) for p, v in store.connector_keys("e2e").items()}
    finally:
        store.close()
    frames = saved // STEP
    wanted = {"frames": frames, "total": frames} if frames else {}
    assert found == wanted, f"keys {found} do not count what was saved ({saved})"


def _assert_done(it: WasmCell, database: Database, saved: int, last: Ended) -> int:
    rows = Counter(database.rows)
    missing = set(_all(it.records)) - set(rows)
    assert not missing, f"lost: {sorted(missing)[:10]}"
    twice = [n for n, times in rows.items() if times > 1]
    if it.mode != "append":
        assert database.rows == _all(it.records), f"{it.mode} repeats nothing"
        return len(twice)
    early = [n for n in twice if n <= saved]
    assert not early, f"twice, though settled before: {sorted(early)[:10]}"
    told = last.stream(STREAM)["sent_again"]
    assert len(twice) <= told, f"{len(twice)} rows came twice, {told} are told"
    return len(twice)
