"""What a lane's report says of values, field by field (L9)."""

from penstock.engine.specs.lane import LaneJob, LaneStream, StreamJob
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.segments import WriteDisposition
from penstock.model.types import DataType, Field, Kind, RowSchema

USERS = StreamId("shop", "users")


def streams(**kinds: Kind) -> StreamDecoders:
    append = DestinationSyncMode.append
    stream = Stream(id=USERS, json_schema={})
    configured = ConfiguredStream(
        stream=stream, sync_mode=SyncMode.full_refresh, destination_sync_mode=append
    )
    lane = LaneStream(
        stream=USERS, disposition=WriteDisposition(mode=append), schema_version=1, generation=0,
        fills_generation=False,
    )  # fmt: skip
    schema = RowSchema(tuple(Field(n, n, DataType(k)) for n, k in kinds.items()))
    job = LaneJob(
        run="r", lane=0, epoch=1, log_root="", protocol="airbyte", launch={}, config={},
        config_hash="", streams=(StreamJob(configured=configured, lane=lane, schema=schema),),
    )  # fmt: skip
    return StreamDecoders(job)


def test_l9_notes_name_the_stream_and_the_field_and_count() -> None:
    known = streams(age=Kind.integer, at=Kind.timestamp, sum=Kind.number)
    body = b'{"age":"old","at":"2024-01-01T00:00:00.1234567Z","sum":9007199254740993,"zip":1}'
    for first in (0, 2):
        known.decode(USERS, [body, body], first, [0, 0], {})
    assert known.notes() == [
        "4 values of shop.users.age did not fit integer and became NULL; their text is in the "
        "row's change list",
        "numbers with more digits than their type keeps, rounded and listed in their rows: "
        "shop.users.sum (4)",
        "times with more than 6 digits of a second, cut to the microsecond: shop.users.at (4)",
        "field not in the schema, dropped: shop.users.zip (4)",
    ]


def test_notes_are_few_where_fields_are_many() -> None:
    known = streams(**{f"f{n}": Kind.integer for n in range(30)})
    known.decode(USERS, [b"{" + b",".join(b'"f%d":"x"' % n for n in range(30)) + b"}"], 0, [0], {})
    notes = known.notes()
    assert len(notes) == 21
    assert notes[-1].endswith(": 10 more fields (10)")
