"""Which segments become which loads (L1, L3, L6), on the cases that versions of a stream make."""

import msgspec

from penstock.engine.deliver.load_plan import Pending, covered, decide
from penstock.model.catalog import DestinationSyncMode, Shard, StreamId
from penstock.model.segments import (
    SHARED_STATE,
    ConsumedSlice,
    PartRef,
    Segment,
    SegmentId,
    StreamSlice,
    WriteDisposition,
)
from penstock.model.state import StateScope, StateType
from penstock.store.keys import CoveredKeys, lane_task

A, B = StreamId(None, "a"), StreamId(None, "b")
SHARED = StateScope(StateType.legacy)


def rows(
    stream: StreamId,
    count: int = 1,
    *,
    generation: int = 1,
    version: int | None = None,
    complete: bool = False,
    schema: int = 1,
    keys: int = 0,
) -> StreamSlice:
    """``version``: rows that wait until it is complete."""
    part = PartRef(f"{stream.name}/{generation}/{count}/{schema}", count, count, 0, 0)
    return StreamSlice(
        stream=stream,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=schema,
        generation=generation,
        fills_generation=version is not None,
        version=version,
        parts=(part,) if count else (),
        read=count,
        complete=complete,
        keys=(("transform:0", keys),) if keys else (),
    )


def segment(
    seq: int, *slices: StreamSlice, scope: StateScope | None = SHARED, state: str | None = "{}"
) -> Segment:
    return Segment(id=SegmentId(1, seq), lane=0, scope=scope, slices=slices, state=state)


def loads(pending: Pending) -> list[tuple[str, tuple[int, ...], bool]]:
    """(stream, segments, replaces) in the order of their commits."""
    return [
        (load.stream.name, tuple(s.seq for s in load.segments), load.replaces)
        for group in pending.ready
        for load in group.loads
    ]


def test_L6_a_version_comes_between_the_rows_before_and_after_it() -> None:
    found = decide(
        [
            segment(1, rows(A), rows(B)),
            segment(2, rows(A, version=2, generation=2)),
            segment(3, rows(A, version=2, generation=2, complete=True), state=None),
            segment(4, rows(A, generation=2)),
        ],
        set(),
    )
    order = [load for load in loads(found) if load[0] == "a"]
    assert order == [("a", (1,), False), ("a", (2, 3), True), ("a", (4,), False)]
    assert found.activates == ((A, 2, 2),)
    assert found.amid_shared == {A}
    assert not found.waiting


def test_L6_each_whole_version_is_shown_as_rows_of_each_may_follow_it() -> None:
    found = decide(
        [
            segment(1, rows(A, version=2, generation=2, complete=True), state=None),
            segment(2, rows(A, generation=2)),
            segment(3, rows(A, version=3, generation=3), state=None),
            segment(4, rows(A, version=4, generation=4, complete=True), state=None),
        ],
        set(),
    )
    assert loads(found) == [("a", (1,), True), ("a", (2,), False), ("a", (4,), True)]
    last = found.ready[-1].loads[0] if found.ready[-1].loads else found.ready[-2].loads[0]
    assert (last.read, last.filtered) == (2, 1)  # L8: version 3 was never seen


def test_L6_a_version_of_a_source_without_states_is_shown() -> None:
    own = StateScope(StateType.stream, A)
    found = decide(
        [
            segment(1, rows(A), scope=own, state=None),
            segment(2, rows(A, version=2, generation=2, complete=True), scope=own, state=None),
            segment(3, rows(A, generation=2), scope=own, state=None),
        ],
        set(),
    )
    assert loads(found) == [("a", (1,), False), ("a", (2,), True), ("a", (3,), False)]
    assert not found.amid_shared


def test_L6_the_good_end_of_a_later_epoch_shows_the_newest_version_only() -> None:
    waits = [
        segment(1, rows(A, version=2, generation=2)),
        segment(2, rows(A, version=3, generation=3)),
    ]
    assert not loads(decide(waits, set()))
    assert len(decide(waits, set()).waiting[A]) == 2
    found = decide(waits, set(), ended={A: 1})
    assert loads(found) == [("a", (2,), True)]
    assert not decide(waits, set(), ended={B: 0}).activates
    assert not decide(waits, set(), ended={A: 4}).activates  # older than what is shown


