"""The crash matrix where the destination speaks Syncmaven (issue 12): SIGKILL of one process at one
moment of the conversation, then run again until complete, then look at what the destination has.

Held is: no row is lost that a state covers, each such row is in a stream of which the destination
gave a result, and what was sent again is told by the run that did it. The destination
(``stubs/notary.py``) waits at the moment, and the test kills from outside. ``kills.py`` runs all of
it, ``test_push_kills.py`` a few cells. A cell is ``syncmaven/MOMENT/TARGET``.
"""

import json
import os
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e_harness import Ended, Place, assert_adds_up
from push_kills import LEFT_SECONDS, STREAMS, STRUCK_SECONDS, STUBS

from penstock.engine.specs.failpoints import tasks_of

RECORDS = 200
MOMENTS = ("row", "asked", "told")
"""Between two rows; before the stream's result; after it."""
TARGETS = ("destination", "pusher", "push-worker", "program")
PUSHER = "penstock.engine.worker.feeder"


@dataclass(frozen=True)
class SyncmavenCell:
    point: str
    target: str

    @property
    def name(self) -> str:
        return f"syncmaven/{self.point}/{self.target}"

    @property
    def page(self) -> bool:
        """Whether the destination speaks the page's dialect: every second one does."""
        return (MOMENTS.index(self.point) + TARGETS.index(self.target)) % 2 == 0

    @property
    def processes(self) -> int:
        """Those of one stream: several in every second pair of targets."""
        return 1 + (MOMENTS.index(self.point) + TARGETS.index(self.target) // 2) % 2


def syncmaven_cells() -> Iterator[SyncmavenCell]:
    for point in MOMENTS:
        for target in TARGETS:
            yield SyncmavenCell(point, target)


def syncmaven_cell(name: str) -> SyncmavenCell:
    return next(c for c in syncmaven_cells() if c.name == name)


def run_syncmaven_cell(it: SyncmavenCell, folder: Path, *, cold: bool = False) -> str:
    """Kill and recover; raises ``AssertionError`` with the reason. Gives how many rows the
    destination was sent twice, with a * where a stream has several processes. ``cold``: the
    run that is killed starts a Spark of its own."""
    stop = folder / "stop"
    stop.mkdir(parents=True)
    place = _place(it, folder, stop)
    place.cold = cold
    running = place.start(records=RECORDS)
    deadline = time.monotonic() + STRUCK_SECONDS
    while running.process.poll() is None and time.monotonic() < deadline:
        if (stop / "waits").exists():
            break
        time.sleep(0.01)
    assert (stop / "waits").exists(), f"it never waited: {running.wait(1).told[-3000:]}"
    pid = _pid(it.target, place, running.process.pid, int((stop / "waits").read_text()))
    with suppress(ProcessLookupError):  # a destination that gave its result may be gone
        os.kill(pid, signal.SIGKILL)
    (stop / "go").touch()
    killed = running.wait(STRUCK_SECONDS)
    place.assert_nothing_left(LEFT_SECONDS)
    place.cold = False
    acked = place.saved()
    _assert_has_all(folder, acked)
    _assert_ended_as_killed(it, killed)
    last = place.run(records=RECORDS)
    assert last.code == 0, (last.code, last.report, last.told[-3000:])
    assert_adds_up(last)
    place.assert_nothing_left(LEFT_SECONDS)
    assert place.saved() == dict.fromkeys(STREAMS, RECORDS)
    _assert_has_all(folder, dict.fromkeys(STREAMS, RECORDS))
    return f"{_assert_twice_is_told(folder, acked, last)} twice{' *' * (it.processes > 1)}"


def _place(it: SyncmavenCell, folder: Path, stop: Path) -> Place:
    place = Place(
        folder,
        "syncmaven",
        config={"streams": [{"name": s} for s in STREAMS], "interleave": True, "state_every": 20},
        told={
            "protocol_keys": {"checkpoint_every": 30, "parallelism": it.processes},
            "bounds": {"part_bytes": 4_000, "seal_bytes": 4_000, "seal_seconds": 0.3},
            "load": {"max_pending_bytes": 1, "max_pending_time": 0.1},
            "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
        },
    )
    orders = {
        "book": str(folder / "book"), "page": it.page, "at": it.point, "stop": str(stop),
        "streams": STREAMS, "of": place.tag,
    }  # fmt: skip
    command = shlex.join([sys.executable, str(STUBS / "notary.py"), json.dumps(orders)])
    place.to = f"syncmaven:{command}"
    return place


def _pid(target: str, place: Place, program: int, destination: int) -> int:
    if target == "program":
        return program
    if target == "destination":
        return destination
    pusher = place.process(PUSHER)
    if target == "pusher":
        return pusher
    (task,) = tasks_of(pusher)
    return task


def _entries(folder: Path) -> Iterator[dict[str, Any]]:
    """What the destination wrote down; a line that it died over is none."""
    book = folder / "book"
    for line in book.read_text().split("\n")[:-1] if book.exists() else ():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def _taken(folder: Path) -> dict[str, Counter[int]]:
    """stream -> how often each seq is in a stream of which the destination gave a result."""
    held: dict[int, list[tuple[str, int]]] = {}
    taken: dict[str, Counter[int]] = {s: Counter() for s in STREAMS}
    for entry in _entries(folder):
        if "seq" in entry:
            held.setdefault(entry["by"], []).append((_stream(entry), entry["seq"]))
        else:
            for stream, seq in held.pop(entry["by"], []):
                taken[stream][seq] += 1
    return taken


def _sent(folder: Path) -> dict[str, Counter[int]]:
    """stream -> how often each seq came."""
    found: dict[str, Counter[int]] = {s: Counter() for s in STREAMS}
    for entry in _entries(folder):
        if "seq" in entry:
            found[_stream(entry)][entry["seq"]] += 1
    return found


def _stream(entry: dict[str, Any]) -> str:
    return str(entry["sync"]).rpartition("/")[2]


def _assert_has_all(folder: Path, up_to: dict[str, int]) -> None:
    taken = _taken(folder)
    for stream, last in up_to.items():
        missing = set(range(1, last + 1)) - set(taken[stream])
        assert not missing, f"{stream}: the state {last} is ahead: {sorted(missing)[:10]}"


def _assert_twice_is_told(folder: Path, acked: dict[str, int], last: Ended) -> int:
    total = 0
    for stream, seqs in _sent(folder).items():
        twice = [seq for seq, times in seqs.items() if times > 1]
        early = [seq for seq in twice if seq <= acked.get(stream, 0)]
        assert not early, f"{stream}: twice, though acked before: {sorted(early)[:10]}"
        told = last.stream(stream)["sent_again"]
        assert len(twice) <= told, f"{stream}: {len(twice)} rows came twice, {told} are told"
        total += len(twice)
    return total


def _assert_ended_as_killed(it: SyncmavenCell, killed: Ended) -> None:
    if it.target == "program":
        assert killed.code == -9, killed.told[-2000:]
    elif it.target == "destination" and it.point == "told":
        assert killed.code == 0, (killed.code, killed.told[-2000:])
    else:
        assert killed.code not in (0, -9), (killed.code, killed.told[-2000:])
    if it.target == "destination" and it.point != "told":
        assert killed.error["code"] == "destination.exited", killed.error
        assert "signal 9" in killed.error["message"]
