"""Tables for the planner fuzz of values: those of a real format on disk, or lists in memory.

Real: the formats ``parquet`` and ``delta``; files, commits and the merge's process, which runs
here. Where a session is given, Spark merges. Without one, a load that Spark would have to write
ends the case (``needed_spark``), and the case is played again in memory. Neighbours:
``fuzz_values``, ``memory_tables``.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pyarrow.dataset as ds
from deltalake import DeltaTable

from memory_tables import MemoryTables
from penstock.codec.parquet_parts import write_part
from penstock.model.types import Field
from penstock.tables.contract import LoadResult, LoadTasks, TableLoad, TableName
from penstock.tables.delta import tables as delta_tables
from penstock.tables.files import merge_task
from penstock.tables.files.merge_job import MergeTaskJob, NeedsSpark
from penstock.tables.formats import open_table
from penstock.tables.frame import load_frame
from penstock.tables.parquet import tables as parquet_tables


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


def _by_spark(*_: Any) -> Any:
    raise NeedsSpark("the case asks for it")


class FileTables:
    """Tables of ``format`` below ``folder``; ``log``: has the parts.
    ``spark``: a session that writes every load itself."""

    def __init__(self, format: str, folder: Path, log: Any, spark: Any = None) -> None:
        self._real = open_table(format, str(folder / "lake"))
        self._folder, self._log, self._none, self._session = folder, log, _NoSpark(), spark
        self._loads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def needed_spark(self) -> bool:
        return self._none.asked

    def commit(self, spark: Any, tasks: Any, loads: Sequence[TableLoad]) -> list[Any]:
        del spark, tasks
        there = [self._on_disk(load) for load in loads]
        if self._session is not None:
            with ExitStack() as stack:
                stack.enter_context(mock.patch.object(delta_tables, "table_for", lambda *_: None))
                stack.enter_context(mock.patch.object(parquet_tables, "rewrite_job", _by_spark))
                return self._real.commit(self._session, TASKS, there)
        done = self._real.commit(self._none, TASKS, there)
        for thread in threading.enumerate():
            if thread.name == "merge":  # it has given its result, and frees its memory
                thread.join(timeout=10)
        return done

    def _on_disk(self, load: TableLoad) -> TableLoad:
        replace, files, parts = msgspec.structs.replace, list[str](), list[Any]()
        for path, part in zip(load.parts, load.load.parts, strict=True):
            self._loads += 1
            file = self._folder / f"part-{self._loads}.parquet"
            layout = self._log.layouts.get(path)
            size, crc = write_part(file, self._log.parts[path], layout, sync=False)
            files.append(str(file))
            parts.append(replace(part, size=size, crc=crc))
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
