"""L1-L7, L12 by exhaustion where a read began with the catalogue of an earlier run, beside the
discovery that confirms it: no row that was read with another catalogue than the discovered one
reaches a table, and no row is lost or doubled.

``unconfirmed`` epochs outlive the program that began them: a later one waits for its discovery.
"""

from dataclasses import replace

import pytest
from schedules import count_steps as count_any_steps
from schedules import pairs, singles
from simulated_push import Target, push_once
from simulation import Fault, Scenario, SimTime, Tally, World, run_once
from test_crashes import (
    APPEND,
    DEDUP,
    OVERWRITE,
    RECORDS,
    check_exact,
    check_states_never_ahead,
    count_steps,
    run_faulty,
)
from test_crashes_push import MANNERS, Pushed, check
from test_crashes_push import SCENARIOS as PUSHED

from penstock.engine.sync.ports import DiscoveryDone
from penstock.errors import Cancelled
from penstock.model.catalog import SyncMode
from penstock.model.state import StateType

pytestmark = pytest.mark.dear

LATE = 10_000  # after the end of the read
FORMS = {
    "append": Scenario(mode=APPEND),
    "append-two-lanes": Scenario(mode=APPEND, lanes=2, quantum=2),
    "append-global": Scenario(mode=APPEND, state=StateType.global_),
    "dedup-legacy": Scenario(mode=DEDUP, state=StateType.legacy),
    "overwrite": Scenario(mode=OVERWRITE, sync_mode=SyncMode.full_refresh),
    "overwrite-resumable": Scenario(
        mode=OVERWRITE, sync_mode=SyncMode.full_refresh, resumable=True
    ),
}
CATALOGS = {
    "same": ("old",),
    "another": ("new",),
    "another-after-a-crash": ("old", "new"),
    "back-after-a-crash": ("new", "old"),
    "fails-once": (None, "old"),
    "fails-then-another": (None, "new"),
}
SCENARIOS = {
    f"{form}-{which}{late}": replace(
        FORMS[form], records=RECORDS, catalogs=catalogs, discovery_polls=polls
    )
    for form in FORMS
    for which, catalogs in CATALOGS.items()
    for late, polls in (("", 6), ("-late", LATE))
    if not (late and form not in ("append", "overwrite"))
}


def check_given(world: World, schedule: object) -> None:
    """What a table shows was read with a catalogue that a discovery returned."""
    for table in world.tables.values():
        for row in table.rows:
            assert world.given[row[2] >> 40] in world.found, (schedule, row)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", ["crash", "lost", "takeover"])
def test_L1_L7_no_row_of_another_catalogue_at_every_single_step(name: str, kind: str) -> None:
    scenario = SCENARIOS[name]
    for at in singles(count_steps(scenario), (name, kind)):
        world = World()
        run_faulty(world, scenario, Fault(at, kind))
        check_states_never_ahead(world, scenario, (name, kind, at))
        check_given(world, (name, kind, at))
        run_once(world, scenario, take_over=True)
        check_given(world, (name, kind, at))
        if scenario.catalogs[0] is None:  # the fault may have left the next discovery to fail
            run_once(world, scenario, take_over=True)
        check_exact(world, scenario, (name, kind, at))
        assert not world.log.marks, (name, kind, at)


@pytest.mark.parametrize("name", ["append-another", "append-global-another-after-a-crash"])
def test_L1_L7_no_row_of_another_catalogue_at_pairs_of_steps(name: str) -> None:
    scenario = SCENARIOS[name]
    for first, second in pairs(count_steps(scenario), 25, name):
        world = World()
        run_faulty(world, scenario, Fault(first))
        run_faulty(world, scenario, Fault(second))
        check_states_never_ahead(world, scenario, (name, first, second))
        run_once(world, scenario, take_over=True)
        check_given(world, (name, first, second))
        check_exact(world, scenario, (name, first, second))


@pytest.mark.parametrize("polls", [1, 6, LATE])
def test_a_lane_begins_again_at_most_once_a_run(polls: int) -> None:
    world, tally = World(), Tally()
    scenario = replace(SCENARIOS["append-another"], discovery_polls=polls)
    outcome = run_once(world, scenario, tally=tally)
    assert not outcome.errors and len(outcome.complete) == 2
    assert [world.given[s.epoch] for s in tally.lanes] == ["old", "new"]
    check_exact(world, scenario, polls)
    check_given(world, polls)


