"""Streams of the kept homes ``newest-*``: tables of one row per key that earlier code merged, by a
cursor of each kind. What its two runs sent, and what the first run of today's code is sent.

Every stream has the key ``id``, the cursor ``at`` and a value ``v``. Neighbours: ``kept_homes``
makes the homes with the earlier code, ``test_kept_newest`` goes on with them.
"""

from typing import Any

INTEGER, NUMBER, TEXT = ({"type": ["null", name]} for name in ("integer", "number", "string"))
UNION = {"type": ["null", "string", "integer"]}
MARK = "_ab_cdc_deleted_at"
GONE = "2024-05-02T00:00:00Z"

TYPES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {  # of id, at, v
    "ints": (INTEGER, INTEGER, TEXT),
    "numbers": (NUMBER, INTEGER, TEXT),
    "times": (TEXT, TEXT, TEXT),
    "texts": (TEXT, TEXT, TEXT),
    "unions": (TEXT, TEXT, TEXT),
    "quoted": (UNION, UNION, UNION),
    "soft": (INTEGER, INTEGER, TEXT),
}
Rows = dict[str, list[tuple[Any, ...]]]  # stream -> (id, at, v) or (id, at, v, mark) of each

FIRST: Rows = {
    "ints": [(1, 10, "a"), (2, 20, "b")],
    "numbers": [(1.5, 10, "a"), (9007199254740992, 10, "b")],
    "times": [("A1", "2024-05-01T10:00:00Z", "a"), ("A2", "2024-05-01T10:00:00+02:00", "b")],
    "texts": [("A1", "99", "a"), ("A2", "1.9.0", "b"), ("A3", "31.12.2023", "c")],
    "unions": [("A1", "5", "a"), ("A2", "6", "b")],
    "quoted": [("A1", "5", "a"), (2, 6, "b")],
    "soft": [(1, 10, "a"), (2, 10, "b"), (3, 10, "c"), (4, 10, "d")],
}
SECOND: Rows = {
    "ints": [(1, 11, "a2"), (2, 20, "b")],
    "numbers": [(1.5, 11, "a2")],
    "times": [("A1", "2024-05-02T10:00:00Z", "a2")],
    # that code read 07E1 as 70 and compared 1.10 and 1.9.0 as text: it left both out
    "texts": [("A1", "07E1", "lost"), ("A2", "1.10", "lost")],
    "unions": [("A1", "7", "a2")],
    "quoted": [("A1", "7", "a2")],
    "soft": [(2, 11, "b", GONE), (3, 11, None, GONE)],
}
NOW: Rows = {
    "ints": [(1, 12, "a3"), (2, 20, "b"), (3, 5, "c")],
    "numbers": [
        (1.5, 12, "a3"), (9007199254740992, 10, "b"), (9007199254740993, 10, "c"), (2, 1, "d"),
    ],
    "times": [("A1", "2024-05-02T12:30:00+02:00", "a3"), ("A2", "2024-05-01T10:00:00+02:00", "b")],
    "texts": [("A1", "08E1", "a3"), ("A2", "1.10", "b2"), ("A3", "01.01.2024", "c2")],
    "unions": [("A1", 8, 7), ("A2", "6", "b"), (7, 1, "c")],
    "quoted": [("A1", "8", "a3"), (2, 6, "b"), ("B1", "1", "c")],
    "soft": [(1, 11, None, GONE), (2, 11, "b", GONE), (3, 12, "c2"), (4, 11, "d2")],
}  # fmt: skip


def streams(*, changed: bool = False) -> list[dict[str, Any]]:
    """The catalog. ``changed``: the properties of ``unions`` have become unions, those of
    ``quoted`` are text."""
    found: list[dict[str, Any]] = []
    other = {"unions": (UNION,) * 3, "quoted": (TEXT,) * 3} if changed else {}
    for name, declared in TYPES.items():
        types = other.get(name, declared)
        properties = dict(zip(("id", "at", "v"), types, strict=True))
        if name == "soft":
            properties[MARK] = TEXT
        schema = {"type": "object", "properties": properties}
        found.append({"name": name, "json_schema": schema, "default_cursor_field": ["at"]})
    return found


def steps(rows: Rows, number: int) -> list[dict[str, Any]]:
    """Steps of a source that sends ``rows``, and a state with ``number`` for each stream."""
    made: list[dict[str, Any]] = []
    for name in TYPES:
        for row in rows.get(name, ()):
            data = dict(zip(("id", "at", "v", MARK), row, strict=False))
            if data["v"] is None:
                del data["v"]
            made.append({"record": {"stream": name, "data": data}})
        made.append({"state": {"stream": name, "state": {"seq": number}}})
    return made


BEFORE: Rows = {
    "ints": [(1, 11, "a2"), (2, 20, "b")],
    "numbers": [(1.5, 11, "a2"), (9007199254740992.0, 10, "b")],
    "times": [("A1", "2024-05-02T10:00:00Z", "a2"), ("A2", "2024-05-01T10:00:00+02:00", "b")],
    "texts": FIRST["texts"],
    "unions": [("A1", "7", "a2"), ("A2", "6", "b")],
    "quoted": [('"A1"', '"7"', '"a2"'), ("2", "6", '"b"')],
    "soft": [(1, 10, "a", None), (2, 11, "b", GONE), (3, 11, "c", GONE), (4, 10, "d", None)],
}
"""What the earlier code left of ``FIRST`` and ``SECOND``."""

MERGED: Rows = {
    "ints": [(1, 12, "a3"), (2, 20, "b"), (3, 5, "c")],
    "numbers": [(1.5, 12, "a3"), (2.0, 1, "d"), (9007199254740992.0, 10, "b")],
    "times": [("A1", "2024-05-02T12:30:00+02:00", "a3"), ("A2", "2024-05-01T10:00:00+02:00", "b")],
    "texts": [("A1", "08E1", "a3"), ("A2", "1.10", "b2"), ("A3", "01.01.2024", "c2")],
    "unions": [("7", "1", "c"), ("A1", "8", "7"), ("A2", "6", "b")],
    "quoted": [('"A1"', '"8"', '"a3"'), ('"B1"', '"1"', '"c"'), ("2", "6", '"b"')],
    "soft": [(1, 11, "a", GONE), (2, 11, "b", GONE), (3, 12, "c2", None), (4, 11, "d2", None)],
}
"""What the tables hold after ``NOW``: by the rule of docs/incremental.md, each key once."""
