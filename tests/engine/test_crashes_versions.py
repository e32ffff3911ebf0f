"""L1-L6, L8 by exhaustion where a source sends versions of an incremental stream: a whole sync in
memory, stopped at every step and at many pairs of steps (``schedules``).

Rows of a version that is not visible yet wait in the log while the shared state moves on;
ACTIVATE_VERSION (as Singer's SDK and PipelineWise use it) or the source's good end shows them, in
one load that replaces what the table had. At every moment a table therefore holds the beginning of
one version: of a later one than the first at least what its activation covers.
"""

from dataclasses import replace

import pytest
from schedules import (
    check_accounted,
    count_steps,
    in_log,
    pairs,
    singles,
    stopped,
)
from scripted import Act, Bad, New, Ver, rows_of
from simulation import Fault, Scenario, World, ids, run_once, saved_positions

from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.state import StateType
from penstock.store.contract import Holder

pytestmark = pytest.mark.dear

APPEND, DEDUP = DestinationSyncMode.append, DestinationSyncMode.append_dedup
A, B = StreamId(None, "a"), StreamId(None, "b")
PLAIN_B = [(11, 1), (12, 1), (13, 1)]
WIDER, WIDEST = New(("id", "version", "x")), New(("id", "version", "x", "y"))

FIRST = {"a": [Ver(1), (1, 1), (2, 1), (3, 1), Act()], "b": PLAIN_B}
SECOND = {
    "a": [Ver(1), (1, 1), (2, 1), Ver(2), (3, 1), (4, 1), (5, 1), Act(), (6, 1), (7, 1)],
    "b": PLAIN_B,
}
CLEAN_END = {"a": [Ver(1), (1, 1), (2, 1), Ver(2), (3, 1), (4, 1), (5, 1)], "b": PLAIN_B}
SUPERSEDED = {
    "a": [Ver(1), (1, 1), Ver(2), (2, 1), Bad(), Ver(3), (3, 1), (4, 1), Act(), (5, 1)],
    "b": PLAIN_B,
}
EARLY = {"a": [Ver(1), Act(), (1, 1), (2, 1), Act(), (3, 1), Act()], "b": PLAIN_B}
BOTH = {
    "a": [Ver(1), (1, 1), (2, 1), Ver(2), (3, 1), (4, 1), Act(), (5, 1)],
    "b": [Ver(1), (11, 1), Ver(2), (12, 1), Act(), (13, 1), Ver(3), (14, 1), Act()],
}
WITH_SCHEMA = {
    "a": [Ver(1), (1, 1), Ver(2), (2, 1), WIDER, (3, 1), (4, 1), Act(), (5, 1), (6, 1)],
    "b": PLAIN_B,
}
SCHEMA_AFTER = {
    "a": [Ver(1), (1, 1), Ver(2), (2, 1), (3, 1), Act(), WIDER, (4, 1), (5, 1), Act(), (6, 1)],
    "b": [(11, 1), WIDEST, (12, 1)],
}


def versions(records: dict[str, list[object]], mode: DestinationSyncMode = APPEND, **more: object):
    return Scenario(
        mode=mode, records=records, dynamic=True, state=StateType.legacy, statuses=False, **more
    )  # type: ignore[arg-type]


LATE = {"load_while_reading": False}
SCENARIOS = {
    "first": versions(FIRST),
    "second": versions(SECOND),
    "second-every-record": versions(SECOND, every=1),
    "second-seldom-sealed": versions(SECOND, seal_bytes=1000),
    "second-at-the-end": versions(SECOND, every=3, quantum=100, **LATE),
    "second-dedup": versions(SECOND, DEDUP),
    "second-held": versions(SECOND, held=True, every=1),
    "second-renumbered": versions(SECOND, renumber=True),
    "second-without-states": versions({"a": SECOND["a"]}, renumber=True, no_states=True),
    "second-open": versions(SECOND, open=True),
    "clean-end": versions(CLEAN_END),
    "clean-end-without-states": versions({"a": CLEAN_END["a"]}, renumber=True, no_states=True),
    "superseded": versions(SUPERSEDED, every=1),
    "superseded-at-the-end": versions(SUPERSEDED, **LATE),
    "superseded-renumbered-dedup": versions(SUPERSEDED, DEDUP, renumber=True),
    "early": versions(EARLY),
    "both": versions(BOTH),
    "both-every-record-at-the-end": versions(BOTH, every=1, quantum=3, **LATE),
    "both-renumbered": versions(BOTH, renumber=True, every=1),
    "schema": versions(WITH_SCHEMA),
    "schema-at-the-end": versions(WITH_SCHEMA, **LATE),
    "schema-open": versions(WITH_SCHEMA, open=True, every=3),
    "schema-after": versions(SCHEMA_AFTER, every=1),
    "schema-after-seldom": versions(SCHEMA_AFTER, every=3, **LATE),
}


def phases(items: list[object]) -> list[tuple[list[tuple[int, int]], int]]:
    """Of each version: its rows, and how many of them its (first) activation shows; 0: of the
    first, whose rows are seen as they come."""
    starts = [i for i, item in enumerate(items) if isinstance(item, Ver)] or [0]
    found: list[tuple[list[tuple[int, int]], int]] = []
    for number, (at, until) in enumerate(zip(starts, [*starts[1:], len(items)], strict=True)):
        mine = items[at:until]
        acts = [i for i, item in enumerate(mine) if isinstance(item, Act) and rows_of(mine[:i])]
        last = until == len(items)
        least = len(rows_of(mine[: acts[0]])) if acts else len(rows_of(mine)) if last else 10**9
        found.append((rows_of(mine), 0 if number == 0 else least))
    return found


