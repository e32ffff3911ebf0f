"""What the planner fuzz of values sends, and what a table's column must make of it.

Written from docs/reading-tables.md ("When a declared type changes"), docs/values.md (keys) and
docs/incremental.md (delete marks), with nothing of the code under test. Values are JSON text, as a
source sends them. Neighbour: ``fuzz_values``.
"""

import datetime as dt
import json
import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

Schema = dict[str, Any]
STRING, INTEGER, NUMBER, BOOLEAN = (
    {"type": ["null", name]} for name in ("string", "integer", "number", "boolean")
)
TIME: Schema = {"type": ["null", "string"], "format": "date-time"}
UNION: Schema = {"type": ["null", "string", "integer"]}
ANY: Schema = {}
OBJECT: Schema = {"type": ["null", "object"], "properties": {"a": {"type": "integer"}}}
CENTS: Schema = {"type": ["null", "number"], "multipleOf": 0.01}
NO_ROOM = object()
"""What a column cannot hold exactly: a key is a reject then, any other value NULL."""


@dataclass(frozen=True)
class Column:
    """``kind``: what the table's column is, by the first of ``declared``; ``values``: what is sent
    under each declaration."""

    kind: str
    declared: tuple[Schema, ...] = field(default=(STRING,), repr=False)
    values: tuple[list[str], ...] = field(default=(['"x"'],), repr=False)

    @property
    def changes(self) -> bool:
        return len(self.declared) > 1


AT, LATER = "2024-05-01T12:00:00.123456", "2024-05-01T14:00:00.123456"
KEYS = [
    Column(
        "text",
        (STRING, UNION, ANY, INTEGER, NUMBER),
        (
            ['"A1"', '"7"', '"007"', '"12345678"', '"7.5"'],
            ['"A1"', "7", '"007"', "12345678"],
            ['"A1"', "7", '"007"', "12345678"],
            ["7", "12345678", "8"],
            ["7", "12345678", "12345678.5", "7.5"],
        ),
    ),
    Column(
        "json",
        (UNION, STRING, INTEGER, ANY),
        (['"A1"', "7", '"7"'], ['"A1"', '"7"'], ["7", "8"], ['"A1"', "7", '"7"']),
    ),
    Column(
        "exact",
        (NUMBER,),
        (
            ["9007199254740993", "9007199254740992", "0.1", "0.10", "0.100000000000000005", "1",
             "1.0", "1e0", "0.1000000000000000055"],
        ),
    ),
    Column(
        "time",
        (TIME,),
        ([f'"{AT}Z"', f'"{AT}789Z"', f'"{AT}790Z"', f'"{AT}000Z"', f'"{LATER}+02:00"'],),
    ),
    Column(
        "cents",
        (CENTS,),
        (["1.01", "1.010", "1.014", "1234567890123456.014", "1234567890123456.01"],),
    ),
    Column("integer", (INTEGER, STRING), (["1", "2", "3"], ['"2"', '"A7"', '"3"'])),
]  # fmt: skip

_INTS = ['"5"', '"3"', '"10"', '"-2"', '"007"']
_OTHERS = ['"a"', '"07E1"', '"1.10"', '"1.9.0"', '"5.5"', '"31.12.2023"', '"01.01.2024"',
           '"2024-05-01"', '""', '"infinity"', '"0000-00-00 00:00:00"']  # fmt: skip
_TIMES = ['"2024-05-01T10:00:00Z"', '"2024-05-01T11:30:00+02:00"', '"2024-05-01T12:00:00+02:00"',
          '"2024-04-30T24:00:00Z"', '"2024-05-01 10:00:00.5+00:00"']  # fmt: skip
_CLOCKS = ['"2024-05-01T10:00:00"', '"2024-05-01 09:00"']
_EPOCHS = ['"1714557600"', '"1714561200"']
_TEXT_CHANGES = (STRING, TIME, UNION, ANY, INTEGER, NUMBER)
_AFTER = (_TIMES, ['"5"', "3", '"a"', "10"], ['"5"', "3", '"a"', "10"], ["5", "3", "10"],
          ["5", "5.5", "7"])  # fmt: skip
CURSORS = [
    Column("text", _TEXT_CHANGES, ([*_INTS, '"a"', '"07E1"', '"5.5"'], *_AFTER)),
    Column("text", _TEXT_CHANGES, ([*_TIMES, *_EPOCHS, *_CLOCKS], *_AFTER)),
    Column("text", _TEXT_CHANGES, (_OTHERS, *_AFTER)),
    Column("text", (STRING,), (_TIMES,)),
    Column("json", (UNION, STRING, ANY), (_AFTER[1], _INTS, ['"5"', "3", '"07E1"'])),
    Column("integer", (INTEGER,), (["5", "3", "10", "null"],)),
    Column("double", (NUMBER,), (["5", "5.5", "-1", "null", "1e300"],)),
    Column("time", (TIME,), ([t for t in _TIMES if "24:00" not in t],)),
]  # fmt: skip
NANOS = Column(
    "nanos",
    (TIME,),
    ([f'"{AT}Z"', f'"{AT}789Z"', f'"{AT}790Z"', f'"{LATER}7891+02:00"', '"2024-05-01T11:00:00Z"'],),
)
BIG = Column(
    "big",
    (NUMBER,),
    (["9007199254740992", "9007199254740993", "9007199254740994", "9007199254740995",
      "9007199254740996", "18014398509481985", "5.5"],),
)  # fmt: skip
CUT_CURSORS = [NANOS, BIG]
"""Cursors that their column cuts: their own order is that of the source's text."""

