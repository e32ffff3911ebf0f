"""Implements the table contract in memory, for tests that run thousands of crash schedules.

Rows are the dictionaries that ``resolve`` returns for a part, internal columns included. Which rows
a table keeps follows the same rules as in the real formats (append, replace, newest per key,
deletes, idempotence by key and number). A commit is atomic; ``on_step`` is called with
``table.commit.before`` and ``table.commit.after`` around it and may raise, as if the process died
there. Not here: Spark, column types, schema evolution. Neighbours: ``contract``.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from newest_oracle import OTHER, Folded, order_of
from penstock.errors import PenstockError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, FieldPath
from penstock.model.delete_marks import marks_delete
from penstock.model.segments import CursorOrder, PlannedOn
from penstock.model.types import EXTRACTED_AT, SEQ, SEQ_EPOCH_SHIFT, RowSchema
from penstock.tables.contract import (
    Deletes,
    LastLoad,
    LoadResult,
    LoadTasks,
    NestedTable,
    SessionNeeds,
    TableLoad,
    TableName,
    already_committed,
)
from penstock.tables.load_columns import own_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]


class MemoryTables:
    """A destination whose tables are lists. ``rows``: each table's rows, in order. ``applied``: the
    last load per table and load key. Both outlive a run, as a real destination does. ``waits``:
    the answers of :meth:`single_load_reason`."""

    name = "memory"
    takes_parts = False
    rewrite_note: str | None = None
    host_note: str | None = None

    def __init__(
        self,
        resolve: Callable[[str], Iterable[Row]],
        on_step: Callable[[str], None] = lambda step: None,
        waits: Mapping[DestinationSyncMode, str] | None = None,
    ) -> None:
        self.rows: dict[TableName, list[Row]] = {}
        self.applied: dict[tuple[TableName, str], LastLoad] = {}
        self._resolve = resolve
        self._on_step = on_step
        self._waits = dict(waits or {})

    def needs(self) -> SessionNeeds:
        return SessionNeeds()

    def check(self) -> None:
        return None

    def location(self, table: TableName) -> str:
        return f"memory:{table.namespace or ''}/{table.name}"

    def single_load_reason(self, mode: DestinationSyncMode) -> str | None:
        return self._waits.get(mode)

    def unsupported_reason(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        return None

    def nested(self, tables: Sequence[TableName]) -> dict[TableName, NestedTable]:
        return {}

    def last_number(self, table: TableName, key: str) -> int | None:
        last = self.applied.get((table, key))
        return 0 if last is None else last.number

    def planned_on(self, table: TableName) -> PlannedOn | None:
        return None

    def columns_of(self, table: TableName) -> None:
        return None

    def commit(
        self, spark: "SparkSession | None", tasks: LoadTasks | None, loads: Sequence[TableLoad]
    ) -> list[LoadResult | PenstockError]:
        """As ``TableFormat.commit``; ``spark`` and ``tasks`` are not used. An exception of
        ``on_step`` passes through, except a ``PenstockError``, which becomes that load's
        outcome."""
        outcomes: list[LoadResult | PenstockError] = []
        for load in loads:
            try:
                outcomes.append(self._commit(load))
            except PenstockError as failure:
                outcomes.append(failure)
        return outcomes

    def _commit(self, load: TableLoad) -> LoadResult:
        key = (load.table, load.load.key)
        result = already_committed(load.load, self.applied.get(key))
        if result is not None:
            return result
        fresh = [row for part in load.parts for row in self._resolve(part)]
        old = [] if load.load.replaces else self.rows.get(load.table, [])
        if load.mode is DestinationSyncMode.append_dedup:
            content, written, superseded = _newest(old, fresh, load)
        else:
            content, written, superseded = [*old, *fresh], len(fresh), 0
        self._on_step("table.commit.before")
        self.rows[load.table] = content
        self.applied[key] = LastLoad(load.load.number, load.load.token)
        self._on_step("table.commit.after")
        return LoadResult(written, superseded=superseded)


def _newest(
    old: Iterable[Row], fresh: Sequence[Row], load: TableLoad
) -> tuple[list[Row], int, int]:
    """The table's rows after an append_dedup load, one per key, how many rows it wrote, and how
    many of its rows are older than another. Rows of the table that lack a field of the key are
    kept, each, where the load has no such key."""
    rows, of_load = list(old), {_key(row, load) for row in fresh}
    keyless = [r for r in rows if None in (key := _key(r, load)) and key not in of_load]
    table = {key: row for row in rows if None not in (key := _key(row, load)) or key in of_load}
    newest = {key: Folded(row, _order(row, load) or OTHER) for key, row in table.items()}
    arrived = _arrived(fresh, dict(load.load.shards))
    keeps = functools.partial(_kept, load=load)
    for row in arrived:
        newest.setdefault(_key(row, load), Folded()).add(row, _order(row, load), keeps)
    loaded = {id(row) for row in arrived}
    best = {key: fold.stored for key, fold in newest.items() if id(fold.row) in loaded}
    written = 0
    for key, row in best.items():
        if load.policy.deletes is Deletes.hard and _deletes(row, load):
            written += table.pop(key, None) is not None
        else:
            table[key] = row
            written += 1
    return [*keyless, *table.values()], written, len(arrived) - len(best)


def _arrived(rows: Iterable[Row], shards: Mapping[int, int]) -> list[Row]:
    """The rows in the order of their arrival. Between the lanes of a stream in shards the highest
    extraction time that a lane has shown decides."""
    ordered, shown, turns = sorted(rows, key=lambda row: row[SEQ]), dict[int, Any](), list[Any]()
    if not shards:
        return ordered
    for row in ordered:
        lane = shards[row[SEQ] >> SEQ_EPOCH_SHIFT]
        shown[lane] = max(shown.get(lane, row[EXTRACTED_AT]), row[EXTRACTED_AT])
        turns.append((shown[lane], lane))
    pairs = sorted(zip(turns, ordered, strict=True), key=lambda pair: pair[0])  # stable
    return [row for _, row in pairs]


def _kept(row: Row, there: Row, load: TableLoad) -> Row:
    """What is stored of a row in place of the one that is there: a soft delete that has its key,
    mark and cursor alone keeps the rest, and one without a cursor keeps that."""
    names = [f.name for f in load.schema.fields]
    if load.policy.deletes is not Deletes.soft or not _deletes(row, load):
        return row
    keeps = [n for n in load.cursor[:1] if _order(row, load) is None]
    if all(row.get(name) is None for name in own_columns(load, names)):
        keeps = names
    return {**row, **{n: there.get(n) for n in keeps if row.get(n) is None}}


def _key(row: Row, load: TableLoad) -> tuple[Any, ...]:
    return tuple(_at(row, path) for path in load.primary_key)


def _deletes(row: Row, load: TableLoad) -> bool:
    return bool(load.deleted_column and marks_delete(row.get(load.deleted_column)))


def _order(row: Row, load: TableLoad) -> tuple[str, Any] | None:
    """The order of a row's cursor; None: it is a delete without one. Under arrival, and without a
    cursor, each row is as new as any."""
    if load.arrival or not load.cursor:
        return OTHER
    cursor = _at(row, load.cursor)
    if cursor is None and _deletes(row, load):
        return None
    return order_of(cursor, as_text=load.cursor_order is CursorOrder.text)


def _at(row: Row, path: FieldPath) -> Any:
    value: Any = row
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
