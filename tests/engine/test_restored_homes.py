"""L3: homes that are copied, restored and run twice, and tables that are taken away or set back.

What is skipped or missing is never taken for done: every run either brings the table to what its
states claim, or says that it cannot and marks nothing.
"""

import copy
from contextlib import suppress
from dataclasses import replace

import pytest
from schedules import count_steps
from simulation import Crash, Fault, Scenario, World, ids, run_once, saved_positions

from penstock.engine.specs.plan import SyncOutcome
from penstock.errors import PenstockError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.state import StateType
from penstock.store.contract import Holder, Lease
from penstock.store.remembered import Remembered, asked
from penstock.tables.contract import TableAhead, TableBehind

APPEND, DEDUP, OVERWRITE = (
    DestinationSyncMode.append,
    DestinationSyncMode.append_dedup,
    DestinationSyncMode.overwrite,
)
A, B = StreamId(None, "a"), StreamId(None, "b")
SCENARIOS = {
    "append-stream": Scenario(mode=APPEND),
    "append-global": Scenario(mode=APPEND, state=StateType.global_),
    "append-at-the-end": Scenario(mode=APPEND, load_while_reading=False, quantum=100),
    "dedup-stream": Scenario(mode=DEDUP),
    "dedup-held": Scenario(mode=DEDUP, held=True),
}


def rows(count: int) -> dict[str, list[tuple[int, int]]]:
    return {"a": [(n, 1) for n in range(count)], "b": [(n, 1) for n in range(count)]}


def reading(scenario: Scenario, count: int) -> Scenario:
    return replace(scenario, records=rows(count))


def home_of(world: World) -> World:
    """A copy of the home (store and log); the tables stay the one place they are."""
    other = World()
    other.store._all = copy.deepcopy(world.store._all)  # pyright: ignore[reportPrivateUsage]
    other.log.claims = dict(world.log.claims)
    other.log.parts = dict(world.log.parts)
    other.log.manifests = list(world.log.manifests)
    other.log.runs_of_sources = {}
    other.tables = world.tables
    other.loads = dict(world.loads)
    other.clock = world.clock
    return other


def run(world: World, scenario: Scenario) -> SyncOutcome:
    return run_once(world, scenario, take_over=True)


def taken(world: World) -> Lease:
    holder = Holder(name="user", pid=0, boot="", started_at="", run="state")
    return world.store.acquire("sim", holder, 100.0, world.store.lock("sim"))


def adopt(world: World, *streams: StreamId) -> None:
    lease = taken(world)
    world.store.adopt(lease, streams or (A, B))
    world.store.release(lease)


def check_true(world: World, scenario: Scenario) -> None:
    """L1: what the states claim is in the tables."""
    for stream, at in saved_positions(world).items():
        have = {key for key, _ in ids(world, stream)}
        assert have >= {key for key, _ in scenario.records[stream][:at]}, (stream, at, have)


@pytest.mark.parametrize("name", SCENARIOS)
def test_L3_a_restored_home_is_told_and_marks_nothing(name: str) -> None:
    """Run 4 rows, copy, run to 6, put the copy back, run to 10: nothing may be lost in silence."""
    scenario = SCENARIOS[name]
    world = World()
    assert not run(world, reading(scenario, 4)).errors
    restored = home_of(world)
    assert not run(world, reading(scenario, 6)).errors
    before = saved_positions(restored)
    full = reading(scenario, 10)
    for _ in range(2):
        outcome = run(restored, full)
        assert outcome.errors and all(isinstance(e, TableAhead) for e in outcome.errors)
        assert all(e.exit_code == 6 and "adopt sim" in (e.hint or "") for e in outcome.errors)
        assert not outcome.complete
        assert saved_positions(restored) == before
        check_true(restored, full)
    adopt(restored)
    assert not run(restored, full).errors
    for stream in ("a", "b"):
        have = ids(restored, stream)
        if scenario.mode is DEDUP:
            assert have == full.records[stream]
        else:  # rows between the two homes come twice
            assert set(have) == set(full.records[stream])
            assert len(have) == 12
    assert not run(restored, reading(scenario, 12)).errors
    assert set(ids(restored, "a")) == set(rows(12)["a"])
    # and now the first home is the one that was left behind
    assert any(isinstance(e, TableAhead) for e in run(world, reading(scenario, 14)).errors)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.dear