def test_L1_a_blocked_stream_holds_the_versions_among_its_shared_state() -> None:
    found = decide(
        [
            segment(1, rows(A), rows(B)),
            segment(2, rows(B, version=2, generation=2, complete=True), state=None),
        ],
        set(),
        blocked=frozenset({A}),
    )
    assert not loads(found)


def test_L3_no_load_spans_two_schemas_and_what_is_consumed_is_spent() -> None:
    taken = {ConsumedSlice(SegmentId(1, 1), A), ConsumedSlice(SegmentId(1, 1), SHARED_STATE)}
    found = decide(
        [segment(1, rows(A)), segment(2, rows(A, schema=1)), segment(3, rows(A, schema=2))], taken
    )
    assert loads(found) == [("a", (2,), False), ("a", (3,), False)]
    assert [s.id.seq for s in found.spent] == [1]


def keys_of(stream: StreamId, *numbers: int) -> list[CoveredKeys]:
    return [CoveredKeys(lane_task(1), stream.key, n, "transform:0") for n in numbers]


def test_L1_keys_go_with_the_group_that_settles_their_slice_whatever_the_states_scope() -> None:
    found = decide(
        [
            segment(1, rows(A, keys=1), rows(B, generation=2, version=2, keys=2)),
            segment(2, rows(A, keys=3), rows(B, generation=2, version=2, complete=True, keys=4)),
        ],
        set(),
    )
    assert loads(found) == [("a", (1,), False), ("b", (1, 2), True), ("a", (2,), False)]
    assert [list(g.keys) for g in found.ready] == [keys_of(A, 1), keys_of(B, 2, 4), keys_of(A, 3)]


def test_L6_keys_of_versions_that_nobody_saw_go_with_the_one_that_hides_them() -> None:
    found = decide(
        [
            segment(1, rows(A, version=3, generation=3, keys=1), state=None),
            segment(2, rows(A, version=4, generation=4, complete=True, keys=2), state=None),
        ],
        set(),
    )
    assert [k for g in found.ready for k in g.keys] == keys_of(A, 1, 2)


def test_L1_a_slice_that_was_taken_or_given_up_covers_no_keys() -> None:
    both = [segment(1, rows(A, keys=1), rows(B, keys=2))]
    given_up = {ConsumedSlice(SegmentId(1, 1), A)}
    assert list(covered(both)) == [*keys_of(A, 1), *keys_of(B, 2)]
    assert list(covered(both, given_up)) == keys_of(B, 2)
    assert [k for g in decide(both, given_up).ready for k in g.keys] == keys_of(B, 2)
    own = segment(2, rows(A), scope=StateScope(StateType.stream, A))
    own = msgspec.structs.replace(own, keys=5)
    assert list(covered([own])) == [CoveredKeys(lane_task(1), A.key, 5)]
    assert not list(covered([own], {ConsumedSlice(SegmentId(1, 2), A)}))


def test_a_load_of_several_shards_says_which_epoch_read_which() -> None:
    """By it rows of a key are ordered between lanes (tables.newest)."""

    def read(epoch: int, seq: int, shard: Shard | None) -> Segment:
        whole = msgspec.structs.replace(
            rows(A, generation=1), shard=shard, fills_generation=True, complete=True
        )
        own = StateScope(StateType.stream, A)
        return Segment(id=SegmentId(epoch, seq), lane=0, scope=own, slices=(whole,))

    shards = [read(4, 1, Shard(1, 2)), read(5, 1, Shard(0, 2)), read(7, 1, Shard(1, 2))]
    (load,) = (load for group in decide(shards, set()).ready for load in group.loads)
    assert load.shards == ((4, 1), (5, 0), (7, 1))
    (load,) = (load for g in decide([read(4, 1, None)], set()).ready for load in g.loads)
    assert load.shards == ()
