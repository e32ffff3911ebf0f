"""Decides in plain Python which row of a key is the newest: the rule of ``docs/incremental.md``, as
a left fold in which a hard delete keeps its cursor to the end of its load. It shares no code with
``tables.newest``, which it tests."""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

Keeps = Callable[[Any, Any], Any]
OTHER: tuple[str, Any] = ("other", None)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_TIME = re.compile(
    r"(?P<year>[+-]?[0-9]{4,9})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt ]"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}(?:[.,][0-9]+)?))?"
    r"(?P<offset>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?",
    re.ASCII,
)
_BASIC = re.compile(
    r"([0-9]{4})([0-9]{2})([0-9]{2})([Tt][0-9]{2})([0-9]{2})([0-9]{2})?(.*)", re.ASCII
)


def order_of(value: Any, *, as_text: bool = False) -> tuple[str, Any]:
    """(form, value): what a stored cursor is compared by."""
    if isinstance(value, str):
        return ("text", value.encode()) if as_text else _order_of_text(value.strip(' "'))
    if isinstance(value, bool) or value is None:
        return OTHER
    if isinstance(value, int | Decimal):
        return "number", value
    if isinstance(value, float):
        return ("number", value) if math.isfinite(value) else OTHER
    return ("time", value) if isinstance(value, dt.date) else OTHER


def _order_of_text(text: str) -> tuple[str, Any]:
    if _INTEGER.fullmatch(text):
        return "number", int(text)
    if basic := _BASIC.fullmatch(text):
        year, month, day, hour, minute, second, rest = basic.groups()
        text = f"{year}-{month}-{day}{hour}:{minute}{':' + second if second else ''}{rest}"
    found = _TIME.fullmatch(text)
    if found is None:
        return OTHER
    year, month, day = (int(found[n]) for n in ("year", "month", "day"))
    hour, minute = int(found["hour"]), int(found["minute"])
    second = Decimal((found["second"] or "0").replace(",", "."))
    try:
        days = dt.date(year % 400 + 400, month, day).toordinal() + year // 400 * 146097
    except ValueError:
        return OTHER
    midnight = hour == 24 and minute == 0 and second == 0
    if (hour > 23 and not midnight) or minute > 59 or second >= 61:
        return OTHER
    if int(second) == 60 and hour == 24:
        return OTHER
    shift, offset = 0, found["offset"]
    if offset and offset not in "Zz":
        digits = offset[1:].replace(":", "")
        hours, minutes = int(digits[:2]), int(digits[2:] or 0)
        if hours > 23 or minutes > 59:
            return OTHER
        shift = (60 * hours + minutes) * (-1 if offset[0] == "-" else 1)
    form = "time" if offset else "time without offset"
    return form, (days * 1440 + hour * 60 + minute - shift, second)


class Folded:
    """The newest of the rows of a key so far. ``row`` None: there is none; ``order`` None: none of
    them had a cursor. ``stored``: what the table has of it, under soft deletes; ``mixed``: two
    forms were met."""

    def __init__(self, row: Any = None, order: tuple[str, Any] | None = None) -> None:
        self.row, self.order = row, order
        self.stored = row
        self.mixed = False

    def add(self, row: Any, order: tuple[str, Any] | None, keeps: Keeps | None = None) -> None:
        """``order`` None: a delete without a cursor, which has the order of what is there.
        ``keeps``: a soft delete's row, and what is there -> what is stored."""
        there = self.order
        if order is not None and self.row is not None and there is not None:
            if there[0] != order[0]:
                self.mixed = True
            elif order[0] != "other" and order[1] < there[1]:
                return
        self.stored = row if keeps is None or self.row is None else keeps(row, self.stored)
        self.row, self.order = row, order or there


def folded(
    table: tuple[Any, tuple[str, Any] | None] | None,
    rows: Iterable[tuple[Any, tuple[str, Any] | None]],
) -> Folded:
    """The fold of a load's rows (row, order), in the order of their arrival, over the table's."""
    newest = Folded(*table) if table is not None else Folded()
    for row, order in rows:
        newest.add(row, order)
    return newest
