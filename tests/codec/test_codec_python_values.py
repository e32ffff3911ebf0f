"""Arrow values as Python's and as JSON: nothing that a frame may hold keeps a reject from being
shown (L8)."""

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.codec.columns import ColumnDecoder, Columns, row_schema
from penstock.codec.python_values import python_values, written_out

NS = pa.timestamp("ns")
ONE, TWO = "1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000000002"
FAR = "<value out of range: 4611686018427387904>"
VIEWS = pa.array(["x", None, "y" * 20], pa.string_view())


def struct(array: Any) -> Any:
    return pa.StructArray.from_arrays([array], names=["a"])


def union(mode: str) -> Any:
    which, children = pa.array([1, 0], pa.int8()), [pa.array([1, 2], NS), pa.array(["b", "c"])]
    if mode == "sparse":
        return pa.UnionArray.from_sparse(which, children)
    return pa.UnionArray.from_dense(which, pa.array([0, 0], pa.int32()), children)


CASES: list[tuple[Any, list[Any]]] = [
    (pa.array([1, None], NS), [ONE, None]),
    (pa.array([1000], NS), ["1970-01-01T00:00:00.000001000"]),
    (pa.array([1], pa.timestamp("ns", "Mars/X")), [f"{ONE}Z"]),
    (pa.array([2**62], pa.timestamp("us")), [FAR]),
    (pa.array([0], pa.timestamp("us", "Mars/X")), [datetime(1970, 1, 1, tzinfo=UTC)]),
    (pa.array([1], pa.timestamp("us")), [datetime(1970, 1, 1, 0, 0, 0, 1)]),
    (pa.array([1, None], pa.time64("ns")), ["00:00:00.000000001", None]),
    (pa.array([2**62], pa.time64("us")), [FAR]),
    (pa.array([1, -1_500_000_000, None], pa.duration("ns")), ["PT0.000000001S", "-PT1.5S", None]),
    (pa.array([2**62], pa.duration("s")), ["PT4611686018427387904S"]),
    (pa.array([2**30], pa.date32()), ["<value out of range: 1073741824>"]),
    (pa.array([1], pa.date64()), [date(1970, 1, 1)]),
    (pa.array([1, 2, 1], NS).dictionary_encode(), [ONE, TWO, ONE]),
    (pa.RunEndEncodedArray.from_arrays(pa.array([1, 3]), pa.array([1, 2], NS)), [ONE, TWO, TWO]),
    (struct(pa.array([1, None], NS)), [{"a": ONE}, {"a": None}]),
    (pa.array([[1, None], None, []], pa.list_(NS)), [[ONE, None], None, []]),
    (pa.array([[1], None, [2]], pa.large_list(NS)), [[ONE], None, [TWO]]),
    (pa.array([[1], None, [2]], pa.list_(NS, 1)), [[ONE], None, [TWO]]),
    (pa.array([[1], None, [], [2]], pa.list_view(NS)), [[ONE], None, [], [TWO]]),
    (pa.array([[1], None, [], [2]], pa.large_list_view(NS)), [[ONE], None, [], [TWO]]),
    (pa.array([[("k", 1)], None, [("z", 2)]], pa.map_(pa.string(), NS)),
     [[("k", ONE)], None, [("z", TWO)]]),
    (union("sparse"), ["b", TWO]),
    (union("dense"), ["b", ONE]),
    (pa.ExtensionArray.from_storage(pa.opaque(NS, "t", "v"), pa.array([1], NS)), [ONE]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "expected"), CASES, ids=lambda c: str(getattr(c, "type", "")))
def test_l8_what_python_cannot_hold_is_its_whole_text(array: Any, expected: list[Any]) -> None:
    assert list(python_values(array)) == expected
    for begin in range(len(array)):  # a slice is what it shows
        assert list(python_values(array.slice(begin))) == expected[begin:]
    rows = Columns(pa.table({"x": array}))
    assert [msgspec.json.decode(row) for row in rows] == [
        {"x": msgspec.json.decode(msgspec.json.encode(value))} for value in expected
    ]
    assert bytes(rows[len(array) - 1]) == list(rows)[-1]


@pytest.mark.parametrize(("array", "expected"), CASES, ids=lambda c: str(getattr(c, "type", "")))
def test_l9_every_array_is_decoded(array: Any, expected: list[Any]) -> None:
    table = pa.table({"x": array})
    done = ColumnDecoder(row_schema(table.schema)).decode(Columns(table), 0, [0] * len(array), {})
    assert done.table.num_rows == len(expected)
    done.table.validate(full=True)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.DictionaryArray.from_arrays(pa.array([2, None, 0]), VIEWS), ["y" * 20, None, "x"]),
        (pa.DictionaryArray.from_arrays(pa.array([2, 0]), struct(VIEWS)),
         [{"a": "y" * 20}, {"a": "x"}]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([1, 3]), VIEWS.slice(0, 2)),
         ["x", None, None]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 900], pa.int16()), pa.array([7, 8]))
         .slice(1, 3), [7, 8, 8]),
    ],
)  # fmt: skip
def test_what_is_encoded_is_written_out_whatever_its_values_are(
    array: Any, expected: list[Any]
) -> None:
    assert written_out(array).to_pylist() == expected


def test_maps_whose_keys_are_no_names_become_pairs() -> None:
    keys = pa.map_(pa.struct([("q", pa.int8())]), NS)
    table = pa.table({"x": pa.array([[({"q": 1}, 1)]], keys)})
    done = ColumnDecoder(row_schema(table.schema)).decode(Columns(table), 0, [0], {})
    assert done.table.column("x").to_pylist() == [f'[[{{"q":1}},"{ONE}"]]']
