"""Which checkpoints of a connector's keys go with an ack (issue 12, part 3; L1). The destination is
a process of ``penstock.sdk``, the store is real."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config.sections import NetworkPermissions, Permissions
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import ConnectorExited, Error, LogEvent
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.syncmaven.destination import SyncmavenDestination
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.package import PACKAGE
from penstock.protocols.writing import Ack, Feed, Rows, StateMark, WriteRequest, WriteStream
from penstock.runtimes.contract import ConnectionStats, RunTimeouts, Start
from penstock.runtimes.limits import no_namespace
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime
from penstock.store.keys import MemoryKeys
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.task_keys import keys_url, open_keys

STUB = Path(__file__).parents[2] / "stubs" / "stub_stored.py"
CONTACTS, ORDERS = StreamId(None, "contacts"), StreamId(None, "orders")
SCHEMA = RowSchema((Field("seq", "seq", DataType(Kind.integer)),))
TASK = "push:run:1"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    file = tmp_path / "state.db"
    store = open_store(file)
    lease = store.acquire("shop", this_holder("run"), 60)
    store.begin_keys(lease, TASK)
    yield Host(
        lambda env: ProcessRuntime([sys.executable, str(STUB)], env=dict(env), role="destination"),
        lambda: open_keys(keys_url(file), "shop", TASK),
    )
    store.close()


def stream(id_: StreamId) -> WriteStream:
    configured = ConfiguredStream(
        stream=Stream(id=id_, json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append,
    )
    return WriteStream(configured=configured, target=id_, schemas={0: SCHEMA}, latest=0)


def rows(of: StreamId, *seqs: int) -> Rows:
    return Rows(of, 0, pa.record_batch([pa.array(seqs, pa.int64())], ["seq"]))


def shared(seq: int) -> StateMark:
    return StateMark(seq, StoredState(StateScope(StateType.global_), f'{{"n":{seq}}}'))


def request(config: dict[str, Any], options: dict[str, Any]) -> WriteRequest:
    return WriteRequest(
        config=config,
        streams=(stream(CONTACTS), stream(ORDERS)),
        source_protocol="airbyte",
        pipeline="shop",
        timeouts=RunTimeouts(start=20, heartbeat=20, stop=2),
        tick=0.1,
        options=options,
    )


def write(host: Host, *feed: Feed, config: dict[str, Any], **options: Any) -> list[Any]:
    return list(SyncmavenDestination().write(host, request(config, options), iter(feed)))


def test_l1_an_ack_of_a_shared_state_carries_a_checkpoint_of_each_stream(
    host: Host, tmp_path: Path
) -> None:
    """So that a checkpoint of one does not cover what another stored."""
    answers = write(
        host,
        rows(CONTACTS, 1, 2),
        rows(ORDERS, 1, 2),
        shared(1),
        rows(ORDERS, 3, 4),
        shared(2),
        config={"journal": str(tmp_path / "journal"), "fail": 3},
        checkpoint_every=2,
    )
    assert [a.code for a in answers if isinstance(a, Error)] == ["destination.rows_failed"]
    (ack,) = [a for a in answers if isinstance(a, Ack)]
    assert ack.seq == 1
    assert {scope for scope, _ in ack.keys} == {CONTACTS.key, ORDERS.key}
    numbers = [number for _, number in ack.keys]
    assert all(numbers) and len(set(numbers)) == 2, "one task counts for all its streams"


def test_a_stream_that_failed_has_no_checkpoint(host: Host, tmp_path: Path) -> None:
    """L7: the other one's goes with the ack of its own state."""
    answers = write(
        host,
        rows(ORDERS, 3),
        rows(CONTACTS, 1),
        StateMark(1, StoredState(StateScope(StateType.stream, ORDERS), '{"n":3}')),
        StateMark(2, StoredState(StateScope(StateType.stream, CONTACTS), '{"n":1}')),
        config={"journal": str(tmp_path / "journal"), "fail": 3},
    )
    (ack,) = [a for a in answers if isinstance(a, Ack)]
    assert (ack.seq, [scope for scope, _ in ack.keys]) == (2, [CONTACTS.key])


@pytest.mark.parametrize("offline", [False, True])
def test_l10_a_connector_is_told_an_address_that_it_reaches_and_no_log_is(
    tmp_path: Path, offline: bool
) -> None:
    """A connector without a network has a loopback of its own."""
    if offline and (why := no_namespace()) is not None:
        pytest.skip(why)
    hosts = NetworkPermissions(allowed_hosts=()) if offline else None
    start = Start(
        role="destination",
        command=(sys.executable, str(STUB)),
        permissions=Permissions(network=hosts),
    )
    connection = PACKAGE.connect(start, Masker(), ConnectionStats(), keys=MemoryKeys)
    asked = request({"journal": str(tmp_path / "journal")}, {})
    answers = list(connection.write(asked, iter([rows(CONTACTS, 1)])))
    assert [a.code for a in answers if isinstance(a, ConnectorExited)] == [0]
    (address,) = [a.message for a in answers if isinstance(a, LogEvent) and "address" in a.message]
    if offline:
        assert address == "the address is None"
    else:
        assert address.startswith("the address is http://127.0.0.1:")
        assert address.endswith("/****")
