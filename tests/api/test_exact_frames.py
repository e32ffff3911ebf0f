"""A pandas frame has the values of its Arrow table, to the last digit (L9)."""

from typing import Any

import pyarrow as pa

from penstock.api.exact_frames import exact_pandas

LARGE = 2**53 + 1  # a double has 2**53 in its place


def values(column: Any) -> list[Any]:
    frame: Any = exact_pandas(pa.table({"a": column, "b": column}))
    assert frame["a"].tolist() == frame["b"].tolist() and list(frame.columns) == ["a", "b"]
    return [None if value is None or str(value) == "<NA>" else value for value in frame["a"]]


def test_L9_whole_numbers_with_nulls_keep_their_digits() -> None:
    for kind, number in ((pa.int64(), -LARGE), (pa.int64(), LARGE), (pa.uint64(), 2**64 - 1)):
        assert values(pa.chunked_array([pa.array([number, None], kind), [7]])) == [number, None, 7]
        assert values(pa.array([number, 7], kind)) == [number, 7]
        assert values(pa.array([None, None], kind)) == [None, None]


def test_L9_whole_numbers_in_lists_keep_their_digits() -> None:
    given: list[Any] = [[LARGE, None], None, []]
    assert values(pa.array(given)) == given
    deep: list[Any] = [{"a": [{"b": [[LARGE, None]]}], "c": LARGE}, None, {"a": None, "c": None}]
    assert values(pa.array(deep)) == deep


def test_a_frame_without_nulls_has_the_types_of_numpy() -> None:
    frame: Any = exact_pandas(pa.table({"id": [1, 2], "l": [[1], [2, 3]]}))
    assert str(frame["id"].dtype) == "int64" and frame["l"][1].sum() == 5
