"""Types that v4's own destination refuses are cast before it, losing nothing (issue 5, part 4;
reference, section 9)."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.protocols.rapidbyte.ipc import batches_of, frame_of
from penstock.protocols.rapidbyte.messages import Refusal
from penstock.protocols.rapidbyte.narrow import narrowed

TAKEN = {
    pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.utf8(),
    pa.timestamp("us"), pa.date32(), pa.binary(), pa.null(),
}  # fmt: skip
NOON = datetime(2026, 1, 2, 12, 0, 0, 123456)

CASES: list[tuple[Any, list[Any], Any, list[Any]]] = [
    (pa.int8(), [-128, None], pa.int16(), [-128, None]),
    (pa.uint8(), [255], pa.int16(), [255]),
    (pa.uint16(), [65535], pa.int32(), [65535]),
    (pa.uint32(), [2**32 - 1], pa.int64(), [2**32 - 1]),
    (pa.uint64(), [2**64 - 1, None], pa.utf8(), [str(2**64 - 1), None]),
    (pa.float16(), [0.5], pa.float32(), [0.5]),
    (pa.decimal128(20, 3), [Decimal("1.500"), None], pa.utf8(), ["1.500", None]),
    (pa.decimal256(60, 2), [Decimal("-7.25")], pa.utf8(), ["-7.25"]),
    (pa.large_utf8(), ["é"], pa.utf8(), ["é"]),
    (pa.string_view(), ["a"], pa.utf8(), ["a"]),
    (pa.large_binary(), [b"\0"], pa.binary(), [b"\0"]),
    (pa.binary(3), [b"abc"], pa.binary(), [b"abc"]),
    (pa.date64(), [date(2026, 1, 2)], pa.date32(), [date(2026, 1, 2)]),
    (pa.timestamp("s"), [datetime(2026, 1, 2)], pa.timestamp("us"), [datetime(2026, 1, 2)]),
    (pa.timestamp("ns"), [NOON], pa.timestamp("us"), [NOON]),
    (pa.timestamp("us", "Europe/Berlin"), [NOON.replace(tzinfo=UTC)], pa.timestamp("us"), [NOON]),
    (pa.time64("us"), [time(1, 2, 3, 4)], pa.utf8(), ["01:02:03.000004"]),
    (pa.duration("s"), [5], pa.int64(), [5]),
    (pa.dictionary(pa.int8(), pa.large_utf8()), ["x", "x", None], pa.utf8(), ["x", "x", None]),
]


def given(columns: dict[str, pa.Array]) -> Any:
    return frame_of(pa.RecordBatch.from_pydict(columns))


def result(frame: Any) -> Any:
    (out,) = narrowed([frame])
    _, (batch,) = batches_of(out)
    batch.validate(full=True)
    return batch


@pytest.mark.parametrize("kind, values, expected, expected_values", CASES, ids=lambda v: str(v))
def test_each_type(kind: Any, values: list[Any], expected: Any, expected_values: list[Any]):
    batch = result(given({"c": pa.array(values, kind)}))
    assert batch.schema.field("c").type == expected
    assert expected in TAKEN
    assert batch.column("c").to_pylist() == expected_values


@pytest.mark.parametrize("kind", sorted(TAKEN, key=str), ids=str)
def test_what_is_taken_passes_as_it_is(kind: Any):
    frame = given({"c": pa.nulls(3, kind)})
    assert next(narrowed([frame])) is frame


def test_nested_values_become_json_text():
    rows = [{"a": 1, "b": ["x", None]}, None]
    batch = result(given({"n": pa.array(rows), "l": pa.array([[1, 2], []]), "k": pa.array([1, 2])}))
    texts = batch.column("n").to_pylist()
    assert json.loads(texts[0]) == rows[0] and texts[1] is None
    assert [json.loads(t) for t in batch.column("l").to_pylist()] == [[1, 2], []]
    assert batch.column("k").to_pylist() == [1, 2]
    empty = result(given({"n": pa.array([], pa.list_(pa.int8()))}))
    assert empty.num_rows == 0 and empty.schema.field("n").type == pa.utf8()


def test_nothing_is_rounded_away():
    odd = pa.array([1], pa.timestamp("ns"))
    with pytest.raises(Refusal) as caught:
        list(narrowed([given({"c": odd})]))
    assert caught.value.fault.code == "NOT_CASTABLE" and "column c" in caught.value.fault.message


def test_names_and_nullability_stay():
    schema = pa.schema([pa.field("é", pa.int8(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int8())], schema=schema)
    field = result(frame_of(batch)).schema.field(0)
    assert (field.name, field.nullable) == ("é", False)
