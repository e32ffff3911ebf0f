"""The Arrow writer and reader that guests in Python and C carry, against pyarrow."""

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "examples" / "rapidbyte" / "sdk" / "python"))

from rapidbyte_guest.arrow import DATA_TYPES, TYPES, Column  # noqa: E402
from rapidbyte_guest.arrow_read import NotReadable, batches  # noqa: E402
from rapidbyte_guest.arrow_write import encode  # noqa: E402

ARROW = {
    "null": pa.null(), "bool": pa.bool_(), "date32": pa.date32(), "utf8": pa.utf8(),
    "binary": pa.binary(), "large_utf8": pa.large_utf8(), "large_binary": pa.large_binary(),
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float32": pa.float32(), "float64": pa.float64(), "timestamp_millis": pa.timestamp("ms"),
    "timestamp_micros": pa.timestamp("us"), "timestamp_nanos": pa.timestamp("ns"),
}  # fmt: skip


def values_of(kind: str) -> list[Any]:
    """Nine: one more than bits in a byte; the edges of the type among them."""
    if kind == "null":
        return [None] * 9
    if kind == "bool":
        return [True, False, None, True, True, None, False, False, True]
    if kind.endswith("utf8"):
        return ["", "a", None, "naïve 日本", "x" * 300, None, "'", "\n", "end"]
    if kind.endswith("binary"):
        return [b"", b"\0\xff", None, b"abc", b"y" * 300, None, b"1", b"2", b"3"]
    if kind.startswith("float"):
        return [0.0, -0.5, None, 1.5, float("inf"), None, -2.0, 3.25, 1e10]
    if kind in ("date32", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"):
        bits = int("".join(c for c in kind if c.isdigit()))
        least = 0 if kind.startswith("u") else -(2 ** (bits - 1))
        return [least, 0, None, 1, 2 ** (bits - 1) - 1, None, 7, 8, 9]
    return [-(2**63), 0, None, 1_700_000_000_000_000, 2**63 - 1, None, 7, 8, 9]


def plain(array: Any) -> list[Any]:
    """pyarrow's values as the guests' columns have them: dates and times as numbers."""
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64()).to_pylist()
    return array.to_pylist()


def made_by_pyarrow(kind: str, values: list[Any]) -> Any:
    if pa.types.is_date32(ARROW[kind]):
        return pa.array(values, pa.int32()).cast(pa.date32())
    if pa.types.is_timestamp(ARROW[kind]):
        return pa.array(values, pa.int64()).cast(ARROW[kind])
    return pa.array(values, ARROW[kind])


def stream(*given: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given[0].schema, **options) as writer:
        for batch in given:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def test_every_type_has_its_words():
    assert set(TYPES) == set(ARROW) == set(DATA_TYPES)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("part", ["mixed", "no nulls", "all nulls", "no rows"])
def test_what_the_writer_writes_pyarrow_reads_and_the_reader_too(kind: str, part: str):
    values = values_of(kind)
    if part == "no nulls" and kind != "null":
        values = [v for v in values if v is not None]
    elif part == "all nulls":
        values = [None] * 9
    elif part == "no rows":
        values = []
    columns = [Column("first", kind, values), Column("köln", "int64", list(range(len(values))))]
    data = encode(columns)
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    table.validate(full=True)
    assert table.schema.names == ["first", "köln"]
    assert table.schema.field(0).type == ARROW[kind]
    assert plain(table.column(0)) == values
    assert list(batches(data)) == [columns]


@pytest.mark.parametrize("kind", TYPES)
def test_what_pyarrow_writes_the_reader_reads(kind: str):
    values = values_of(kind)
    whole = pa.RecordBatch.from_arrays([made_by_pyarrow(kind, values)], ["v"])
    read = list(batches(stream(whole, whole.slice(3, 4), whole.slice(0, 0))))
    assert read == [
        [Column("v", kind, values)], [Column("v", kind, values[3:7])], [Column("v", kind, [])],
    ]  # fmt: skip


def test_decimals_keep_every_digit():
    values = [Decimal("12345678901234567890123456789012345.678"), None, Decimal("-0.001")]
    kept = pa.array(values, pa.decimal128(38, 3))
    data = stream(pa.RecordBatch.from_arrays([kept], ["d"]))
    column = Column("d", "decimal128(38,3)", values)
    assert list(batches(data)) == [[column]]
    with pa.ipc.open_stream(encode([column])) as reader:
        assert reader.read_all().column("d").combine_chunks().equals(kept)


def test_a_zone_is_dropped_and_the_instant_kept():
    zoned = pa.array([0, 5], pa.timestamp("us", "Europe/Berlin"))
    read = list(batches(stream(pa.RecordBatch.from_arrays([zoned], ["t"]))))
    assert read == [[Column("t", "timestamp_micros", [0, 5])]]


def test_what_it_does_not_read_is_named():
    for array in (
        pa.array([[1]]),
        pa.array(["a"]).dictionary_encode(),
        pa.array([1]).cast("float16"),
    ):
        data = stream(pa.RecordBatch.from_arrays([pa.array([1]), array], ["id", "odd"]))
        with pytest.raises(NotReadable, match="odd"):
            list(batches(data))
    batch = pa.RecordBatch.from_arrays([pa.array([1] * 1000)], ["id"])
    squeezed = stream(batch, options=pa.ipc.IpcWriteOptions(compression="lz4"))
    with pytest.raises(NotReadable, match="compressed"):
        list(batches(squeezed))


def test_a_broken_stream_is_no_stream():
    data = stream(pa.RecordBatch.from_arrays([pa.array(["a", None])], ["v"]))
    for broken in (b"nonsense of some length", data[: len(data) // 2], data[:300]):
        with pytest.raises(NotReadable):
            list(batches(broken))


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="column b has 1 values, not 2"):
        encode([Column("a", "int64", [1, 2]), Column("b", "int64", [1])])
