"""Rows of every type for merges, and loads of them in the order of a pipeline's."""

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import msgspec


def numbered(load: Any, follows: int) -> Any:
    inner = msgspec.structs.replace(load.load, follows=follows, token=f"t{load.load.number}")
    return msgspec.structs.replace(load, load=inner)


def dedup(loads: Any, number: int, rows: Any, columns: Any = None, **how: Any) -> Any:
    load = loads.load(number, rows, columns, mode="append_dedup", **how)
    return numbered(load, number - 1)


def at(second: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)


def some(chance: random.Random, *values: Any) -> Any:
    return chance.choice([None, *values])


def wide(chance: random.Random) -> dict[str, Any]:
    """A row with every type, of a key of two columns that may be NULL."""
    return {
        "k": some(chance, 1, 2, 3, -(2**63)),
        "name": some(chance, "a", "A", "é", "\U0001f600", ""),
        "c": some(chance, 0.0, -0.0, math.nan, math.inf, -1.5),
        "d": some(chance, dt.date(1200, 2, 3), dt.date(2024, 1, 1), dt.date(9999, 12, 31)),
        "t": some(chance, at(0.25), dt.datetime(1, 1, 2, tzinfo=dt.UTC)),
        "n": some(chance, Decimal("1.10"), Decimal("-99999999.99")),
        "b": some(chance, b"\x00\xff", b""),
        "l": some(chance, [], [None, {"x": 1, "y": None}], [{"x": 2, "y": ["é"]}]),
        "j": some(chance, '{"a": 1}'),
        "gone": some(chance, at(1)) if chance.random() < 0.3 else None,
        "@at": at(chance.randrange(3)),
    }


def with_cursor(chance: random.Random) -> dict[str, Any]:
    """As :func:`wide`. A soft delete without a cursor keeps its row's, which is Spark's work."""
    row = wide(chance)
    return {**row, "t": row["t"] or at(0.25)} if row["gone"] else row


WIDE = {
    "k": "integer", "name": "string", "c": "number", "d": "date", "t": "timestamp",
    "n": (10, 2), "b": "binary", "l": [{"x": "integer", "y": ["string"]}], "j": "json",
    "gone": "timestamp",
}  # fmt: skip
TEXTS = {"k": "integer", "c": "string", "gone": "timestamp"}


def texts(*values: str) -> Any:
    def row(chance: random.Random) -> dict[str, Any]:
        gone = some(chance, at(1)) if chance.random() < 0.3 else None
        return {"k": chance.randrange(5), "c": some(chance, *values), "gone": gone, "@at": at(1)}

    return row


KEYS = (("k",), ("name",))
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "cursor": (WIDE, wide, {"primary_key": KEYS, "cursor": ("c",), "deleted": "gone"}),
    "soft": (WIDE, with_cursor, {"primary_key": KEYS, "cursor": ("t",), "deleted": "gone",
                          "deletes": "soft", "metadata": None}),
    "arrival": (WIDE, wide, {"primary_key": KEYS, "cursor": ("c",), "deleted": "gone",
                             "arrival": True}),
    "no cursor": (WIDE, wide, {"primary_key": (("d",), ("n",)), "deleted": "gone"}),
    "times as text": (TEXTS, texts("2024-01-09", "2024-01-10T00:00:00Z", " ", ""),
                      {"primary_key": (("k",),), "cursor": ("c",), "deleted": "gone"}),
    "numbers as text": (TEXTS, texts("9", "10", "-1.5", "+7", "12345678901234567890.5"),
                        {"primary_key": (("k",),), "cursor": ("c",), "deleted": "gone"}),
}  # fmt: skip
