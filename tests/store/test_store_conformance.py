"""One suite for every store: the contract of ``penstock.store.contract``, method by method.

L1 and L3 are the ledger's, L12 the lease's; "names only grow" is a promise of docs/guarantees.md.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from penstock.errors import LeaseLost, Locked, StateError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.segments import (
    SHARED_STATE,
    ConsumedSlice,
    Group,
    PartRef,
    SegmentId,
    WriteDisposition,
)
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.store.contract import (
    ExpectedLoad,
    GroupIntent,
    Holder,
    Lease,
    LoadIntent,
    Reset,
    StateSource,
    Store,
)
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Refresh, Remembered, StoredPlace, TableNames, UsedModes, asked
from penstock.store.schema import NUMBERS

A, B = StreamId("shop", "users"), StreamId(None, "orders")
RAW = StreamId("raw", "users")
PART = PartRef("e1/a.parquet", 3, 30, 20, 0xDEADBEEF)


def holder(run: str = "r1", pid: int | None = None, boot: str | None = None) -> Holder:
    me = this_holder(run, "2026-11-20T10:00:00Z")
    return Holder(
        name=me.name,
        pid=me.pid if pid is None else pid,
        boot=me.boot if boot is None else boot,
        started_at=me.started_at,
        run=run,
    )


def set_anew(store: Any, stream: StreamId) -> None:
    """Marks that the next load of the stream replaces its table's rows."""
    if isinstance(store, MemoryStore):
        numbers = store._all["shop"].numbers  # pyright: ignore[reportPrivateUsage]
        numbers[stream.key] = msgspec.structs.replace(numbers[stream.key], anew=True)
        return
    with store._db.writing() as conn:
        mine = (NUMBERS.c.pipeline == "shop", NUMBERS.c.stream == stream.key)
        conn.execute(update(NUMBERS).where(*mine).values(anew=1))


def stream_state(stream: StreamId, blob: str) -> StoredState:
    return StoredState(StateScope(StateType.stream, stream), blob)


def shared_state(blob: str) -> StoredState:
    return StoredState(StateScope(StateType.global_), blob)


def load(stream: StreamId, segment: SegmentId) -> LoadIntent:
    return LoadIntent(
        stream=stream,
        disposition=WriteDisposition(
            mode=DestinationSyncMode.append_dedup, primary_key=(("id",),), sync_id=7
        ),
        segments=(segment,),
        parts=(PART,),
        schema_version=1,
        generation=2,
        read=3,
    )


def group(
    epoch: int, seq: int, streams: Sequence[StreamId] = (), states: Sequence[StoredState] = ()
) -> GroupIntent:
    at = SegmentId(epoch, seq)
    return GroupIntent(
        loads=tuple(load(s, at) for s in streams),
        states=tuple(states),
        epoch=epoch,
        consumes=tuple((at, s) for s in (*streams, SHARED_STATE)),
    )


