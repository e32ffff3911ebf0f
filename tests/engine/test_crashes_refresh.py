"""L1, L6: a refresh of an incremental stream (``--recreate``), stopped at every durable write.

The old rows and the old state of the stream stay until the source has read it to its end; then one
commit replaces the rows, and the state follows it. Runs that are not told of the refresh go on with
it. Other streams of the source lose nothing, and nothing of them comes twice.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from simulation import Crash, Fault, Scenario, Tally, World, ids, run_once, saved_positions

from penstock.errors import PenstockError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.state import StateType
from penstock.store.contract import Holder, Lease
from penstock.store.remembered import Remembered, asked
from penstock.store.rules import LoadNumbers

pytestmark = pytest.mark.dear

A, B = StreamId(None, "a"), StreamId(None, "b")
APPEND, DEDUP = DestinationSyncMode.append, DestinationSyncMode.append_dedup

OLD = [(1, 1), (2, 1), (3, 1)]
NEW = [(1, 2), (2, 1), (4, 1), (5, 1), (6, 1), (7, 1)]  # 3 is gone at the source
B_OLD, B_NEW = [(7, 1), (8, 1)], [(7, 1), (8, 1), (9, 1), (10, 1)]

KINDS = {
    "append": Scenario(mode=APPEND),
    "append-at-the-end": Scenario(mode=APPEND, load_while_reading=False, quantum=100),
    "append-two-lanes": Scenario(mode=APPEND, lanes=2),
    "append-no-status": Scenario(mode=APPEND, statuses=False),
    "upsert": Scenario(mode=DEDUP),
    "upsert-held": Scenario(mode=DEDUP, held=True),
    "append-global": Scenario(mode=APPEND, state=StateType.global_, every=1),
    "upsert-global": Scenario(mode=DEDUP, state=StateType.global_),
    "append-singer": Scenario(mode=APPEND, state=StateType.legacy, every=1, statuses=False),
    "upsert-singer": Scenario(mode=DEDUP, state=StateType.legacy, statuses=False),
    "append-global-position": Scenario(
        mode=APPEND, state=StateType.global_, every=1, position=True
    ),
    "append-singer-position": Scenario(
        mode=APPEND, state=StateType.legacy, every=1, statuses=False, position=True
    ),
}
NAMES = pytest.mark.parametrize("name", KINDS)


def lease_of(world: World) -> Lease:
    holder = Holder(name="user", pid=0, boot="", started_at="", run="r")
    return world.store.acquire("sim", holder, 100.0, world.store.lock("sim"))


def ask(world: World, *streams: StreamId) -> None:
    """As ``run --recreate`` does before it reads."""
    lease = lease_of(world)
    world.store.adopt(lease, streams)
    before = world.store.remembered("sim").refresh
    last = world.store.last_epoch("sim")
    wanted = {s: asked("r", "", last, before.get(s)) for s in streams}
    world.store.remember(lease, Remembered(refresh=wanted))
    world.store.release(lease)


def cancel(world: World) -> bool:
    """As ``state reset --cancel-refresh``; whether one was pending."""
    pending = world.store.remembered("sim").pending_refreshes
    lease = lease_of(world)
    last = world.store.last_epoch("sim")
    ended = {s: refresh.ended(last, cancelled=True) for s, refresh in pending.items()}
    world.store.remember(lease, Remembered(refresh=ended))
    world.store.release(lease)
    return bool(pending)


def begun(name: str) -> tuple[World, Scenario]:
    """A world whose source has other rows than its tables, and a refresh of ``a`` asked for."""
    world, kind = World(), KINDS[name]
    assert not run_once(world, replace(kind, records={"a": OLD, "b": B_OLD})).errors
    assert ids(world, "a") == OLD and saved_positions(world) == {"a": 3, "b": 2}
    ask(world, A)
    return world, replace(kind, records={"a": NEW, "b": B_NEW})


def play(world: World, scenario: Scenario, fault: Fault | None) -> None:
    world.arm(fault)
    world.on_takeover = lambda: run_once(world, scenario, take_over=True)
    try:
        run_once(world, scenario, take_over=True)
    except Crash:
        pass
    except PenstockError as e:
        assert e.code == "state.lease_lost", repr(e)
    world.arm(None)


def check(world: World, at: object) -> None:
    """Old rows, or all new ones; and no state says of the stream what its table does not have."""
    have, saved = ids(world, "a"), saved_positions(world)
    assert have in (sorted(OLD), sorted(NEW)), (at, have)
    claimed = [3] if have == sorted(OLD) else [3, len(NEW)]
    assert saved["a"] in claimed, (at, have, saved)
    assert len(ids(world, "b")) >= saved["b"], at


def whole(world: World, at: object) -> None:
    assert ids(world, "a") == sorted(NEW), (at, ids(world, "a"))
    assert ids(world, "b") == sorted(B_NEW), (at, ids(world, "b"))
    assert saved_positions(world) == {"a": len(NEW), "b": len(B_NEW)}, at
    assert not world.store.remembered("sim").pending_refreshes, at


def steps(name: str) -> Iterator[int]:
    world, scenario = begun(name)
    world.arm(None)
    run_once(world, scenario)
    whole(world, name)
    return iter(range(1, world.steps + 1))


@NAMES
@pytest.mark.parametrize("kind", ["crash", "lost", "takeover"])
def test_L6_old_rows_and_state_stay_until_the_refresh_is_whole(name: str, kind: str) -> None:
    for at in steps(name):
        world, scenario = begun(name)
        play(world, scenario, Fault(at, kind))
        check(world, (name, kind, at))
        play(world, scenario, None)
        whole(world, (name, kind, at))
        play(world, scenario, None)
        whole(world, (name, kind, at, "again"))


@NAMES
def test_L6_a_refresh_may_fail_several_times(name: str) -> None:
    """The source dies after each number of records, twice, and the program at a write of the second
    run."""
    for after in range(len(NEW) + len(B_NEW)):
        for at in (None, 5, 11, 17):
            world, scenario = begun(name)
            failing = replace(scenario, fail_after=after)
            run_once(world, failing)
            check(world, (name, after))
            play(world, failing, None if at is None else Fault(at))
            check(world, (name, after, at))
            play(world, scenario, None)
            whole(world, (name, after, at))


@NAMES
def test_L6_a_cancelled_refresh_leaves_rows_and_state(name: str) -> None:
    """What was read for it never reaches the table, and the stream goes on from its old state."""
    for at in steps(name):
        world, scenario = begun(name)
        play(world, scenario, Fault(at))
        pending = cancel(world)
        play(world, scenario, None)
        if not pending:
            whole(world, (name, at))
            continue
        rows = [*OLD, *NEW[3:]]
        assert ids(world, "a") == sorted(rows), (name, at, ids(world, "a"))
        assert ids(world, "b") == sorted(B_NEW), (name, at, ids(world, "b"))
        assert saved_positions(world) == {"a": len(NEW), "b": len(B_NEW)}


@NAMES
def test_L6_a_refresh_that_is_asked_for_again_begins_again(name: str) -> None:
    for at in steps(name):
        world, scenario = begun(name)
        play(world, scenario, Fault(at))
        ask(world, A)
        check(world, (name, at))
        newer = replace(scenario, records={"a": [(1, 3), (9, 1)], "b": B_NEW})
        play(world, newer, None)
        assert ids(world, "a") == [(1, 3), (9, 1)], (name, at)
        assert ids(world, "b") == sorted(B_NEW), (name, at)
        assert saved_positions(world) == {"a": 2, "b": len(B_NEW)}


@NAMES
def test_L6_two_streams_are_refreshed_at_once(name: str) -> None:
    world, _ = begun(name)
    ask(world, B)
    world.arm(None)
    scenario = replace(KINDS[name], records={"a": NEW, "b": B_NEW})
    run_once(world, scenario)
    for at in range(1, world.steps + 1, 2):
        world, _ = begun(name)
        ask(world, B)
        play(world, scenario, Fault(at))
        assert ids(world, "a") in (sorted(OLD), sorted(NEW)), (name, at)
        assert ids(world, "b") in (sorted(B_OLD), sorted(B_NEW)), (name, at)
        play(world, scenario, None)
        whole(world, (name, at))


def test_L6_a_refresh_goes_on_from_its_last_sealed_state() -> None:
    for name in ("append", "append-global", "append-singer"):
        world, scenario = begun(name)
        run_once(world, replace(scenario, fail_after=7))
        tally = Tally()
        run_once(world, scenario, tally=tally)
        (start,) = tally.lanes
        assert '"at": 0' not in str(start.states) and '"at": 3' not in str(start.states), name
        whole(world, name)


@pytest.mark.parametrize("name", ["append", "append-global", "append-singer"])
def test_L7_other_streams_advance_while_a_refresh_waits(name: str) -> None:
    world, scenario = begun(name)
    failing = replace(scenario, fail_after=5)
    run_once(world, failing)
    assert saved_positions(world) == {"a": 3, "b": 2 + 2}
    assert ids(world, "b") == sorted(B_NEW) and ids(world, "a") == sorted(OLD)


@NAMES
def test_L6_a_stream_that_is_empty_at_the_source_is_empty_after_its_refresh(name: str) -> None:
    world, scenario = begun(name)
    run_once(world, replace(scenario, records={"a": [], "b": B_NEW}))
    assert ids(world, "a") == []
    assert ids(world, "b") == sorted(B_NEW)


@NAMES
def test_L1_a_state_of_rows_that_are_gone_is_gone_with_them(name: str) -> None:
    """A refresh without a state: the old one, of other rows, would skip rows of the next runs."""
    world, scenario = begun(name)
    run_once(world, replace(scenario, no_states=True))
    assert ids(world, "a") == sorted(NEW)
    assert "a" not in saved_positions(world)


@NAMES
def test_L3_a_home_in_which_an_older_program_was_replacing_goes_on(name: str) -> None:
    """It had forgotten the state and marked that the first load replaces the rows; or that load was
    made."""
    kind = KINDS[name]
    for loaded in (False, True):
        world = World()
        run_once(world, replace(kind, records={"a": OLD, "b": B_OLD}))
        lease = lease_of(world)
        role = kind.states
        left = role.without(world.store.states("sim"), [A])
        world.store.replace_states(lease, left)
        world.store.adopt(lease, [A])
        numbers = world.store._all["sim"].numbers  # pyright: ignore[reportPrivateUsage]
        was = numbers[A.key]
        numbers[A.key] = LoadNumbers(was.last, was.table, adopts=True, anew=True)
        world.store.release(lease)
        scenario = replace(kind, records={"a": NEW, "b": B_NEW})
        if loaded:
            run_once(world, replace(scenario, fail_after=5))
        run_once(world, scenario)
        whole(world, (name, loaded))


@pytest.mark.parametrize("name", ["append", "append-global", "append-singer"])
def test_L6_a_run_of_other_streams_leaves_what_a_refresh_has_sealed(name: str) -> None:
    world, scenario = begun(name)
    run_once(world, replace(scenario, fail_after=7))
    for _ in range(2):
        run_once(world, replace(scenario, records={"b": B_NEW}))
        check(world, name)
    tally = Tally()
    run_once(world, scenario, tally=tally)
    assert '"at": 3' not in str(tally.lanes[0].states).replace('":3', '": 3'), name
    whole(world, name)
