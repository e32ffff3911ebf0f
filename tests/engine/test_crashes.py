"""L1-L7, L12 by exhaustion: a whole sync in memory, stopped at every step and every pair of steps,
as many a day as ``schedules`` says.

After each schedule one more run without a fault must leave the tables exactly as if nothing had
ever gone wrong, and at no moment may a saved state be ahead of its table.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from schedules import pairs, singles
from simulation import Crash, Fault, Scenario, World, ids, run_once, saved_positions

from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.state import StateType, StoredState
from penstock.protocols.airbyte.package import PACKAGE
from penstock.store.contract import Holder, Reset

pytestmark = pytest.mark.dear

APPEND, OVERWRITE, DEDUP = (
    DestinationSyncMode.append,
    DestinationSyncMode.overwrite,
    DestinationSyncMode.append_dedup,
)
RECORDS = {
    "a": [(1, 1), (2, 1), (1, 2), (3, 1), (2, 0)],
    "b": [(7, 1), (8, 1), (7, 3)],
}

FEW_RECORDS = {"a": [(1, 1), (2, 1), (1, 2)], "b": [(7, 1), (7, 3)]}

SCENARIOS = {
    "append-stream": Scenario(mode=APPEND),
    "append-stream-two-lanes": Scenario(mode=APPEND, lanes=2),
    "append-stream-two-lanes-quick": Scenario(mode=APPEND, lanes=2, quantum=4),
    "append-global": Scenario(mode=APPEND, state=StateType.global_),
    "append-global-every-record": Scenario(mode=APPEND, state=StateType.global_, every=1),
    "append-stream-at-the-end": Scenario(mode=APPEND, load_while_reading=False, quantum=100),
    "dedup-stream": Scenario(mode=DEDUP),
    "dedup-global": Scenario(mode=DEDUP, state=StateType.global_),
    "dedup-two-lanes": Scenario(mode=DEDUP, lanes=2, quantum=2),
    "overwrite-stream": Scenario(mode=OVERWRITE, sync_mode=SyncMode.full_refresh),
    "overwrite-resumable": Scenario(
        mode=OVERWRITE, sync_mode=SyncMode.full_refresh, resumable=True
    ),
    "overwrite-global": Scenario(
        mode=OVERWRITE, sync_mode=SyncMode.full_refresh, state=StateType.global_
    ),
    "overwrite-two-lanes": Scenario(
        mode=OVERWRITE, sync_mode=SyncMode.full_refresh, lanes=2, quantum=2
    ),
    "overwrite-no-status": Scenario(
        mode=OVERWRITE, sync_mode=SyncMode.full_refresh, statuses=False
    ),
    "full-refresh-append": Scenario(mode=APPEND, sync_mode=SyncMode.full_refresh),
    "overwrite-shards": Scenario(
        mode=OVERWRITE, sync_mode=SyncMode.full_refresh, lanes=2, shards=2
    ),
    "append-shards-quick": Scenario(
        mode=APPEND, sync_mode=SyncMode.full_refresh, lanes=2, shards=2, quantum=3
    ),
    "append-held": Scenario(mode=APPEND, held=True),
    "append-held-two-lanes": Scenario(mode=APPEND, held=True, lanes=2, quantum=2),
    "append-held-global": Scenario(mode=APPEND, held=True, state=StateType.global_),
    "append-held-legacy": Scenario(mode=APPEND, held=True, state=StateType.legacy, every=1),
    "refresh-held": Scenario(
        mode=APPEND, held=True, sync_mode=SyncMode.full_refresh, state=StateType.global_
    ),
    "incremental-overwrite": Scenario(mode=OVERWRITE),
}
for scenario in SCENARIOS.values():
    scenario.records = RECORDS
MANY = ("overwrite-stream",)
"""Scenarios of which a fifth of the pairs of steps is tried; of the others so many
(``schedules.pairs``)."""
PAIRS = 25


def count_steps(scenario: Scenario) -> int:
    world = World()
    run_once(world, scenario)
    return world.steps


def run_faulty(world: World, scenario: Scenario, fault: Fault | None) -> None:
    world.arm(fault)
    world.on_takeover = lambda: run_once(world, scenario, take_over=True)
    try:
        run_once(world, scenario, take_over=True)
    except Crash:
        pass
    except Exception as e:  # a driver that lost its lease stops with LeaseLost, never silently
        assert getattr(e, "code", "") == "state.lease_lost", repr(e)
        assert fault is not None and fault.kind == "takeover"
    world.arm(None)


def expected(scenario: Scenario, stream: str) -> list[tuple[int, int]]:
    rows = [*scenario.records[stream]]
    if scenario.mode is DEDUP:
        best: dict[int, int] = {}
        for key, version in rows:
            best[key] = max(version, best.get(key, version))
        return sorted(best.items())
    return sorted(rows)


def check_states_never_ahead(world: World, scenario: Scenario, schedule: object) -> None:
    """L1: whatever a saved state claims is in the table."""
    for stream, at in saved_positions(world).items():
        if scenario.sync_mode is SyncMode.full_refresh and scenario.state is StateType.global_:
            continue  # a full refresh starts without state: what it holds for one claims nothing
        have = ids(world, stream)
        for key, version in scenario.records[stream][:at]:
            found = [v for k, v in have if k == key]
            assert found and max(found) >= version, (schedule, stream, at, have)


def check_exact(world: World, scenario: Scenario, schedule: object) -> None:
    for stream in scenario.records:
        have, want = ids(world, stream), expected(scenario, stream)
        if scenario.sync_mode is SyncMode.full_refresh and scenario.mode is APPEND:
            copies = len(have) // len(want)
            assert copies and have == sorted(want * copies), (schedule, stream, have)
        else:
            assert have == want, (schedule, stream, have)
    for epoch, runs in world.log.runs_of_sources.items():
        assert runs == 1, (schedule, epoch)  # L4


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", ["crash", "lost", "takeover"])
def test_L1_L7_every_single_step(name: str, kind: str) -> None:
    scenario = SCENARIOS[name]
    steps = count_steps(scenario)
    assert steps > 10
    for at in singles(steps, (name, kind)):
        world = World()
        run_faulty(world, scenario, Fault(at, kind))
        check_states_never_ahead(world, scenario, (name, kind, at))
        run_faulty(world, scenario, None)
        check_exact(world, scenario, (name, kind, at))


@pytest.mark.parametrize("name", SCENARIOS)
def test_L1_L7_every_pair_of_steps(name: str) -> None:
    scenario = replace(SCENARIOS[name], records=FEW_RECORDS)
    steps = count_steps(scenario)
    for first, second in pairs(steps, steps * steps // 5 if name in MANY else PAIRS, name):
        world = World()
        run_faulty(world, scenario, Fault(first))
        run_faulty(world, scenario, Fault(second))
        check_states_never_ahead(world, scenario, (name, first, second))
        run_faulty(world, scenario, None)
        check_exact(world, scenario, (name, first, second))


@pytest.mark.parametrize("name", ["append-stream", "append-global", "dedup-stream"])
def test_L3_numbers_never_restart_after_a_reset(name: str) -> None:
    """A reset between crashes: rows are read again, none is lost (Delta would skip a lower number
    without a word)."""
    scenario = SCENARIOS[name]
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        run_faulty(world, scenario, Fault(at))
        lease = _lease(world)
        left = without_a(world.store.states("sim"))
        world.store.replace_states(lease, left, Reset((StreamId(None, "a"),), without_a))
        world.store.release(lease)
        run_faulty(world, scenario, None)
        have = ids(world, "a")
        assert set(have) >= set(expected(scenario, "a")), (name, at, have)
        if scenario.mode is DEDUP:
            assert have == expected(scenario, "a")
        assert ids(world, "b") == expected(scenario, "b")


@pytest.mark.parametrize("name", SCENARIOS)
def test_L3_a_refused_load_is_repeated_by_the_next_run(name: str) -> None:
    """The table refuses one load, each in turn: its rows stay in the log, no state passes them."""
    scenario = SCENARIOS[name]
    whole = World()
    run_once(whole, scenario)
    for at in range(1, whole.commits + 1):
        world = World()
        world.refuse_at = at
        outcome = run_once(world, scenario)
        assert outcome.errors, (name, at)
        check_states_never_ahead(world, scenario, (name, at))
        assert not run_once(world, scenario).errors
        check_exact(world, scenario, (name, at))


def without_a(states: Sequence[StoredState]) -> list[StoredState]:
    return PACKAGE.state.without(states, [StreamId(None, "a")])


def _lease(world: World):
    holder = Holder(name="user", pid=0, boot="", started_at="", run="reset")
    return world.store.acquire("sim", holder, 100.0, world.store.lock("sim"))


def test_L3_a_second_home_is_never_skipped() -> None:
    """Two stores, one table: the second one's loads begin at number 1 and must all arrive."""
    first, second = World(), World()
    second.tables = first.tables
    scenario = SCENARIOS["append-stream"]
    run_once(first, scenario)
    run_once(second, scenario)
    assert ids(first, "a") == sorted(RECORDS["a"] * 2)


