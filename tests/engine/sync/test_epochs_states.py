"""L6: which states an epoch that begins is given, where the state is one text for all streams."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.engine.deliver.delivery import TableDelivery
from penstock.engine.deliver.load_plan import PendingSlice
from penstock.engine.deliver.session import SyncSession
from penstock.engine.deliver.table_loader import NoLoader
from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.memory import MemoryLog
from penstock.engine.log.repeated_rejects import EarlierRejects, RepeatedRejects
from penstock.engine.specs.plan import LaneStart, PlannedStream, SyncPlan
from penstock.engine.sync.backlog import Backlog
from penstock.engine.sync.epochs import Epochs
from penstock.engine.sync.progress import SyncProgress
from penstock.errors import StateError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.segments import SegmentId, StreamSlice, WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import RowSchema
from penstock.protocols.singer.package import PACKAGE
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.tables.contract import TableName

OPAQUE = StoredState(StateScope(StateType.legacy), '{"a":2,"b":1}')
OVERWRITE, APPEND = DestinationSyncMode.overwrite, DestinationSyncMode.append


def stream(name: str, sync_mode: SyncMode, mode: DestinationSyncMode) -> PlannedStream:
    about = Stream(id=StreamId(None, name), json_schema={})
    configured = ConfiguredStream(stream=about, sync_mode=sync_mode, destination_sync_mode=mode)
    return PlannedStream(
        configured=configured,
        disposition=WriteDisposition(mode=mode),
        schema=RowSchema((), 1),
        columns={},
        table=TableName(None, name),
    )


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
            stream=ANEW.id,
            disposition=ANEW.disposition,
            schema_version=1,
            generation=1,
            fills_generation=True,
        )
        self.waiting = {ANEW.id: (PendingSlice(self.segment, part, None),)}
        self.resent = not gives

    def begin(self, *streams: PlannedStream, waits: bool = True) -> LaneStart:
        return self.epochs(*streams, waits=waits)[0].begin(streams, [0])[0]

    def epochs(self, *streams: PlannedStream, waits: bool = True) -> tuple[Epochs, Backlog]:
        plan = SyncPlan(streams=streams, resent=self.resent)
        log, note = MemoryLog(), lambda text: None
        session = SyncSession(
            self.lease,
            self.store,
            log,
            PACKAGE.state,
            RejectsKeeper(Path(), None, note),
            RepeatedRejects(Path(), lambda: EarlierRejects(Path(), (), {})),
            SimpleNamespace(note=note),  # type: ignore[arg-type]
        )
        progress = SyncProgress(session, {s.id: s for s in streams})
        delivery = TableDelivery(session, NoLoader())
        backlog = Backlog(plan, progress, delivery, SimpleNamespace())  # type: ignore[arg-type]
        backlog.waiting = self.waiting if waits else {}
        return Epochs(plan, progress, backlog), backlog

    def given_up(self) -> bool:
        return bool(self.store.consumed("p", [self.segment.epoch]))


def test_l6_a_lane_that_is_begun_again_does_not_mix() -> None:
    """Nobody knew what kind of state the tap has before its first run, whose lane was lost."""
    world = World()
    with pytest.raises(StateError) as refused:
        world.begin(ANEW, OTHER)
    assert refused.value.code == "state.mixed_modes"
    assert "a would start from the beginning while b would go on" in refused.value.message
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


def test_l6_a_generation_that_is_resumed_has_rows() -> None:
    """Its schema is theirs, also before the first row of this sync."""
    _, backlog = World().epochs(ANEW)
    assert backlog.has_rows(ANEW.id, 1)
    assert not backlog.has_rows(ANEW.id, 2) and not backlog.has_rows(OTHER.id, 1)
    backlog.kept.add(OTHER.id)
    assert backlog.has_rows(OTHER.id, None)