def merge(saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
    merged = {s.scope.key: s for s in saved}
    merged.update((s.scope.key, s) for s in new)
    return list(merged.values())


def finish(store: Store, lease: Lease, *groups: Group) -> None:
    store.loaded(lease, [(g.id, each) for g in groups for each in g.loads], merge)


@pytest.fixture
def lease(store: Store) -> Lease:
    return store.acquire("shop", holder(), 60)


# -- the lease (L12)


def test_l12_second_run_is_refused_with_the_holders_name_and_start(
    store: Store, lease: Lease
) -> None:
    with pytest.raises(Locked) as refused:
        store.acquire("shop", holder("r2"), 60)
    error = refused.value
    assert error.code == "state.locked" and error.exit_code == 6
    assert holder().name in error.message and "2026-11-20T10:00:00Z" in error.message
    assert str(os.getpid()) in error.message and "r1" in error.message
    assert f"`kill {os.getpid()}`" in (error.hint or "")
    assert "`penstock state unlock shop`" in (error.hint or "")


def test_l12_other_pipelines_are_not_locked(store: Store, lease: Lease) -> None:
    assert store.acquire("other", holder(), 60).state_id != lease.state_id
    assert store.pipelines() == ["other", "shop"]


def test_l12_released_lease_can_be_taken_and_keeps_its_state_id(store: Store, lease: Lease) -> None:
    store.release(lease)
    again = store.acquire("shop", holder("r2"), 60)
    assert again.state_id == lease.state_id and again.token != lease.token
    store.release(lease)  # the old one's release touches nothing
    with pytest.raises(Locked):
        store.acquire("shop", holder("r3"), 60)


def test_L12_time_alone_breaks_no_lock(store: Store) -> None:
    """Of a holder that cannot be checked, and of one that lives."""
    for far in ("another machine", ""):
        store.release(old := store.acquire("shop", holder("far", boot=far), 0.01))
        old = store.acquire("shop", holder("far", boot=far), 0.01)
        time.sleep(0.05)
        with pytest.raises(Locked):
            store.acquire("shop", holder("r2"), 60)
        assert store.new_epoch(old, 0)
        store.release(old)


def test_L12_a_watched_lock_is_taken_over_unless_it_was_renewed(store: Store) -> None:
    old = store.acquire("shop", holder("far", boot="another machine"), 60)
    seen = store.lock("shop")
    assert seen is not None and (seen.alive, seen.seconds, seen.holder.run) == (None, 60, "far")
    store.renew(old, 60)
    with pytest.raises(Locked) as refused:
        store.acquire("shop", holder("r2"), 60, seen)
    assert "cannot be checked from here" in refused.value.message
    new = store.acquire("shop", holder("r2"), 60, store.lock("shop"))
    assert new.state_id == old.state_id
    with pytest.raises(LeaseLost):
        store.renew(old, 60)


def test_L12_every_renewal_shows_whatever_the_clock_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock may stand still (the clocks of some sandboxes do)."""
    monkeypatch.setattr(time, "time", lambda: 1e9)
    lease = store.acquire("shop", holder(boot="another machine"), 60)
    shown = [store.lock("shop")]
    for _ in range(3):
        store.renew(lease, 60)
        shown.append(store.lock("shop"))
    assert len({lock.renewal for lock in shown if lock is not None}) == 4


def test_L12_a_holder_that_lives_is_never_taken_over(store: Store) -> None:
    store.acquire("shop", holder(), 0.01)
    time.sleep(0.05)
    with pytest.raises(Locked):
        store.acquire("shop", holder("r2"), 60, store.lock("shop"))


WRITES: dict[str, Callable[[Store, Lease], Any]] = {
    "renew": lambda s, k: s.renew(k, 60),
    "new_epoch": lambda s, k: s.new_epoch(k, 0),
    "close_epochs": lambda s, k: s.close_epochs(k, {1: 1}),
    "new_generation": lambda s, k: s.new_generation(k, [A]),
    "intend": lambda s, k: s.intend(k, [group(1, 9, [A])], merge),
    "intend nothing": lambda s, k: s.intend(k, [], merge),
    "settle": lambda s, k: s.settle(k, [group(1, 9, [A])], merge),
    "loaded": lambda s, k: s.loaded(k, [(g.id, g.loads[0]) for g in s.open_groups("shop")], merge),
    "abandon": lambda s, k: s.abandon(k, [ConsumedSlice(SegmentId(1, 8), A)]),
    "forget": lambda s, k: s.forget(k, [1]),
    "begin_keys": lambda s, k: s.begin_keys(k, "epoch:1"),
    "end_keys": lambda s, k: s.end_keys(k),
    "remember_source": lambda s, k: s.remember_source(k, "singer", "singer:tap-x"),
    "replace_states": lambda s, k: s.replace_states(k, []),
    "remember": lambda s, k: s.remember(k, Remembered(columns={A: {"x": "y"}})),
    "schema_version": lambda s, k: s.schema_version(k, A, RowSchema(())),
    "set_config_override": lambda s, k: s.set_config_override(k, "source", "h", {}),
    "start_run": lambda s, k: s.start_run(k, "r9", "2026-11-20T11:00:00Z"),
    "finish_run": lambda s, k: s.finish_run(k, "r1", {"run": "r1"}),
}


def everything(store: Store) -> list[Any]:
    return [
        store.closed_epochs("shop"),
        store.generations("shop"),
        store.open_groups("shop"),
        store.committed_loads("shop", 1),
        store.consumed("shop", range(9)),
        store.states("shop"),
        store.remembered("shop"),
        store.schemas("shop", A),
        store.config_override("shop", "source"),
        store.source_of("shop"),
        store.connector_keys("shop"),
        store.runs("shop"),
    ]


def test_l12_stolen_lease_makes_every_write_of_the_old_holder_raise(store: Store) -> None:
    old = store.acquire("shop", holder(boot="another machine"), 0.01)
    store.start_run(old, "r1", "2026-11-20T10:00:00Z")
    store.new_epoch(old, 0)
    store.intend(old, [group(1, 1, [A], [stream_state(A, "{}")])], merge)
    new = store.acquire("shop", holder("thief"), 60, store.lock("shop"))
    before = everything(store)
    for name, write in WRITES.items():
        with pytest.raises(LeaseLost) as lost:
            write(store, old)
        assert lost.value.code == "state.lease_lost" and "thief" in lost.value.message, name
    assert everything(store) == before
    assert store.new_epoch(new, 0) == 2


def test_l12_writes_under_an_unknown_pipeline_raise(store: Store) -> None:
    with pytest.raises(LeaseLost):
        store.new_epoch(Lease("never", "token", "id"), 0)


def test_l3_a_second_home_is_another_state_id(new_store: Callable[[], Store]) -> None:
    first = new_store().acquire("shop", holder(), 60)
    assert new_store().acquire("shop", holder(), 60).state_id != first.state_id


# -- counters


def test_l4_epochs_grow_over_lanes_runs_and_resets(store: Store, lease: Lease) -> None:
    assert [store.new_epoch(lease, lane) for lane in (0, 1, 0)] == [1, 2, 3]
    store.replace_states(lease, [])
    store.release(lease)
    assert store.new_epoch(store.acquire("shop", holder("r2"), 60), 0) == 4


def test_fence_is_closed_once_and_for_good(store: Store, lease: Lease) -> None:
    for _ in range(3):
        store.new_epoch(lease, 0)
    assert store.open_epochs("shop") == {1, 2, 3}
    store.close_epochs(lease, {1: 5, 2: 0})
    assert store.open_epochs("shop") == {3}
    store.close_epochs(lease, {1: 9, 3: -1})
    store.close_epochs(lease, {})
    assert store.closed_epochs("shop") == {1: 5, 2: 0, 3: -1}
    assert store.closed_epochs("never") == {} and store.open_epochs("never") == set()


def test_what_a_closed_epoch_held_is_known_until_it_is_forgotten(
    store: Store, lease: Lease
) -> None:
    for _ in range(3):
        store.new_epoch(lease, 0)
    store.close_epochs(lease, {1: 5, 2: 0}, {1: 7, 3: 9})
    assert store.shares("shop") == {1: 7}
    store.close_epochs(lease, {1: 5, 3: 2}, {1: 8, 3: 4})
    assert store.shares("shop") == {1: 7, 3: 4} and store.shares("never") == {}
    store.forget(lease, [1, 2])
    assert store.shares("shop") == {3: 4}
    assert store.closed_epochs("shop") == {1: 5, 2: 0, 3: 2}


def test_generations_grow_per_stream(store: Store, lease: Lease) -> None:
    assert store.new_generation(lease, [A, B]) == {A: 1, B: 1}
    assert store.new_generation(lease, [A]) == {A: 2}
    assert store.new_generation(lease, []) == {}
    assert store.generations("shop") == {A: 2, B: 1}


# -- the ledger (L1, L3)


def test_l3_intents_come_back_whole_with_key_and_number(store: Store, lease: Lease) -> None:
    written = store.intend(lease, [group(1, 1, [A, B]), group(1, 2, [A])], merge)
    assert [g.id for g in written] == [1, 2]
    assert [(x.key, x.number) for g in written for x in g.loads] == [
        (f"{lease.state_id}/{A.key}", 1),
        (f"{lease.state_id}/{B.key}", 1),
        (f"{lease.state_id}/{A.key}", 2),
    ]
    first = written[0].loads[0]
    assert (first.disposition, first.parts, first.generation) == (
        load(A, SegmentId(1, 1)).disposition,
        (PART,),
        2,
    )
    assert store.open_groups("shop") == written


def test_l3_numbers_never_restart_whatever_reset_or_run(store: Store, lease: Lease) -> None:
    finish(store, lease, *store.intend(lease, [group(1, 1, [A])], merge))
    store.replace_states(lease, [])
    store.forget(lease, [1])
    store.release(lease)
    again = store.acquire("shop", holder("r2"), 60)
    (later,) = store.intend(again, [group(2, 1, [A])], merge)
    assert (later.id, later.loads[0].number) == (2, 2)
    assert later.loads[0].key == f"{lease.state_id}/{A.key}"


def follows(store: Store, lease: Lease, *groups: GroupIntent) -> list[tuple[int, int | None]]:
    return [(x.number, x.follows) for g in store.intend(lease, groups, merge) for x in g.loads]


def test_l3_a_load_names_the_one_that_its_table_must_have(store: Store, lease: Lease) -> None:
    assert follows(store, lease, group(1, 1, [A]), group(1, 2, [A])) == [(1, 0), (2, 1)]
    bare = group(1, 3, [A])
    nothing = msgspec.structs.replace(bare.loads[0], parts=(), rejected=3)
    bare = msgspec.structs.replace(bare, loads=(nothing,))
    assert follows(store, lease, bare, group(1, 4, [A])) == [(3, 2), (4, 2)]
    finish(store, lease, *store.open_groups("shop"))
    reset = Reset((A,), lambda states: [])
    store.replace_states(lease, [], reset)
    assert follows(store, lease, group(1, 5, [A, B])) == [(5, None), (1, 0)]
    store.replace_states(lease, [])
    assert follows(store, lease, group(1, 6, [A, B])) == [(6, None), (2, None)]
    tokens = [x.token for g in store.open_groups("shop") for x in g.loads]
    assert all(tokens) and len(set(tokens)) == len(tokens)


def test_l3_only_adopted_loads_are_renumbered_and_a_commit_ends_it(
    store: Store, lease: Lease
) -> None:
    first = store.intend(lease, [group(1, 1, [A, B]), group(1, 2, [A])], merge)
    store.loaded(lease, [(first[0].id, first[0].loads[1])], merge)
    assert store.renumber(lease, {A: 9}) == set()
    assert store.open_groups("shop") == list(first)
    store.adopt(lease, [A])
    assert store.renumber(lease, {A: 9, B: 9}) == {A}
    loads = [x for g in store.open_groups("shop") for x in g.loads]
    assert [(x.stream, x.number, x.follows) for x in loads] == [
        (A, 10, None),
        (B, 1, 0),
        (A, 11, 10),
    ]
    with pytest.raises(StateError):  # the old number is no load any more
        finish(store, lease, first[1])
    assert store.committed_loads("shop", first[0].id) == {(loads[1].key, 1)}
    again = store.open_groups("shop")
    store.loaded(lease, [(again[0].id, again[0].loads[0])], merge)
    assert store.renumber(lease, {A: 20}) == set()
    finish(store, lease, *store.open_groups("shop"))
    assert store.open_groups("shop") == []
    assert follows(store, lease, group(1, 5, [A])) == [(12, 11)]


def test_l3_what_is_made_anew_is_replaced_by_what_was_read_since(
    store: Store, lease: Lease
) -> None:
    """As an earlier version of Penstock stored it for ``--recreate``."""
    before = store.new_epoch(lease, 0)
    reset = Reset((A,), lambda states: [])
    store.replace_states(lease, [], reset)
    set_anew(store, A)
    after = store.new_epoch(lease, 0)
    intents = [group(before, 1, [A]), group(after, 1, [A]), group(after, 2, [A])]
    loads = [x for g in store.intend(lease, intents, merge) for x in g.loads]
    assert [x.replaces for x in loads] == [False, True, False]


def test_l6_a_refresh_is_pending_until_its_generation_is_in_the_ledger(
    store: Store, lease: Lease
) -> None:
    before = store.new_epoch(lease, 0)
    store.remember(lease, Remembered(refresh={A: asked("r7", "now", before, None)}))
    after = store.new_epoch(lease, 0)
    assert store.last_epoch("shop") == after
    plain, refreshed = group(after, 1, [A]), group(after, 2, [A])
    load = refreshed.loads[0]
    disposition = msgspec.structs.replace(load.disposition, refreshes=True)
    load = msgspec.structs.replace(load, replaces=True, disposition=disposition)
    refreshed = msgspec.structs.replace(refreshed, loads=(load,))
    store.intend(lease, [plain], merge)
    assert store.remembered("shop").pending_refreshes.keys() == {A}
    store.intend(lease, [refreshed], merge)
    assert store.remembered("shop", [A]).refresh == {
        A: Refresh(run="r7", at="now", after=before, until=after)
    }
    store.remember(lease, Remembered(refresh={A: asked("r8", "then", after, None)}))
    assert store.remembered("shop").pending_refreshes[A].run == "r8"


def test_l1_who_gave_a_result_is_known_in_every_later_run(store: Store, lease: Lease) -> None:
    """Also beside what is stored of streams, and in no other pipeline."""
    assert store.remembered("shop", ()).results == frozenset()
    for name in ("syncmaven:./a", "syncmaven:./b", "syncmaven:./a"):
        store.remember(lease, Remembered(results=frozenset([name])))
    store.remember(lease, Remembered(columns={A: {"x": "y"}}))
    both = frozenset({"syncmaven:./a", "syncmaven:./b"})
    assert store.remembered("shop", ()).results == store.remembered("shop").results == both
    assert store.remembered("other").results == frozenset()


def test_l1_state_is_saved_only_with_the_groups_last_load(store: Store, lease: Lease) -> None:
    state = stream_state(A, '{"cursor": 1}')
    (g,) = store.intend(lease, [group(1, 1, [A, B], [state])], merge)
    store.loaded(lease, [(g.id, g.loads[0])], merge)
    assert store.states("shop") == []
    assert store.committed_loads("shop", g.id) == {(g.loads[0].key, 1)}
    assert store.open_groups("shop") == [g]
    store.loaded(lease, [(g.id, g.loads[1])], merge)
    assert store.states("shop") == [state]
    assert store.open_groups("shop") == [] and store.committed_loads("shop", g.id) == set()


def test_l1_state_text_is_kept_byte_for_byte(store: Store, lease: Lease) -> None:
    blob = '{ "b":1.10,  "a" : "é\\u0000\\ud83d\\ude00 😀", "n": 123456789012345678901234567890 }\n'
    finish(store, lease, *store.intend(lease, [group(1, 1, [A], [stream_state(A, blob)])], merge))
    assert store.states("shop")[0].blob == blob
    assert store.state_history("shop")[0]["blob"] == blob


def test_l1_a_group_without_loads_is_committed_at_once(store: Store, lease: Lease) -> None:
    store.intend(lease, [group(1, 1, [], [shared_state("1")])], merge)
    assert store.states("shop") == [shared_state("1")] and store.open_groups("shop") == []
    assert ConsumedSlice(SegmentId(1, 1), SHARED_STATE) in store.consumed("shop", [1])


def test_l1_newer_shared_state_waits_for_an_older_unfinished_group(
    store: Store, lease: Lease
) -> None:
    first, second, third = store.intend(
        lease,
        [
            group(1, 1, [A, B], [shared_state("1")]),
            group(1, 2, [A], [shared_state("2")]),
            group(1, 3, [], [shared_state("3")]),
        ],
        merge,
    )
    assert third.loads == ()
    store.loaded(lease, [(first.id, first.loads[0]), (second.id, second.loads[0])], merge)
    assert store.states("shop") == []
    assert store.open_groups("shop") == [first]
    store.loaded(lease, [(first.id, first.loads[1])], merge)
    assert store.states("shop") == [shared_state("3")]
    assert [h["blob"] for h in store.state_history("shop")] == ["3"]


def test_l7_a_stream_that_failed_holds_back_only_its_own_state(store: Store, lease: Lease) -> None:
    a1, b1, a2, b2 = store.intend(
        lease,
        [
            group(1, 1, [A], [stream_state(A, "a1")]),
            group(1, 2, [B], [stream_state(B, "b1")]),
            group(1, 3, [A], [stream_state(A, "a2")]),
            group(1, 4, [B], [stream_state(B, "b2")]),
        ],
        merge,
    )
    finish(store, lease, b1, b2, a2)
    assert store.states("shop") == [stream_state(B, "b2")]
    finish(store, lease, a1)
    assert store.states("shop") == [stream_state(B, "b2"), stream_state(A, "a2")]


def test_l1_held_back_state_also_waits_in_order_behind_another(store: Store, lease: Lease) -> None:
    """A, then A+B, then B: the last one's state must not be overtaken by the middle one's."""
    g1, g2, g3 = store.intend(
        lease,
        [
            group(1, 1, [A], [stream_state(A, "a1")]),
            group(1, 2, [A, B], [stream_state(A, "a2"), stream_state(B, "b2")]),
            group(1, 3, [B], [stream_state(B, "b3")]),
        ],
        merge,
    )
    finish(store, lease, g3, g2)
    assert store.states("shop") == []
    finish(store, lease, g1)
    assert set(store.states("shop")) == {stream_state(A, "a2"), stream_state(B, "b3")}


def test_l1_rows_of_a_stream_without_state_hold_back_its_later_state(
    store: Store, lease: Lease
) -> None:
    rows, state = store.intend(
        lease, [group(1, 1, [A]), group(1, 2, [], [stream_state(A, "a2")])], merge
    )
    assert store.states("shop") == []
    finish(store, lease, rows)
    assert store.states("shop") == [stream_state(A, "a2")]
    assert state.loads == ()


def test_l1_marking_again_changes_nothing(store: Store, lease: Lease) -> None:
    g, later = store.intend(
        lease,
        [
            group(1, 1, [A], [stream_state(A, "a1")]),
            group(1, 2, [A], [stream_state(A, "a2")]),
        ],
        merge,
    )
    finish(store, lease, g)
    finish(store, lease, later)
    finish(store, lease, g)
    assert store.states("shop") == [stream_state(A, "a2")]
    assert len(store.state_history("shop")) == 2


def test_l3_a_load_that_was_never_written_down_is_refused(store: Store, lease: Lease) -> None:
    (g,) = store.intend(lease, [group(1, 1, [A, B])], merge)
    (other,) = store.intend(lease, [group(1, 2, [A])], merge)
    for wrong in [(99, g.loads[0]), (0, g.loads[0]), (g.id, other.loads[0])]:
        with pytest.raises(StateError) as refused:
            store.loaded(lease, [(g.id, g.loads[0]), wrong], merge)
        assert refused.value.code == "state.unknown_load"
    assert store.committed_loads("shop", g.id) == set()


def test_l3_a_segment_is_taken_once(store: Store, lease: Lease) -> None:
    store.intend(lease, [group(1, 1, [A])], merge)
    store.abandon(lease, [ConsumedSlice(SegmentId(1, 2), A)])
    before = everything(store)
    for again in (
        [group(1, 1, [A])],
        [group(1, 2, [A])],
        [group(1, 3, [A]), group(1, 3, [A])],
    ):
        with pytest.raises(StateError) as refused:
            store.intend(lease, again, merge)
        assert refused.value.code == "state.consumed_twice"
    assert everything(store) == before
    (g,) = store.intend(lease, [group(1, 4, [A])], merge)
    assert g.loads[0].number == 2


def test_l1_a_merge_that_refuses_leaves_nothing_behind(store: Store, lease: Lease) -> None:
    def refuse(saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        raise StateError("no change of type", code="state.type_change")

    (g,) = store.intend(lease, [group(1, 1, [A], [stream_state(A, "a")])], merge)
    before = everything(store)
    with pytest.raises(StateError, match="no change of type"):
        store.loaded(lease, [(g.id, g.loads[0])], refuse)
    with pytest.raises(StateError, match="no change of type"):
        store.intend(lease, [group(1, 2, [], [stream_state(B, "b")])], refuse)
    assert everything(store) == before
    finish(store, lease, g)
    assert store.states("shop") == [stream_state(A, "a")]


def test_l1_merge_sees_what_is_saved_and_what_is_new_in_order(store: Store, lease: Lease) -> None:
    seen: list[tuple[list[str], list[str]]] = []

    def watch(saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        seen.append(([s.blob for s in saved], [s.blob for s in new]))
        return merge(saved, new)

    store.replace_states(lease, [stream_state(B, "b0")])
    store.new_epoch(lease, 0)
    g1, g2 = store.intend(
        lease,
        [group(2, 1, [A], [stream_state(A, "1")]), group(2, 2, [A], [stream_state(A, "2")])],
        watch,
    )
    store.loaded(lease, [(g2.id, g2.loads[0]), (g1.id, g1.loads[0])], watch)
    assert seen == [(["b0"], ["1", "2"])]


def test_reset_lets_older_rows_load_but_brings_no_older_state_back(
    store: Store, lease: Lease
) -> None:
    old, new = store.new_epoch(lease, 0), 2
    (before,) = store.intend(lease, [group(old, 1, [A], [stream_state(A, "old")])], merge)
    store.replace_states(lease, [stream_state(B, "by hand")])
    finish(store, lease, before)
    store.intend(lease, [group(old, 2, [], [stream_state(A, "old too")])], merge)
    assert store.states("shop") == [stream_state(B, "by hand")]
    assert store.open_groups("shop") == []
    assert store.new_epoch(lease, 0) == new
    finish(store, lease, *store.intend(lease, [group(new, 1, [A], [stream_state(A, "n")])], merge))
    assert store.states("shop") == [stream_state(B, "by hand"), stream_state(A, "n")]


# -- what a destination has acked already


def test_l1_settling_is_intending_and_loading_at_once(store: Store, lease: Lease) -> None:
    state = stream_state(A, "a1")
    first, second = store.settle(
        lease, [group(1, 1, [A, B], [state]), group(1, 2, [A], [stream_state(A, "a2")])], merge
    )
    assert [(x.key, x.number) for g in (first, second) for x in g.loads] == [
        (f"{lease.state_id}/{A.key}", 1),
        (f"{lease.state_id}/{B.key}", 1),
        (f"{lease.state_id}/{A.key}", 2),
    ]
    assert store.states("shop") == [stream_state(A, "a2")]
    assert store.open_groups("shop") == [] and store.committed_loads("shop", first.id) == set()
    assert ConsumedSlice(SegmentId(1, 2), A) in store.consumed("shop", [1])
    assert store.settle(lease, [], merge) == []


def test_l3_numbers_go_on_from_settled_ones_and_marking_them_again_is_harmless(
    store: Store, lease: Lease
) -> None:
    (settled,) = store.settle(lease, [group(1, 1, [A], [stream_state(A, "1")])], merge)
    finish(store, lease, settled)
    (later,) = store.intend(lease, [group(1, 2, [A])], merge)
    assert (later.id, later.loads[0].number) == (settled.id + 1, 2)
    assert store.states("shop") == [stream_state(A, "1")]


def test_l1_a_settled_state_waits_for_an_older_group_that_is_not_committed(
    store: Store, lease: Lease
) -> None:
    (older,) = store.intend(lease, [group(1, 1, [A], [stream_state(A, "1")])], merge)
    store.settle(
        lease,
        [group(1, 2, [A], [stream_state(A, "2")]), group(1, 3, [B], [stream_state(B, "b")])],
        merge,
    )
    assert store.states("shop") == [stream_state(B, "b")]
    assert store.open_groups("shop") == [older]
    finish(store, lease, older)
    assert store.states("shop") == [stream_state(B, "b"), stream_state(A, "2")]


def test_settling_below_the_floor_of_a_reset_brings_no_state_back(
    store: Store, lease: Lease
) -> None:
    old = store.new_epoch(lease, 0)
    store.replace_states(lease, [])
    store.settle(lease, [group(old, 1, [A], [stream_state(A, "old")])], merge)
    assert store.states("shop") == [] and store.open_groups("shop") == []
    new = store.new_epoch(lease, 0)
    store.settle(lease, [group(new, 1, [A], [stream_state(A, "new")])], merge)
    assert store.states("shop") == [stream_state(A, "new")]


def test_l3_a_segment_is_settled_once(store: Store, lease: Lease) -> None:
    """All or nothing: of two groups of which one was taken, neither is written."""
    store.settle(lease, [group(1, 1, [A], [stream_state(A, "1")])], merge)
    before = everything(store)
    for again in ([group(1, 2, [B]), group(1, 1, [A])], [group(1, 3, [A]), group(1, 3, [A])]):
        with pytest.raises(StateError) as refused:
            store.settle(lease, again, merge)
        assert refused.value.code == "state.consumed_twice"
    assert everything(store) == before


def test_l1_settling_with_a_merge_that_refuses_leaves_nothing_behind(
    store: Store, lease: Lease
) -> None:
    def refuse(saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        raise StateError("no change of type", code="state.type_change")

    before = everything(store)
    with pytest.raises(StateError, match="no change of type"):
        store.settle(lease, [group(1, 1, [A], [stream_state(A, "a")])], refuse)
    assert everything(store) == before
    (g,) = store.settle(lease, [group(1, 1, [A], [stream_state(A, "a")])], merge)
    assert (g.id, g.loads[0].number) == (1, 1)


def test_consumed_is_asked_by_epoch_abandoned_and_forgotten(store: Store, lease: Lease) -> None:
    (g,) = store.intend(lease, [group(1, 1, [A])], merge)
    store.intend(lease, [group(2, 1, [B])], merge)
    store.abandon(lease, [ConsumedSlice(SegmentId(1, 7), B), ConsumedSlice(SegmentId(1, 1), A)])
    store.abandon(lease, [])
    one = {
        ConsumedSlice(SegmentId(1, 1), A),
        ConsumedSlice(SegmentId(1, 1), SHARED_STATE),
        ConsumedSlice(SegmentId(1, 7), B),
    }
    two = {ConsumedSlice(SegmentId(2, 1), B), ConsumedSlice(SegmentId(2, 1), SHARED_STATE)}
    assert store.consumed("shop", [1]) == one
    finish(store, lease, g)
    assert store.consumed("shop", [1, 2, 3]) == one | two
    store.forget(lease, [1, 3])
    assert store.consumed("shop", [1, 2]) == two
    assert store.consumed("shop", []) == set() == store.consumed("never", [1])


# -- states


def test_states_that_stay_the_same_write_no_history(store: Store, lease: Lease) -> None:
    store.replace_states(lease, [stream_state(A, "1"), stream_state(B, "1")])
    store.replace_states(lease, [stream_state(B, "1"), stream_state(A, "2")])
    assert store.states("shop") == [stream_state(B, "1"), stream_state(A, "2")]
    history = store.state_history("shop")
    assert [(h["scope"], h["blob"], h["run"]) for h in history] == [
        (A.key, "2", "r1"),
        (B.key, "1", "r1"),
        (A.key, "1", "r1"),
    ]
    assert all(h["at"].endswith("Z") and h["type"] == "STREAM" for h in history)
    assert store.state_history("shop", 1) == history[:1]


def test_removed_states_are_in_the_history_and_types_may_change(store: Store, lease: Lease) -> None:
    legacy = StoredState(StateScope(StateType.legacy), '{"a": 1}')
    store.replace_states(lease, [legacy])
    store.replace_states(lease, [shared_state("g")])
    assert store.states("shop") == [shared_state("g")]
    store.replace_states(lease, [])
    assert store.states("shop") == []
    assert [(h["type"], h["blob"]) for h in store.state_history("shop")] == [
        ("GLOBAL", None),
        ("GLOBAL", "g"),
        ("LEGACY", '{"a": 1}'),
    ]


def test_history_keeps_the_newest_thousand(store: Store, lease: Lease) -> None:
    streams = [StreamId(None, f"s{i}") for i in range(1500)]
    store.replace_states(lease, [stream_state(s, "1") for s in streams])
    store.replace_states(lease, [stream_state(s, "2") for s in streams[:10]])
    history = store.state_history("shop", 5000)
    assert len(history) == 1000
    assert [h["blob"] for h in history[:10]] == ["2"] * 10 and history[10]["blob"] is None


@pytest.mark.dear
def test_history_is_bounded_in_bytes(store: Store, lease: Lease) -> None:
    big = "x" * (10 << 20)
    for n in range(6):
        store.replace_states(lease, [stream_state(A, f"{n}{big}")])
    kept = [h["blob"][0] for h in store.state_history("shop")]
    assert kept == ["5", "4", "3"]
    store.replace_states(lease, [stream_state(A, "x" * (40 << 20))])  # the newest is kept
    assert [len(h["blob"]) for h in store.state_history("shop")] == [40 << 20]


def test_two_states_for_one_stream_are_refused(store: Store, lease: Lease) -> None:
    with pytest.raises(StateError) as refused:
        store.replace_states(lease, [stream_state(A, "1"), stream_state(A, "2")])
    assert refused.value.code == "state.duplicate" and store.states("shop") == []


# -- names and schemas


def test_names_only_grow(store: Store, lease: Lease) -> None:
    weird = {"a\0b": "a_b", "\ud800": "_", "é 😀": "é_😀", "": "_2"}
    one, both = {A.key: "x"}, {A.key: "x", B.key: "y"}
    store.remember(lease, Remembered(tables=TableNames(tables=one), columns={A: weird}))
    store.remember(lease, Remembered(tables=TableNames(tables=both, records={B.key: "z"})))
    store.remember(lease, Remembered(columns={A: {}, B: {}}))
    names = TableNames(tables=both, records={B.key: "z"})
    expected = Remembered(tables=names, columns={A: weird})
    assert store.remembered("shop") == expected
    for other in (
        Remembered(tables=TableNames(tables={A.key: "z"}), columns={B: {"new": "n"}}),
        Remembered(columns={A: {"": "_3"}}),
    ):
        with pytest.raises(StateError) as refused:
            store.remember(lease, other)
        assert refused.value.code == "state.name_changed"
    assert store.remembered("shop") == expected
    assert store.remembered("other") == Remembered()


def test_what_is_remembered_of_a_stream_is_asked_for_by_stream(store: Store, lease: Lease) -> None:
    """Each fact under its own name, and of the streams that are asked for alone."""
    for stream, n in ((A, 1), (B, 2)):
        store.remember(
            lease,
            Remembered(
                tables=TableNames(tables={stream.key: f"t{n}"}, targets={stream.key: RAW.key}),
                columns={stream: {"id": f"id{n}"}},
                answer_columns={stream: {"n": f"n{n}"}},
                state_names={stream: frozenset({f"s{n}", "s"})},
                versions={stream: {170 + n: n}},
                visible={stream: {n: 170 + n}},
                refreshes={stream: frozenset({n})},
            ),
        )
    store.remember(lease, Remembered(versions={A: {180: 3}}, visible={A: {3: 180}}))
    every, one = store.remembered("shop"), store.remembered("shop", [A])
    names = TableNames(tables={A.key: "t1", B.key: "t2"}, targets={A.key: RAW.key, B.key: RAW.key})
    assert one == Remembered(
        tables=names,
        columns={A: {"id": "id1"}},
        answer_columns={A: {"n": "n1"}},
        state_names={A: frozenset({"s1", "s"})},
        versions={A: {171: 1, 180: 3}},
        visible={A: {1: 171, 3: 180}},
        refreshes={A: frozenset({1})},
    )
    assert every.versions == {A: {171: 1, 180: 3}, B: {172: 2}}
    assert [every.newest_visible(s) for s in (A, B, RAW)] == [3, 2, 0]
    assert store.remembered("shop", ()) == Remembered(tables=names)
    assert store.remembered("shop", [A, B]) == every


def test_A16_the_modes_that_were_used_last_hold(store: Store, lease: Lease) -> None:
    append = UsedModes(
        sync_mode=SyncMode.incremental, destination_sync_mode=DestinationSyncMode.append
    )
    merge = UsedModes(
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append_dedup,
        primary_key=(("id",),),
    )
    for now in (append, append, merge, append, merge):
        store.remember(lease, Remembered(modes={A: now}))
        assert store.remembered("shop").modes == {A: now}


def test_L6_a_stream_is_passed_over_until_it_is_taken_up(store: Store, lease: Lease) -> None:
    def passed() -> set[StreamId]:
        return {*store.remembered("shop").passed_over}

    store.remember(lease, Remembered(), taken_up=[A])  # it never was passed over
    store.remember(lease, Remembered(passed_over=frozenset({A, B})))
    store.remember(lease, Remembered(passed_over=frozenset({A})))
    assert passed() == {A, B}
    store.remember(lease, Remembered(), taken_up=[A])
    store.remember(lease, Remembered(), taken_up=[A])
    assert passed() == {B}
    store.remember(lease, Remembered(passed_over=frozenset({A})))
    assert passed() == {A, B}


def fields(*kinds: Kind) -> tuple[Field, ...]:
    inner = DataType(Kind.struct, fields=(Field("x", "x y", DataType(Kind.decimal, 38, 0)),))
    plain = (Field(f"c{i}", f"c {i}", DataType(k)) for i, k in enumerate(kinds))
    return (*plain, Field("nested", "nested", DataType(Kind.array, item=inner)))


def test_schema_versions_grow_with_every_change_and_return(store: Store, lease: Lease) -> None:
    one, two = RowSchema(fields(Kind.string)), RowSchema(fields(Kind.string, Kind.integer))
    assert store.schema_version(lease, A, one) == RowSchema(one.fields, 1)
    assert store.schema_version(lease, A, RowSchema(one.fields, 77)).version == 1
    assert store.schema_version(lease, A, two).version == 2
    assert store.schema_version(lease, A, one).version == 3
    assert store.schemas("shop", A) == {
        1: RowSchema(one.fields, 1),
        2: RowSchema(two.fields, 2),
        3: RowSchema(one.fields, 3),
    }
    assert store.schemas("shop", B) == {}


def test_l9_which_columns_are_never_null_is_part_of_a_version(store: Store, lease: Lease) -> None:
    one = RowSchema((Field("id", "id", DataType(Kind.integer)),))
    store.schema_version(lease, A, one)
    proved = store.schema_version(lease, A, one.with_required({"id", "gone"}))
    assert (proved.version, proved.required) == (2, {"id"})
    assert store.schemas(lease.pipeline, A) == {1: RowSchema(one.fields, 1), 2: proved}
    assert store.newest_schemas(lease.pipeline, [A, B]) == {A: proved}
    assert store.newest_schemas("another", [A]) == {}


def test_schema_versions_of_many_streams_at_once(store: Store, lease: Lease) -> None:
    one, two = RowSchema(fields(Kind.string)), RowSchema(fields(Kind.date))
    store.schema_version(lease, A, one)
    assert store.schema_versions(lease, {A: two, B: one}) == {
        A: RowSchema(two.fields, 2),
        B: RowSchema(one.fields, 1),
    }
    assert store.schema_versions(lease, {}) == {}


def test_known_streams_are_those_with_a_generation_schema_or_state(
    store: Store, lease: Lease
) -> None:
    c = StreamId("shop", "c")
    store.new_generation(lease, [A])
    store.schema_version(lease, B, RowSchema(()))
    store.replace_states(lease, [shared_state("g")])
    assert store.known_streams("shop") == {A, B}
    store.replace_states(lease, [stream_state(c, "1")])
    assert store.known_streams("shop") == {A, B, c}
    assert store.known_streams("never") == set()


def test_the_source_is_remembered_and_the_newest_holds(store: Store, lease: Lease) -> None:
    assert store.source_of("shop") is None and store.source_of("never") is None
    store.remember_source(lease, "airbyte", "airbyte:source-faker@7.2.1")
    store.remember_source(lease, "singer", "singer:'./tap é'")
    store.remember_source(lease, "singer", "singer:'./tap é'")
    store.replace_states(lease, [])
    store.release(lease)
    assert store.source_of("shop") == StateSource("singer", "singer:'./tap é'")


# -- config overrides


def test_config_override_is_kept_whole_per_role(store: Store, lease: Lease) -> None:
    config = {"token": "s3cret", "n": 2**80, "deep": [{"x": None}]}
    store.set_config_override(lease, "source", "h1", config)
    store.set_config_override(lease, "destination", "h3", {})
    assert store.config_override("shop", "source") == ("h1", config)
    store.set_config_override(lease, "source", "h2", {"token": "new"})
    assert store.config_override("shop", "source") == ("h2", {"token": "new"})
    assert store.config_override("shop", "none") is None
    assert "s3cret" not in repr(store)


# -- runs


def test_runs_are_given_newest_first_and_limited(store: Store, lease: Lease) -> None:
    for n in range(3):
        store.start_run(lease, f"r{n}", f"2026-11-20T10:0{n}:00Z")
        store.finish_run(lease, f"r{n}", {"run": f"r{n}", "pipeline": "shop"})
    other = store.acquire("other", holder("o"), 60)
    store.start_run(other, "o", "2026-11-20T10:01:30Z")
    store.finish_run(other, "o", {"run": "o", "pipeline": "other"})
    assert [r["run"] for r in store.runs("shop")] == ["r2", "r1", "r0"]
    assert [r["run"] for r in store.runs(None)] == ["r2", "o", "r1", "r0"]
    assert [r["run"] for r in store.runs(None, 2)] == ["r2", "o"]
    assert store.runs("never") == []


def test_runs_that_are_forgotten_are_gone_and_others_stay(store: Store, lease: Lease) -> None:
    other = store.acquire("other", holder("o"), 60)
    for held, names in ((lease, ("r1", "r2", "r3")), (other, ("r1",))):
        for n, run in enumerate(names):
            store.start_run(held, run, f"2026-11-20T10:0{n}:00Z")
            store.finish_run(held, run, {"run": run})
    store.forget_runs(lease, ["r1", "r3", "never"])
    store.forget_runs(lease, [])
    assert [r["run"] for r in store.runs("shop")] == ["r2"]
    assert [r["run"] for r in store.runs("other")] == ["r1"]
    store.release(lease)
    with pytest.raises(LeaseLost):  # L12
        store.forget_runs(lease, ["r2"])
    assert [r["run"] for r in store.runs("shop")] == ["r2"]


def test_a_run_without_report_is_running_while_it_has_the_lease(store: Store, lease: Lease) -> None:
    store.start_run(lease, "r1", "2026-11-20T10:00:00Z")
    (running,) = store.runs("shop")
    assert (running["status"], running["run"], running["notes"]) == ("running", "r1", [])
    store.release(lease)
    far = store.acquire("shop", holder("r2", boot="another machine"), 0.01)
    store.start_run(far, "r2", "2026-11-20T10:01:00Z")
    time.sleep(0.05)
    unknown, dead = store.runs("shop")
    assert (unknown["status"], unknown["error"]) == ("running", None)
    assert "cannot be checked from here" in unknown["notes"][0]
    assert "run r2) since " in unknown["notes"][0]
    assert "`penstock state unlock shop`" in unknown["notes"][0]
    assert dead["status"] == "failed" and dead["notes"] and dead["error"]["code"] == "run.died"
    assert dead["started_at"] == "2026-11-20T10:00:00Z" and dead["pipeline"] == "shop"


def test_a_run_without_report_failed_once_another_took_over(store: Store, lease: Lease) -> None:
    store.start_run(lease, "r1", "2026-11-20T10:00:00Z")
    store.release(lease)
    again = store.acquire("shop", holder("r2"), 60)
    store.start_run(again, "r2", "2026-11-20T10:05:00Z")
    assert [r["status"] for r in store.runs("shop")] == ["running", "failed"]


# -- many streams


@pytest.mark.dear
def test_ten_thousand_groups_take_seconds(store: Store, lease: Lease) -> None:
    streams = [StreamId("wide", f"stream_{i}") for i in range(10_000)]
    began = time.monotonic()
    written = store.intend(
        lease,
        [group(1, i, [s], [stream_state(s, '{"c":1}')]) for i, s in enumerate(streams)],
        merge,
    )
    intended = time.monotonic()
    finish(store, lease, *written)
    ended = time.monotonic()
    print(f"intend {intended - began:.2f} s, loaded {ended - intended:.2f} s")
    assert len(store.states("shop")) == 10_000
    assert ended - began < 60


def test_L6_an_unread_stream_keeps_the_share_of_its_own_last_run(
    store: Store, lease: Lease
) -> None:
    store.remember(lease, Remembered(unread={A: '{"at": "a:1"}', B: None}))
    store.remember(lease, Remembered(unread={A: "later", B: "later"}))  # the source's, not theirs
    assert store.remembered("shop").unread == {A: '{"at": "a:1"}', B: None}
    store.remember(lease, Remembered(passed_over=frozenset({A})))
    assert store.remembered("shop").unread[A] == '{"at": "a:1"}'
    assert store.remembered("shop").passed_over == {A}
    store.remember(lease, Remembered(), taken_up=[A, B])
    assert store.remembered("shop").unread == {}
    assert store.remembered("shop").owned == {A, B}
    store.remember(lease, Remembered(unread={A: "2"}))
    assert store.remembered("shop").unread == {A: "2"}


def test_the_newest_cursor_of_a_stream_counts(store: Store, lease: Lease) -> None:
    for path in (("id",), ("meta", "at"), ("meta", "at"), ("id",), ()):
        store.remember(lease, Remembered(cursors={A: path}))
        assert store.remembered("shop").cursors == {A: path}


def test_L3_expected_loads_are_those_that_each_table_has_at_least(
    store: Store, lease: Lease
) -> None:
    assert store.expected_loads("shop") == {}
    (first,) = store.intend(lease, [group(1, 1, [A, B])], merge)
    assert store.expected_loads("shop") == {}  # it may be there or not
    finish(store, lease, first)
    key = {each.stream: each.key for each in first.loads}
    one = {s: ExpectedLoad(key[s], 1) for s in (A, B)}
    assert store.expected_loads("shop") == one
    (second,) = store.intend(lease, [group(1, 2, [A])], merge)
    assert store.expected_loads("shop") == one
    finish(store, lease, second)
    assert store.expected_loads("shop") == {**one, A: ExpectedLoad(key[A], 2)}
    store.adopt(lease, [A])
    assert store.expected_loads("shop") == {B: one[B]}


def test_the_place_of_a_pipeline_is_the_last_one(store: Store, lease: Lease) -> None:
    assert store.remembered("shop", ()).place is None
    for place in (
        StoredPlace(folder="/a"),
        StoredPlace(folder="/b", id="x"),
        StoredPlace(folder="/a"),
    ):
        store.remember(lease, Remembered(place=place))
        assert store.remembered("shop", ()).place == place
