"""The state of a query that a database runs: its highest cursor, found block by block."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.worker.database_source import HighestCursor
from penstock.model.types import DataType, Kind
from penstock.spark.model import cursor_value

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 600000, datetime.UTC)
WALL = AT.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("blocks", "kind", "arrow", "text"),
    [
        ([[None], [3, 1], [2, None]], DataType(Kind.integer), pa.int64(), "3"),
        ([[0.5, float("nan")], [0.25]], DataType(Kind.number), pa.float64(), "0.5"),
        ([[float("-inf")]], DataType(Kind.number), pa.float64(), "-Infinity"),
        ([[1e300]], DataType(Kind.number), pa.float64(), "1e+300"),
        (
            [[Decimal("0.0000001")]],
            DataType(Kind.decimal, 38, 7),
            pa.decimal128(38, 7),
            "0.0000001",
        ),
        ([["z", "ü"], ["\U0001f600", "\uffff"]], DataType(Kind.string), pa.string(), "\U0001f600"),
        ([[datetime.date(2026, 1, 2)]], DataType(Kind.date), pa.date32(), "2026-01-02"),
        (
            [[AT]],
            DataType(Kind.timestamp),
            pa.timestamp("us", "UTC"),
            "2026-01-02T03:04:05.600000Z",
        ),
        ([[WALL]], DataType(Kind.timestamp_ntz), pa.timestamp("us"), "2026-01-02T03:04:05.600000"),
    ],
)
def test_l1_the_highest_cursor_is_written_as_spark_writes_it(
    blocks: list[list[Any]], kind: DataType, arrow: pa.DataType, text: str
) -> None:
    highest = HighestCursor()
    for block in blocks:
        highest.add(pa.array(block, arrow))
    assert highest.text() == text
    top = max(v for block in blocks for v in block if v is not None and v == v)
    saved = cursor_value(text, kind)
    assert saved == (top if saved.__class__ is not datetime.datetime else AT)


@pytest.mark.parametrize("blocks", [[], [[]], [[None]], [[float("nan")], [None]]])
def test_l1_rows_without_a_cursor_move_no_state(blocks: list[list[Any]]) -> None:
    highest = HighestCursor()
    for block in blocks:
        highest.add(pa.array(block, pa.float64()))
    assert highest.text() is None
