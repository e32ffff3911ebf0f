"""The twin's own: steps at which a simulator can crash, its clock, its speed."""

import inspect
import time

import pytest

from penstock.errors import Locked
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import SegmentId, WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import RowSchema
from penstock.store.contract import GroupIntent, Holder, LoadIntent, Store
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered, TableNames
from penstock.store.sql import SqlStore

A = StreamId(None, "a")
STATE = StoredState(StateScope(StateType.stream, A), "{}")


class Crash(Exception):
    pass


def holder(run: str) -> Holder:
    return Holder(name="me@here", pid=1, boot="b", started_at="2026-11-20T10:00:00Z", run=run)


def intent(seq: int) -> GroupIntent:
    at = SegmentId(1, seq)
    load = LoadIntent(
        stream=A,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        segments=(at,),
        parts=(),
        schema_version=1,
        generation=1,
    )
    return GroupIntent(loads=(load,), states=(STATE,), epoch=1, consumes=((at, A),))


def merge(saved: object, new: list[StoredState]) -> list[StoredState]:
    return [new[-1]]


def test_each_write_takes_a_step_before_and_after() -> None:
    steps: list[str] = []
    store = MemoryStore(steps.append)
    lease = store.acquire("p", holder("r"), 60)
    (group,) = store.intend(lease, [intent(1)], merge)
    store.loaded(lease, [(group.id, group.loads[0])], merge)
    assert steps == [
        f"store.{name}.{when}"
        for name in ("acquire", "intend", "loaded")
        for when in ("before", "after")
    ]


def test_calls_that_write_nothing_take_no_step() -> None:
    steps: list[str] = []
    store = MemoryStore()
    lease = store.acquire("p", holder("r"), 60)
    store.schema_version(lease, A, RowSchema(()))
    store.remember(lease, Remembered(tables=TableNames(tables={"a": "a"})))
    store.on_step = steps.append
    store.schema_version(lease, A, RowSchema(()))
    store.remember(lease, Remembered(tables=TableNames(tables={"a": "a"})))
    store.intend(lease, [], merge)
    store.loaded(lease, [], merge)
    store.abandon(lease, [])
    store.forget(lease, [])
    store.close_epochs(lease, {})
    store.states("p"), store.open_groups("p"), store.runs(None)
    assert steps == []


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
def test_a_crash_before_leaves_nothing_and_a_crash_after_everything(
    when: str, written: int
) -> None:
    store = MemoryStore()
    lease = store.acquire("p", holder("r"), 60)

    def crash(step: str) -> None:
        if step == f"store.intend.{when}":
            raise Crash

    store.on_step = crash
    with pytest.raises(Crash):
        store.intend(lease, [intent(1)], merge)
    assert len(store.open_groups("p")) == written == len(store.consumed("p", [1]))


def test_a_simulator_ends_holders_and_no_clock_does() -> None:
    now, gone = [1000.0], set[str]()
    store = MemoryStore(clock=lambda: now[0], alive=lambda h: h.run not in gone)
    store.acquire("p", holder("one"), 60)
    now[0] += 1e9
    with pytest.raises(Locked):
        store.acquire("p", holder("two"), 60, store.lock("p"))
    gone.add("one")
    store.acquire("p", holder("two"), 60)


def test_l10_its_representation_shows_no_config() -> None:
    store = MemoryStore()
    lease = store.acquire("p", holder("r"), 60)
    config = {"password": "hunter2"}
    store.set_config_override(lease, "source", "h", config)
    config["password"] = "changed by the caller"
    assert store.config_override("p", "source") == ("h", {"password": "hunter2"})
    assert "hunter2" not in repr(store)


def test_both_stores_have_every_method_of_the_contract() -> None:
    methods = {name for name in vars(Store) if not name.startswith("_")}
    assert len(methods) > 30
    for kind in (MemoryStore, SqlStore):
        for name in methods:
            ours, theirs = (inspect.signature(vars(each)[name]) for each in (kind, Store))
            assert ours == theirs, f"{kind.__name__}.{name}"


def test_a_call_takes_microseconds() -> None:
    store = MemoryStore()
    lease = store.acquire("p", holder("r"), 60)
    began = time.perf_counter()
    for seq in range(1000):
        (group,) = store.intend(lease, [intent(seq)], merge)
        store.loaded(lease, [(group.id, group.loads[0])], merge)
    each = (time.perf_counter() - began) / 2000
    print(f"{each * 1e6:.1f} us a ledger call")
    assert each < 500e-6
