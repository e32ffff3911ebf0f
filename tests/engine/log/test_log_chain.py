"""L3: a manifest that is lost is missed, wherever the ledger does not say that it was loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from schedules import count_steps
from simulation import Crash, Fault, Scenario, World, ids, run_once, saved_positions

from penstock.engine.deliver.load_plan import chained
from penstock.engine.log.log import FileLog
from penstock.engine.specs.lane import LaneStream
from penstock.engine.worker.sealer import Sealer
from penstock.errors import LogError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.segments import (
    SHARED_STATE,
    ConsumedSlice,
    Segment,
    SegmentId,
    StreamSlice,
    WriteDisposition,
)
from penstock.model.state import StateScope, StateType

APPEND = DestinationSyncMode.append
A, B = StreamId(None, "a"), StreamId(None, "b")
ROWS = {"a": [(n, 1) for n in range(6)], "b": [(n, 1) for n in range(4)]}
SCENARIOS = {
    "stream": Scenario(mode=APPEND, records=ROWS, load_while_reading=False),
    "global": Scenario(
        mode=APPEND, records=ROWS, state=StateType.global_, load_while_reading=False
    ),
    "waiting": Scenario(
        mode=DestinationSyncMode.overwrite, records=ROWS, sync_mode=SyncMode.full_refresh,
        resumable=True, state=StateType.global_,
    ),
    "at the end": Scenario(mode=APPEND, records=ROWS, load_while_reading=False, quantum=3),
}  # fmt: skip


def crashed(scenario: Scenario, at: int) -> World:
    world = World()
    world.arm(Fault(at))
    with pytest.raises(Crash):
        run_once(world, scenario)
    world.arm(None)
    return world


@pytest.mark.parametrize("name", SCENARIOS)
def test_L3_each_manifest_that_is_lost_is_missed(name: str) -> None:
    """The program is killed at each step, then each manifest is lost in turn, the newest of its
    epoch where that was closed: the next run says so, and no state moves past it."""
    scenario, lost, newest = SCENARIOS[name], 0, 0
    for at in range(1, count_steps(scenario) + 1):
        manifests = len(crashed(scenario, at).log.manifests)
        for gone in range(manifests):
            world = crashed(scenario, at)
            epoch = world.log.manifests[gone][0].id.epoch
            last = not any(m[0].id.epoch == epoch for m in world.log.manifests[gone + 1 :])
            if last and epoch not in world.store.closed_epochs("sim"):
                continue
            taken = world.store.consumed("sim", [epoch])
            (dropped,) = [world.log.manifests.pop(gone)]
            needed = {
                ConsumedSlice(s.id, part.stream) for s in dropped for part in s.slices
            } - taken
            before = saved_positions(world)
            if not needed:
                continue
            lost += 1
            newest += last
            with pytest.raises(LogError) as told:
                run_once(world, scenario, take_over=True)
            assert told.value.code == "log.corrupt", (name, at, gone)
            assert "reset" not in (told.value.hint or "")
            after = saved_positions(world)
            assert after == before or set(ids(world, "a")) >= set(ROWS["a"][: after.get("a", 0)])
    assert lost > 5 and newest


def segment(seq: int, *streams: StreamId, shared: bool = False, before: int | None = 0) -> Segment:
    kind = StateType.global_ if shared else StateType.stream
    scope = StateScope(kind, None if shared else streams[0])
    slices = tuple(
        StreamSlice(
            stream=s, disposition=WriteDisposition(mode=APPEND), schema_version=1, generation=1,
            fills_generation=False,
        )
        for s in streams
    )  # fmt: skip
    return Segment(id=SegmentId(1, seq), lane=0, scope=scope, slices=slices, before=before)


def taken(seq: int, *streams: StreamId) -> set[ConsumedSlice]:
    return {ConsumedSlice(SegmentId(1, seq), s) for s in streams}


def test_a_gap_is_explained_by_the_ledger_alone() -> None:
    third = segment(3, A, before=4)  # the first had one share, the second three
    whole = taken(1, A) | taken(2, A, B, SHARED_STATE)
    assert chained([third], whole, {1: 3}) == [third]
    for left_out in whole:
        with pytest.raises(LogError):
            chained([third], whole - {left_out}, {1: 3})
    # while the epoch is read, what is behind the gap waits
    assert chained([segment(1, A), third], set(), {}) == [segment(1, A)]


def test_the_end_of_an_epoch_is_known_by_what_it_held() -> None:
    """Not by numbers: a lane that ends gives some to segments that it never seals, as nothing is in
    them, and later segments leave the log before earlier ones."""
    first, fence = segment(1, A), {1: 3}
    assert chained([first], taken(3, B), fence, {1: 2}) == [first]
    for lost in ({1: 3}, {1: 4}):
        with pytest.raises(LogError, match="2 to 3 of epoch 1"):
            chained([first], taken(3, B), fence, lost)
    # a share of it was consumed, another not
    with pytest.raises(LogError):
        chained([], taken(1, A), {1: 1}, {1: 2})
    assert chained([], taken(1, A, B), {1: 1}, {1: 2}) == []
    # what is consumed beyond the fence was seen before it was set, and explains nothing
    with pytest.raises(LogError):
        chained([], taken(2, A), {1: 1}, {1: 1})
    # of an earlier version, or forgotten
    assert chained([first], set(), fence, {}) == [first]
    assert chained([], set(), fence) == []


def test_an_epoch_that_was_moved_aside_is_not_missed() -> None:
    """As the error says how to give it up."""
    scenario = SCENARIOS["stream"]
    for at in range(1, count_steps(scenario) + 1):
        world = crashed(scenario, at)
        for epoch in world.log.epochs():
            world.log.manifests = [m for m in world.log.manifests if m[0].id.epoch != epoch]
            world.log.claims.pop(epoch)
        written = any(g.loads for g in world.store.open_groups("sim"))
        if not written:
            run_once(world, scenario, take_over=True)
            assert set(ids(world, "a")) >= set(ROWS["a"])


def test_L3_numbers_of_an_epoch_may_have_holes(tmp_path: Path) -> None:
    """Behind ``serve`` a stream must be said to be whole: at the end of its input nothing is left
    to be sealed of those that were silent, and what comes after them has a later number."""
    streams = [StreamId(None, n) for n in "abc"]
    log = FileLog(tmp_path)
    log.claim(1, "me")
    lanes = [
        LaneStream(
            stream=s, disposition=WriteDisposition(mode=APPEND), schema_version=1, generation=1,
            fills_generation=False, requires_complete_status=s.name == "b",
        )
        for s in streams
    ]  # fmt: skip
    sealer = Sealer(
        log, epoch=1, lane=0, streams=lanes, decode=lambda *_: None,  # type: ignore[arg-type]
        clock=lambda: 0.0,
    )  # fmt: skip
    sealer.finish(clean=True)
    a, c = log.segments()
    assert (a.id.seq, c.id.seq) == (1, 3)
    whole = taken(3, streams[2])
    assert chained([a], whole, {1: 3}, {1: c.shares + (c.before or 0)}) == [a]
    with pytest.raises(LogError):
        chained([a], set(), {1: 3}, {1: 2})


def test_a_log_of_an_earlier_version_is_read() -> None:
    old = [segment(2, A, before=None), segment(5, A, before=None)]
    assert chained(old, set(), {1: 7}) == old


def test_manifests_on_disk_have_their_link_and_old_ones_none(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    log.claim(1, "me")
    log.seal(1, [segment(1, A, before=None)])
    (path,) = tmp_path.glob("epochs/*/seg-*.json")
    body = path.read_bytes().partition(b"\n")[2]
    assert msgspec.json.decode(body)["segments"][0]["before"] is None
    raw: Any = msgspec.json.decode(body)
    del raw["segments"][0]["before"]
    assert msgspec.convert(raw["segments"][0], Segment).before is None
    log.seal(1, [segment(2, A, before=1)])
    assert [s.before for s in log.segments()] == [None, 1]


def test_L3_a_run_without_a_fault_has_every_link() -> None:
    for scenario in SCENARIOS.values():
        world = World()
        run_once(world, replace(scenario, seal_bytes=1))
        found = sorted(world.sealed.values(), key=lambda s: s.id)
        for epoch in {s.id.epoch for s in found}:
            shares = 0
            for each in (s for s in found if s.id.epoch == epoch):
                assert each.before == shares
                shares += each.shares
