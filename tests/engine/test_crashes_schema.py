"""L1-L3, L5, L8 by exhaustion where a source tells schemas and streams while it is read: a whole
sync in memory, stopped at every step and at many pairs of steps (``schedules``).

A schema is a barrier (Singer specification, SCHEMA Message): no load spans two of them, and rows
that were read under the one before are sealed with the state that covers them, in one instant.
"""

import pytest
from schedules import (
    check_accounted,
    check_exact,
    check_never_ahead,
    count_steps,
    expected,
    pairs,
    singles,
    stopped,
)
from scripted import Bad, Declares, New
from simulation import Crash, Fault, Scenario, World, ids, run_once

from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.state import StateType

pytestmark = pytest.mark.dear

APPEND, OVERWRITE, DEDUP = (
    DestinationSyncMode.append,
    DestinationSyncMode.overwrite,
    DestinationSyncMode.append_dedup,
)
A, B = StreamId(None, "a"), StreamId(None, "b")
WIDER, WIDEST = New(("id", "version", "x")), New(("id", "version", "x", "y"))
X = ("id", "version", "x")
PLAIN_B = [(7, 1), (8, 1), (7, 3)]

BEFORE_A_STATE = {"a": [(1, 1), WIDER, (2, 1), (1, 2), (3, 1), (2, 0)], "b": PLAIN_B}
AFTER_A_STATE = {"a": [(1, 1), (2, 1), WIDER, (1, 2), (3, 1), (2, 0)], "b": PLAIN_B}
NO_ROWS_AFTER = {"a": [(1, 1), (2, 1), (1, 2), WIDER], "b": PLAIN_B}
BOTH = {"a": [(1, 1), WIDER, (2, 1), (1, 2)], "b": [(7, 1), WIDEST, (8, 1), (7, 3)]}
TWICE = {"a": [(1, 1), WIDER, (2, 1), WIDEST, (1, 2), WIDER, (3, 1)], "b": PLAIN_B}
SHOWN = {
    "a": [Declares(x=True), (1, 1), (2, 1), Declares(x=False), (1, 2), Declares(x=True), (3, 1)],
    "b": [(7, 1), Declares(x=True), (8, 1), (7, 3)],
}
AT_ONCE = {"a": [WIDER, WIDEST, (1, 1), (2, 1)], "b": [WIDER, (7, 1), Bad()]}


def dynamic(records: dict[str, list[object]], mode: DestinationSyncMode = APPEND, **more: object):
    return Scenario(mode=mode, records=records, dynamic=True, **more)  # type: ignore[arg-type]


