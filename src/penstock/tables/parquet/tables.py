"""Writes loads into tables that are folders of Parquet files; needs no jar.

Plain ``spark.read.parquet``, DuckDB and pandas can read ``ROOT/namespace/name`` (or ``ROOT/name``):
all files of a table have the same columns. A plain append stages its files and renames them into
the folder (a reader may see a load file by file). A load that replaces rows, keeps the newest per
key or changes columns writes a complete new folder and exchanges the two in one step. Parts that
match the table's layout are linked instead of read and written (``direct_parts``), and processes of
ours in Spark's tasks do plain merges (``load_tasks``, ``parquet.merge``); Spark writes all else.
Appends to many tables with equal columns share one Spark job (``small_loads``). Neighbours:
``parquet.folders`` reads and changes the folders, ``load_frame`` builds the rows,
``schema_evolution`` the columns."""

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import ConfigError, DestinationError, PenstockError
from penstock.files import sync_file_system
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode
from penstock.model.segments import PlannedOn
from penstock.model.types import Field, RowSchema
from penstock.spark.error_text import table_failure
from penstock.spark.shared_folders import write_parquet
from penstock.spark.types import struct_type
from penstock.tables import conflicts
from penstock.tables.contract import (
    LoadResult,
    LoadTasks,
    LoadWay,
    NestedTable,
    SessionNeeds,
    TableLoad,
    TableName,
    already_committed,
)
from penstock.tables.files import direct_parts, linked_parts
from penstock.tables.files.load_tasks import (
    MergeTasks,
    Pending,
    forms_note,
    merge_note,
    merged_result,
)
from penstock.tables.files.merge_job import MergeJob, MergeResult, NeedsSpark, TableFile
from penstock.tables.files.small_loads import write_each
from penstock.tables.folder_access import prove_writable
from penstock.tables.frame import load_frame
from penstock.tables.frame.arrival import order_columns
from penstock.tables.frame.cast_parts import cast_parts
from penstock.tables.frame.other_forms import rekeyed
from penstock.tables.frame.turned_rows import turned, turned_fields
from penstock.tables.load_columns import load_fields
from penstock.tables.nested_folders import NestedFolders
from penstock.tables.newest import TWO
from penstock.tables.parquet.folders import (
    MARKER,
    NOT_OURS,
    DamagedMarker,
    Marker,
    Root,
    can_exchange,
    draft_marker,
    finished_files,
    name_rewritten,
    parquet_files,
    read_marker,
    replace_folder,
)
from penstock.tables.parquet.merge import append_job, fill, rewrite_job
from penstock.tables.parquet.publish import StagedAppend, publish
from penstock.tables.parquet.spec import SPEC
from penstock.tables.refused_histories import not_merged, refuse_narrow, refuse_other, turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

BATCH_LOADS = 2000  # most loads of equal columns in one Spark job
BATCH_BYTES = 64 << 20  # most source records in one such job; a larger load has its own job
PARALLEL_JOBS = 4
FEW_LOADS = 8  # of small parts, that are written one after the other; more share Spark's jobs
_WRITTEN, _TAKEN, _MIXED = "written", "taken", "mixed"  # what is counted of a load's rows
_REWRITES = (
    "a Parquet table cannot change single rows: append_dedup rewrites the whole table, "
    "so it loads once, at the end of the sync"
)
_REWRITE_NOTE = (
    "a load replaces the table's folder: a reader that began before may miss a file and must read "
    "again; for tables that are read during a run choose delta:PATH, where each reader keeps the "
    "files that it began with"
)

_HOST_NOTE = (
    "a Parquet table is protected on one host only: if another host continues this pipeline, an "
    "unfinished run of the first may still change the table's folder; for that choose delta:PATH, "
    "whose log takes each version once"
)

Outcome = LoadResult | PenstockError


class _LoadPlan(msgspec.Struct, frozen=True):
    """Describes how one load changes its table. ``marker``: the table's, as read before the job;
    ``target``: the columns after the load; ``rewrites``: a new folder replaces the old one;
    ``direct``: the load's parts become files of the table unchanged; ``plain``: the table has the
    load's columns before and after, so that Arrow may write its files; ``notes``: for the
    report."""

    index: int
    load: TableLoad
    folder: Path
    marker: Marker | None
    target: tuple[Field, ...]
    rewrites: bool
    direct: bool
    plain: bool
    notes: tuple[str, ...]


