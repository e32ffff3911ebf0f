"""Which log has a pipeline's rows, where homes share the state store and not the log (L3, L5)."""

from pathlib import Path

import pytest

from penstock.engine.log.log import FileLog
from penstock.engine.run.log_place import settle_log
from penstock.errors import LogError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.segments import (
    SHARED_STATE,
    ConsumedSlice,
    PartRef,
    Segment,
    SegmentId,
    StreamSlice,
    WriteDisposition,
)
from penstock.store.contract import GroupIntent, LoadIntent
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered, UsedModes

ORDERS = StreamId(None, "orders")
APPEND = WriteDisposition(mode=DestinationSyncMode.append)


class Homes:
    """Two homes of one pipeline, with one store; :meth:`settle` as a run of one of them begins."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.lease = self.store.acquire("shop", this_holder("run"), 600)
        self.logs = {name: FileLog(folder / name / "log") for name in ("one", "other")}

    def settle(self, name: str) -> str | None:
        log = self.logs[name]
        log.belong_to(self.lease.state_id)
        return settle_log(self.store, self.lease, log, log.root.parent, "run")

    def seal(self, name: str) -> Segment:
        epoch = self.store.new_epoch(self.lease, 0)
        part = PartRef(f"epochs/{epoch:08d}/parts/1.parquet", 3, 30, 4, 0)
        log = self.logs[name]
        log.claim(epoch, "test")
        (log.root / part.path).write_bytes(b"rows")
        segment = Segment(
            id=SegmentId(epoch, 1),
            lane=0,
            slices=(
                StreamSlice(
                    stream=ORDERS,
                    disposition=APPEND,
                    schema_version=1,
                    generation=1,
                    fills_generation=False,
                    parts=(part,),
                    read=3,
                ),
            ),
            scope=None,
            state=None,
        )
        log.seal(epoch, [segment])
        return segment

    def intend(self, segment: Segment) -> None:
        load = LoadIntent(
            stream=ORDERS,
            disposition=APPEND,
            segments=(segment.id,),
            parts=segment.slices[0].parts,
            schema_version=1,
            generation=1,
        )
        group = GroupIntent(
            loads=(load,),
            states=(),
            epoch=segment.id.epoch,
            consumes=((segment.id, ORDERS),),
        )
        self.store.intend(self.lease, [group], lambda old, new: [*old, *new])


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path)


def test_L3_a_load_is_finished_only_from_the_log_that_has_its_rows(homes: Homes) -> None:
    homes.settle("one")
    homes.intend(homes.seal("one"))
    for _ in range(2):
        with pytest.raises(LogError) as told:
            homes.settle("other")
    error = told.value
    one = homes.logs["one"].root
    assert (error.code, error.stream, error.where) == ("log.elsewhere", "orders", str(one))
    for word in (this_holder("run").name, str(one), str(one.parent), str(homes.logs["other"].root)):
        assert word in error.message, error.message
    assert "`log.path`" in str(error.hint) and "reset" not in str(error.hint)
    assert homes.settle("one") is None


def test_L3_a_log_that_was_emptied_is_not_called_another_homes(homes: Homes) -> None:
    homes.settle("one")
    homes.intend(homes.seal("one"))
    log = homes.logs["one"]
    log.root.rename(log.root.with_name("aside"))
    with pytest.raises(LogError, match="which was emptied or replaced since") as told:
        homes.settle("one")
    assert told.value.code == "log.elsewhere"


def test_L5_what_another_home_read_again_is_not_loaded_a_second_time(homes: Homes) -> None:
    homes.settle("one")
    sealed = homes.seal("one")
    assert "is read again" in str(homes.settle("other"))
    homes.seal("other")
    homes.store.close_epochs(homes.lease, {1: 1, 2: 1})
    assert homes.settle("one") is None
    taken = homes.store.consumed("shop", [1, 2])
    assert taken == {ConsumedSlice(sealed.id, s) for s in (ORDERS, SHARED_STATE)}
    assert homes.settle("other") is None
    assert ConsumedSlice(SegmentId(2, 1), ORDERS) in homes.store.consumed("shop", [2])


def test_L8_of_cdc_nothing_is_given_up_which_no_source_sends_again(homes: Homes) -> None:
    used = UsedModes(sync_mode=SyncMode.cdc, destination_sync_mode=DestinationSyncMode.append)
    homes.store.remember(homes.lease, Remembered(modes={ORDERS: used}))
    for name in ("one", "other", "one"):
        homes.settle(name)
        homes.seal(name)
    assert not homes.store.consumed("shop", [1, 2, 3])


def test_a_home_of_before_is_taken_with_the_log_that_it_has(homes: Homes) -> None:
    homes.intend(homes.seal("one"))
    assert homes.settle("other") is None
    assert homes.store.remembered("shop").log is None, "its rows are not there"
    assert homes.settle("one") is None
    known = homes.store.remembered("shop").log
    assert known is not None and known.path == str(homes.logs["one"].root)