SHARED = {"state": StateType.global_}
LEGACY = {"state": StateType.legacy, "statuses": False}
OPEN = {**LEGACY, "open": True}
REFRESH = {"mode": OVERWRITE, "sync_mode": SyncMode.full_refresh}
SCENARIOS = {
    "before-stream": dynamic(BEFORE_A_STATE),
    "before-global": dynamic(BEFORE_A_STATE, **SHARED),
    "after-stream": dynamic(AFTER_A_STATE),
    "after-legacy": dynamic(AFTER_A_STATE, **LEGACY),
    "none-after-stream": dynamic(NO_ROWS_AFTER),
    "none-after-legacy": dynamic(NO_ROWS_AFTER, **LEGACY),
    "both-stream": dynamic(BOTH, every=3),
    "both-legacy": dynamic(BOTH, every=3, **LEGACY),
    "both-global-seldom-sealed": dynamic(BOTH, seal_bytes=1000, **SHARED),
    "both-two-lanes": dynamic(BOTH, lanes=2, quantum=2),
    "twice-stream-dedup": dynamic(TWICE, DEDUP, every=5),
    "twice-legacy-dedup": dynamic(TWICE, DEDUP, every=5, quantum=100, **LEGACY),
    "twice-legacy-at-the-end": dynamic(TWICE, load_while_reading=False, **LEGACY),
    "twice-held": dynamic(TWICE, held=True, **LEGACY),
    "at-once-legacy": dynamic(AT_ONCE, **LEGACY),
    "shown-stream": dynamic(SHOWN, first=X),
    "shown-dedup-every-record": dynamic(SHOWN, DEDUP, every=1, first=X),
    "shown-legacy-seldom": dynamic(SHOWN, seal_bytes=1000, every=3, first=X, **LEGACY),
    "open-before": dynamic(BEFORE_A_STATE, **OPEN),
    "open-twice-dedup": dynamic(TWICE, DEDUP, every=3, **OPEN),
    "open-both-at-the-end": dynamic(BOTH, load_while_reading=False, quantum=100, **OPEN),
    "open-no-last-state": dynamic(BOTH, last_state=False, every=1, **OPEN),
    "refresh-before-stream": dynamic(BEFORE_A_STATE, **REFRESH),
    "refresh-resumable": dynamic(BEFORE_A_STATE, resumable=True, **REFRESH),
    "refresh-shown": dynamic(SHOWN, resumable=True, every=1, first=X, **REFRESH),
    "refresh-both-global": dynamic(BOTH, **SHARED, **REFRESH),
    "refresh-twice-legacy": dynamic(TWICE, **LEGACY, **REFRESH),
    "refresh-twice-two-lanes": dynamic(TWICE, lanes=2, resumable=True, **REFRESH),
}
FILLS = [name for name in SCENARIOS if name.startswith("refresh")]


def check(world: World, name: str, schedule: object) -> None:
    scenario = SCENARIOS[name]
    refreshed = name in FILLS
    if not refreshed:
        check_never_ahead(world, scenario, schedule)
    stopped(world, scenario, None)
    check_exact(world, scenario, schedule)
    check_never_ahead(world, scenario, schedule)
    check_accounted(world, schedule, given_up=refreshed)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", ["crash", "lost", "takeover"])
def test_L1_L3_a_new_schema_and_every_single_step(name: str, kind: str) -> None:
    scenario = SCENARIOS[name]
    for at in singles(count_steps(scenario), (name, kind)):
        world = World()
        stopped(world, scenario, Fault(at, kind))
        check(world, name, (name, kind, at))


@pytest.mark.parametrize("name", SCENARIOS)
def test_L1_L3_a_new_schema_and_pairs_of_steps(name: str) -> None:
    scenario = SCENARIOS[name]
    for first, second in pairs(count_steps(scenario), 9, name):
        for kind in ("crash", "lost"):
            world = World()
            stopped(world, scenario, Fault(first, kind))
            stopped(world, scenario, Fault(second, "takeover" if second % 3 == 0 else "crash"))
            check(world, name, (name, kind, first, second))


@pytest.mark.parametrize("name", SCENARIOS)
def test_L3_a_refused_load_and_a_new_schema(name: str) -> None:
    """Each load in turn is refused: what comes after it in its stream waits behind it."""
    scenario = SCENARIOS[name]
    whole = World()
    run_once(whole, scenario)
    for at in range(1, whole.commits + 1):
        world = World()
        world.refuse_at = at
        assert run_once(world, scenario).errors, (name, at)
        check(world, name, (name, "refused", at))


@pytest.mark.parametrize("told", [BEFORE_A_STATE, TWICE], ids=["once", "twice"])
def test_L6_a_lane_lost_in_an_open_read_goes_on_with_its_generation(
    told: dict[str, list[object]],
) -> None:
    """Streams that nobody knew before the read are read on by the lane that is begun again."""
    scenario = dynamic(told, OVERWRITE, **OPEN)
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        world.arm(Fault(at, "lost"))
        try:
            outcome = run_once(world, scenario)
        except Crash:
            continue
        if (
            outcome.errors or len(outcome.complete) < 2
        ):  # one was shown already: the next run goes on
            shown = [ids(world, s) in ([], expected(scenario, s)) for s in told]
            assert all(shown), at
        else:
            check_exact(world, scenario, at)
