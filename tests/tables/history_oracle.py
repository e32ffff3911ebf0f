"""Decides in plain Python which versions a key has: the rule of ``docs/history.md``, by sorting,
folding and cutting. It shares no code with ``tables.history``, which it tests."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from newest_oracle import order_of


class Row(NamedTuple):
    """A row of a load. ``at``: its time of extraction."""

    key: int
    cursor: Any
    value: Any
    gone: bool = False
    at: int = 0


class Version(NamedTuple):
    """``value`` None and ``start == end``: the trace of a delete that met no version."""

    start: Any
    end: Any
    current: bool
    value: Any


def by_cursor(rows: Iterable[Row], *, as_text: bool = False) -> list[Version]:
    """The versions of a key whose ``rows`` came in this order."""
    form: str | None = None
    events: dict[Any, tuple[Any, Row]] = {}  # by place: what it is shown as, and what is there
    for row in rows:
        own, place = order_of(row.cursor, as_text=as_text)
        if own != "other" and form is None:
            form = own
        if own != "other" and own == form:
            events[place] = (row.cursor, row)
            continue
        known = [p for p in events if p is not None]
        place = max(known) if known else None
        shown = events[place][0] if place is not None else None
        events[place] = (shown, row)
    line = sorted(events, key=lambda p: (p is not None, p if p is not None else 0))
    return _cut([events[place] for place in line])


def _cut(line: list[tuple[Any, Row]]) -> list[Version]:
    found: list[Version] = []
    open_before = False
    for index, (start, row) in enumerate(line):
        following = line[index + 1 : index + 2]
        if row.gone:
            if not open_before:
                found.append(Version(start, start, False, None))
        else:
            end = following[0][0] if following else None
            found.append(Version(start, end, not following, row.value))
        open_before = not row.gone
    return found


def by_arrival(rows: Iterable[Row], *, before: Iterable[Version] = ()) -> list[Version]:
    """As :func:`by_cursor`, where arrival decides, after the versions ``before``."""
    found = [*before]
    for row in rows:
        last = found[-1] if found else None
        current = last if last is not None and last.current else None
        floor = None if last is None else last.start if last.current else last.end
        at = row.at if floor is None else max(row.at, floor)
        if row.gone:
            if current is not None:
                found[-1] = current._replace(end=at, current=False)
        elif current is None or current.value != row.value:
            if current is not None:
                found[-1] = current._replace(end=at, current=False)
            found.append(Version(at, None, True, row.value))
    return found


def gone(before: list[Version], at: int) -> list[Version]:
    """The versions of a key that a complete refresh, whose last row came ``at``, lacks."""
    if before and before[-1].current:
        last = before[-1]
        before = [*before[:-1], last._replace(end=max(at, last.start), current=False)]
    return before
