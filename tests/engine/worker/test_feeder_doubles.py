"""A label never claims more than the destination got: NaN and infinities, which JSON does not have,
are sent as null, and the report says how many of which column. A whole push, in this process."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.codec.arrow import part_schema
from penstock.codec.columns import ColumnDecoder, Columns
from penstock.connectors.launch import Launch
from penstock.engine.channel.feeder_mail import PushMail
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.log.log import FileLog
from penstock.engine.specs.feeder import FeedOrder, PushJob, PushResult
from penstock.engine.worker.feed import OrderFeed
from penstock.engine.worker.feeder import run_push
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.segments import Segment, SegmentId, StreamSlice, WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.writing import WriteStream
from penstock.runtimes.contract import RunTimeouts

STUBS = Path(__file__).parents[2] / "stubs"
S = StreamId(None, "s")
NUMBER = DataType(Kind.number)
INNER = DataType(Kind.struct, fields=(Field("c", "c", DataType(Kind.array, item=NUMBER)),))
SCHEMA = RowSchema(
    (
        Field("id", "id", DataType(Kind.integer)),
        Field("a_b", "a b", NUMBER),
        Field("o", "o", INNER),
        Field("fine", "fine", NUMBER),
    )
)
NAN, INF = float("nan"), float("inf")
ROWS = {
    "id": [1, 2, 3],
    "a b": [NAN, 1.5, INF],
    "o": [{"c": [0.5, -INF]}, None, {"c": []}],
    "fine": [None, 0.0, 1.0],
}
STATE = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "s"}, "stream_state": 1}}
WHY = "sent as null: NaN and infinities, which JSON does not have"
NOTES = [f"stream s: 2 values of a b {WHY}", f"stream s: 1 value of o {WHY}"]


def order(log: FileLog, protocol: str) -> FeedOrder:
    table = pa.table(ROWS, pa.schema([f.with_name(n) for f, n in zip(
        part_schema(SCHEMA), ROWS, strict=False)]))  # fmt: skip
    part = ColumnDecoder(SCHEMA).decode(Columns(table), 1, [1] * 3, {}).table
    log.claim(1, "me")
    one = StreamSlice(
        stream=S,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1,
        generation=0,
        fills_generation=False,
        parts=(log.write_part(1, "000001-1", part, 100),),
        read=3,
    )
    scope = StateScope(StateType.stream, S) if protocol == "airbyte" else None
    scope = scope or StateScope(StateType.legacy)
    state = json.dumps(STATE if protocol == "airbyte" else {"bookmarks": {"s": 1}})
    segment = Segment(id=SegmentId(1, 1), lane=0, scope=scope, slices=(one,), state=state)
    return FeedOrder(segments=(segment,), done=(S,), end=True)


def stream() -> WriteStream:
    configured = ConfiguredStream(
        stream=Stream(id=S, json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append,
        generation_id=0,
        minimum_generation_id=0,
        sync_id=1,
    )
    return WriteStream(configured=configured, target=S, schemas={1: SCHEMA}, latest=1)


def pushed(folder: Path, protocol: str, *command: str, config: dict[str, Any]) -> PushResult:
    root = folder / "log"
    log, box = FileLog(root), Mailbox(root, "run")
    box.create()
    mail = PushMail(root, "run", 1)
    mail.create()
    mail.order(order(log, protocol))
    launch = Launch(
        protocol=protocol, role="destination", command=(sys.executable, *command), cwd=str(folder)
    )
    job = PushJob(
        run="run", number=1, log_root=str(root), protocol=protocol, source_protocol=protocol,
        pipeline="p", launch=msgspec.to_builtins(launch), config=config, config_hash="h",
        streams=(stream(),), timeouts=RunTimeouts(heartbeat=60, stop=1),
    )  # fmt: skip
    box.beat()
    return run_push(job, threading.Event())


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_what_json_does_not_have_is_sent_as_null_and_noted(tmp_path: Path, protocol: str) -> None:
    saved = tmp_path / "saved"
    if protocol == "airbyte":
        stub, config = str(STUBS / "stub_destination.py"), {"sink": str(saved)}
        result = pushed(tmp_path, protocol, stub, config=config)
    else:
        stub = str(STUBS / "stub_target.py")
        result = pushed(tmp_path, protocol, stub, json.dumps({"save": str(saved)}), config={})
    assert result.errors == [] and result.fed == [(S, 3)]
    lines = [json.loads(x) for x in saved.read_bytes().splitlines()]
    records = [x["record"] for x in lines if x.get("type") == "RECORD"]
    rows = [r["data"] if protocol == "airbyte" else r for r in records]
    assert [row["a b"] for row in rows] == [None, 1.5, None]
    assert rows[0]["o"] == {"c": [0.5, None]}
    assert [note for note in result.notes if "NaN" in note] == NOTES


@pytest.mark.parametrize("json_", [True, False])
def test_a_destination_that_takes_columns_gets_all_doubles(tmp_path: Path, json_: bool) -> None:
    from penstock.engine.worker.ack_tracker import FedSegments

    log = FileLog(tmp_path / "log")
    given = order(log, "airbyte")
    feed = OrderFeed(log, FedSegments(), (stream(),), lambda: given, json=json_)
    assert len([*feed.feed()]) > 0
    assert dict(feed.nulls) == ({(S, "a b"): 2, (S, "o"): 1} if json_ else {})
