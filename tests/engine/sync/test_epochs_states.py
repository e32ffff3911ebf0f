"""L6: which states an epoch that begins is given, where the state is one text for all streams."""

import pytest

from penstock.engine.deliver.load_plan import Waiting
from penstock.engine.specs.plan import LaneStart, SyncStream
from penstock.engine.sync.epochs import Epochs
from penstock.errors import StateError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.segments import SegmentId, Shape, StreamSlice
from penstock.model.state import SavedState, StateScope, StateType
from penstock.protocols.singer.package import PACKAGE
from penstock.state.lock_holder import this_holder
from penstock.state.memory import MemoryStore

OPAQUE = SavedState(StateScope(StateType.legacy), '{"a":2,"b":1}')
OVERWRITE, APPEND = DestinationSyncMode.overwrite, DestinationSyncMode.append


def stream(name: str, sync_mode: SyncMode, mode: DestinationSyncMode) -> SyncStream:
    about = Stream(id=StreamId(None, name), json_schema={})
    configured = ConfiguredStream(stream=about, sync_mode=sync_mode, destination_sync_mode=mode)
    return SyncStream(configured=configured, shape=Shape(mode=mode), schema_version=1)


ANEW, OTHER = (
    stream("a", SyncMode.full_refresh, OVERWRITE),
    stream("b", SyncMode.incremental, APPEND),
)


class World:
    """A store with a state, and a generation of ``a`` that an epoch left unfinished."""

    def __init__(self, *, gives: bool = True) -> None:
        self.store = MemoryStore()
        self.lease = self.store.acquire("p", this_holder("r"), 60)
        self.store.replace_states(self.lease, [OPAQUE])
        self.segment = SegmentId(self.store.new_epoch(self.lease, 0), 1)
        part = StreamSlice(
            stream=ANEW.id, shape=ANEW.shape, schema_version=1, generation=1, fills_generation=True
        )
        self.waiting = {ANEW.id: (Waiting(self.segment, part, None),)}
        self.epochs = Epochs(
            "p", lease=self.lease, store=self.store, states=PACKAGE.state, gives=gives,
            note=lambda _: None, drain=lambda: None,
        )  # fmt: skip

    def begin(self, *streams: SyncStream, waits: bool = True) -> LaneStart:
        known = {s.id: s for s in streams}
        return self.epochs.begin(streams, [0], known, self.waiting if waits else {})[0]

    def given_up(self) -> bool:
        return bool(self.store.consumed("p", [self.segment.epoch]))


def test_l6_a_lane_that_is_begun_again_does_not_mix() -> None:
    """Nobody knew what kind of state the tap has before its first run, whose lane was lost."""
    world = World()
    with pytest.raises(StateError) as refused:
        world.begin(ANEW, OTHER)
    assert refused.value.code == "state.mixed_modes"
    assert "a would begin anew while b would go on" in refused.value.message
    assert world.store.states("p") == [OPAQUE] and not world.given_up()


@pytest.mark.parametrize("waits", [True, False])
def test_l6_where_all_begin_anew_none_is_given(waits: bool) -> None:
    """The state goes with the rows that are given up: nobody may go on behind them later."""
    world = World()
    assert world.begin(ANEW, waits=waits).states == ()
    assert world.store.states("p") == ([] if waits else [OPAQUE])


def test_l6_a_stream_that_becomes_incremental_is_read_again() -> None:
    """What was sealed of its refresh is given up, and the state speaks for it."""
    world = World()
    now = stream("a", SyncMode.incremental, APPEND)
    assert world.begin(now, OTHER).states == ()
    assert world.store.states("p") == [] and world.given_up()


def test_l1_others_are_given_it_byte_for_byte() -> None:
    assert World().begin(OTHER, waits=False).states == (OPAQUE,)


def test_l6_a_host_that_feeds_us_is_not_given_states() -> None:
    assert World(gives=False).begin(ANEW, OTHER).states == ()
