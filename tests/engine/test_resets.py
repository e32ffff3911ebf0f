"""L1, L3, L6: what a reset, a changed pipeline or a damaged part may never do: lose or double."""

from contextlib import suppress
from dataclasses import replace

import pytest
from simulation import Crash, Fault, Scenario, World, ids, run_once, saved_positions
from test_crashes import RECORDS, _lease, check_exact, expected, without_a

from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.state import StateType
from penstock.store.contract import Reset

pytestmark = pytest.mark.dear

A, B = StreamId(None, "a"), StreamId(None, "b")
OVERWRITE, APPEND = DestinationSyncMode.overwrite, DestinationSyncMode.append


def steps(scenario: Scenario) -> int:
    world = World()
    run_once(world, scenario)
    return world.steps


def crash(world: World, scenario: Scenario, at: int) -> None:
    world.arm(Fault(at))
    with suppress(Crash):
        run_once(world, scenario, take_over=True)
    world.arm(None)


@pytest.mark.parametrize("state", [StateType.stream, StateType.global_])
@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize(
    "kind", [{"sync_mode": SyncMode.full_refresh, "resumable": True}, {}], ids=["resumable", "incr"]
)
def test_L6_a_reset_generation_begins_anew(
    state: StateType, everything: bool, kind: dict[str, object]
) -> None:
    scenario = Scenario(mode=OVERWRITE, state=state, records=RECORDS, **kind)  # type: ignore[arg-type]
    for at in range(1, steps(scenario) + 1):
        world = World()
        crash(world, scenario, at)
        lease = _lease(world)
        if everything:
            world.store.replace_states(lease, [])
        else:
            left = without_a(world.store.states("sim"))
            world.store.replace_states(lease, left, Reset((A,), without_a))
        world.store.release(lease)
        run_once(world, scenario, take_over=True)
        assert ids(world, "a") == expected(scenario, "a"), at


def test_L1_a_generation_given_up_takes_its_shared_state_back() -> None:
    """A GLOBAL state speaks for rows that wait; the pipeline changes; the next source dies."""
    waiting = Scenario(
        mode=OVERWRITE, state=StateType.global_, records=RECORDS, load_while_reading=False
    )
    append = replace(waiting, mode=APPEND)
    for at in range(1, steps(waiting) + 1):
        world = World()
        crash(world, waiting, at)
        before = ids(world, "a")
        run_once(world, replace(append, fail_after=1), take_over=True)
        run_once(world, append, take_over=True)
        have = ids(world, "a")
        assert set(have) >= set(expected(append, "a")), (at, before, have)


def test_L1_a_stream_that_left_the_pipeline_takes_its_state_back() -> None:
    scenario = Scenario(mode=OVERWRITE, state=StateType.global_, records=RECORDS)
    only_b = replace(scenario, records={"b": RECORDS["b"]})
    for at in range(1, steps(scenario) + 1):
        world = World()
        crash(world, scenario, at)
        run_once(world, only_b, take_over=True)
        published = bool(ids(world, "a"))
        run_once(world, scenario, take_over=True)
        assert ids(world, "a") in ([expected(scenario, "a"), []] if published else [
            expected(scenario, "a")
        ]), at  # fmt: skip


def test_L1_a_reset_holds_though_the_next_run_leaves_the_stream_out() -> None:
    scenario = Scenario(mode=APPEND, state=StateType.global_, records=RECORDS)
    for at in range(1, steps(scenario) + 1):
        world = World()
        crash(world, scenario, at)
        lease = _lease(world)
        left = without_a(world.store.states("sim"))
        world.store.replace_states(lease, left, Reset((A,), without_a))
        world.store.release(lease)
        only_b = replace(scenario, records={"b": RECORDS["b"]})
        run_once(world, only_b, take_over=True)
        assert saved_positions(world).get("a", 0) == 0, at


def test_L3_a_damaged_part_blocks_its_stream_and_is_never_written_down() -> None:
    scenario = Scenario(mode=APPEND, records=RECORDS, load_while_reading=False)
    world = World()
    crash(world, scenario, _step_of(scenario, "store.intend.before"))
    path = next(p.path for s in world.log.segments() for x in s.slices if x.stream == A
                for p in x.parts)  # fmt: skip
    rows = world.log.parts.pop(path)
    outcome = run_once(world, scenario, take_over=True)
    assert outcome.errors[0].code == "log.corrupt"
    assert ids(world, "a") == [] and ids(world, "b") == expected(scenario, "b")
    assert not world.store.open_groups("sim")
    world.log.parts[path] = rows
    assert not run_once(world, scenario, take_over=True).errors
    check_exact(world, scenario, "restored")


def test_L3_a_whole_reset_gives_up_what_was_written_down() -> None:
    """The way out of a load whose part is gone for good."""
    scenario = Scenario(mode=APPEND, records=RECORDS, load_while_reading=False)
    world = World()
    crash(world, scenario, _step_of(scenario, "store.intend.after"))
    world.log.parts.clear()
    assert run_once(world, scenario, take_over=True).errors
    lease = _lease(world)
    world.store.replace_states(lease, [])
    world.store.release(lease)
    assert not run_once(world, scenario, take_over=True).errors
    check_exact(world, scenario, "reset")


def _step_of(scenario: Scenario, name: str) -> int:
    world = World()
    run_once(world, scenario)
    return world.names.index(name) + 1
