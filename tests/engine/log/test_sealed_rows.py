"""What the log has sealed and no table has, when a run was stopped (L3)."""

from pathlib import Path

import msgspec
import pytest

from penstock.engine.log.log import FileLog
from penstock.engine.log.sealed_rows import come_twice, give_up_sealed, sealed_rows
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import (
    ConsumedSlice,
    PartRef,
    Segment,
    SegmentId,
    StreamSlice,
    WriteDisposition,
)
from penstock.store.contract import GroupIntent, LoadIntent, Reset
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore

ORDERS, USERS = StreamId(None, "orders"), StreamId("eu", "users")
APPEND = WriteDisposition(mode=DestinationSyncMode.append)


class Stopped:
    """A log with two segments: 3 and 5 rows of orders, 7 of users in the second."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log = MemoryStore(), FileLog(folder / "log")
        self.lease = self.store.acquire("shop", this_holder("run"), 600)
        self.epoch = self.store.new_epoch(self.lease, 0)
        self.log.claim(self.epoch, "test")
        self.segments = [self.segment(1, {ORDERS: 3}), self.segment(2, {ORDERS: 5, USERS: 7})]
        for segment in self.segments:
            self.log.seal(self.epoch, [segment])

    def segment(self, seq: int, rows: dict[StreamId, int]) -> Segment:
        return Segment(
            id=SegmentId(self.epoch, seq),
            lane=0,
            slices=tuple(self.share(seq, stream, n) for stream, n in rows.items()),
            scope=None,
            state=None,
        )

    def share(self, seq: int, stream: StreamId, rows: int) -> StreamSlice:
        part = PartRef(f"epochs/{self.epoch:08d}/parts/{seq}-{stream.name}.parquet", rows, 30, 4, 0)
        (self.log.root / part.path).write_bytes(b"rows")
        return StreamSlice(
            stream=stream, disposition=APPEND, schema_version=1, generation=1,
            fills_generation=False, parts=(part,), read=rows,
        )  # fmt: skip

    def take(self, segment: Segment) -> None:
        """Writes the load of orders of this segment to the ledger."""
        load = LoadIntent(
            stream=ORDERS, disposition=APPEND, segments=(segment.id,),
            parts=segment.slices[0].parts, schema_version=1, generation=1,
        )  # fmt: skip
        group = GroupIntent(
            loads=(load,), states=(), epoch=self.epoch, consumes=((segment.id, ORDERS),)
        )
        self.store.intend(self.lease, [group], lambda old, new: [*old, *new])

    @property
    def rows(self) -> dict[StreamId, int]:
        return sealed_rows(self.store, "shop", self.log)


@pytest.fixture
def stopped(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path)


def test_all_that_no_group_took_is_sealed(stopped: Stopped) -> None:
    assert stopped.rows == {ORDERS: 8, USERS: 7}


def test_rows_that_were_given_up_are_not_sealed(stopped: Stopped) -> None:
    stopped.store.abandon(stopped.lease, [ConsumedSlice(SegmentId(stopped.epoch, 2), USERS)])
    assert stopped.rows == {ORDERS: 8}


def test_a_load_that_is_written_down_has_its_rows_only_when_it_is_committed(
    stopped: Stopped,
) -> None:
    stopped.take(stopped.segments[0])
    assert stopped.rows == {ORDERS: 8, USERS: 7}
    (group,) = stopped.store.open_groups("shop")
    done = [(group.id, load) for load in group.loads]
    stopped.store.loaded(stopped.lease, done, lambda old, new: [*old, *new])
    assert stopped.rows == {ORDERS: 5, USERS: 7}


def test_rows_sealed_before_a_reset_come_twice_where_they_are_appended(stopped: Stopped) -> None:
    store, log = stopped.store, stopped.log
    assert come_twice(store, "shop", log) == {}
    store.replace_states(stopped.lease, [], Reset((USERS,), lambda states: [*states]))
    assert come_twice(store, "shop", log) == {USERS: 7}
    store.replace_states(stopped.lease, [])
    assert come_twice(store, "shop", log) == {ORDERS: 8, USERS: 7}
    store.abandon(stopped.lease, [ConsumedSlice(s.id, USERS) for s in stopped.segments])
    assert come_twice(store, "shop", log) == {ORDERS: 8}


def test_retried_rejects_are_not_given_up(stopped: Stopped) -> None:
    """No source sends them again."""
    first, *rest = stopped.segments
    slices = tuple(
        msgspec.structs.replace(s, disposition=msgspec.structs.replace(APPEND, retried=True))
        for s in first.slices
    )
    kept = msgspec.structs.replace(first, slices=slices)
    give_up_sealed(stopped.store, stopped.lease, stopped.log, [kept, *rest])
    assert stopped.rows == {s.stream: sum(p.rows for p in s.parts) for s in first.slices}