def by_arrival(world: World, stream: str) -> list[tuple[int, int]]:
    table = world.tables.get(StreamId(None, stream))
    return [] if table is None else [(r[0], r[1]) for r in sorted(table.rows, key=lambda r: r[2])]


def check_one_version(world: World, scenario: Scenario, schedule: object) -> dict[str, int]:
    """L6: no table is half of a version, nor of two; gives the latest that each may hold."""
    seen: dict[str, int] = {}
    for stream, items in scenario.records.items():
        have = by_arrival(world, stream)
        fits = [
            number
            for number, (rows, least) in enumerate(phases(items))
            if have == rows[: len(have)] and len(have) >= least
        ]
        assert fits, (schedule, stream, have)
        seen[stream] = fits[-1] if have else 0
    return seen


def check_never_ahead(world: World, scenario: Scenario, schedule: object) -> None:
    """L1: what the state claims is in the table, or waits in the log to be shown, or belongs to a
    version that is no longer shown."""
    seen = check_one_version(world, scenario, schedule)
    for stream, at in saved_positions(world).items():
        items = scenario.records[stream]
        there = {*ids(world, stream), *in_log(world, stream)}
        shown = set(in_log(world, stream, shown=True))
        for number, (rows, _) in enumerate(phases(items)):
            if shown.intersection(rows):
                seen[stream] = max(seen[stream], number)
        for number, (rows, _) in enumerate(phases(items)):
            claimed = set(rows_of(items[:at])) & set(rows)
            if number >= seen[stream]:
                assert claimed <= there, (schedule, stream, at, there)


def check_newest(world: World, scenario: Scenario, schedule: object) -> None:
    for stream, items in scenario.records.items():
        assert by_arrival(world, stream) == phases(items)[-1][0], (schedule, stream)
    assert all(n == 1 for n in world.log.runs_of_sources.values()), schedule  # L4


def check(world: World, scenario: Scenario, schedule: object) -> None:
    check_never_ahead(world, scenario, schedule)
    stopped(world, scenario, None)
    check_never_ahead(world, scenario, schedule)
    check_newest(world, scenario, schedule)
    check_accounted(world, schedule)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", ["crash", "lost", "takeover"])
def test_L6_versions_and_every_single_step(name: str, kind: str) -> None:
    scenario = SCENARIOS[name]
    for at in singles(count_steps(scenario), (name, kind)):
        world = World()
        stopped(world, scenario, Fault(at, kind))
        check(world, scenario, (name, kind, at))


@pytest.mark.parametrize("name", SCENARIOS)
def test_L6_versions_and_pairs_of_steps(name: str) -> None:
    scenario = SCENARIOS[name]
    for first, second in pairs(count_steps(scenario), 7, name):
        for kind in ("crash", "lost"):
            world = World()
            stopped(world, scenario, Fault(first, kind))
            check_never_ahead(world, scenario, (name, kind, first))
            stopped(world, scenario, Fault(second, "takeover" if second % 3 == 0 else "crash"))
            check(world, scenario, (name, kind, first, second))


@pytest.mark.parametrize("name", SCENARIOS)
def test_L3_L6_a_refused_load_among_versions(name: str) -> None:
    scenario = SCENARIOS[name]
    whole = World()
    run_once(whole, scenario)
    for at in range(1, whole.commits + 1):
        world = World()
        world.refuse_at = at
        assert run_once(world, scenario).errors, (name, at)
        check(world, scenario, (name, "refused", at))


@pytest.mark.parametrize("name", SCENARIOS)
def test_L6_a_source_that_dies_shows_no_half_of_a_version(name: str) -> None:
    """After each record in turn, then again after each; then it is whole."""
    scenario = SCENARIOS[name]
    total = sum(len(rows_of(items)) for items in scenario.records.values())
    for first in range(total):
        for second in range(0, total, 3):
            world = World()
            for after in (first, second):
                run_once(world, replace(scenario, fail_after=after))
                check_never_ahead(world, scenario, (name, first, second))
            check(world, scenario, (name, first, second))


def test_L6_a_damaged_part_holds_back_the_version_that_comes_after_it() -> None:
    """Of another stream, in a segment that shares the state: what the version's stream has in that
    segment must not come after the version."""
    scenario = versions({"a": SECOND["a"], "b": PLAIN_B}, every=3, load_while_reading=False)
    names = World()
    run_once(names, scenario)
    world = World()
    stopped(world, scenario, Fault(names.names.index("store.intend.before") + 1))
    path = next(p.path for s in world.log.segments() for x in s.slices if x.stream == B
                for p in x.parts)  # fmt: skip
    rows = world.log.parts.pop(path)
    outcome = run_once(world, scenario, take_over=True)
    assert outcome.errors[0].code == "log.corrupt"
    world.log.parts[path] = rows
    check(world, scenario, "restored")


def test_L6_a_reset_gives_up_the_version_that_waits() -> None:
    """Its rows are read again, under a number that is new, as taps give them (a time)."""
    scenario = versions({"a": CLEAN_END["a"]}, every=1, renumber=True)
    for at in range(1, count_steps(scenario) + 1):
        world = World()
        stopped(world, scenario, Fault(at))
        holder = Holder(name="user", pid=0, boot="", started_at="", run="reset")
        lease = world.store.acquire("sim", holder, 100.0, world.store.lock("sim"))
        world.store.replace_states(lease, [])
        world.store.release(lease)
        stopped(world, scenario, None)
        have = by_arrival(world, "a")
        assert len(have) == len(set(have)), (at, have)
        assert set(have) >= set(phases(scenario.records["a"])[-1][0]), (at, have)
