"""Rows that wait in the log are counted without a trace, and given up only as far as their source
can send them again (L1)."""

import json
from pathlib import Path

import pytest

from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.config.pipeline import Pipeline
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import open_known
from penstock.engine.inspect.waiting_rows import waiting, waiting_note
from penstock.engine.log.log import FileLog
from penstock.errors import StateError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.model.segments import PartRef, Segment, SegmentId, StreamSlice, WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.remembered import Remembered, UsedModes

ORDERS = StreamId(None, "orders")
APPEND = WriteDisposition(mode=DestinationSyncMode.append)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def pipeline(folder: Path) -> Pipeline:
    document = {
        "pipeline": "shop",
        "source": {"use": "airbyte:./source"},
        "destination": {"use": "parquet:./lake"},
    }
    (folder / "shop.yaml").write_text(json.dumps(document))
    return load_pipeline(folder / "shop.yaml")


def killed(home: Home, mode: SyncMode) -> None:
    """As a killed run leaves it: a saved state, and 7 sealed rows of orders behind it."""
    store, log = open_store(home.state_url()), FileLog(Path(home.log("shop")))
    lease = store.acquire("shop", this_holder("run"), 60)
    blob = json.dumps({"stream_descriptor": {"name": "orders"}, "stream_state": {"id": 5}})
    scope = StateScope(StateType.stream, ORDERS)
    store.remember_source(lease, "airbyte", "airbyte:./source")
    store.replace_states(lease, [StoredState(scope, blob)])
    modes = UsedModes(sync_mode=mode, destination_sync_mode=DestinationSyncMode.append)
    store.remember(lease, Remembered(modes={ORDERS: modes}))
    epoch = store.new_epoch(lease, 0)
    log.claim(epoch, "test")
    part = PartRef(f"epochs/{epoch:08d}/parts/1.parquet", 7, 30, 4, 0)
    (log.root / part.path).write_bytes(b"rows")
    share = StreamSlice(
        stream=ORDERS, disposition=APPEND, schema_version=1, generation=1,
        fills_generation=False, parts=(part,), read=7,
    )  # fmt: skip
    sealed = Segment(id=SegmentId(epoch, 1), lane=0, slices=(share,), scope=None, state=None)
    log.seal(epoch, [sealed])
    store.release(lease)
    store.close()


ROWS = [{"namespace": None, "name": "orders", "rows": 7}]


def test_rows_of_a_change_log_are_given_up_only_on_request_and_else_nothing_changes(
    tmp_path: Path, home: Home
) -> None:
    killed(home, SyncMode.cdc)
    shop = pipeline(tmp_path)
    with open_known(shop, home) as known:
        with pytest.raises(StateError, match="change log") as refused:
            states.give_up_waiting(shop, known)
        assert refused.value.code == "state.removed_at_source"
        assert len(known.store.states("shop")) == 1 and waiting(known) == ROWS
        given = states.give_up_waiting(shop, known, yes=True)
        assert given["given_up"] == ROWS and "waiting" not in given
        assert known.store.states("shop") == []


def test_into_a_table_the_state_goes_with_the_rows(tmp_path: Path, home: Home) -> None:
    killed(home, SyncMode.incremental)
    shop = pipeline(tmp_path)
    with open_known(shop, home) as known:
        assert states.give_up_waiting(shop, known)["given_up"] == ROWS
        assert known.store.states("shop") == []
    with open_known("shop", home) as known:
        assert waiting(known) == []


def test_a_plan_looks_and_makes_nothing(tmp_path: Path, home: Home) -> None:
    shop, store = pipeline(tmp_path), open_store(home.state_url())
    before = sorted(tmp_path.rglob("*"))
    assert waiting_note(shop, store, home) == []
    assert sorted(tmp_path.rglob("*")) == before
    store.close()
    killed(home, SyncMode.incremental)
    store = open_store(home.state_url())
    (note,) = waiting_note(shop, store, home)
    assert "sealed 7 rows of orders" in note
    store.close()
