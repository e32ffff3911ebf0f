"""Tables for the planner fuzz of values: those of a real format on disk, or lists in memory.

Real: the formats ``parquet`` and ``delta`` as far as they need no Spark; files, commits and the
merge's process, which runs here. A load that Spark would have to write ends the case
(``needed_spark``), and the case is played again in memory. Neighbours: ``fuzz_values``,
``memory_tables``.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from memory_tables import MemoryTables
from penstock.model.types import Field
from penstock.tables.contract import LoadResult, LoadTasks, TableLoad, TableName
from penstock.tables.files import merge_task
from penstock.tables.files.merge_job import MergeTaskJob
from penstock.tables.formats import open_table
from penstock.tables.frame import load_frame


def _here(module: str, job: bytes) -> bytes:
    del module
    never = SimpleNamespace(is_set=lambda: False)
    told = msgspec.json.decode(job, type=MergeTaskJob)
    return msgspec.json.encode(merge_task.run(told, never))  # type: ignore[arg-type]


TASKS = LoadTasks(_here, at_once=1, token="fuzz", elsewhere=False, prove_lease=lambda: None)


class _NoSpark:
    """A session whose settings are all that it has: whatever else is asked of it is noted."""

    getAll: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.conf, self.asked = self, False

    def __getattr__(self, name: str) -> Any:
        self.asked = True
        raise RuntimeError(f"there is no Spark here: {name}")


class FileTables:
    """Tables of ``format`` below ``folder``; ``parts``: the log's, Arrow tables by their paths."""

    def __init__(self, format: str, folder: Path, parts: Mapping[str, Any]) -> None:
        self._real = open_table(format, str(folder / "lake"))
        self._folder, self._parts, self._spark = folder, parts, _NoSpark()
        self._loads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def needed_spark(self) -> bool:
        return self._spark.asked

    def commit(self, spark: Any, tasks: Any, loads: Sequence[TableLoad]) -> list[Any]:
        del spark, tasks
        done = self._real.commit(self._spark, TASKS, [self._on_disk(load) for load in loads])
        for thread in threading.enumerate():
            if thread.name == "merge":  # it has given its result, and frees its memory
                thread.join(timeout=10)
        return done

    def _on_disk(self, load: TableLoad) -> TableLoad:
        replace, files, parts = msgspec.structs.replace, list[str](), list[Any]()
        for path, part in zip(load.parts, load.load.parts, strict=True):
            self._loads += 1
            file = self._folder / f"part-{self._loads}.parquet"
            pq.write_table(self._parts[path], file)
            files.append(str(file))
            parts.append(replace(part, size=file.stat().st_size))
        return replace(load, parts=(*files,), load=replace(load.load, parts=(*parts,)))

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        place = self._real.location(TableName(None, name))
        if self._real.name == "delta":
            made = DeltaTable.is_deltatable(place)
            return DeltaTable(place).to_pyarrow_table().to_pylist() if made else []
        if not Path(place).exists():
            return []
        return ds.dataset(place, format="parquet").to_table().to_pylist()


class TypedMemoryTables(MemoryTables):
    """Tables in memory that know their columns."""

    needed_spark = False

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__(lambda path: parts[path].to_pylist())
        self._columns: dict[TableName, tuple[Field, ...]] = {}

    def columns_of(self, table: TableName) -> Any:
        return self._columns.get(table, ())

    def _commit(self, load: TableLoad) -> LoadResult:
        old = None if load.load.replaces else self._columns.get(load.table)
        found = load_frame.target_columns(load, old, lambda: None)
        done = super()._commit(load)
        self._columns[load.table] = found.fields
        return done

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        found = self.rows.get(TableName(None, name), [])
        return [dict(row) for row in found]
