"""The in-memory twin of a table: the same commits, for crash schedules by the thousand.

Rows are the dictionaries that ``resolve`` gives for a part, internal columns included; what a table
keeps of a load is decided as the real formats decide it (append, replace, newest per key, deletes,
idempotence by key and number). No Spark, no types, no schema evolution. A commit is one step;
``on_step`` is called with ``table.commit.before`` and ``table.commit.after`` around it and may
raise, as a process that dies there would.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.model.catalog import DestinationSyncMode, FieldPath
from penstock.model.types import EXTRACTED_AT, SEQ
from penstock.tables.contract import Deletes, LoadResult, SessionNeeds, TableLoad, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]


class MemoryTables:
    """``rows``: what each table holds, in order. ``applied``: per table and load key, the highest
    number. Both outlive a run, as a real destination does."""

    name = "memory"

    def __init__(
        self,
        resolve: Callable[[str], Iterable[Row]],
        on_step: Callable[[str], None] = lambda step: None,
        waits: Mapping[DestinationSyncMode, str] | None = None,
    ) -> None:
        self.rows: dict[TableName, list[Row]] = {}
        self.applied: dict[tuple[TableName, str], int] = {}
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
        if self.applied.get(mark, -1) >= load.load.number:
            return LoadResult(0, repeated=True)
        fresh = [row for part in load.parts for row in self._resolve(part)]
        held = [] if load.load.replaces else self.rows.get(load.table, [])
        if load.mode is DestinationSyncMode.append_dedup:
            content, written = _newest(held, fresh, load)
        else:
            content, written = [*held, *fresh], len(fresh)
        self._on_step("table.commit.before")
        self.rows[load.table] = content
        self.applied[mark] = load.load.number
        self._on_step("table.commit.after")
        return LoadResult(written)


def _newest(held: Iterable[Row], fresh: Iterable[Row], load: TableLoad) -> tuple[list[Row], int]:
    """One row per key, and how many rows came out of the load."""
    table = {_key(row, load): row for row in held}
    best: dict[tuple[Any, ...], Row] = {}
    for row in fresh:
        key = _key(row, load)
        if key not in best or (*_age(row, load), row[SEQ]) > (
            *_age(best[key], load),
            best[key][SEQ],
        ):
            best[key] = row
    written = 0
    for key, row in best.items():
        known = table.get(key)
        if known is not None and _age(row, load) < _age(known, load):
            continue
        gone = load.deletes is Deletes.hard and bool(
            load.deleted_column and row.get(load.deleted_column) is not None
        )
        if gone:
            table.pop(key, None)
            written += known is not None
        else:
            table[key] = row
            written += 1
    return list(table.values()), written


def _key(row: Row, load: TableLoad) -> tuple[Any, ...]:
    return tuple(_at(row, path) for path in load.primary_key)


def _age(row: Row, load: TableLoad) -> tuple[Any, ...]:
    cursor = _at(row, load.cursor) if load.cursor else None
    at = row.get(EXTRACTED_AT)
    return (cursor is not None, 0 if cursor is None else cursor, at is not None, at or 0)


def _at(row: Row, path: FieldPath) -> Any:
    value: Any = row
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
