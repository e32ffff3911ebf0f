"""Compares what a run would load with the existing tables: the columns that it adds, changes or
leaves out.

The rule of a load decides which they are (``tables.frame.schema_evolution``). Reads the tables' own
lists of columns; no row, no Java. Neighbours: ``verbs`` plans; ``engine.plan`` decides the columns
of a load.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.api.answers import Plan, StreamPlan
from penstock.config.pipeline import Pipeline
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.model.types import Field

Change = Literal[
    "new", "same", "added", "ignored", "widened", "changed", "cast", "kept", "dropped", "refused"
]
_SAME = ("new", "same")


class ColumnChange(msgspec.Struct, frozen=True, kw_only=True):
    """A column in a table and in a load. ``before``: its type in the table; ``sent``: in the load;
    ``after``: in the table after the load. ``change``: ``new`` (of a new table), ``same``,
    ``added``, ``ignored`` (the load has it, and the table does not get it), ``widened``,
    ``changed`` (replaced with the rows), ``cast`` (the table keeps its type, to which values are
    cast), ``kept`` (only the table has it), ``dropped``, ``refused`` (the load fails)."""

    name: str
    change: Change
    before: str | None
    sent: str | None
    after: str | None


class TableChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would change in one table. ``is_new``: it does not exist yet; None: unknown here
    (a catalog's table, a connector). ``rows``: how many the last run of the stream read; None:
    unknown. ``refused``: why its load would fail, by ``schema_evolution``."""

    stream: StreamPlan
    is_new: bool | None
    columns: list[ColumnChange]
    rows: int | None = None

    refused: str | None = None

    @property
    def changes(self) -> int:
        return sum(1 for c in self.columns if c.change not in _SAME)


def table_changes(
    pipeline: Pipeline, plan: Plan, last: dict[str, Any] | None = None
) -> list[TableChange]:
    """Returns what a run would change, stream by stream. ``last``: the report of the last run, for
    the expected number of rows."""
    read = {(s["namespace"], s["name"]): int(s["read"]) for s in (last or {}).get("streams") or ()}
    return [_change(pipeline, s, read.get((s.namespace, s.name))) for s in plan.streams]


def _change(pipeline: Pipeline, stream: StreamPlan, rows: int | None) -> TableChange:
    from penstock.model.table_columns import stored
    from penstock.model.type_words import parse_type, type_text
    from penstock.model.types import Field

    sent = {c.name: c.type for c in stream.columns}
    old = _columns(pipeline, stream.table)
    if not old:
        listed = [
            ColumnChange(name=name, change="new", before=None, sent=kind, after=kind)
            for name, kind in sent.items()
        ]
        is_new = None if old is None else True
        return TableChange(stream=stream, is_new=is_new, columns=listed, rows=rows)
    before = {f.name: type_text(f.type) for f in old if not _is_ours(f.name) or f.name in sent}
    if not stream.columns_known:  # the load decides its columns
        sent = {**before, **sent}
    new = tuple(Field(c.name, c.source, stored(parse_type(c.type))) for c in stream.columns)
    after, refused = _after(pipeline, stream, old, new)
    replaces = _replaces(stream)
    sent |= {c.name: c.declared for c in stream.columns if c.declared is not None}
    columns = [
        ColumnChange(
            name=name,
            change=_kind(before.get(name), sent.get(name), after, name, replaces),
            before=before.get(name), sent=sent.get(name),
            after=None if after is None else after.get(name),
        )
        for name in [*sent, *(n for n in before if n not in sent)]
    ]  # fmt: skip
    return TableChange(stream=stream, is_new=False, columns=columns, rows=rows, refused=refused)


def _replaces(stream: StreamPlan) -> bool:
    """Returns whether the load replaces the table's rows, and its columns with them."""
    return stream.destination_sync_mode.startswith("overwrite") and not stream.history


def _after(
    pipeline: Pipeline, stream: StreamPlan, old: "tuple[Field, ...]", new: "tuple[Field, ...]"
) -> tuple[dict[str, str] | None, str | None]:
    """Returns the types of the table's columns after the load, by the rule of the load itself; or
    None, and why the load would fail."""
    from penstock.errors import SchemaError
    from penstock.model.type_words import type_text
    from penstock.tables.contract import SchemaChangePolicies
    from penstock.tables.frame.schema_evolution import evolve

    given = msgspec.to_builtins(pipeline.destination.schema_evolution)
    policies = msgspec.convert(given, SchemaChangePolicies)
    ours = frozenset(f.name for f in old if _is_ours(f.name))
    replaces = _replaces(stream) and stream.columns_known
    try:
        found = evolve(
            str(stream.table), old, new, policies, replaces=replaces,
            metadata=ours,
        )  # fmt: skip
    except SchemaError as e:
        return None, e.message
    return {f.name: type_text(f.type) for f in found.fields}, None


def _kind(
    before: str | None, sent: str | None, after: dict[str, str] | None, name: str, replaces: bool
) -> Change:
    is_text = before == "string" and sent in ("json", "time", "time_tz", "number_text")
    if before == sent or is_text:
        return "same"
    if after is None:
        return "refused"
    if before is None:
        return "added" if name in after else "ignored"
    if sent is None:
        return "kept" if name in after else "dropped"
    if after.get(name) == before:
        return "cast"
    return "changed" if replaces else "widened"


def _is_ours(name: str) -> bool:
    """Returns whether a column is one of Penstock's own, which no stream has."""
    return name.startswith(("_penstock_", "_airbyte_", "_sdc_"))


def _columns(pipeline: Pipeline, location: str | None) -> "tuple[Field, ...] | None":
    """Returns the table's columns; empty: no table exists. None: they cannot be known here."""
    from penstock.connectors.reference import parse_ref
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
    return None if found is None else tuple(found)
