"""L1-L6 where a source fails in a way that may pass and is begun again in the same run: after every
number of records, and with the program, the lane or the lease lost at every step."""

from dataclasses import replace

import pytest
from schedules import singles
from simulation import Fault, Scenario, World, ids, run_once
from test_crashes import (
    APPEND,
    DEDUP,
    OVERWRITE,
    RECORDS,
    check_exact,
    check_states_never_ahead,
    count_steps,
    expected,
    run_faulty,
)

from penstock.model.catalog import StreamId, SyncMode
from penstock.model.state import StateType

REFRESH = SyncMode.full_refresh
STREAMS = {StreamId(None, s) for s in RECORDS}
SCENARIOS = {
    "append-stream": Scenario(mode=APPEND),
    "append-stream-named": Scenario(mode=APPEND, transient_of="a"),
    "append-no-status": Scenario(mode=APPEND, statuses=False),
    "append-global": Scenario(mode=APPEND, state=StateType.global_),
    "append-global-named": Scenario(mode=APPEND, state=StateType.global_, transient_of="a"),
    "append-held-global": Scenario(mode=APPEND, held=True, state=StateType.global_),
    "append-legacy": Scenario(mode=APPEND, state=StateType.legacy),
    "append-two-lanes": Scenario(mode=APPEND, lanes=2, quantum=2),
    "dedup-stream": Scenario(mode=DEDUP),
    "overwrite-stream": Scenario(mode=OVERWRITE, sync_mode=REFRESH),
    "overwrite-named": Scenario(mode=OVERWRITE, sync_mode=REFRESH, transient_of="a"),
    "overwrite-resumable": Scenario(mode=OVERWRITE, sync_mode=REFRESH, resumable=True),
    "overwrite-global": Scenario(mode=OVERWRITE, sync_mode=REFRESH, state=StateType.global_),
    "overwrite-no-status": Scenario(mode=OVERWRITE, sync_mode=REFRESH, statuses=False),
    "overwrite-shards": Scenario(mode=OVERWRITE, sync_mode=REFRESH, lanes=2, shards=2),
    "refresh-append": Scenario(mode=APPEND, sync_mode=REFRESH),
}
for name, given in SCENARIOS.items():
    SCENARIOS[name] = replace(given, records=RECORDS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_failure_that_may_pass_is_mended_in_the_same_run(name: str) -> None:
    """Issue 9, A11: from the last sealed state, in a new epoch (L4); nothing is there twice."""
    failed = 0
    for first in range(8):
        for second in (None, 0, 1, 3):
            after = (first,) if second is None else (first, second)
            scenario = replace(SCENARIOS[name], transient=after)
            world = World()
            outcome = run_once(world, scenario)
            assert not outcome.errors and outcome.complete == STREAMS, (name, after, outcome.errors)
            check_states_never_ahead(world, scenario, (name, after))
            for stream in RECORDS:
                assert ids(world, stream) == expected(scenario, stream), (name, after)
            assert set(world.log.runs_of_sources.values()) == {1}
            failed += len(world.log.runs_of_sources) > scenario.lanes
    assert failed > 10


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", ["crash", "lost"])
def test_l1_l6_at_every_step_of_a_run_with_two_attempts(name: str, kind: str) -> None:
    scenario = replace(SCENARIOS[name], transient=(3,))
    for at in singles(count_steps(scenario), (name, kind)):
        world = World()
        run_faulty(world, scenario, Fault(at, kind))
        check_states_never_ahead(world, scenario, (name, kind, at))
        run_faulty(world, scenario, None)
        check_exact(world, scenario, (name, kind, at))


def test_l6_a_source_that_never_recovers_leaves_the_table_as_it_was() -> None:
    world = World()
    whole = SCENARIOS["overwrite-stream"]
    run_once(world, whole)
    before = ids(world, "a")
    outcome = run_once(world, replace(whole, transient=(2, 2, 2), fail_after=2))
    assert StreamId(None, "a") not in outcome.complete and ids(world, "a") == before