@pytest.mark.parametrize("state", [StateType.stream, StateType.global_])
def test_L2_a_failed_source_keeps_what_a_state_covers(state: StateType) -> None:
    """The source exits 1 after n records, for every n; then it is whole again."""
    for n in range(8):
        for quantum in (1, 3, 100):
            world = World()
            broken = Scenario(
                mode=APPEND, state=state, records=RECORDS, fail_after=n, quantum=quantum
            )
            outcome = run_once(world, broken)
            assert StreamId(None, "a") not in outcome.complete
            check_states_never_ahead(world, broken, n)
            whole = Scenario(mode=APPEND, state=state, records=RECORDS)
            assert run_once(world, whole).complete == {StreamId(None, s) for s in RECORDS}
            check_exact(world, whole, (state, n, quantum))


def test_L6_a_dead_source_never_empties_a_table() -> None:
    world = World()
    whole = SCENARIOS["overwrite-stream"]
    run_once(world, whole)
    before = ids(world, "a")
    for n in range(8):
        broken = Scenario(
            mode=OVERWRITE, sync_mode=SyncMode.full_refresh, records=RECORDS, fail_after=n
        )
        run_once(world, broken)
        assert ids(world, "a") == before


def test_L6_a_stream_of_increments_that_overwrites_begins_anew_each_time() -> None:
    """Issue 9, A3: a second sync that was given the first one's state would leave its increment."""
    scenario = SCENARIOS["incremental-overwrite"]
    for state in StateType:
        again = Scenario(mode=OVERWRITE, state=state, records=RECORDS)
        world = World()
        for turn in range(3):
            run_once(world, again)
            check_exact(world, again, (state, turn))
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        run_faulty(world, scenario, Fault(at))
        for turn in range(2):
            run_once(world, scenario, take_over=True)
            check_exact(world, scenario, (at, turn))


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n.startswith("append-held")])
def test_L4_what_loads_once_does_so_when_a_lane_is_lost(name: str) -> None:
    """A query over a whole stream sees all rows of the sync (issue 5, part 12): one load."""
    scenario = SCENARIOS[name]
    lost = 0
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        world.arm(Fault(at, "lost"))
        try:
            outcome = run_once(world, scenario)
        except Crash:
            continue  # no lane's step
        lost += len(world.log.runs_of_sources) > scenario.lanes
        assert not outcome.errors and outcome.complete == {StreamId(None, s) for s in RECORDS}
        assert [len([k for k, _ in world.loads if k == key]) for key, _ in world.loads] == [1, 1]
        check_exact(world, scenario, (name, at))
    assert lost > 3


