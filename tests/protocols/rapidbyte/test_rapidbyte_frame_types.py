"""The types of columns on their way from one component to another (protocol, section 6): what v4's
host gives on as it came has the same types here, though parts have one type for each kind."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.codec import frame_types
from penstock.codec.arrow import frame_types_of
from penstock.codec.columns import ColumnDecoder, Columns, row_schema
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.rapidbyte.transform import RapidbyteTransform
from penstock.protocols.rapidbyte.write.frame_encoder import FrameEncoder
from penstock.protocols.transforming import TransformedRows, TransformRequest
from penstock.runtimes.contract import Component
from penstock.runtimes.wasm.component import ComponentRuntime, digest_of

BIG = Decimal(2**64 - 1)
NOON = datetime(2024, 2, 29, 12, 0, 0)
SAME: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), True),
    (pa.int8(), -128),
    (pa.int16(), 2**15 - 1),
    (pa.int32(), -(2**31)),
    (pa.int64(), 2**63 - 1),
    (pa.uint8(), 255),
    (pa.uint16(), 2**16 - 1),
    (pa.uint32(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1),
    (pa.float16(), 0.5),
    (pa.float32(), 0.1),
    (pa.float32(), float("nan")),
    (pa.float64(), 0.1),
    (pa.string(), "x"),
    (pa.large_string(), "x"),
    (pa.binary(), b"x"),
    (pa.large_binary(), b"x"),
    (pa.binary(16), b"0123456789abcdef"),
    (pa.date32(), NOON.date()),
    (pa.date64(), NOON.date()),
    (pa.timestamp("s"), NOON),
    (pa.timestamp("ms"), NOON + timedelta(milliseconds=1)),
    (pa.timestamp("us"), NOON + timedelta(microseconds=1)),
    (pa.timestamp("ns"), NOON + timedelta(microseconds=1)),
    (pa.timestamp("us", tz="UTC"), NOON),
    (pa.timestamp("ms", tz="Europe/Vienna"), NOON),
    (pa.timestamp("us", tz="+05:30"), NOON),
    (pa.decimal128(10, 2), Decimal("1.50")),
]
OTHERWISE: list[tuple[pa.DataType, Any, pa.DataType]] = [
    (pa.dictionary(pa.int32(), pa.string()), "x", pa.string()),
    (pa.time64("us"), (NOON + timedelta(microseconds=1)).time(), pa.string()),
    (pa.list_(pa.int32()), [1], pa.string()),
    (pa.struct({"a": pa.int8()}), {"a": 1}, pa.string()),
    (pa.null(), None, pa.string()),
]


def came(arrow: pa.DataType, *values: Any) -> pa.Table:
    """Rows of a source's frames: the column ``X y``, which parts and tables call ``x_y``."""
    return frame_types.marked(pa.table({"X y": pa.array([*values, None], arrow)}))


def part(rows: pa.Table, schema: RowSchema) -> pa.Table:
    return ColumnDecoder(schema).decode(Columns(rows), 1, [0] * rows.num_rows, {}).table


def planned(rows: pa.Table) -> RowSchema:
    """As the driver plans it once it has heard of the first rows."""
    (field,) = row_schema(rows.schema).fields
    schema = RowSchema((Field("x_y", "X y", field.type),), 1)
    return schema.with_frame_types(frame_types_of(rows.schema))


def given(rows: pa.Table, schema: RowSchema, *, narrow: bool = False) -> pa.ChunkedArray:
    """What a destination is given of a part's rows."""
    encoder = FrameEncoder(schema, 1 << 20, narrow=narrow)
    (batch,) = rows.to_batches()
    ((frame, _),) = encoder.of(batch)
    table = pa.ipc.open_stream(pa.py_buffer(frame)).read_all()
    assert table.column_names == ["x_y"]
    return table.column("x_y")


@pytest.mark.parametrize(("arrow", "value"), SAME, ids=lambda v: str(v))
def test_a_destination_is_given_the_type_and_the_value_of_the_frames(
    arrow: pa.DataType, value: Any
) -> None:
    rows = came(arrow, value)
    column = given(part(rows, planned(rows)), planned(rows))
    assert column.type == arrow
    assert str(column.to_pylist()) == str(rows.column(0).to_pylist())
    encoder = FrameEncoder(planned(rows), 1 << 20, narrow=False)
    empty = pa.ipc.open_stream(pa.py_buffer(encoder.empty())).schema
    assert empty.field("x_y").type == arrow, "as a frame of an empty stream has it"


@pytest.mark.parametrize(("arrow", "value", "wanted"), OTHERWISE, ids=lambda v: str(v))
def test_other_types_are_given_as_their_kind_is(
    arrow: pa.DataType, value: Any, wanted: pa.DataType
) -> None:
    rows = came(arrow, value)
    assert planned(rows).frame_types == {}
    assert given(part(rows, planned(rows)), planned(rows)).type == wanted


