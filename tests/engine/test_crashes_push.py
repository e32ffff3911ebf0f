"""L1, L5, L6 by exhaustion where the destination is a connector: a whole sync in memory, stopped at
many steps (each row given is one) and pairs of steps, into a destination that acks in many
manners, dies, or is lost.

At least once: nothing is lost; what was acked and settled is never given again (the twin checks
it); no saved state is ahead of what the destination has; a run tells how many rows it sent again.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from schedules import count_steps, expected, pairs, singles, stopped
from scripted import Act, New, Ver, rows_of
from simulated_push import GOOD, Manner, Target, push_once
from simulation import Fault, Scenario, SyncOutcome, Tally, World, saved_positions

from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.state import StateType

APPEND, OVERWRITE = DestinationSyncMode.append, DestinationSyncMode.overwrite
RECORDS = {"a": [(1, 1), (2, 1), (1, 2), (3, 1), (2, 0)], "b": [(7, 1), (8, 1), (7, 3)]}
WIDER = New(("id", "version", "x"))
CHANGED = {"a": [(1, 1), WIDER, (2, 1), (3, 1)], "b": [(7, 1), (8, 1), WIDER, (9, 3)]}
VERSIONS = {
    "a": [Ver(1), (1, 1), (2, 1), Ver(2), (3, 1), (4, 1), Act(), (5, 1), (6, 1)],
    "b": [(7, 1), (8, 1)],
}
REFRESH = {"mode": OVERWRITE, "sync_mode": SyncMode.full_refresh}
LEGACY = {"state": StateType.legacy, "statuses": False}


def pushed(records: dict[str, list[object]] = RECORDS, **more: object) -> Scenario:  # type: ignore[assignment]
    return Scenario(**{"mode": APPEND, "dynamic": True, "records": records, **more})  # type: ignore[arg-type]


SCENARIOS = {
    "stream": pushed(),
    "stream-at-the-end": pushed(load_while_reading=False, quantum=100),
    "stream-two-lanes": pushed(lanes=2, quantum=3),
    "global": pushed(state=StateType.global_),
    "global-every-record": pushed(state=StateType.global_, every=1),
    "legacy": pushed(every=3, **LEGACY),
    "no-last-state": pushed(last_state=False, every=3, **LEGACY),
    "overwrite": pushed(**REFRESH),
    "overwrite-resumable": pushed(resumable=True, **REFRESH),
    "overwrite-global": pushed(state=StateType.global_, **REFRESH),
    "schema": pushed(CHANGED),
    "schema-legacy": pushed(CHANGED, every=3, **LEGACY),
    "schema-open": pushed(CHANGED, open=True, **LEGACY),
    "versions": pushed(VERSIONS, **LEGACY),
}
MANNERS = {
    "at-once": [GOOD],
    "late": [Manner("late")] * 3,
    "end": [Manner("end")] * 3,
    "at-end": [Manner("at_end")] * 4,
    "dies": [Manner(dies=3), Manner("late", dies=2)],
    "dies-at-the-end": [Manner("end", dies=0), Manner("at_once", dies=0)],
    "lost": [Manner(lost=2), Manner("late", lost=4)],
    "again": [Manner(dies=3, again=True), Manner("late", dies=2, again=True)],
    "again-at-the-end": [Manner("end", dies=0, again=True), Manner(dies=0, again=True)],
    "halts": [Manner(halts=2)] * 4,
    "halts-at-once": [Manner("end", halts=1)] * 3,
    "again-then-dies": [Manner("late", dies=4, again=True), Manner(dies=3)],
}


class Pushed:
    """Programs one after the other, and what they told."""

    def __init__(self, scenario: Scenario, target: Target) -> None:
        self.scenario, self.target, self.world = scenario, target, World()
        self.again: Counter[StreamId] = Counter()
        self.overtaken = False

    def run(self, fault: Fault | None = None) -> SyncOutcome | None:
        outcomes: list[SyncOutcome] = []

        def once(world: World, scenario: Scenario, tally: Tally) -> object:
            outcomes.append(push_once(world, self.target, scenario, tally))
            return None

        tallies: list[Tally] = []

        def program(world: World, scenario: Scenario, tally: Tally) -> object:
            tallies.append(tally)
            return once(world, scenario, tally)

        self.overtaken |= fault is not None and fault.kind == "takeover"
        stopped(self.world, self.scenario, fault, program)
        for tally in tallies:
            self.again.update(tally.again)
        return outcomes[-1] if outcomes else None

    def until_complete(self, schedule: object) -> None:
        for _ in range(8):
            outcome = self.run()
            self.check_never_ahead(schedule)
            names = {StreamId(None, n) for n in self.scenario.records}
            if outcome is not None and outcome.complete == names and not outcome.errors:
                return
        raise AssertionError((schedule, "never complete"))

    def check_never_ahead(self, schedule: object) -> None:
        """L1."""
        if self.scenario.mode is OVERWRITE or self.scenario.records is VERSIONS:
            return
        for stream, at in saved_positions(self.world).items():
            claimed = set(rows_of(self.scenario.records[stream][:at]))
            assert claimed <= set(self.target.rows(stream)), (schedule, stream, at)

    def check_nothing_lost(self, schedule: object) -> None:
        for stream, items in self.scenario.records.items():
            have = self.target.rows(stream)
            if self.scenario.records is VERSIONS:
                assert set(have) >= set(rows_of(items[-5:])), (schedule, stream, have)
            else:
                assert have == expected(self.scenario, stream), (schedule, stream, have)

    def check_in_order(self, schedule: object) -> None:
        """What is sent again comes with all that came after it: the newest row of a key is the last
        that the destination was given."""
        if self.overtaken:
            return
        for stream in self.scenario.records:
            given = [row[2] for of, row in self.target.given if of.name == stream]
            last = list(dict.fromkeys(reversed(given)))[::-1]
            assert last == sorted(last), (schedule, stream, given)

    def check_read_once(self, schedule: object) -> None:
        """L5: what is sealed is not asked for again, whatever becomes of the destination."""
        if self.scenario.mode is OVERWRITE or not self.scenario.last_state:
            return
        arrivals = {(of, row[0], row[1]): row[2] for of, row in self.target.given}
        for of, row in self.target.given:
            assert arrivals[of, row[0], row[1]] == row[2], (schedule, of, row)

    def check_counted(self, schedule: object) -> None:
        """Rows given twice were counted as sent again: of an overtaken driver nobody can know."""
        if self.overtaken:
            return
        given = Counter(self.target.given)
        for stream in self.scenario.records:
            twice = sum(n - 1 for (of, _), n in given.items() if of.name == stream)
            assert self.again[StreamId(None, stream)] >= twice, (schedule, stream, twice)


def one(name: str, manner: str, *, forgets: bool, described_once: bool = False) -> Pushed:
    target = Target(manners=list(MANNERS[manner]), forgets=forgets, described_once=described_once)
    return Pushed(SCENARIOS[name], target)


def steps(name: str, manner: str) -> int:
    pushed = one(name, manner, forgets=True)
    return count_steps(pushed.scenario, lambda w, s, t: push_once(w, pushed.target, s, t))


def check(pushed: Pushed, schedule: object) -> None:
    pushed.check_never_ahead(schedule)
    pushed.until_complete(schedule)
    pushed.check_nothing_lost(schedule)
    pushed.check_counted(schedule)
    pushed.check_in_order(schedule)
    pushed.check_read_once(schedule)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.dear
def test_L1_every_manner_without_a_crash(name: str, manner: str) -> None:
    for forgets in (False, True):
        for described_once in (False, True):
            pushed = one(name, manner, forgets=forgets, described_once=described_once)
            check(pushed, (name, manner, forgets, described_once))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.dear
def test_L1_single_steps(name: str, manner: str) -> None:
    for at in singles(steps(name, manner), (name, manner)):
        kind = ("crash", "crash", "lost", "takeover")[at % 4]
        pushed = one(name, manner, forgets=at % 2 == 0, described_once=at % 3 == 0)
        pushed.run(Fault(at, kind))
        check(pushed, (name, manner, kind, at))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("manner", ["at-once", "late", "lost", "again", "halts"])
@pytest.mark.dear
def test_L1_pairs_of_steps(name: str, manner: str) -> None:
    for first, second in pairs(steps(name, manner), 4, (name, manner)):
        pushed = one(name, manner, forgets=first % 2 == 0, described_once=second % 3 == 0)
        pushed.run(Fault(first, "crash" if first % 3 else "lost"))
        pushed.run(Fault(second))
        check(pushed, (name, manner, first, second))


A, B = StreamId(None, "a"), StreamId(None, "b")
STATES_OF_THEIR_OWN = {
    "stream",
    "stream-at-the-end",
    "stream-two-lanes",
    "overwrite",
    "overwrite-resumable",
    "schema",
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_L5_a_quota_that_is_used_up_each_day_lets_nothing_be_read_over_what_it_left(
    name: str,
) -> None:
    """A stream is not read before the destination has taken what an earlier run had read of it, and
    one that was halted is not begun again in the run. L7: the others go on, unless they share its
    state."""
    target = Target(manners=[Manner("end", halts=1, only="a")] * 8, forgets=True)
    pushed = Pushed(SCENARIOS[name], target)
    others = {B} if name in STATES_OF_THEIR_OWN else set[StreamId]()
    for day in range(4):
        tally = Tally()
        outcome = push_once(pushed.world, target, pushed.scenario, tally)
        pushed.again.update(tally.again)
        assert outcome.errors == [] and [of for of, _ in target.given].count(A) == day + 1
        if day:
            assert (outcome.complete, outcome.halted) == (others, {A, B} - others)
            assert {s.id for lane in tally.lanes for s in lane.streams} == others
            assert any("not read, as the destination" in note for note in tally.notes)
    target.manners = []
    check(pushed, (name, "a quota"))


LATER_SCHEMA = {"a": [(1, 1), (2, 1)], "b": [(7, 1), WIDER, (8, 1), (9, 1)]}


@pytest.mark.parametrize("more", [LEGACY, {"state": StateType.global_}, {}])
def test_L1_no_later_conversation_of_a_run_goes_past_what_a_halted_stream_left(more: Any) -> None:
    """Another schema begins one; a state that the streams share covers both."""
    target = Target(manners=[Manner(halts=2, only="a")] * 3, forgets=True, described_once=True)
    one_by_one = Pushed(pushed(LATER_SCHEMA, every=1, **more), target)
    for _ in range(2):
        one_by_one.run()
        one_by_one.check_never_ahead(more)
    check(one_by_one, more)


@pytest.mark.parametrize("state", [StateType.stream, StateType.global_])
def test_L5_what_a_halted_stream_left_is_kept_where_the_stream_is_no_longer_synced(
    state: StateType,
) -> None:
    """A whole generation waits like an unfinished one, which would be given up."""
    target = Target(manners=[Manner(halts=1, only="a")] * 2, forgets=True)
    both = Pushed(pushed(state=state, **REFRESH), target)
    both.run()
    alone = replace(both.scenario, records={"b": RECORDS["b"]})
    for complete in ({B}, {A, B}):
        outcome = push_once(both.world, target, alone, Tally())
        assert outcome.errors == [] and B in outcome.complete
        assert (A in {of for of, rows in target.has.items() if rows}) == (A in complete)
    assert target.rows("a") == expected(both.scenario, "a")


def test_L5_a_source_that_cannot_be_asked_for_the_other_streams_alone_is_not_asked() -> None:
    target = Target(manners=[Manner(halts=1, only="a")] * 8, forgets=True)
    scenario = pushed(open=True, **{**REFRESH, **LEGACY})
    world = World()
    for day in range(3):
        tally = Tally()
        outcome = push_once(world, target, scenario, tally)
        assert outcome.errors == [] and A in outcome.halted
        assert bool(tally.lanes) == (day == 0)


@pytest.mark.parametrize("acks", ["at_once", "end"])
def test_L8_rejects_of_rows_that_were_not_taken_are_not_counted(acks: str) -> None:
    """They come with the next ack, whatever stream that is of. The next run rejects them again."""
    target = Target(manners=[Manner(acks, halts=1, only="a")], forgets=True, rejects=True)
    world = World()
    for counted in ({B: 1}, {A: 1}):
        tally = Tally()
        push_once(world, target, SCENARIOS["stream-at-the-end"], tally)
        assert tally.rejected == counted


@pytest.mark.parametrize("name", SCENARIOS)
def test_L1_a_destination_that_never_acks_leaves_the_state_where_it_was(name: str) -> None:
    target = Target(manners=[Manner("never")] * 3)
    pushed = Pushed(SCENARIOS[name], target)
    for _ in range(3):
        outcome = pushed.run()
        assert outcome is not None
        assert saved_positions(pushed.world) == {}
        assert [e.code for e in outcome.errors] == ["destination.no_ack"]
        assert not outcome.complete
    check(pushed, (name, "never"))