@pytest.mark.parametrize("name", ["overwrite-shards", "append-shards-quick"])
def test_L4_L6_a_lost_shard_is_read_again_and_no_other(name: str) -> None:
    """In the same run, into the generation that the others fill."""
    scenario = SCENARIOS[name]
    lost = 0
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        world.arm(Fault(at, "lost"))
        try:
            outcome = run_once(world, scenario)
        except Crash:
            continue  # no lane's step
        lost += 1
        assert not outcome.errors and outcome.complete == {StreamId(None, s) for s in RECORDS}
        assert len(world.log.runs_of_sources) <= scenario.lanes + 1, at
        check_exact(world, scenario, (name, at))
        for stream in RECORDS:
            assert ids(world, stream) == expected(scenario, stream), (name, at)
    assert lost > 5


def test_L8_a_run_again_brings_only_what_is_new() -> None:
    scenario = Scenario(mode=APPEND, records={k: list(v) for k, v in RECORDS.items()})
    world = World()
    run_once(world, scenario)
    scenario.records["a"].append((9, 9))
    run_once(world, scenario)
    assert ids(world, "a") == sorted([*RECORDS["a"], (9, 9)])


def test_L7_a_finished_stream_keeps_its_result_when_the_source_then_fails() -> None:
    """b is COMPLETE before the source dies in a."""
    world = World()
    scenario = Scenario(mode=APPEND, records=RECORDS, fail_after=7)
    outcome = run_once(world, scenario)
    assert outcome.complete == {StreamId(None, "b")}
    assert ids(world, "b") == sorted(RECORDS["b"])
