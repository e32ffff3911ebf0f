"""Implements the table contract in memory, for tests that run thousands of crash schedules.

Rows are the dictionaries that ``resolve`` returns for a part, internal columns included. Which rows
a table keeps follows the same rules as in the real formats (append, replace, newest per key,
deletes, idempotence by key and number). A commit is atomic; ``on_step`` is called with
``table.commit.before`` and ``table.commit.after`` around it and may raise, as if the process died
there. Not here: Spark, column types, schema evolution. Neighbours: ``contract``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, FieldPath
from penstock.model.segments import PlannedOn
from penstock.model.types import EXTRACTED_AT, SEQ, RowSchema
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
from penstock.tables.frame.soft_deletes import is_bare

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

    def planned_on(self, table: TableName) -> PlannedOn | None:
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
            content, written = _newest(old, fresh, load)
        else:
            content, written = [*old, *fresh], len(fresh)
        self._on_step("table.commit.before")
        self.rows[load.table] = content
        self.applied[key] = LastLoad(load.load.number, load.load.token)
        self._on_step("table.commit.after")
        return LoadResult(written)


def _newest(old: Iterable[Row], fresh: Sequence[Row], load: TableLoad) -> tuple[list[Row], int]:
    """The table's rows after an append_dedup load, one per key, and how many rows it wrote. Rows of
    the table that lack a field of the key are kept, each, where the load has no such key."""
    rows, of_load = list(old), {_key(row, load) for row in fresh}
    keyless = [r for r in rows if None in (key := _key(r, load)) and key not in of_load]
    table = {key: row for row in rows if None not in (key := _key(row, load)) or key in of_load}
    newest = {key: _age(row, load) for key, row in table.items()}
    cursors = {key: age[:2] for key, age in newest.items()}  # the highest so far
    best: dict[tuple[Any, ...], Row] = {}
    rows = [*table.values(), *sorted(fresh, key=lambda row: row[SEQ])]
    for row in sorted(fresh, key=lambda row: row[SEQ]):
        key, age = _key(row, load), _age(row, load)
        cursors[key] = max(cursors.get(key, age[:2]), age[:2])
        if _deletes(row, load) and not age[0]:
            age = (*cursors[key], *age[2:])
        if load.arrival or key not in newest or age >= newest[key]:
            best[key], newest[key] = row, age
    whole = {_key(row, load): row for row in rows if not is_bare(row, load)}
    for key, row in best.items():
        if is_bare(row, load) and key in whole:
            best[key] = {n: whole[key].get(n) if v is None else v for n, v in row.items()}
    written = 0
    for key, row in best.items():
        if load.policy.deletes is Deletes.hard and _deletes(row, load):
            written += table.pop(key, None) is not None
        else:
            table[key] = row
            written += 1
    return [*keyless, *table.values()], written


def _key(row: Row, load: TableLoad) -> tuple[Any, ...]:
    return tuple(_at(row, path) for path in load.primary_key)


def _deletes(row: Row, load: TableLoad) -> bool:
    return bool(load.deleted_column and row.get(load.deleted_column) is not None)


def _age(row: Row, load: TableLoad) -> tuple[Any, ...]:
    cursor = _at(row, load.cursor) if load.cursor else None
    if isinstance(cursor, str):
        cursor = _by_value(cursor)
    at = row.get(EXTRACTED_AT)
    return (cursor is not None, 0 if cursor is None else cursor, at is not None, at or 0)


def _by_value(text: str) -> tuple[bool, Decimal, str] | None:
    """The value by which a text cursor is compared, as in ``load_frame.cursor_sql``: numbers
    by value, before all other text; None for blank text."""
    if not text.strip():
        return None
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return True, Decimal(0), text
    return (False, number, "") if number.is_finite() else (True, Decimal(0), text)


def _at(row: Row, path: FieldPath) -> Any:
    value: Any = row
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
