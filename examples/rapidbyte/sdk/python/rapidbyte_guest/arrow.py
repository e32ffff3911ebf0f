"""Columns as plain lists, and the types of the protocol that they may have.

Values are what Python computes with: int, float, str, bytes, bool; a date is its days since 1970, a
timestamp its count of the unit since 1970 in UTC, a decimal a ``Decimal``. None is null.
Neighbours: ``arrow_write``, ``arrow_read``.
"""

from decimal import Context
from functools import cache
from typing import Any, NamedTuple

WIDE = Context(prec=76)
"""Python's own would round a decimal of 38 digits."""


class Column(NamedTuple):
    """``type``: a key of ``TYPES``, or ``decimal128(PRECISION,SCALE)``. ``values``: a list, one for
    each row."""

    name: str
    type: str
    values: Any


class Layout(NamedTuple):
    """``tag``: of the union ``Type`` in Arrow's Schema.fbs; ``fields``: of its table, slot ->
    (struct form, value). ``code``: of ``array`` and ``memoryview.cast``; None: bits, bytes or
    nothing. ``offsets``: the code of the offsets before bytes."""

    tag: int
    fields: dict[int, tuple[str, int]]
    code: str | None = None
    offsets: str | None = None


def _integer(bits: int, signed: int, code: str) -> Layout:
    return Layout(2, {0: ("i", bits), 1: ("B", signed)}, code)


# Unsigned codes of 32 and 64 bits are I and Q here and on every wasm32 Python.
TYPES = {
    "null": Layout(1, {}),
    "int8": _integer(8, 1, "b"),
    "int16": _integer(16, 1, "h"),
    "int32": _integer(32, 1, "i"),
    "int64": _integer(64, 1, "q"),
    "uint8": _integer(8, 0, "B"),
    "uint16": _integer(16, 0, "H"),
    "uint32": _integer(32, 0, "I"),
    "uint64": _integer(64, 0, "Q"),
    "float32": Layout(3, {0: ("h", 1)}, "f"),
    "float64": Layout(3, {0: ("h", 2)}, "d"),
    "binary": Layout(4, {}, None, "i"),
    "utf8": Layout(5, {}, None, "i"),
    "bool": Layout(6, {}),
    "date32": Layout(8, {0: ("h", 0)}, "i"),
    "timestamp_millis": Layout(10, {0: ("h", 1)}, "q"),
    "timestamp_micros": Layout(10, {0: ("h", 2)}, "q"),
    "timestamp_nanos": Layout(10, {0: ("h", 3)}, "q"),
    "large_binary": Layout(19, {}, None, "q"),
    "large_utf8": Layout(20, {}, None, "q"),
}
"""As in ``data_type`` of a stream context, in lower case with underscores."""

_DECIMAL = "decimal128("


@cache
def layout_of(kind: str) -> Layout:
    if (scale := scale_of(kind)) is None:
        return TYPES[kind]
    precision = int(kind[len(_DECIMAL) : kind.index(",")])
    return Layout(7, {0: ("i", precision), 1: ("i", scale), 2: ("i", 128)})


@cache
def scale_of(kind: str) -> int | None:
    """None: it is no decimal."""
    return int(kind[kind.index(",") + 1 : -1]) if kind.startswith(_DECIMAL) else None


DATA_TYPES = {
    "null": "Utf8", "bool": "Boolean", "binary": "Binary", "utf8": "Utf8", "date32": "Date32",
    "large_binary": "LargeBinary", "large_utf8": "LargeUtf8",
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64",
    "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float32": "Float32", "float64": "Float64", "timestamp_millis": "TimestampMillis",
    "timestamp_micros": "TimestampMicros", "timestamp_nanos": "TimestampNanos",
}  # fmt: skip
"""The words for them in a catalog."""
