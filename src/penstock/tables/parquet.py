"""Tables as folders of Parquet files, without any jar.

``ROOT/namespace/name`` (or ``ROOT/name``) is read by plain ``spark.read.parquet``, DuckDB and
pandas: all files of a table have the same columns. A plain append stages its files and renames them
into the folder (a reader may see a load file by file); whatever replaces rows, keeps the newest per
key or changes columns writes a new complete folder and exchanges the two in one step. Appends of
many tables with equal columns share one Spark job (``small_loads``). Neighbours:
``parquet_folders`` knows what lies on the disk, ``load_frame`` what the rows are,
``schema_evolution`` what the columns become.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import ConfigError, DestinationError, PenstockError
from penstock.files import sync_file_system
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode
from penstock.model.types import Field, RowSchema
from penstock.spark.error_text import table_failure
from penstock.spark.types import struct_type
from penstock.tables import load_frame
from penstock.tables.contract import LoadResult, SessionNeeds, TableLoad, TableName, judge
from penstock.tables.parquet_folders import (
    Marker,
    Root,
    can_exchange,
    finished_files,
    name_rewritten,
    parquet_files,
    prove_writable,
    put_folder,
    read_marker,
    take_files,
    write_marker,
)
from penstock.tables.small_loads import write_each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

BATCH_LOADS = 2000  # loads of one shape in one Spark job
BATCH_BYTES = 64 << 20  # and of their records as the source sent them: more goes alone
PARALLEL_JOBS = 4
_WRITTEN = "written"
_REWRITES = (
    "a Parquet table cannot change single rows: append_dedup reads the table and writes it anew, "
    "so it loads once, at the end of the sync"
)

Outcome = LoadResult | PenstockError


class _Plan(msgspec.Struct, frozen=True):
    """What one load does to its table, from the marker as it was read."""

    index: int
    load: TableLoad
    folder: Path
    marker: Marker | None
    target: tuple[Field, ...]
    rewrites: bool


class ParquetTables:
    """The destination ``parquet:PATH``; PATH on a local file system."""

    name = "parquet"

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        if options:
            raise ConfigError(
                f"parquet has no option {', '.join(sorted(options))}", code="config.unknown_option"
            )
        self._root = Root(_local(path))

    def needs(self) -> SessionNeeds:
        return SessionNeeds()

    def check(self) -> None:
        prove_writable(self._root.path)

    def location(self, table: TableName) -> str:
        return str(self._root.folder(table))

    def loads_once(self, mode: DestinationSyncMode) -> str | None:
        return _REWRITES if mode is DestinationSyncMode.append_dedup else None

    def unable(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        if can_exchange(self._root.path):
            return None
        return (
            "its file system cannot exchange two folders in one step, which a Parquet table needs "
            "to keep one row per key"
        )

    def commit(self, spark: "SparkSession", loads: Sequence[TableLoad]) -> list[Outcome]:
        self._root.prepare()
        outcomes: dict[int, Outcome] = {}
        with self._root.staging() as staging:
            for wave in _waves(loads):
                _Wave(spark, self._root, staging, outcomes).run(wave)
        return [outcomes[index] for index in range(len(loads))]


def _local(path: str) -> Path:
    url = urlsplit(path)
    if url.scheme == "file":
        return Path(unquote(url.path)).resolve()
    if "://" in path:
        raise ConfigError(
            f"parquet tables need a local file system, not {url.scheme}://",
            code="destination.not_local",
            where=path,
            hint="use a local path, or delta:, which commits on object stores",
        )
    return Path(path).expanduser().resolve()


def _waves(loads: Sequence[TableLoad]) -> list[list[tuple[int, TableLoad]]]:
    """Loads of one table follow each other; those of one wave are all of different tables."""
    waves: list[list[tuple[int, TableLoad]]] = []
    seen: dict[TableName, int] = {}
    for index, load in enumerate(loads):
        turn = seen.get(load.table, -1) + 1
        seen[load.table] = turn
        if turn == len(waves):
            waves.append([])
        waves[turn].append((index, load))
    return waves


class _Wave:
    """Loads of different tables, committed in as few Spark jobs as their shapes allow."""

    def __init__(
        self, spark: "SparkSession", root: Root, staging: Path, outcomes: dict[int, Outcome]
    ) -> None:
        self.spark = spark
        self.root = root
        self.staging = staging
        self.outcomes = outcomes

    def run(self, wave: Sequence[tuple[int, TableLoad]]) -> None:
        plans = [plan for index, load in wave if (plan := self._guarded_plan(index, load))]
        jobs = [self._alone(plan) for plan in plans if plan.rewrites]
        jobs += [self._together(batch) for batch in _batches([p for p in plans if not p.rewrites])]
        with ThreadPoolExecutor(PARALLEL_JOBS, "penstock-load") as pool:
            for done in [pool.submit(job) for job in jobs]:
                done.result()
        sync_file_system(self.root.path)

    def _guarded_plan(self, index: int, load: TableLoad) -> _Plan | None:
        try:
            plan = self._plan(index, load)
        except Exception as failure:
            self.outcomes[index] = table_failure(failure, load.table.name)
            return None
        if isinstance(plan, LoadResult):
            self.outcomes[index] = plan
            return None
        return plan

    def _plan(self, index: int, load: TableLoad) -> _Plan | LoadResult:
        folder = self.root.folder(load.table)
        marker = read_marker(folder)
        known = judge(load.load, marker.held(load.load.key) if marker else None)
        if known is not None:
            return known
        old = marker.columns if marker else None
        columns = load_frame.target_columns(
            load, old, lambda: self._held(folder, marker) if marker else None
        )
        dedups = load.mode is DestinationSyncMode.append_dedup
        if dedups:
            load_frame.key_sql(load, columns.fields)
        rewrites = dedups or load.load.replaces or (old is not None and columns.fields != old)
        return _Plan(index, load, folder, marker, columns.fields, rewrites)

    def _held(self, folder: Path, marker: Marker) -> "DataFrame | None":
        files = finished_files(folder, marker)
        if not files:
            return None
        reader = self.spark.read.schema(struct_type(marker.columns))
        return reader.parquet(*map(load_frame.literal_path, files))

    # -- a new folder, exchanged

    def _alone(self, plan: _Plan) -> Callable[[], None]:
        def job() -> None:
            try:
                self.outcomes[plan.index] = LoadResult(self._rewrite(plan))
            except Exception as failure:
                self.outcomes[plan.index] = table_failure(failure, plan.load.table.name)

        return job

    def _rewrite(self, plan: _Plan) -> int:
        from pyspark.sql import Observation

        staged = self.staging / f"table-{plan.index}"
        seen = Observation()
        self._new_content(plan, seen).write.parquet(str(staged))
        name_rewritten(staged)
        load = plan.load.load
        applied = plan.marker.applied if plan.marker else {}
        tokens = plan.marker.tokens if plan.marker else {}
        write_marker(staged, Marker(plan.target, applied, tokens=tokens).with_load(load))
        sync_file_system(staged)
        with self.root.lock(plan.load.table):
            if read_marker(plan.folder) != plan.marker:
                raise _conflict(plan)
            put_folder(staged, plan.folder)
        shutil.rmtree(staged, ignore_errors=True)
        if plan.load.mode is DestinationSyncMode.append_dedup:
            return int(seen.get.get(_WRITTEN) or 0)
        return load.rows

    def _new_content(self, plan: _Plan, seen: "Observation") -> "DataFrame":
        from pyspark.sql import functions as F

        load, target = plan.load, plan.target
        fresh = load_frame.in_shape(self._parts(load), load, target, keep=load_frame.ORDER)
        replaces, marker = load.load.replaces, plan.marker
        held = self._held(plan.folder, marker) if marker and not replaces else None
        old = None
        if held is not None and marker is not None:
            old = load_frame.old_in_shape(held, marker.columns, load, target)
        names = [F.col(load_frame.quoted(f.name)) for f in target]
        if load.mode is not DestinationSyncMode.append_dedup:
            fresh = fresh.select(*names)
            return old.unionByName(fresh) if old is not None else fresh
        both = fresh.withColumn(load_frame.ORIGIN, F.lit(1))
        if old is not None:
            both = load_frame.as_held(old, load, target).unionByName(both)
        kept = load_frame.newest(both, load, target)
        gone = F.expr(load_frame.gone_sql(load, target))
        counts = (F.col(load_frame.ORIGIN) == 1) & (~gone | F.col(load_frame.KNOWN))
        kept = kept.observe(seen, F.sum(F.when(counts, 1).otherwise(0)).alias(_WRITTEN))
        return kept.filter(~gone).select(*names)

    def _parts(self, load: TableLoad) -> "DataFrame":
        return load_frame.read_parts(self.spark, load)

    # -- files beside those that are there

    def _together(self, batch: Sequence[_Plan]) -> Callable[[], None]:
        def job() -> None:
            self._append_all(batch)

        return job

    def _append_all(self, batch: Sequence[_Plan]) -> None:
        try:
            staged = self._stage(batch)
            sync_file_system(self.staging)
        except Exception as failure:
            if len(batch) > 1:
                middle = len(batch) // 2
                self._append_all(batch[:middle])
                self._append_all(batch[middle:])
            else:
                plan = batch[0]
                self.outcomes[plan.index] = table_failure(failure, plan.load.table.name)
            return
        for plan, files in zip(batch, staged, strict=True):
            try:
                self._publish(plan, files)
                self.outcomes[plan.index] = LoadResult(plan.load.load.rows)
            except Exception as failure:
                self.outcomes[plan.index] = table_failure(failure, plan.load.table.name)

    def _stage(self, batch: Sequence[_Plan]) -> list[list[Path]]:
        """Write every load's files, in one job."""
        first = batch[0]
        place = self.staging / f"append-{first.index}-{len(batch)}"
        if len(batch) == 1:
            fresh = load_frame.in_shape(self._parts(first.load), first.load, first.target)
            fresh.write.mode("overwrite").parquet(str(place))
            return [[place / name for name in parquet_files(place)]]
        if first.target == load_frame.load_fields(first.load):
            return [
                [f] for f in write_each(self.spark, [p.load for p in batch], first.target, place)
            ]
        listing = place.with_suffix(".json")
        read = load_frame.read_many(self.spark, [p.load for p in batch], listing)
        shaped = load_frame.in_shape(read, first.load, first.target, keep=(load_frame.LOAD,))
        shaped.write.mode("overwrite").partitionBy(load_frame.LOAD).parquet(str(place))
        folders = [place / f"{load_frame.LOAD}={turn}" for turn in range(len(batch))]
        return [[folder / name for name in parquet_files(folder)] for folder in folders]

    def _publish(self, plan: _Plan, files: Sequence[Path]) -> None:
        load = plan.load.load
        with self.root.lock(plan.load.table):
            marker = read_marker(plan.folder)
            if marker is None and plan.marker is None:
                fresh = self.staging / f"fresh-{plan.index}"
                fresh.mkdir()
                take_files(files, fresh, load.key, load.number)
                write_marker(fresh, Marker(plan.target).with_load(load))
                put_folder(fresh, plan.folder)
                return
            if marker is None or marker.columns != plan.target:
                raise _conflict(plan)
            if judge(load, marker.held(load.key)) is None:
                take_files(files, plan.folder, load.key, load.number)
                write_marker(plan.folder, marker.with_load(load))


def _batches(plans: Sequence[_Plan]) -> list[list[_Plan]]:
    """Plans that one job can write: equal columns in and out, and not too much at once."""
    groups: dict[bytes, list[list[_Plan]]] = {}
    weight: dict[bytes, int] = {}
    for plan in plans:
        load = plan.load
        size = sum(p.raw_bytes for p in load.load.parts)
        shape = [load.schema.fields, plan.target, load.metadata, load.evolution]
        key = msgspec.json.encode(shape)
        if not load.load.rows or size > BATCH_BYTES:
            key += b"#%d" % plan.index
        batches = groups.setdefault(key, [[]])
        weight[key] = weight.get(key, 0) + size
        if len(batches[-1]) == BATCH_LOADS or (batches[-1] and weight[key] > BATCH_BYTES):
            batches.append([])
            weight[key] = size
        batches[-1].append(plan)
    return [batch for batches in groups.values() for batch in batches]


def _conflict(plan: _Plan) -> DestinationError:
    return DestinationError(
        f"table {plan.load.table.name} was changed by another process while this load was computed",
        code="destination.conflict",
        where=str(plan.folder),
        hint="run again: the load is repeated as it stands",
    )