class ParquetTables:
    """The destination ``parquet:PATH``; PATH must be on a local file system."""

    name = "parquet"
    takes_parts = True
    rewrite_note: str | None = _REWRITE_NOTE
    host_note: str | None = _HOST_NOTE

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

    def single_load_reason(self, mode: DestinationSyncMode) -> str | None:
        return _REWRITES if mode is DestinationSyncMode.append_dedup else None

    def nested(self, tables: Sequence[TableName]) -> dict[TableName, NestedTable]:
        look = NestedFolders(SPEC)
        found = ((table, look.nested(self._root.folder(table))) for table in tables)
        return {table: nested for table, nested in found if nested is not None}

    def unsupported_reason(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        if can_exchange(self._root.path):
            return None
        return (
            "its file system cannot exchange two folders in one step, which a Parquet table needs "
            "to keep one row per key"
        )

    def planned_on(self, table: TableName) -> PlannedOn | None:
        return None

    def last_number(self, table: TableName, key: str) -> int | None:
        try:
            marker = read_marker(self._root.folder(table))
        except PenstockError as failure:  # files without a marker of ours are another's table
            return 0 if failure.code == NOT_OURS else None
        except OSError:
            return None
        return 0 if marker is None else marker.applied.get(key, 0)

    def columns_of(self, table: TableName) -> Sequence[Field] | None:
        try:
            marker = read_marker(self._root.folder(table))
        except (OSError, PenstockError):  # raised again when a load reads it
            return None
        return () if marker is None else marker.columns

    def commit(
        self, spark: "SparkSession", tasks: LoadTasks, loads: Sequence[TableLoad]
    ) -> list[Outcome]:
        self._root.prepare()
        outcomes: dict[int, Outcome] = {}
        merges = MergeTasks(spark, tasks)
        with self._root.staging() as staging:
            for wave in _waves(loads):
                self._commit_wave(spark, merges, wave, staging, outcomes)
        return [outcomes[index] for index in range(len(loads))]

    def _commit_wave(
        self,
        spark: "SparkSession",
        merges: MergeTasks,
        wave: Sequence[tuple[int, TableLoad]],
        staging: Path,
        outcomes: dict[int, Outcome],
    ) -> None:
        """Commits the loads of a wave. Loads that conflicted with another writer are computed again
        from the table that it left, under the same number, at most ``conflicts.CONFLICT_TRIES``
        times."""
        for attempt in itertools.count(1):
            folder = staging / f"try-{attempt}"
            folder.mkdir(exist_ok=True)
            _Wave(spark, merges, self._root, folder, outcomes).run(wave)
            again: list[tuple[int, TableLoad]] = []
            for index, load in wave:
                outcome = outcomes[index]
                if isinstance(outcome, LoadResult):
                    outcomes[index] = conflicts.noted(outcome, load, attempt)
                elif outcome.code == conflicts.CONFLICT:
                    again.append((index, load))
            if not again:
                return
            shutil.rmtree(folder, ignore_errors=True)
            wave = again
            if attempt == conflicts.CONFLICT_TRIES:
                outcomes.update({i: conflicts.conflict(load, attempt) for i, load in wave})
                return
            conflicts.pause_before_try(attempt)


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
    """Groups indexed loads into waves that are committed one after another: the loads of a wave all
    have different tables, and loads of one table keep their order."""
    waves: list[list[tuple[int, TableLoad]]] = []
    newest_wave: dict[TableName, int] = {}
    for index, load in enumerate(loads):
        wave = newest_wave.get(load.table, -1) + 1
        newest_wave[load.table] = wave
        if wave == len(waves):
            waves.append([])
        waves[wave].append((index, load))
    return waves


class _Wave:
    """Commits loads of different tables, in one Spark job for appends of equal columns. Puts each
    outcome into ``outcomes`` by the load's index."""

    def __init__(
        self,
        spark: "SparkSession",
        merges: MergeTasks,
        root: Root,
        staging: Path,
        outcomes: dict[int, Outcome],
    ) -> None:
        self.spark = spark
        self.merges = merges
        self.begun: dict[int, tuple[MergeJob, Pending]] = {}
        self.ways: dict[int, LoadWay] = {}  # of loads that Spark does not write
        self.reasons: dict[int, str] = {}  # why Spark writes a load that a task might have written
        self.root = root
        self.staging = staging
        self.outcomes = outcomes
        self.look = NestedFolders(SPEC)

    def run(self, wave: Sequence[tuple[int, TableLoad]]) -> None:
        plans = [plan for index, load in wave if (plan := self._guarded_plan(index, load))]
        jobs = [self._alone(plan) for plan in plans if plan.rewrites]
        appends = self._published([p for p in plans if not p.rewrites], self._linked)
        few = appends if len(appends) <= FEW_LOADS else []
        self._begin([*(plan for plan in plans if plan.rewrites), *few])
        if few:
            appends = self._published(few, self._gathered)
        jobs += [self._together(batch) for batch in _batches(appends)]
        with ThreadPoolExecutor(PARALLEL_JOBS, "penstock-load") as pool:
            for done in [pool.submit(job) for job in jobs]:
                done.result()
        try:
            sync_file_system(self.root.path)
        except OSError as failure:  # not committed: the next run checks the table
            for index, load in wave:
                if isinstance(self.outcomes[index], LoadResult):
                    self.outcomes[index] = table_failure(failure, load.table.name)

    def _begin(self, plans: Sequence[_LoadPlan]) -> None:
        """Starts the merges of all loads that a task of ours may write."""
        jobs: dict[int, MergeJob] = {}
        for plan in plans:
            if plan.plain and not (plan.rewrites and plan.direct):
                with suppress(NeedsSpark, OSError):  # raised again when it is the load's turn
                    jobs[plan.index] = self._job(plan)
        pending = self.merges.start([*jobs.values()])
        self.begun = dict(zip(jobs, zip(jobs.values(), pending, strict=True), strict=True))

    def _job(self, plan: _LoadPlan) -> MergeJob:
        columns, stem = [f.name for f in plan.target], self.merges.stem(plan.load.load)
        if not plan.rewrites:
            return append_job(plan.load, columns, self.staging, stem)
        marker = None if plan.load.replaces else plan.marker
        return rewrite_job(plan.load, marker, plan.folder, columns, self.staging, stem)

    def _merged(self, plan: _LoadPlan) -> tuple[MergeJob, MergeResult] | None:
        """Waits for the load's merge; None: Spark has to write the load."""
        if not plan.plain:
            return None
        try:
            if plan.index not in self.begun:
                job = self._job(plan)
                self.begun[plan.index] = job, self.merges.start([job])[0]
            job, pending = self.begun[plan.index]
            result = pending.result()
        except NeedsSpark as reason:
            self._needs_spark(plan, reason)
            return None
        return job, result

    def _needs_spark(self, plan: _LoadPlan, reason: NeedsSpark) -> None:
        if plan.load.mode is DestinationSyncMode.append_dedup:
            self.reasons[plan.index] = str(reason)

    def _result(self, plan: _LoadPlan, done: LoadResult) -> LoadResult:
        reason = self.reasons.get(plan.index)
        notes = () if reason is None else (merge_note(plan.load, reason),)
        way = LoadWay.rewrite if plan.rewrites else LoadWay.spark
        way = self.ways.get(plan.index, way)
        notes = (*plan.notes, *done.notes, *notes)
        return msgspec.structs.replace(done, notes=notes, way=way)

    def _guarded_plan(self, index: int, load: TableLoad) -> _LoadPlan | None:
        try:
            plan = self._plan(index, load)
        except Exception as failure:
            self.outcomes[index] = table_failure(failure, load.table.name)
            return None
        if isinstance(plan, LoadResult):
            self.outcomes[index] = plan
            return None
        return plan

    def _plan(self, index: int, load: TableLoad) -> _LoadPlan | LoadResult:
        folder = self.root.folder(load.table)
        marker, notes = self._marker(folder, load)
        result = already_committed(load.load, marker.last_load(load.load.key) if marker else None)
        if result is not None:
            return result
        if marker is None:
            self.look.refuse(folder)
        number = None if marker is None else marker.applied.get(load.load.key)
        if marker is not None and turns(load, marker.columns, number):
            marker = self._turned(index, load, folder, marker)
        old = marker.columns if marker else None
        refuse_other(load, old or (), number)
        columns = load_frame.target_columns(
            load, old, lambda: self._table_rows(folder, marker) if marker else None
        )
        if load.history:
            refuse_narrow(load, columns.fields)
        dedups = load.mode is DestinationSyncMode.append_dedup
        if dedups:
            load_frame.key_sql(load, columns.fields)
        rewrites = dedups or load.replaces or (old is not None and columns.fields != old)
        alone = load.replaces or not rewrites  # no row of the table is written again
        # all readers match columns by name: their order may be another one
        same = set(columns.fields) == set(load_fields(load))
        direct = alone and same and direct_parts.fits(load)
        plain = same and (alone or old is None or set(old) == set(columns.fields))
        notes = (*notes, *load_frame.cast_notes(load, columns.fields))
        return _LoadPlan(
            index, load, folder, marker, columns.fields, rewrites, direct, plain, notes
        )

    def _turned(self, index: int, load: TableLoad, folder: Path, marker: Marker) -> Marker:
        """Begins or ends the table's history if the load requires it, in a new folder; returns its
        new marker."""
        staged, fields = self.staging / f"turned-{index}", turned_fields(load, marker.columns)
        rows = self._table_rows(folder, marker)
        if rows is None:
            rows = self.spark.createDataFrame([], struct_type(marker.columns))
        write_parquet(
            turned(rows, load, marker.columns).to(struct_type(fields)), staged, DestinationError
        )
        keyed = load.primary_key if load.history else marker.keyed
        after = Marker(fields, marker.applied, tokens=marker.tokens, keyed=keyed)
        # the load's number is not in the table yet: its files are those of the load before
        before = msgspec.structs.replace(load.load, number=load.load.follows or load.load.number)
        name_rewritten(staged, after, before)
        draft_marker(staged / MARKER, after)
        sync_file_system(staged)
        self.merges.tasks.prove_lease()
        with self.root.lock(load.table):
            if read_marker(folder) != marker:
                raise conflicts.conflict(load, 1)
            replace_folder(staged, folder)
        return after

    def _marker(self, folder: Path, load: TableLoad) -> tuple[Marker | None, tuple[str, ...]]:
        """Returns the table's marker, and notes for the report. Rebuilds a damaged one."""
        try:
            return read_marker(folder), ()
        except DamagedMarker:
            from penstock.tables.parquet.repair import NOTE, rebuild_marker

            with self.root.lock(load.table):
                with suppress(DamagedMarker):
                    return read_marker(folder), ()  # another process was first
                return rebuild_marker(folder, load), (NOTE.format(load.table.name),)

    def _table_rows(self, folder: Path, marker: Marker) -> "DataFrame | None":
        files = finished_files(folder, marker)
        if not files:
            return None
        reader = self.spark.read.schema(struct_type(marker.columns))
        return reader.parquet(*map(load_frame.literal_path, files))

    # -- loads that replace the table's folder

    def _alone(self, plan: _LoadPlan) -> Callable[[], None]:
        def job() -> None:
            try:
                self.outcomes[plan.index] = self._result(plan, self._rewrite(plan))
            except Exception as failure:
                self._failed(plan, failure)

        return job

    def _rewrite(self, plan: _LoadPlan) -> LoadResult:
        staged, load = self.staging / f"table-{plan.index}", plan.load.load
        staged.mkdir()
        if plan.direct and linked_parts.linked(plan.load, staged):
            self.ways[plan.index] = LoadWay.publish
            done: LoadResult | None = LoadResult(load.rows)
        else:
            done = self._filled(plan, staged)
        if done is None:
            done = self._written_by_spark(plan, staged)
        applied = plan.marker.applied if plan.marker else {}
        tokens = plan.marker.tokens if plan.marker else {}
        marker = Marker(plan.target, applied, tokens=tokens).with_load(load)
        name_rewritten(staged, marker, load)
        draft_marker(staged / MARKER, marker)
        sync_file_system(staged)
        self.merges.tasks.prove_lease()
        with self.root.lock(plan.load.table):
            if read_marker(plan.folder) != plan.marker:
                raise conflicts.conflict(plan.load, 1)
            replace_folder(staged, plan.folder)
        return done

    def _filled(self, plan: _LoadPlan, staged: Path) -> LoadResult | None:
        """Puts the files that a task of ours wrote into ``staged``; None: Spark has to write
        them."""
        merged = self._merged(plan)
        if merged is None:
            return None
        try:
            fill(*merged, staged)
        except NeedsSpark as reason:
            self._needs_spark(plan, reason)
            return None
        self.ways[plan.index] = LoadWay.merge
        return merged_result(plan.load, merged[1])

    def _written_by_spark(self, plan: _LoadPlan, staged: Path) -> LoadResult:
        from pyspark.sql import Observation

        if plan.load.history:
            return self._cast_and_merged(plan, staged)
        observation = Observation()
        write_parquet(self._new_content(plan, observation), staged, DestinationError)
        rows = plan.load.load.rows
        if plan.load.mode is not DestinationSyncMode.append_dedup:
            return LoadResult(rows)
        counts = observation.get
        notes = (forms_note(plan.load),) if counts.get(_MIXED) else ()
        taken = int(counts.get(_TAKEN) or 0)
        return LoadResult(int(counts.get(_WRITTEN) or 0), superseded=rows - taken, notes=notes)

    def _cast_and_merged(self, plan: _LoadPlan, staged: Path) -> LoadResult:
        """Has Spark give load and table the same columns, then merges them into ``staged``, for a
        table with history."""
        load, marker = plan.load, plan.marker
        if plan.plain:
            old = marker.columns if marker else None
            raise not_merged(load, old, self.reasons.get(plan.index))
        cast = cast_parts(self.spark, load, plan.target, self.staging / f"cast-{plan.index}")
        try:
            job = self._job(msgspec.structs.replace(plan, load=cast))
        except NeedsSpark as reason:
            raise not_merged(load, plan.target, str(reason)) from reason
        rows = None if load.replaces or marker is None else self._table_rows(plan.folder, marker)
        if rows is not None and marker is not None and set(marker.columns) != set(plan.target):
            folder = self.staging / f"old-{plan.index}"
            rows = load_frame.table_rows_as(rows, marker.columns, load, plan.target)
            write_parquet(rows, folder, DestinationError)
            files = [TableFile(n, (folder / n).stat().st_size, {}) for n in parquet_files(folder)]
            job = msgspec.structs.replace(job, old_folder=str(folder), old=tuple(files))
        try:
            result = self.merges.start([job])[0].result()
            fill(job, result, staged)
        except NeedsSpark as reason:
            raise not_merged(load, plan.target, str(reason)) from reason
        self.ways[plan.index] = LoadWay.spark
        return merged_result(load, result)

    def _new_content(self, plan: _LoadPlan, observation: "Observation") -> "DataFrame":
        from pyspark.sql import functions as F

        load, target = plan.load, plan.target
        parts = self._parts(load)
        if load.mode is DestinationSyncMode.append_dedup:
            load_frame.refuse_lost_keys(parts, load, target)
        fresh = load_frame.load_rows_as(parts, load, target, keep=order_columns(load))
        replaces, marker = load.replaces, plan.marker
        rows = self._table_rows(plan.folder, marker) if marker and not replaces else None
        old = None
        if rows is not None and marker is not None:
            old = load_frame.table_rows_as(rows, marker.columns, load, target)
        names = [F.col(load_frame.quoted(f.name)) for f in target]
        if load.mode is not DestinationSyncMode.append_dedup:
            fresh = fresh.select(*names)
            return old.unionByName(fresh) if old is not None else fresh
        both = fresh.withColumn(load_frame.ORIGIN, F.lit(1))
        if old is not None:
            old = rekeyed(old, fresh, load, load_frame.key_sql(load, target))
            both = load_frame.with_table_order(old, load, target).unionByName(both)
        kept = load_frame.newest(both, load, target)
        deleted = F.expr(load_frame.deleted_sql(load, target))
        taken = F.col(load_frame.ORIGIN) == 1
        counts = {
            _WRITTEN: taken & (~deleted | F.col(load_frame.IN_TABLE)),
            _TAKEN: taken,
            _MIXED: taken & F.col(TWO),
        }
        sums = (F.sum(F.when(test, 1).otherwise(0)).alias(name) for name, test in counts.items())
        kept = kept.observe(observation, *sums)
        return kept.filter(~deleted).select(*names)

    def _parts(self, load: TableLoad) -> "DataFrame":
        return load_frame.read_parts(self.spark, load)

    # -- loads that only add files

    def _published(
        self, plans: Sequence[_LoadPlan], files_of: Callable[[_LoadPlan], list[Path] | None]
    ) -> list[_LoadPlan]:
        """Publishes the loads of which ``files_of`` gives the files; returns the others."""
        staged: list[tuple[_LoadPlan, list[Path]]] = []
        others: list[_LoadPlan] = []
        for plan in plans:
            try:
                files = files_of(plan)
            except Exception as failure:
                self._failed(plan, failure)
                continue
            if files is None:
                others.append(plan)
            else:
                staged.append((plan, files))
        self._publish(staged)
        return others

    def _linked(self, plan: _LoadPlan) -> list[Path] | None:
        """Stages a load's parts unchanged if the plan allows it and the file system can; None: they
        have to be written. The parts were made durable when they were sealed."""
        if not plan.direct:
            return None
        files = linked_parts.linked(plan.load, self.staging, f"parts-{plan.index}-")
        if files is not None:
            self.ways[plan.index] = LoadWay.publish
        return files

    def _gathered(self, plan: _LoadPlan) -> list[Path] | None:
        """Stages the files that a task of ours wrote from a load's small parts; None: Spark has to
        write them."""
        merged = self._merged(plan)
        if merged is None:
            return None
        self.ways[plan.index] = LoadWay.merge
        return [self.staging / f.name for f in merged[1].files]

    def _failed(self, plan: _LoadPlan, failure: Exception) -> None:
        """Keeps a load's error. It counts as a conflict too if another writer has replaced the
        folder during a rewrite, since its old files are gone then."""
        error = table_failure(failure, plan.load.table.name)
        if plan.rewrites and not isinstance(failure, PenstockError):
            with suppress(PenstockError, OSError):
                if read_marker(plan.folder) != plan.marker:
                    error = conflicts.conflict(plan.load, 1)
        self.outcomes[plan.index] = error

    def _together(self, batch: Sequence[_LoadPlan]) -> Callable[[], None]:
        def job() -> None:
            self._append_all(batch)

        return job

    def _append_all(self, batch: Sequence[_LoadPlan]) -> None:
        try:
            staged = self._stage(batch)
            sync_file_system(self.staging)
        except Exception as failure:
            if len(batch) > 1:
                middle = len(batch) // 2
                self._append_all(batch[:middle])
                self._append_all(batch[middle:])
            else:
                self._failed(batch[0], failure)
            return
        self._publish(list(zip(batch, staged, strict=True)))

    def _stage(self, batch: Sequence[_LoadPlan]) -> list[list[Path]]:
        """Writes the files of all loads in one Spark job; returns each load's files."""
        first = batch[0]
        folder = self.staging / f"append-{first.index}-{len(batch)}"
        if len(batch) == 1:
            fresh = load_frame.load_rows_as(self._parts(first.load), first.load, first.target)
            write_parquet(fresh, folder, DestinationError)
            return [[folder / name for name in parquet_files(folder)]]
        if first.target == load_fields(first.load):
            loads = [plan.load for plan in batch]
            return [[file] for file in write_each(self.spark, loads, first.target, folder)]
        listing = folder.with_suffix(".json")
        rows = load_frame.read_many(self.spark, [p.load for p in batch], listing)
        projected = load_frame.load_rows_as(rows, first.load, first.target, keep=(load_frame.LOAD,))
        write_parquet(projected, folder, DestinationError, load_frame.LOAD)
        partitions = [folder / f"{load_frame.LOAD}={index}" for index in range(len(batch))]
        return [[path / name for name in parquet_files(path)] for path in partitions]

    def _publish(self, staged: Sequence[tuple[_LoadPlan, Sequence[Path]]]) -> None:
        plans = {plan.index: plan for plan, _ in staged}
        try:
            if staged:
                self.merges.tasks.prove_lease()
        except PenstockError as failure:
            for plan in plans.values():
                self._failed(plan, failure)
            return
        appends = [
            StagedAppend(p.index, p.load, p.folder, p.marker, p.target, files)
            for p, files in staged
        ]
        for append, failure in publish(self.root, self.staging, appends):
            plan = plans[append.index]
            if failure is not None:
                self._failed(plan, failure)
            else:
                self.outcomes[plan.index] = self._result(plan, LoadResult(plan.load.load.rows))


def _batches(plans: Sequence[_LoadPlan]) -> list[list[_LoadPlan]]:
    """Groups plans that one Spark job can write: equal columns before and after the cast, within
    :data:`BATCH_LOADS` and :data:`BATCH_BYTES`."""
    groups: dict[bytes, list[list[_LoadPlan]]] = {}
    weight: dict[bytes, int] = {}
    for plan in plans:
        load = plan.load
        size = sum(p.raw_bytes for p in load.load.parts)
        columns = [load.schema.fields, plan.target, load.policy.metadata, load.policy.evolution]
        key = msgspec.json.encode(columns)
        if not load.load.rows or size > BATCH_BYTES:
            key += b"#%d" % plan.index
        batches = groups.setdefault(key, [[]])
        weight[key] = weight.get(key, 0) + size
        if len(batches[-1]) == BATCH_LOADS or (batches[-1] and weight[key] > BATCH_BYTES):
            batches.append([])
            weight[key] = size
        batches[-1].append(plan)
    return [batch for batches in groups.values() for batch in batches]


TABLES = ParquetTables