def test_L3_a_home_copied_at_any_step_loses_nothing(name: str) -> None:
    """The home is stopped and copied at each step; the first goes on, then the copy runs: it either
    says that it is one, or what its states claim is there. Adopted, it has every row."""
    scenario = reading(SCENARIOS[name], 3)
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        world.arm(Fault(at))
        with pytest.raises(Crash):
            run(world, scenario)
        world.arm(None)
        if "sim" not in world.store.pipelines():
            continue  # the copy's state would be born by itself: another pipeline
        other = home_of(world)
        assert not run(world, reading(scenario, 5)).errors
        assert set(ids(world, "a")) == set(rows(5)["a"])
        full = reading(scenario, 7)
        outcome = run(other, full)
        assert outcome.errors and all(isinstance(e, TableAhead) for e in outcome.errors), (name, at)
        check_true(other, full)
        adopt(other)
        again = run(other, full)
        assert not again.errors, (name, at, again.errors)
        for stream in ("a", "b"):
            assert set(ids(other, stream)) == set(full.records[stream]), (name, at)
            if scenario.mode is DEDUP:
                assert ids(other, stream) == full.records[stream], (name, at)


@pytest.mark.parametrize("name", ["append-stream", "dedup-stream"])
@pytest.mark.dear
def test_L3_two_homes_with_the_same_open_number_are_told_apart(name: str) -> None:
    """Both are copies; each writes down the next number, one commits it, the other repeats its
    own: the number alone would pass for a repetition."""
    scenario = SCENARIOS[name]
    steps = count_steps(reading(scenario, 4))
    told = 0
    for at in range(1, steps + 1):
        world = World()
        run(world, reading(scenario, 2))
        other = home_of(world)
        other.arm(Fault(at))
        with suppress(Crash):
            run(other, reading(scenario, 4))
        other.arm(None)
        outcome = run(world, reading(scenario, 5))
        full = reading(scenario, 6)
        second = run(other, full)
        told += bool(outcome.errors or second.errors)
        for home in (world, other):
            check_true(home, full)
            adopt(home)
            assert not run(home, full).errors
            assert set(ids(home, "a")) == set(full.records["a"])
    assert told == steps


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("lost", ["deleted", "rolled back"])
def test_L3_a_table_that_lacks_loads_is_noticed(name: str, lost: str) -> None:
    scenario = SCENARIOS[name]
    world = World()
    run(world, reading(scenario, 2))
    earlier = copy.deepcopy(world.tables[A])
    run(world, reading(scenario, 4))
    before = saved_positions(world)
    if lost == "deleted":
        del world.tables[A]
    else:
        world.tables[A] = earlier
    outcome = run(world, reading(scenario, 6))
    (error,) = outcome.errors
    assert (
        isinstance(error, TableBehind)
        and error.exit_code == 5
        and "--recreate" in (error.hint or "")
    )
    assert saved_positions(world)["a"] == before["a"]
    # taken as it is: only what is new comes
    kept = home_of(world)
    kept.tables = copy.deepcopy(world.tables)
    adopt(kept, A)
    assert not run(kept, reading(scenario, 6)).errors
    assert set(ids(kept, "a")) == set(rows(6)["a"]) - set(rows(4)["a"]) | set(
        () if lost == "deleted" else rows(2)["a"]
    )
    # made anew: every row, once
    recreate(world)
    assert not run(world, reading(scenario, 6)).errors
    assert ids(world, "a") == rows(6)["a"]


def recreate(world: World) -> None:
    """As ``run --recreate``."""
    lease = taken(world)
    world.store.adopt(lease, [A, B])
    refresh = asked("r", "", world.store.last_epoch("sim"), None)
    world.store.remember(lease, Remembered(refresh={A: refresh, B: refresh}))
    world.store.release(lease)


@pytest.mark.parametrize("name", ["append-stream", "append-global", "dedup-stream"])
@pytest.mark.dear
def test_L3_making_tables_anew_survives_a_crash_at_any_step(name: str) -> None:
    scenario = reading(SCENARIOS[name], 3)
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        run(world, reading(scenario, 2))
        recreate(world)
        world.arm(Fault(at))
        with suppress(Crash):
            run(world, scenario)
        world.arm(None)
        assert not run(world, scenario).errors
        assert ids(world, "a") == scenario.records["a"], (name, at)


def test_L3_a_deleted_table_that_is_replaced_anyway_is_no_fault() -> None:
    scenario = Scenario(mode=OVERWRITE, sync_mode=SyncMode.full_refresh, records=rows(3))
    world = World()
    run(world, scenario)
    del world.tables[A]
    assert not run(world, scenario).errors
    assert ids(world, "a") == rows(3)["a"]


def test_L3_after_a_reset_the_table_may_be_gone() -> None:
    world = World()
    scenario = SCENARIOS["append-stream"]
    run(world, reading(scenario, 3))
    world.tables.clear()
    lease = taken(world)
    world.store.replace_states(lease, [])
    world.store.release(lease)
    assert not run(world, reading(scenario, 3)).errors
    assert ids(world, "a") == rows(3)["a"]


def test_errors_are_told_apart() -> None:
    assert issubclass(TableAhead, PenstockError) and not issubclass(TableAhead, TableBehind)
