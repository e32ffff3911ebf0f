"""L1, L7: a part that a feeder finds damaged blocks its stream, and the shared state; the others go
on in the same run. The driver looks at sizes alone: it opens no part (L13)."""

from pathlib import Path

import pytest
from simulated_push import GOOD, Manner, Target, push_once
from simulation import Scenario, Tally, World, saved_positions

from penstock.engine.deliver.part_checks import CheckSizes
from penstock.model.catalog import DestinationSyncMode
from penstock.model.segments import PartRef
from penstock.model.state import StateType

RECORDS = {"a": [(1, 1), (2, 1)], "b": [(7, 1), (8, 1), (9, 1)]}


def pushed(**more: object) -> Scenario:
    told = {"mode": DestinationSyncMode.append, "dynamic": True, "records": RECORDS, **more}
    return Scenario(**told)  # type: ignore[arg-type]


@pytest.mark.parametrize("manner", [GOOD, Manner("late"), Manner("end"), Manner("at_end")])
@pytest.mark.parametrize("damaged", ["a", "b"])
def test_l7_the_other_stream_is_fed_and_its_state_saved(manner: Manner, damaged: str) -> None:
    world, scenario = World(), pushed()
    target = Target([manner] * 9, damaged=damaged)
    outcome = push_once(world, target, scenario, Tally())
    other = "b" if damaged == "a" else "a"
    assert [(str(s), e.code) for s, e in outcome.failed.items()] == [(damaged, "log.corrupt")]
    assert target.rows(other) == sorted(RECORDS[other]) and not target.rows(damaged)
    saved = saved_positions(world)
    assert saved.get(other) == len(RECORDS[other]) and not saved.get(damaged), saved
    target.damaged = None  # the file was restored
    push_once(world, target, scenario, Tally())
    assert target.rows(damaged) == sorted(RECORDS[damaged])


def test_l1_a_shared_state_is_not_saved_past_a_damaged_part() -> None:
    world, scenario = World(), pushed(state=StateType.global_)
    target = Target(damaged="b")
    outcome = push_once(world, target, scenario, Tally())
    assert [e.code for e in outcome.failed.values()] == ["log.corrupt"]
    positions = saved_positions(world)
    assert not positions.get("b"), positions
    target.damaged = None
    push_once(world, target, scenario, Tally())
    assert all(target.rows(name) == sorted(rows) for name, rows in RECORDS.items())


def test_l13_sizes_are_compared_without_opening_a_part(tmp_path: Path) -> None:
    root = tmp_path
    for name, size in (("whole", 3), ("short", 2)):
        (root / name).write_bytes(b"x" * size)
        (root / name).chmod(0)
    parts = [PartRef(name, 1, 3, 3, 0) for name in ("whole", "short", "gone")]
    damaged = CheckSizes(root).begin(parts).poll()
    assert {*damaged} == {"short", "gone"}
    assert str(damaged["short"].message).endswith("short is damaged (2 bytes, 3 were sealed)")
    assert str(damaged["gone"].message).endswith("gone is missing")
