"""The crash matrix of the Python interface (issue 14): SIGKILL of one process at one point of a
real ``penstock.read(incremental=True)`` or ``penstock.write``, then the same call again.

A read: every row is given to the program exactly once, and a third call gives none. A write into a
table: ``overwrite`` shows the rows before or the new ones and nothing between, ``upsert`` each key
once; the second call makes both complete. ``append`` has no key, so that the second call, which
finishes the first one's write and then makes its own, has every row twice or every row once
(docs/python.md). A write to a connector: nothing is lost, no row is heard more often than it was
sent, and the second report counts what it sent again. Nothing is left running. ``kills.py`` runs
all of it, ``test_api_kills.py`` a few cells. A cell is ``SHAPE/POINT/TARGET``.
"""

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e_harness import Ended, Place, assert_adds_up, assert_same_rows

STUBS = Path(__file__).parents[1] / "stubs"
RECORDS = 400
BEFORE = 100  # rows of the write before the one that is killed
LEFT_SECONDS = 15.0
STRUCK_SECONDS = 240.0
LANE_POINTS, DRIVER_POINTS = (
    ("mid-part", "after-seal"),
    ("after-intent", "after-commit", "after-ledger"),
)
PUSH_POINTS = ("mid-push", "after-order", "before-settle", "after-settle")
WRITES = {"write-append": "append", "write-overwrite": "overwrite", "write-upsert": "upsert",
          "write-push": "append"}  # fmt: skip


@dataclass(frozen=True)
class ApiCell:
    shape: str
    point: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.shape}/{self.point}/{self.target}"

    @property
    def failpoint(self) -> str:
        nth = 3 if self.point in LANE_POINTS else 1
        return f"{self.point}:{nth}@{self.target}"


def api_cells() -> Iterator[ApiCell]:
    for point in LANE_POINTS:
        for target in ("connector", "child", "worker", "program"):
            yield ApiCell("read", point, target)
    for shape in ("read", "write-append", "write-overwrite", "write-upsert"):
        for point in DRIVER_POINTS:
            yield ApiCell(shape, point, "program")
    for target in ("destination", "pusher", "push-worker"):  # a write has one session: it has ended
        yield ApiCell("write-push", "mid-push", target)  # when its rows are settled
    for point in PUSH_POINTS:
        yield ApiCell("write-push", point, "program")


def api_cell(name: str) -> ApiCell:
    return next(c for c in api_cells() if c.name == name)


def run_api_cell(it: ApiCell, folder: Path, *, cold: bool = False) -> str:
    """Kill and recover; raises ``AssertionError`` with the reason. Gives how it came back.
    ``cold``: the call that is killed starts a Spark of its own."""
    place = _place(it, folder)
    if it.shape in ("write-overwrite", "write-upsert"):
        assert place.run(records=BEFORE).code == 0
    struck = folder / "struck"
    environ = {"PENSTOCK_FAILPOINT": it.failpoint, "PENSTOCK_FAILPOINT_ONCE": str(struck)}
    faults = {}
    if it.point in LANE_POINTS:
        faults = {"hang_after": int(RECORDS * 0.8), "once": str(folder / "hung"), "delay": 0.003}
    place.cold = cold
    running = place.start(environ, records=RECORDS, **faults)
    deadline = time.monotonic() + STRUCK_SECONDS
    while running.process.poll() is None and time.monotonic() < deadline and not struck.exists():
        time.sleep(0.02)
    (folder / "hung").touch()
    killed = running.wait(STRUCK_SECONDS if struck.exists() else 1)
    assert struck.exists(), f"never struck (exit {killed.code}): {killed.told[-2000:]}"
    place.assert_nothing_left(LEFT_SECONDS)
    place.cold = False
    assert (killed.code == -9) == (it.target == "program"), (killed.code, killed.told[-2000:])
    if it.shape == "read":
        return _read_again(place, killed)
    if it.shape == "write-push":
        return _pushed_again(place, killed)
    return _written_again(place, it)


def _read_again(place: Place, killed: Ended) -> str:
    same = killed.code == 0
    last = killed if same else _call(place)
    assert_adds_up(last)
    taken = [json.loads(line) for line in (place.folder / "taken").read_text().splitlines()]
    assert_same_rows((seq for line in taken for seq in line), range(1, RECORDS + 1), "taken")
    _call(place)
    assert json.loads((place.folder / "taken").read_text().splitlines()[-1]) == []
    return "same call" if same else "next call"


def _written_again(place: Place, it: ApiCell) -> str:
    before = [seq for _, seq in place.rows("s0")]
    whole = list(range(1, RECORDS + 1))
    if it.shape == "write-overwrite":
        assert before in (whole[:BEFORE], whole), "half of a write is seen"
    else:
        assert len(set(before)) == len(before)
    ended = _call(place)
    assert_adds_up(ended)
    now = Counter(seq for _, seq in place.rows("s0"))
    assert sorted(now) == whole, "rows are lost"
    times = set(now.values())
    assert times == {1} or (it.shape == "write-append" and times == {2}), (times, ended.report)
    return f"next call, {len(before)} rows between" + (", then each twice" if times == {2} else "")


def _pushed_again(place: Place, killed: Ended) -> str:
    assert killed.code != 0
    second = _call(place)
    assert_adds_up(second)
    told = second.stream("s0")
    heard: Counter[int] = Counter()
    for line in (place.folder / "sink.jsonl").read_text().split("\n")[:-1]:
        message = json.loads(line)
        if message.get("type") == "RECORD":
            heard[message["record"]["data"]["seq"]] += 1
    assert sorted(heard) == list(range(1, RECORDS + 1)), "rows are lost"
    # What the first call had sealed is sent by the second, which then sends its own rows.
    assert told["written"] in (RECORDS, 2 * RECORDS), told
    assert max(heard.values()) <= 1 + told["written"] // RECORDS, heard.most_common(3)
    assert told["sent_again"] == told["written"] - RECORDS, told
    return f"next call, which sent {told['written']} rows, {told['sent_again']} of them again"


def _call(place: Place) -> Ended:
    ended = place.run(records=RECORDS)
    assert ended.code == 0, (ended.code, ended.report, ended.told[-3000:])
    place.assert_nothing_left(LEFT_SECONDS)
    return ended


def _place(it: ApiCell, folder: Path) -> Place:
    sink = json.dumps({"sink": str(folder / "sink.jsonl")})
    command = shlex.join([sys.executable, str(STUBS / "stub_destination.py"), "--with", sink])
    return Place(
        folder,
        "parquet",
        config={"streams": [{"name": "s0"}], "state_every": 20},
        script="one_api.py",
        to=f"airbyte:{command}" if it.shape == "write-push" else None,
        told={
            "verb": "read" if it.shape == "read" else "write",
            "mode": WRITES.get(it.shape),
            "taken": str(folder / "taken"),
            "bounds": {"part_bytes": 8_000, "seal_bytes": 16_000, "seal_seconds": 0.5},
            "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
        },
    )
