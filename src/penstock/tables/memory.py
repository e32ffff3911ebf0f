"""The in-memory twin of a table: the same commits, for crash schedules by the thousand.

Rows are the dictionaries that ``resolve`` gives for a part, internal columns included; what a table
keeps of a load is decided as the real formats decide it (append, replace, newest per key, deletes,
idempotence by key and number). No Spark, no types, no schema evolution. A commit is one step;
``on_step`` is called with ``table.commit.before`` and ``table.commit.after`` around it and may
raise, as a process that dies there would.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, FieldPath
from penstock.model.types import EXTRACTED_AT, SEQ, RowSchema
from penstock.tables.contract import (
    Deletes,
    Held,
    LoadResult,
    SessionNeeds,
    TableLoad,
    TableName,
    judge,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]


class MemoryTables:
    """``rows``: what each table holds, in order. ``applied``: per table and load key, what it
    remembers of the key. Both outlive a run, as a real destination does."""

    name = "memory"

    def __init__(
        self,
        resolve: Callable[[str], Iterable[Row]],
        on_step: Callable[[str], None] = lambda step: None,
        waits: Mapping[DestinationSyncMode, str] | None = None,
    ) -> None:
        self.rows: dict[TableName, list[Row]] = {}
        self.applied: dict[tuple[TableName, str], Held] = {}
        self._resolve = resolve
        self._on_step = on_step
        self._waits = dict(waits or {})

    def needs(self) -> SessionNeeds:
        return SessionNeeds()

    def check(self) -> None:
        return None

    def location(self, table: TableName) -> str:
        return f"memory:{table.namespace or ''}/{table.name}"

    def loads_once(self, mode: DestinationSyncMode) -> str | None:
        return self._waits.get(mode)

    def unable(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        return None

    def commit(
        self, spark: "SparkSession | None", loads: Sequence[TableLoad]
    ) -> list[LoadResult | PenstockError]:
        """``spark`` is not used. What ``on_step`` raises passes through, unless it is one of our
        errors: then it is that load's outcome."""
        outcomes: list[LoadResult | PenstockError] = []
        for load in loads:
            try:
                outcomes.append(self._commit(load))
            except PenstockError as failure:
                outcomes.append(failure)
        return outcomes

    def _commit(self, load: TableLoad) -> LoadResult:
        mark = (load.table, load.load.key)
        known = judge(load.load, self.applied.get(mark))
        if known is not None:
            return known
        fresh = [row for part in load.parts for row in self._resolve(part)]
        held = [] if load.load.replaces else self.rows.get(load.table, [])
        if load.mode is DestinationSyncMode.append_dedup:
            content, written = _newest(held, fresh, load)
        else:
            content, written = [*held, *fresh], len(fresh)
        self._on_step("table.commit.before")
        self.rows[load.table] = content
        self.applied[mark] = Held(load.load.number, load.load.token)
        self._on_step("table.commit.after")
        return LoadResult(written)


def _newest(held: Iterable[Row], fresh: Iterable[Row], load: TableLoad) -> tuple[list[Row], int]:
    """One row per key, and how many rows came out of the load."""
    table = {_key(row, load): row for row in held}
    newest = {key: _age(row, load) for key, row in table.items()}
    cursors = {key: age[:2] for key, age in newest.items()}  # the highest so far
    best: dict[tuple[Any, ...], Row] = {}
    for row in sorted(fresh, key=lambda row: row[SEQ]):
        key, age = _key(row, load), _age(row, load)
        cursors[key] = max(cursors.get(key, age[:2]), age[:2])
        if _deletes(row, load) and not age[0]:
            age = (*cursors[key], *age[2:])
        if load.arrival or key not in newest or age >= newest[key]:
            best[key], newest[key] = row, age
    written = 0
    for key, row in best.items():
        if load.deletes is Deletes.hard and _deletes(row, load):
            written += table.pop(key, None) is not None
        else:
            table[key] = row
            written += 1
    return list(table.values()), written


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
    """As ``tables.load_frame.cursor_sql``: numbers by their value, before all other text."""
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
