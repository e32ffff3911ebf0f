"""What the tests of targets feed: streams, rows and states as the engine gives them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec.arrow import arrow_type, part_schema
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import CHANGES, DataType, Field, Kind, RowSchema
from penstock.protocols.singer.destination import SingerTarget
from penstock.protocols.writing import Acks, Answer, Feed, Rows, StateMark, WriteRequest
from penstock.protocols.writing import WriteStream as Write
from penstock.runtimes.contract import Runtime, RunTimeouts

AT = datetime(2024, 2, 29, 12, tzinfo=UTC)
SHARED = StateScope(StateType.legacy)


def schema(**kinds: DataType | Kind) -> RowSchema:
    types = {n: k if isinstance(k, DataType) else DataType(k) for n, k in kinds.items()}
    return RowSchema(tuple(Field(n, n, t) for n, t in types.items()))


USERS = schema(id=Kind.integer, name=Kind.string)


def stream(
    name: str,
    of: RowSchema = USERS,
    mode: DestinationSyncMode = DestinationSyncMode.append_dedup,
    **more: Any,
) -> Write:
    namespace = more.pop("namespace", None)
    target = more.pop("target", StreamId(namespace, name))
    sync = more.pop("sync_mode", SyncMode.incremental)
    configured = ConfiguredStream(
        stream=Stream(id=StreamId(namespace, name), json_schema={}),
        sync_mode=sync,
        destination_sync_mode=mode,
        primary_key=more.pop("primary_key", (("id",),)),
        **more,
    )
    return Write(configured=configured, target=target, schemas={1: of}, latest=1)


def rows(of: Write, *records: dict[str, Any], version: int = 1) -> Rows:
    row_schema = of.schemas[version]
    columns = [
        pa.array([r.get(f.source) for r in records], arrow_type(f.type)) for f in row_schema.fields
    ]
    count = len(records)
    whole = [
        *columns,
        pa.array(range(count), pa.int64()),
        pa.array(["id"] * count),
        pa.array([AT] * count, pa.timestamp("us", tz="UTC")),
        pa.array([[]] * count, part_schema(row_schema).field(CHANGES).type),
    ]
    batch = pa.RecordBatch.from_arrays(whole, schema=part_schema(row_schema))
    return Rows(of.id, version, batch)


def users(of: Write, first: int, count: int) -> Rows:
    return rows(of, *({"id": i, "name": f"user {i}"} for i in range(first, first + count)))


def mark(seq: int, value: Any, scope: StateScope = SHARED) -> StateMark:
    return StateMark(seq, StoredState(scope, msgspec.json.encode(value).decode()))


def write(
    runtime: Runtime,
    streams: list[Write],
    feed: list[Feed] | Iterator[Feed],
    *,
    config: dict[str, Any] | None = None,
    source: str = "singer",
    acks: Acks = Acks.echo,
    timeouts: RunTimeouts | None = None,
    activate_version: str = "auto",
) -> list[Answer]:
    request = WriteRequest(
        config=config or {},
        streams=tuple(streams),
        source_protocol=source,
        timeouts=timeouts or RunTimeouts(stop=1),
        acks=acks,
        tick=0.2,
        options={} if activate_version == "auto" else {"activate_version": activate_version},
    )
    return list(SingerTarget().write(runtime, request, iter(feed)))
