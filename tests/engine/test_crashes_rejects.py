"""L8, L9, L1 by exhaustion: a source of which every new record is rejected, stopped at many steps.

Its table keeps its rows and its state stays before what was rejected, whatever is stopped when;
once the source is mended, one run leaves the tables as if nothing had ever been wrong.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from schedules import singles
from scripted import Act, Bad, Ver, rows_of
from simulation import Crash, Fault, Scenario, Tally, World, ids, run_once, saved_positions

from penstock.engine.specs.plan import SyncOutcome
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.rejected import MaxRejected
from penstock.model.state import StateType

APPEND, OVERWRITE, DEDUP = (
    DestinationSyncMode.append,
    DestinationSyncMode.overwrite,
    DestinationSyncMode.append_dedup,
)
A, B = StreamId(None, "a"), StreamId(None, "b")
FULL: dict[str, Any] = {"mode": OVERWRITE, "sync_mode": SyncMode.full_refresh}

SCENARIOS = {
    "append": Scenario(mode=APPEND),
    "append-every": Scenario(mode=APPEND, every=1, quantum=3),
    "append-at-the-end": Scenario(mode=APPEND, load_while_reading=False, quantum=100),
    "append-two-lanes": Scenario(mode=APPEND, lanes=2, quantum=2),
    "append-global": Scenario(mode=APPEND, state=StateType.global_, every=1),
    "append-legacy": Scenario(mode=APPEND, state=StateType.legacy, statuses=False),
    "append-held": Scenario(mode=APPEND, held=True),
    "append-held-global": Scenario(mode=APPEND, held=True, state=StateType.global_),
    "dedup": Scenario(mode=DEDUP),
    "dedup-global": Scenario(mode=DEDUP, state=StateType.global_, quantum=2),
    "overwrite": Scenario(**FULL),
    "overwrite-resumable": Scenario(**FULL, resumable=True, every=1),
    "overwrite-global": Scenario(**FULL, state=StateType.global_),
    "overwrite-two-lanes": Scenario(**FULL, lanes=2, quantum=2),
    "overwrite-no-status": Scenario(**FULL, statuses=False),
    "overwrite-shards": Scenario(**FULL, lanes=2, shards=2),
}
OLD = {"a": [(1, 1), (2, 1)], "b": [(7, 1), (8, 1)]}
NEW = {"a": [*OLD["a"], (3, 1), (4, 1), (5, 1)], "b": [*OLD["b"], (9, 1), (7, 2)]}
VERSIONS_OLD = {"a": [Ver(1), (1, 1), (2, 1), Act()], "b": [(7, 1), (8, 1)]}
VERSIONS_NEW = {
    "a": [*VERSIONS_OLD["a"], Ver(2), (3, 1), (4, 1), Act()],
    "b": [*VERSIONS_OLD["b"], (9, 1)],
}


def at(scenario: Scenario, records: dict[str, list[Any]]) -> Scenario:
    return replace(scenario, records=records)


def broken(scenario: Scenario, old: dict[str, list[Any]], new: dict[str, list[Any]]) -> Any:
    """Of ``a`` every new record is one that nobody can read; a full refresh has new ones only."""
    kept = 0 if scenario.sync_mode is SyncMode.full_refresh else len(old["a"])
    items = [Bad() if i >= kept and isinstance(r, tuple) else r for i, r in enumerate(new["a"])]
    return at(scenario, {**new, "a": items})


def run_faulty(world: World, scenario: Scenario, fault: Fault) -> None:
    world.arm(fault)
    world.on_takeover = lambda: run_once(world, scenario, take_over=True)
    try:
        run_once(world, scenario, take_over=True)
    except Crash:
        pass
    except Exception as e:
        assert getattr(e, "code", "") == "state.lease_lost" and fault.kind == "takeover", repr(e)
    world.arm(None)


def rows(records: Sequence[Any], mode: DestinationSyncMode) -> list[tuple[int, int]]:
    found = rows_of(records)
    return sorted(dict(found).items()) if mode is DEDUP else sorted(found)


def refused(outcome: SyncOutcome, stream: StreamId) -> bool:
    told = [e for e in outcome.errors if e.code == "source.rejected" and e.stream == str(stream)]
    return stream not in outcome.complete and outcome.failed[stream] in told


def before(scenario: Scenario, old: dict[str, list[Any]]) -> World:
    world = World()
    run_once(world, at(scenario, old))
    assert ids(world, "a") == rows(old["a"], scenario.mode)
    return world


def check(
    world: World, scenario: Scenario, old: dict[str, Any], new: dict[str, Any], told: object
) -> None:
    """The source is still broken; then it is mended."""
    bad = broken(scenario, old, new)
    tally = Tally()
    outcome = run_once(world, bad, take_over=True, tally=tally)
    assert refused(outcome, A), told
    assert tally.refusals[A] == len([r for r in bad.records["a"] if isinstance(r, Bad)]), told
    assert ids(world, "a") == rows(old["a"], scenario.mode), told
    if scenario.sync_mode is SyncMode.incremental:
        assert saved_positions(world).get("a", 0) <= len(old["a"]), told
    mended = run_once(world, at(scenario, new), take_over=True)
    assert mended.complete == {A, B} and not mended.errors, (told, mended)
    for name in ("a", "b"):
        assert ids(world, name) == rows(new[name], scenario.mode), (told, name)
    if "takeover" not in str(told):  # then the lane of the overtaken driver seals in vain
        assert not world.log.manifests, told


@pytest.mark.parametrize("name", SCENARIOS)
def test_l9_nothing_moves_where_every_record_was_rejected(name: str) -> None:
    scenario = SCENARIOS[name]
    check(before(scenario, OLD), scenario, OLD, NEW, name)


@pytest.mark.parametrize("kind", ["crash", "lost", "takeover"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_l9_nothing_moves_wherever_such_a_run_is_stopped(name: str, kind: str) -> None:
    scenario = SCENARIOS[name]
    bad = broken(scenario, OLD, NEW)
    world = before(scenario, OLD)
    world.arm(None)
    run_once(world, bad)
    for step in singles(world.steps, (name, kind)):
        world = before(scenario, OLD)
        run_faulty(world, bad, Fault(step, kind))
        assert ids(world, "a") == rows(OLD["a"], scenario.mode), (name, step, kind)
        check(world, scenario, OLD, NEW, (name, step, kind))


@pytest.mark.parametrize("kind", ["crash", "lost"])
def test_l9_a_version_of_which_nothing_was_taken_is_not_shown(kind: str) -> None:
    """Singer: ACTIVATE_VERSION behind records that nobody can read. The one state of the tap may
    speak for them: it is given up, and all is read again, under new versions as taps do it."""
    scenario = Scenario(mode=APPEND, state=StateType.legacy, statuses=False, renumber=True)
    bad = broken(scenario, VERSIONS_OLD, VERSIONS_NEW)
    world = before(scenario, VERSIONS_OLD)
    world.arm(None)
    assert refused(run_once(world, bad), A)
    for step in range(1, world.steps + 1):
        world = before(scenario, VERSIONS_OLD)
        run_faulty(world, bad, Fault(step, kind))
        run_once(world, bad, take_over=True)
        assert ids(world, "a") == [(1, 1), (2, 1)], step
        run_once(world, at(scenario, VERSIONS_NEW), take_over=True)
        assert ids(world, "a") == [(3, 1), (4, 1)], step


@pytest.mark.parametrize("kind", ["crash", "lost", "takeover"])
@pytest.mark.parametrize("name", ["append", "append-two-lanes", "append-global", "overwrite"])
def test_l8_rejects_within_the_limit_hold_nothing_up(name: str, kind: str) -> None:
    """Also where the first that come are over it: what follows decides."""
    limited = replace(SCENARIOS[name], max_rejected=MaxRejected(percent=50), quantum=2)
    items = [Bad(), Bad(), (1, 1), (2, 1), (3, 1)]
    scenario = at(limited, {"a": items, "b": [(7, 1)]})
    world = World()
    assert run_once(world, scenario).complete == {A, B}
    for step in range(1, world.steps + 1):
        world = World()
        run_faulty(world, scenario, Fault(step, kind))
        run_once(world, scenario, take_over=True)
        assert ids(world, "a") == [(1, 1), (2, 1), (3, 1)], step
        assert kind == "takeover" or not world.log.manifests, step


@pytest.mark.parametrize(
    ("limit", "fails"),
    [("0", True), ("1", True), ("2", False), ("39.9%", True), ("40%", False), ("100%", False)],
)
@pytest.mark.parametrize("name", ["append", "append-legacy", "overwrite"])
def test_l8_a_limit_is_a_number_or_a_percentage(name: str, limit: str, fails: bool) -> None:
    scenario = replace(SCENARIOS[name], max_rejected=MaxRejected.parse(limit))
    world = World()
    outcome = run_once(
        world, at(scenario, {"a": [Bad(), (1, 1), (2, 1), (3, 1), Bad()], "b": [(7, 1)]})
    )
    assert refused(outcome, A) is fails if fails else outcome.complete == {A, B}
    if not fails:
        assert ids(world, "a") == [(1, 1), (2, 1), (3, 1)]


def test_l9_only_100_percent_lets_every_record_be_rejected() -> None:
    for limit, fails in (("1000", True), ("99.9%", True), ("100%", False)):
        scenario = replace(SCENARIOS["overwrite"], max_rejected=MaxRejected.parse(limit))
        world = before(scenario, OLD)
        outcome = run_once(world, at(scenario, {**OLD, "a": [Bad(), Bad()]}))
        assert (A in outcome.failed) is fails, limit
        assert ids(world, "a") == ([(1, 1), (2, 1)] if fails else []), limit