VALUES = [
    Column(
        "text",
        (STRING, UNION, ANY, INTEGER, NUMBER, BOOLEAN, OBJECT),
        (
            ['"A"', '"7"', '"{}"'],
            ['"A"', "7"],
            ['"A"', "7", "true", '{"a":1}', '["x"]'],
            ["7", "12345678"],
            ["7", "12345678.5"],
            ["true", "false"],
            ['{"a":1}'],
        ),
    ),
    Column(
        "json",
        (ANY, STRING, OBJECT),
        (['"A"', "7", "true", '{"a":1}', '["x"]'], ['"A"', '"7"'], ['{"a":1}']),
    ),
    Column("integer", (INTEGER, STRING), (["1", "2"], ['"1"', '"12,50 EUR"', '"3"'])),
]

LIVE = ["null", "false", '"f"', '"No"', '"n"', '"OFF"', '"none"', '"null"', '"NULL"', "0", "0.0",
        '"0"', '"0.0"', '"-0"', '" 0 "', '"0000-00-00"', '"0000-00-00 00:00:00"', '""', '"  "',
        '"false"', "[]", "{}"]  # fmt: skip
GONE = ['"2024-05-02T00:00:00Z"', '"1970-01-01"', "true", '"TRUE"', '"t"', '"yes"', '"Y"', '"on"',
        "1", '"5"', "12.5", '"2024-05-02 00:00:00"']  # fmt: skip
UNKNOWN = ['"2018-11-22T12:51:30+00:00+00:00"', '"removed by Bo"']
MARKS = [*LIVE, *GONE, *UNKNOWN]
MEANS = {**dict.fromkeys(LIVE, "there"), **dict.fromkeys(GONE, "gone")}
NESTED: list[dict[str, str]] = [  # property inside an object -> how its values begin
    {"zip code": "a"},
    {"zip code": "a", "zip_code": "b"},
    {"zip_code": "b", "zip code": "a"},
    {"zip_code": "b"},
]


def means(mark: str | None, *, of_time: bool) -> str:
    """What a delete mark says: ``there``, ``gone`` or ``unknown``."""
    if mark is None:
        return "there"
    if mark in UNKNOWN:
        return "gone" if of_time else "unknown"
    return MEANS.get(mark, "gone")


def stored(kind: str, text: str) -> Any:
    """The value of a column of ``kind`` for the JSON ``text``; :data:`NO_ROOM`."""
    value = json.loads(text)
    if value is None:
        return None
    match kind:
        case "text":
            return value if isinstance(value, str) else text
        case "json":
            return text
        case "integer":
            whole = re.fullmatch("[+-]?[0-9]+", str(value)) and not isinstance(value, bool)
            return int(value) if whole else NO_ROOM
        case "exact":
            return _decimal(text, 20, 18)
        case "cents":
            return _decimal(text, 36, 2)
        case "double" | "big":
            return float(text)
        case "nanos":
            return _instant(re.sub(r"([.][0-9]{6})[0-9]+", r"\1", value))
        case _:
            return _instant(value)


def cut_order(kind: str, text: str) -> tuple[str, Any]:
    """The order of a cursor of :data:`CUT_CURSORS` while its load is folded: what is stored, then
    what was cut."""
    value = stored(kind, text)
    if kind == "big":
        return "number", (value, Decimal(text))
    digits = re.search(r"[.][0-9]{6}([0-9]+)", text)
    return "time", (value, Decimal(f"0.{digits[1] if digits else 0}"))


def known_order(kind: str, text: str) -> tuple[str, Any]:
    """The same in a later load. A row without an entry may have been written before there were
    such: of an equal one the later wins."""
    form, (value, beyond) = cut_order(kind, text)
    entry = beyond > 0 if kind == "nanos" else beyond != Decimal(value)
    return form, (value, beyond if entry else Decimal("-Infinity"))


def _decimal(text: str, before: int, after: int) -> Any:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return NO_ROOM
    exponent = value.normalize().as_tuple().exponent
    fits = isinstance(exponent, int) and exponent >= -after and abs(value) < 10**before
    return value if fits else NO_ROOM


def _instant(value: str) -> Any:
    """A time of at most six digits of a second that are not zero."""
    digits = re.search(r"\.([0-9]+)", value)
    if digits and digits[1][6:].strip("0"):
        return NO_ROOM
    short = re.sub(r"\.([0-9]{1,6})[0-9]*", lambda m: "." + m[1].ljust(6, "0"), value)
    return dt.datetime.fromisoformat(short.replace("Z", "+00:00")).astimezone(dt.UTC)
