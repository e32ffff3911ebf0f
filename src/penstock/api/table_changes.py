"""Compares what a run would load with the tables that are there: the columns that it adds, changes
or leaves out.

Reads the tables' own lists of columns; no row, no Java. Neighbours: ``verbs`` plans;
``engine.plan`` decides what the columns of a load are.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.api.answers import Plan, StreamPlan
from penstock.config.pipeline import Pipeline
from penstock.errors import PenstockError

Change = Literal["new", "same", "added", "changed", "absent"]


class ColumnChange(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table and of a load. ``change``: ``new`` (of a new table), ``same``, ``added``,
    ``changed`` (another type), ``absent`` (only the table has it). ``before``, ``after``: the
    types."""

    name: str
    change: Change
    before: str | None
    after: str | None


class TableChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would change in one table. ``is_new``: it is not there yet; None: that cannot be
    known from here (a catalog's table, a connector). ``rows``: that the last run of the stream
    read; None: not known."""

    stream: StreamPlan
    is_new: bool | None
    columns: list[ColumnChange]
    rows: int | None = None

    @property
    def changes(self) -> int:
        return sum(1 for c in self.columns if c.change in ("added", "changed", "absent"))


def table_changes(
    pipeline: Pipeline, plan: Plan, last: dict[str, Any] | None = None
) -> list[TableChange]:
    """Returns what a run would change, stream by stream. ``last``: the report of the last run, by
    which rows are expected."""
    read = {(s["namespace"], s["name"]): int(s["read"]) for s in (last or {}).get("streams") or ()}
    return [_change(pipeline, s, read.get((s.namespace, s.name))) for s in plan.streams]


def _change(pipeline: Pipeline, stream: StreamPlan, rows: int | None) -> TableChange:
    after = {c.name: c.type for c in stream.columns}
    before = _columns(pipeline, stream.table)
    if not before:
        listed = [_column(name, "new", None, kind) for name, kind in after.items()]
        is_new = None if before is None else True
        return TableChange(stream=stream, is_new=is_new, columns=listed, rows=rows)
    listed = [
        _column(n, "added" if n not in before else _compared(before[n], k), before.get(n), k)
        for n, k in after.items()
    ]
    gone = [n for n in before if n not in after and stream.columns_known and not _is_ours(n)]
    listed += [_column(name, "absent", before[name], None) for name in gone]
    return TableChange(stream=stream, is_new=False, columns=listed, rows=rows)


def _column(name: str, change: Change, before: str | None, after: str | None) -> ColumnChange:
    return ColumnChange(name=name, change=change, before=before, after=after)


def _compared(before: str, after: str) -> Change:
    """A table keeps JSON and times of day as text."""
    kept = before == "string" and after in ("json", "time", "time_tz", "number_text")
    return "same" if before == after or kept else "changed"


def _is_ours(name: str) -> bool:
    """Whether a column is one of Penstock's own, which no stream has."""
    return name.startswith(("_penstock_", "_airbyte_", "_sdc_"))


def _columns(pipeline: Pipeline, location: str | None) -> dict[str, str] | None:
    """Returns the table's columns; none: there is no table. None: they cannot be known from
    here."""
    from penstock.connectors.reference import parse_ref
    from penstock.model.type_words import type_text
    from penstock.tables.contract import TableName
    from penstock.tables.formats import open_table

    ref = parse_ref(pipeline.destination.use)
    place = None if location is None else Path(location.removeprefix("file://"))
    if ref.format is None or place is None or "://" in str(location) or not place.name:
        return None
    try:
        table = open_table(ref.format, str(place.parent))
        found = table.columns_of(TableName(None, place.name))
    except PenstockError:
        return None
    return None if found is None else {f.name: type_text(f.type) for f in found}