@pytest.mark.parametrize(
    ("arrow", "value", "wanted"),
    [
        (pa.int16(), 1, pa.int16()),
        (pa.int32(), 1, pa.int32()),
        (pa.float32(), 0.1, pa.float32()),
        (pa.timestamp("us", tz="UTC"), NOON, pa.timestamp("us", tz="UTC")),
        (pa.int8(), 1, pa.int64()),
        (pa.uint32(), 1, pa.int64()),
        (pa.uint64(), 1, pa.string()),
        (pa.float16(), 0.5, pa.float64()),
        (pa.large_string(), "x", pa.string()),
        (pa.large_binary(), b"x", pa.binary()),
        (pa.date64(), NOON.date(), pa.date32()),
        (pa.timestamp("ms"), NOON, pa.timestamp("us")),
        (pa.timestamp("ns", tz="UTC"), NOON, pa.timestamp("us")),
    ],
    ids=lambda v: str(v),
)
def test_v4s_postgres_destination_is_given_no_type_that_it_does_not_take(
    arrow: pa.DataType, value: Any, wanted: pa.DataType
) -> None:
    rows = came(arrow, value)
    assert given(part(rows, planned(rows)), planned(rows), narrow=True).type == wanted


@pytest.mark.parametrize(
    ("kind", "values", "sent"),
    [
        (Kind.integer, [2**31], "int32"),
        (Kind.integer, [-1], "uint8"),
        (Kind.number, [0.1], "float"),
        (Kind.number, [1e300], "halffloat"),
        (Kind.timestamp_ntz, [NOON + timedelta(microseconds=1)], "timestamp[ms]"),
        (Kind.timestamp_ntz, [datetime(9999, 1, 1)], "timestamp[ns]"),
        (Kind.binary, [b"x"], "fixed_size_binary[2]"),
        (Kind.string, ["1"], "int32"),
    ],
)
def test_what_does_not_fit_is_given_whole(kind: Kind, values: list[Any], sent: str) -> None:
    """No value changes, whatever the schema says: of a generation only the newest is known."""
    wide = RowSchema((Field("x_y", "x_y", DataType(kind)),), 1)
    schema = wide.with_frame_types({"x_y": sent})
    rows = part(pa.table({"x_y": pa.array(values)}), wide)
    column = given(rows, schema)
    assert column.type == given(rows, wide).type and column.to_pylist() == values


def test_a_column_to_which_the_pipeline_gives_another_type_has_that_one() -> None:
    rows = came(pa.int32(), 1)
    schema = RowSchema((Field("x_y", "X y", DataType(Kind.string)),), 1)
    column = given(part(rows, schema), schema.with_frame_types(frame_types_of(rows.schema)))
    assert column.type == pa.string() and column.to_pylist() == ["1", None]


def test_a_frame_is_not_believed_what_it_says_of_its_types_itself() -> None:
    field = pa.field("n", pa.int64(), metadata={b"penstock.frame_type": b"int8", b"mine": b"1"})
    rows = frame_types.marked(pa.table([[1]], schema=pa.schema([field])))
    assert frame_types_of(rows.schema) == {} and rows.field("n").metadata == {b"mine": b"1"}


def test_a_transform_is_fed_what_the_source_sent_and_heard_as_it_says(tmp_path: Path) -> None:
    """Section 3.3: v4's host gives it the source's frames. The guest gives back what it gets."""
    path = tmp_path / "transform.wasm"
    path.write_bytes(rapidbyte_guests.c_guest("transform"))
    cache = str(rapidbyte_guests.CACHE / "compiled")
    digest = digest_of(path.read_bytes())
    runtime = ComponentRuntime(Component(path=str(path), digest=digest, cache=cache))
    stream = ConfiguredStream(
        stream=Stream(id=StreamId(None, "a"), json_schema={}),
        sync_mode=SyncMode.full_refresh,
        destination_sync_mode=DestinationSyncMode.append,
    )
    frames = pa.table({
        "id": pa.array([1, 2], pa.int32()),
        "price": pa.array([0.1, None], pa.float32()),
        "at": pa.array([NOON, None], pa.timestamp("ms")),
        "day": pa.array([date(2024, 2, 29)] * 2, pa.date32()),
    })  # fmt: skip
    rows = frame_types.marked(frames)
    schema = row_schema(frames.schema)

    def feed() -> Iterator[pa.Table]:
        yield part(rows, schema).select(frames.column_names)

    request = TransformRequest(config={}, stream=stream, scope="a")
    answers = list(RapidbyteTransform().apply(runtime, request, feed()))
    (made,) = (a for a in answers if isinstance(a, TransformedRows))
    assert made.table.equals(frames)
    assert frame_types_of(made.table.schema) == frame_types_of(rows.schema)