def test_nothing_is_committed_while_the_discovery_goes_on() -> None:
    scenario = replace(SCENARIOS["append-same"], discovery_polls=LATE)
    world = World()
    run_once(world, scenario)
    names = world.names
    assert names.index("log.unmark.before") < names.index("table.commit.before")
    assert names.count("log.seal.after") > 2
    assert max(i for i, n in enumerate(names) if n == "log.seal.after") < names.index(
        "log.unmark.before"
    )
    check_exact(world, scenario, ())


def test_what_was_sealed_is_kept_where_the_discovery_fails() -> None:
    scenario = SCENARIOS["append-fails-once"]
    world = World()
    outcome = run_once(world, scenario)
    assert [e.code for e in outcome.errors] == ["source.exited"] and not outcome.complete
    assert not world.tables and world.log.segments() and not world.store.states("sim")
    tally = Tally()
    outcome = run_once(world, scenario, tally=tally)
    assert not outcome.errors
    (again,) = tally.lanes
    assert again.states  # it goes on from what was sealed
    check_exact(world, scenario, ())


def test_L5_confirmed_epochs_are_delivered_where_the_source_cannot_be_discovered() -> None:
    """Also those of code that knew no marks."""
    scenario = replace(FORMS["append"], records=RECORDS, load_while_reading=False)
    world = World()
    steps = World()
    run_once(steps, scenario)
    sealed = len(steps.names) - 1 - steps.names[::-1].index("log.seal.after") + 1
    run_faulty(world, scenario, Fault(sealed))
    assert world.log.segments() and not world.tables
    failing = replace(scenario, catalogs=(None,))
    outcome = run_once(world, failing, take_over=True)
    assert [e.code for e in outcome.errors] == ["source.exited"]
    assert world.tables and world.store.states("sim")


def test_a_read_that_fails_beside_a_discovery_is_remembered() -> None:
    world = World()
    scenario = replace(SCENARIOS["append-same"], fail_after=3, discovery_polls=LATE)
    run_once(world, scenario)
    assert world.reads_failed == 1
    other = World()
    run_once(other, replace(scenario, catalogs=()))
    assert other.reads_failed == 0


def test_a_catalogue_that_was_discovered_first_needs_no_mark() -> None:
    world = World()
    run_once(world, replace(FORMS["append"], records=RECORDS))
    assert not DiscoveryDone().beside and "log.mark.before" not in world.names


@pytest.mark.parametrize("name", ["stream", "global", "legacy", "overwrite"])
@pytest.mark.parametrize("manner", ["at-once", "late", "end", "dies"])
@pytest.mark.parametrize("which", ["another", "another-after-a-crash"])
def test_L1_L5_nothing_of_another_catalogue_is_fed_to_a_connector(
    name: str, manner: str, which: str
) -> None:
    scenario = replace(PUSHED[name], catalogs=CATALOGS[which], discovery_polls=6)

    def new() -> Pushed:
        return Pushed(scenario, Target(manners=list(MANNERS[manner]), forgets=True))

    first = new()
    total = count_any_steps(scenario, lambda w, s, t: push_once(w, first.target, s, t))
    for kind in ("crash", "lost", "takeover"):
        for at in singles(total, (name, manner, which, kind)):
            pushed = new()
            pushed.run(Fault(at, kind))
            check(pushed, (name, manner, which, kind, at))
            for _, row in pushed.target.given:
                assert pushed.world.given[row[2] >> 40] in pushed.world.found


@pytest.mark.parametrize("name", ["append-same", "append-another", "overwrite-same"])
@pytest.mark.parametrize("at", [1, 3, 8, 15, 25])
def test_a_run_that_is_stopped_before_its_discovery_keeps_what_it_sealed(
    name: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = replace(SCENARIOS[name], discovery_polls=LATE)
    world, looks = World(), [0]

    def look(time: SimTime) -> None:
        looks[0] += 1
        if looks[0] >= at:
            raise Cancelled("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(SimTime, "check", look)
        outcome = run_once(world, scenario)
    assert outcome.cancelled and not world.tables and not world.store.states("sim")
    tally = Tally()
    outcome = run_once(world, scenario, tally=tally, take_over=True)
    assert not outcome.errors
    check_exact(world, scenario, (name, at))
    check_given(world, (name, at))
