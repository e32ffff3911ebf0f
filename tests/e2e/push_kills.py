"""The crash matrix where the destination is a connector (issue 4): SIGKILL of one process at one
point of a real run, then run again until complete, then look at what the destination heard.

Delivery is at least once, so what is held is: nothing is lost; what came twice came after the last
settled ack, and the report of the run that sent it again counts it; no state is ahead of what the
destination heard; nothing is left running. ``kills.py`` runs all of it, ``test_push_kills.py`` a
few cells. A cell is ``SHAPE/POINT/TARGET``.

The source hangs, once, near its end, so that a target is alive whenever it is wanted.
"""

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e_harness import Ended, Place, assert_adds_up
from postgres_kills import STORE_TARGETS, failpoint

from penstock.protocols import load as load_protocol

STUBS = Path(__file__).parents[1] / "stubs"
RECORDS = 300
LEFT_SECONDS = 15.0
STRUCK_SECONDS = 240.0
STREAMS = ("s0", "s1")
SHAPES = ("airbyte-push", "singer-push")
POINTS = ("mid-push", "after-order", "before-settle", "after-settle", "before-ack", "after-ack")
TARGETS = ("destination", "pusher", "push-worker", "program")


@dataclass(frozen=True)
class PushCell:
    shape: str
    point: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.shape}/{self.point}/{self.target}"

    @property
    def failpoint(self) -> str:
        """Not at the first passing: something is acked before."""
        return f"{self.point}:2@{self.target}"


def push_cells(targets: tuple[str, ...] = TARGETS) -> Iterator[PushCell]:
    for shape in SHAPES:
        for point in POINTS:
            for target in targets:
                yield PushCell(shape, point, target)


def push_cell(name: str) -> PushCell:
    return next(c for c in push_cells((*TARGETS, *STORE_TARGETS)) if c.name == name)


def run_push_cell(it: PushCell, folder: Path, *, cold: bool = False) -> str:
    """Kill and recover; raises ``AssertionError`` with the reason. Gives how many rows the
    destination heard twice. ``cold``: the run that is killed starts a Spark of its
    own."""
    place = _place(it, folder)
    place.cold = cold
    struck = folder / "struck"
    environ = {
        "PENSTOCK_FAILPOINT": failpoint(it.failpoint, place.state),
        "PENSTOCK_FAILPOINT_ONCE": str(struck),
    }
    at = int(RECORDS * len(STREAMS) * 0.8)
    faults = {"hang_after": at, "once": str(folder / "hung")}
    if it.target in STORE_TARGETS:  # this run goes on, and with it the source
        faults = {}
    running = place.start(environ, records=RECORDS, delay=0.003, **faults)
    deadline = time.monotonic() + STRUCK_SECONDS
    while running.process.poll() is None and time.monotonic() < deadline and not struck.exists():
        time.sleep(0.02)
    (folder / "hung").touch()  # whoever reads next goes on to the end
    killed = running.wait(STRUCK_SECONDS if struck.exists() else 1)
    assert struck.exists(), f"never struck (exit {killed.code}): {killed.told[-2000:]}"
    place.assert_nothing_left(LEFT_SECONDS)
    place.cold = False
    acked = _saved(place)
    _assert_heard_all(place, acked)
    _assert_ended_as_killed(it, killed)
    last = place.run(records=RECORDS)
    assert last.code == 0, (last.code, last.report, last.told[-3000:])
    assert_adds_up(last)
    place.assert_nothing_left(LEFT_SECONDS)
    assert _saved(place) == dict.fromkeys(STREAMS, RECORDS)
    _assert_heard_all(place, dict.fromkeys(STREAMS, RECORDS))
    return f"{_assert_twice_is_told(place, acked, last)} twice"


def _place(it: PushCell, folder: Path) -> Place:
    airbyte = it.shape == "airbyte-push"
    mark = shlex.quote(json.dumps({"tag": folder.name}))
    sink = str(folder / "sink.jsonl")
    source = "airbyte:{} {} --with {}" if airbyte else "singer:{} {} --with {}"
    script = STUBS / ("stub_source.py" if airbyte else "stub_tap.py")
    if airbyte:
        told = shlex.join(
            [str(STUBS / "stub_destination.py"), "--with", json.dumps({"sink": sink})]
        )
    else:
        overrides = json.dumps({"save": sink, "ack": "each"})
        told = shlex.join([str(STUBS / "stub_target.py"), overrides])
    return Place(
        folder,
        "airbyte" if airbyte else "singer",
        config={"streams": [{"name": s} for s in STREAMS], "interleave": True, "state_every": 20},
        source=source.format(sys.executable, script, mark),
        to=f"{'airbyte' if airbyte else 'singer'}:{sys.executable} {told}",
        told={
            "bounds": {"part_bytes": 4_000, "seal_bytes": 4_000, "seal_seconds": 0.3},
            "load": {"max_pending_bytes": 1, "max_pending_time": 0.1},
            "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
        },
    )


def _saved(place: Place) -> dict[str, int]:
    """stream -> the ``seq`` up to which its saved state speaks."""
    if place.destination == "airbyte":
        return place.saved()
    store = place.open_store()
    try:
        described = load_protocol("singer").state.describe(store.states("e2e"))
    finally:
        store.close()
    return {s["name"]: s["state"]["replication_key_value"] for s in described["streams"]}


def _heard(place: Place) -> dict[str, Counter[int]]:
    """stream -> how often each seq came; a line that it died over is none."""
    found: dict[str, Counter[int]] = {s: Counter() for s in STREAMS}
    sink = place.folder / "sink.jsonl"
    for line in sink.read_text().split("\n")[:-1] if sink.exists() else ():
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            continue
        if message.get("type") == "RECORD":
            record = message["record"] if place.destination == "airbyte" else message
            found[record["stream"]][record.get("data", message["record"])["seq"]] += 1
    return found


def _assert_heard_all(place: Place, up_to: dict[str, int]) -> None:
    heard = _heard(place)
    for stream, last in up_to.items():
        missing = set(range(1, last + 1)) - set(heard[stream])
        assert not missing, f"{stream}: the state {last} is ahead: {sorted(missing)[:10]}"


def _assert_twice_is_told(place: Place, acked: dict[str, int], last: Ended) -> int:
    total = 0
    for stream, seqs in _heard(place).items():
        twice = [seq for seq, times in seqs.items() if times > 1]
        early = [seq for seq in twice if seq <= acked.get(stream, 0)]
        assert not early, f"{stream}: twice, though acked before: {sorted(early)[:10]}"
        told = last.stream(stream)["sent_again"]
        assert len(twice) <= told, f"{stream}: {len(twice)} rows came twice, {told} are told"
        total += len(twice)
    return total


def _assert_ended_as_killed(it: PushCell, killed: Ended) -> None:
    if it.target == "program":
        assert killed.code == -9, killed.told[-2000:]
        return
    if it.target in STORE_TARGETS:
        assert killed.code == 0, (killed.code, killed.told[-2000:])
        return
    assert killed.code not in (0, -9), (killed.code, killed.told[-2000:])
    if it.target == "destination":
        assert killed.code in (1, 5), (killed.code, killed.told[-2000:])
        assert killed.error["code"] == "destination.exited", killed.error
        assert "signal 9" in killed.error["message"]
