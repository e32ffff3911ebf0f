"""Writes loads into Delta Lake tables, by SQL and the DataFrame writer of Spark with Delta's jar.

Every load is one commit that carries (key, number) as Delta's transaction id: Delta itself skips a
load whose number the table has (L3). Delta reads the id from two session settings that it never
resets, so they are set for one statement, under a lock that every write of this process takes. The
commit's userMetadata holds key, number and the load's token (:class:`CommitNote`); the token
distinguishes a repeated load from another home's load of the same number. Widening a column is a
separate commit before the load's. A commit that conflicts with another writer's is retried. Parts
that match the table's layout become its files unread, and processes of ours in Spark's tasks do
plain merges (``load_tasks``), whose files one commit names (``delta.files``); Spark writes all
else. If Spark's tasks run on other machines, a load into a local folder is committed only after a
check that they share it, and counts only once this machine sees the files of the commit
(``delta.commit``); the same holds for a load that was committed before. Neighbours:
``delta.locations`` reads and writes one table by path or by name, ``load_frame`` builds the rows,
``schema_evolution`` the columns, ``spark.jars`` finds the jars."""

import functools
import importlib.metadata
import itertools
import os
import re
import shutil
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import ConfigError, DestinationError, PenstockError
from penstock.files import sync_file_system
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode
from penstock.model.segments import PlannedOn
from penstock.model.types import Field, RowSchema
from penstock.spark.error_text import table_failure
from penstock.spark.shared_folders import found_now, refuse_unshared, runs_elsewhere
from penstock.spark.types import ddl, quoted, row_schema, struct_type
from penstock.tables import conflicts
from penstock.tables.contract import (
    LastLoad,
    LoadResult,
    LoadTasks,
    LoadWay,
    NestedTable,
    NotSeen,
    SessionNeeds,
    TableAhead,
    TableLoad,
    TableName,
    already_committed,
)
from penstock.tables.delta import repair as delta_repair
from penstock.tables.delta.commit import missing_files
from penstock.tables.delta.files import (
    NEEDS_MAPPING,
    CommitConflict,
    DeltaFiles,
    StagedFiles,
    columns_in,
    has_settings,
    last_number_in,
    table_for,
)
from penstock.tables.delta.locations import (
    PREFIX,
    CatalogDatabase,
    CatalogLocation,
    CommitNote,
    FolderLocation,
    HistoryEntry,
    TableLocation,
    is_missing,
    parse_note,
)
from penstock.tables.delta.spec import LOG, SPEC
from penstock.tables.files import direct_parts
from penstock.tables.files.load_tasks import (
    MergeTasks,
    Pending,
    forms_note,
    merge_note,
    merged_result,
)
from penstock.tables.files.merge_job import MergeJob, NeedsSpark
from penstock.tables.folder_access import inherit, make_writable, prove_writable
from penstock.tables.frame import load_frame, other_forms
from penstock.tables.frame.arrival import order_columns
from penstock.tables.frame.cast_parts import cast_parts
from penstock.tables.frame.schema_evolution import EvolvedColumns
from penstock.tables.frame.turned_rows import turned, turned_fields
from penstock.tables.key_forms import mixed_keys
from penstock.tables.load_columns import load_fields
from penstock.tables.nested_folders import NestedFolders
from penstock.tables.newest import TWO
from penstock.tables.refused_histories import (
    not_merged,
    refuse_narrow,
    refuse_other,
    refused,
    turns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession
    from pyspark.sql.types import StructType

ARTIFACTS = {  # by Spark's minor version
    "4.1": ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
    "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
}
TYPE_WIDENING = "type_widening"  # option: use Delta's type widening, which some readers cannot read
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    # the artifact depends on 33 files: Spark has most of them, Delta needs none of the others
    "spark.jars.excludes": "org.*:*,com.*:*,io.unitycatalog:*,io.delta:delta-kernel*",
}
_TRIAL = (
    "CREATE TABLE delta.`{place}/delta` USING delta AS SELECT * FROM penstock_rows",
    "INSERT INTO delta.`{place}/delta` SELECT * FROM penstock_rows WHERE id < 9",
    "MERGE WITH SCHEMA EVOLUTION INTO delta.`{place}/delta` t USING "
    "(SELECT *, 1 AS new FROM penstock_rows WHERE id > 990) s ON t.id = s.id "
    "WHEN MATCHED AND s.kind > t.kind - 1 THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "SELECT count(*), max(id) FROM delta.`{place}/delta`",
    "DESCRIBE HISTORY delta.`{place}/delta`",
)
_TXN = "spark.databricks.delta.write.txn"
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"
_CONFLICT = re.compile(
    r"(?:Concurrent(?:Append|Write|Transaction|DeleteRead|DeleteDelete|Modification)"
    r"|ProtocolChanged|MetadataChanged|FileAlreadyExists)Exception|DELTA_CONCURRENT_"
    r"|DELTA_(?:PROTOCOL|METADATA)_CHANGED|TABLE_OR_VIEW_ALREADY_EXISTS|DELTA_TABLE_ALREADY_EXISTS"
)
_DEFAULTS = "spark.databricks.delta.properties.defaults."

_MERGES = ("mergeSchema", "true")

_write_lock = threading.RLock()
_SETTINGS = "the table has settings that only Spark can write, and they stay (move its folder away)"
_view_ids = itertools.count()


class DeltaTables:
    """The destination ``delta:PATH``. PATH is a local path, a URI that Spark writes to, or
    ``catalog:CATALOG.DATABASE`` for tables in a catalog of the Spark session."""

    name = "delta"
    rewrite_note: str | None = None  # a reader keeps the files that it began with
    host_note: str | None = None  # the log accepts each version once

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        given = dict(options or {})
        self._widens = given.pop(TYPE_WIDENING, "false") == "true"
        if given:
            raise ConfigError(
                f"delta has no option {', '.join(sorted(given))}",
                code="config.unknown_option",
                hint=f"its only option is {TYPE_WIDENING}: true | false",
            )
        self.takes_parts = False
        self._database = CatalogDatabase(path) if path.startswith(PREFIX) else None
        if self._database is not None:
            self._local, self._root = None, path
            return
        url = urlsplit(path)
        local = url.scheme == "file" or "://" not in path
        file_path = unquote(url.path) if url.scheme == "file" else path
        self._local = Path(file_path).expanduser().resolve() if local else None
        self._root = str(self._local) if self._local else path.rstrip("/")
        self.takes_parts = local

    def needs(self) -> SessionNeeds:
        """Raises ``ConfigError`` (``spark.no_delta``) if no Delta exists for this Spark."""
        version = importlib.metadata.version("pyspark")
        minor = ".".join(version.split(".")[:2])
        if minor not in ARTIFACTS:
            raise ConfigError(
                f"there is no Delta Lake for Spark {version}",
                code="spark.no_delta",
                hint=f"use Spark {' or '.join(ARTIFACTS)}, or parquet:PATH, which needs no jar",
            )
        return SessionNeeds(ARTIFACTS[minor], dict(_CONF), _TRIAL)

    def check(self) -> None:
        if self._local is not None:
            prove_writable(self._local)

    def location(self, table: TableName) -> str:
        if self._database is not None:
            return ".".join(self._database.name(table))
        return "/".join(p for p in (self._root, table.namespace, table.name) if p)

    def single_load_reason(self, mode: DestinationSyncMode) -> str | None:
        return None

    def nested(self, tables: Sequence[TableName]) -> dict[TableName, NestedTable]:
        look = NestedFolders(SPEC)
        local = tables if self._local is not None else ()
        found = ((table, look.nested(Path(self.location(table)))) for table in local)
        return {table: nested for table, nested in found if nested is not None}

    def unsupported_reason(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        return None

    def planned_on(self, table: TableName) -> PlannedOn | None:
        return None if self._local is None else delta_repair.planned_on(self._folder(table))

    def last_number(self, table: TableName, key: str) -> int | None:
        return None if self._local is None else last_number_in(self._folder(table), key)

    def columns_of(self, table: TableName) -> Sequence[Field] | None:
        return None if self._local is None else columns_in(self._folder(table))

    def _folder(self, table: TableName) -> Path:
        return Path(self.location(table))

    def commit(
        self, spark: "SparkSession", tasks: LoadTasks, loads: Sequence[TableLoad]
    ) -> list[LoadResult | PenstockError]:
        if self._local is not None:
            make_writable(self._local)
        if self._database is not None and loads:
            try:
                self._database.prepare(spark)
            except Exception as failure:
                return [table_failure(failure, self.location(load.table)) for load in loads]
        outcomes: list[LoadResult | PenstockError] = []
        merges = MergeTasks(spark, tasks)
        begun = self._begun(spark, merges, loads)
        look = NestedFolders(SPEC)
        for index, load in enumerate(loads):
            try:
                work = begun.pop(index, None) or self._work(spark, merges, load, look)
                if isinstance(work, Exception):
                    raise work
                if self._local is not None:
                    look.refuse(Path(self.location(load.table)))  # an earlier load made one?
                outcomes.append(self._committed(work))
            except Exception as failure:
                outcomes.append(table_failure(failure, load.table.name))
        if self._local is None:
            return outcomes
        try:
            for load in loads:
                _share(self._local, Path(self.location(load.table)))
            sync_file_system(self._local)
        except OSError as failure:  # not committed: the next run checks the table
            return [table_failure(failure, load.table.name) for load in loads]
        return outcomes

    def _begun(
        self,
        spark: "SparkSession",
        merges: MergeTasks,
        loads: Sequence[TableLoad],
    ) -> "dict[int, _LoadWork | Exception]":
        """Prepares the first load of each table and starts its merge, so that merges of several
        tables run at the same time; maps the load's index to its work, or to why there is none."""
        works: dict[int, _LoadWork | Exception] = {}
        jobs: list[tuple[_Begun, MergeJob]] = []
        tables, look = set[TableName](), NestedFolders(SPEC)
        for index, load in enumerate(loads):
            if load.table in tables:
                continue
            tables.add(load.table)
            try:
                works[index] = work = self._work(spark, merges, load, look)
            except Exception as failure:
                works[index] = failure
                continue
            if work.begun.job is not None:
                jobs.append((work.begun, work.begun.job))
        pending = merges.start([job for _, job in jobs])
        for (begun, _), result in zip(jobs, pending, strict=True):
            begun.pending = result
        return works

    def _work(
        self, spark: "SparkSession", merges: MergeTasks, load: TableLoad, look: NestedFolders
    ) -> "_LoadWork":
        """Repairs the load's table and prepares the load."""
        lost: int | None = None
        if self._local is not None:
            look.refuse(Path(self.location(load.table)))
            lost = delta_repair.mend(self._folder(load.table), load.load)
        commit = _LoadCommit(spark, self._location(spark, load.table), load, self._widens, merges)
        return _LoadWork(commit, commit.begun(), lost)

    def _committed(self, work: "_LoadWork") -> LoadResult:
        load = work.commit.load
        done = self._commit(work)
        if work.lost is None:
            return done
        note = delta_repair.NOTE.format(work.lost, load.table.name)
        return msgspec.structs.replace(done, notes=(note, *done.notes))

    def _commit(self, work: "_LoadWork") -> LoadResult:
        """Commits one load. Retries under the same number after a conflict with another writer, at
        most ``conflicts.CONFLICT_TRIES`` times. Raises ``DestinationError``
        (``destination.conflict``)."""
        load, begun = work.commit.load, work.begun
        for attempt in itertools.count(1):
            try:
                begun = begun or work.commit.begun()
                work.commit.settle(begun)
                with _write_lock:
                    done = work.commit.run(begun)
            except Exception as failure:
                met = isinstance(failure, CommitConflict) or _CONFLICT.search(str(failure))
                if isinstance(failure, PenstockError) or not met:
                    raise
                if attempt == conflicts.CONFLICT_TRIES:
                    raise conflicts.conflict(load, attempt) from failure
                conflicts.pause_before_try(attempt)
                begun = None
            else:
                return conflicts.noted(done, load, attempt)
        raise AssertionError("unreachable")

    def _location(self, spark: "SparkSession", table: TableName) -> TableLocation:
        if self._database is not None:
            return CatalogLocation(spark, self._database.name(table))
        return FolderLocation(spark, self.location(table), self._local is not None)


def _share(root: Path, table: Path) -> None:
    """Opens the folders that Spark created for a table to the users in the access list of
    ``root``."""
    above = (folder for folder in table.parents if root in folder.parents)
    for folder in reversed((table / LOG, table, *above)):
        inherit(folder, folder.parent)


@dataclass(slots=True)
class _Begun:
    """A load that file actions may commit. ``table``: at one version; None: Spark has to read and
    write its rows. ``done``: the table has the load. ``job`` writes its files, and ``pending`` is
    its result; None: its parts are linked. ``staged``: the files, once they exist; without them
    Spark has to write, and ``reason`` is why a task that might have written did not."""

    table: DeltaFiles | None = None
    done: LoadResult | None = None
    staged: StagedFiles | None = None
    job: MergeJob | None = None
    pending: Pending | None = None
    reason: str | None = None


class _LoadWork(NamedTuple):
    """A prepared load. ``lost``: the version of the table that was repaired."""

    commit: "_LoadCommit"
    begun: _Begun
    lost: int | None


class _Counts(NamedTuple):
    """Counts of a load's newest rows: keys with cursors of two forms, hard deletes, and rows of the
    form *other* (``load_frame.other_form_sql``)."""

    mixed: int
    deletes: int
    others: int = 0


class _LoadCommit:
    """Commits one load into one table: :meth:`begun`, :meth:`settle`, :meth:`run`, all of which may
    be repeated. Raises ``TableAhead``, ``TableBehind``, ``SchemaError`` and Spark's errors.
    ``widens``: widen columns by Delta's type widening."""

    def __init__(
        self,
        spark: "SparkSession",
        location: TableLocation,
        load: TableLoad,
        widens: bool,
        merges: MergeTasks,
    ) -> None:
        self.spark = spark
        self.location = location
        self.load = load
        self.widens = widens
        self.merges = merges
        self.before: int | None = None  # the table's version, where tasks write on other machines

    def run(self, begun: _Begun) -> LoadResult:
        self.before = None
        done = self._committed(begun)
        if done.repeated or self.before is not None:
            self._refuse_unseen(None if done.repeated else self.before)
        return done

    def _version(self) -> int:
        return next(self.location.history(), HistoryEntry(-1)).version

    def _refuse_unseen(self, before: int | None) -> None:
        """Raises ``NotSeen`` if this machine does not see files named by the load's commit or, with
        ``before`` (the table's earlier version), by a commit that widened its columns."""
        folder = self.location.local_folder()
        if folder is None:
            return
        version = self._committed_at()
        if version is None:  # Delta's log cleanup removed it: another load's is newer
            return
        missing = missing_files(folder, version - 1 if before is None else before, version)
        if missing is not None:
            found = found_now(self.spark, folder) if runs_elsewhere(self.spark) else []
            worker = ", ".join(f"worker {x.worker}" for x in found) or "a worker"
            raise NotSeen(
                self.load.load, folder, missing.files, missing.version, missing.newest, worker
            )

    def _committed(self, begun: _Begun) -> LoadResult:
        load = self.load
        if begun.done is not None:
            return begun.done
        if begun.table is not None and begun.staged is not None:
            way = LoadWay.publish if begun.job is None else LoadWay.merge
            return self._published(begun.table, begun.staged, way)
        if runs_elsewhere(self.spark) and (folder := self.location.local_folder()) is not None:
            refuse_unshared(self.spark, [folder], DestinationError)
            self.before = self._version()
        old = self._columns()
        if old is None:
            self.location.prove_apart()
        result = already_committed(load.load, self._last_load() if old is not None else None)
        if result is not None:
            return result
        number: int | None = None
        if load.history and old and load.load.follows == 0:
            last = self._last_load_in_history()
            number = None if last is None else last.number
            if number is not None and number >= load.load.number:
                return self._skipped()
        refuse_other(load, old or (), number)
        if load.history:
            return self._cast_and_merged(old, begun.reason)
        columns = load_frame.target_columns(load, old, self.location.rows)
        done = self._load(old, columns)
        notes = load_frame.cast_notes(load, columns.fields)
        if begun.reason is not None:
            notes = (*notes, merge_note(load, begun.reason))
        way = LoadWay.rewrite if load.replaces else LoadWay.spark
        return msgspec.structs.replace(done, notes=(*done.notes, *notes), way=way)

    def _cast_and_merged(self, old: tuple[Field, ...] | None, reason: str | None) -> LoadResult:
        """Has Spark cast the load to the columns of the table with history, and the table to those
        of the load, in separate commits; then merges and commits the load."""
        load, folder = self.load, self.location.local_folder()
        columns = load_frame.target_columns(load, old, self.location.rows)
        refuse_narrow(load, columns.fields)
        if folder is not None and old and load.replaces:
            return self._begun_again(folder, columns.fields)
        if folder is None or not old or set(old) == set(load_fields(load)):
            raise not_merged(load, old, reason)
        if columns.widened:
            old = self._widen(old, columns.fields)
        if columns.added:
            rows = self._rows_as(old, columns.fields).limit(0)
            self.location.save(rows.write.format("delta").mode("append").option(*_MERGES))
        staging = folder / f".penstock-{self.merges.stem(load.load)}cast"
        try:
            cast = cast_parts(self.spark, load, columns.fields, staging)
            commit = _LoadCommit(self.spark, self.location, cast, self.widens, self.merges)
            begun = commit.begun()
            commit.settle(begun)
            if begun.done is not None:
                return begun.done
            if begun.table is None or begun.staged is None:
                raise not_merged(load, None, begun.reason)
            done = commit._published(begun.table, begun.staged, LoadWay.spark)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        notes = load_frame.cast_notes(load, columns.fields)
        return msgspec.structs.replace(done, notes=(*done.notes, *notes))

    def _begun_again(self, folder: Path, target: tuple[Field, ...]) -> LoadResult:
        """Replaces rows and columns of the table by a history that begins with the load, in one
        commit by Spark; a task of ours makes the versions."""
        load = self.load
        if has_settings(folder):
            raise refused(load.table.name, _SETTINGS)
        staging = folder / f".penstock-{self.merges.stem(load.load)}new"
        staging.mkdir(parents=True, exist_ok=True)
        try:
            cast = cast_parts(self.spark, load, target, staging / "cast")
            job = MergeJob(
                load=cast,
                columns=tuple(f.name for f in target),
                described=direct_parts.described(target),
                folder=str(staging),
                stem="new-",
                plain_folder=True,
            )
            result = self.merges.start([job])[0].result()
            files = (load_frame.literal_path(str(staging / f.name)) for f in result.files)
            rows = self.spark.read.schema(struct_type(target)).parquet(*files)
            done = self._write(rows, target)
        except NeedsSpark as reason:
            raise not_merged(load, None, str(reason)) from reason
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        if done.repeated:
            return done
        return msgspec.structs.replace(merged_result(load, result), way=LoadWay.spark)

    def begun(self) -> _Begun:
        """Finds out whether file actions can commit the load, and makes its files or the job that
        writes them."""
        location, load = self.location, self.load.load
        if not isinstance(location, FolderLocation) or not location.local:
            return _Begun()
        folder, disposition = Path(location.path), load.disposition
        number = None
        if disposition.history or disposition.ends_history:
            number = self._turned(folder)
        defaults = not any(key.startswith(_DEFAULTS) for key in self._settings())
        table = table_for(folder, self.load, defaults)
        if table is None:
            if self.load.history:
                refuse_other(self.load, columns_in(folder) or (), number)
            return _Begun()
        last = None if table.version < 0 else self._last_load()
        result = already_committed(load, last)
        if result is None and (table.last_number or 0) >= load.number:
            result = self._skipped()
        if result is not None:
            return _Begun(done=result)
        if self.load.history:
            refuse_other(self.load, columns_in(folder) or (), table.last_number)
        if direct_parts.fits(self.load):
            return _Begun(table)
        try:
            return _Begun(table, job=table.job(self.merges.stem(load)))
        except NeedsSpark as reason:
            return _Begun(reason=str(reason))

    def _turned(self, folder: Path) -> int | None:
        """Begins or ends the table's history if the load requires it, in a separate commit. Returns
        the number of the last load of the load's key."""
        old, number = columns_in(folder) or (), last_number_in(folder, self.load.load.key)
        if not turns(self.load, old, number):
            return number
        if self.load.history and has_settings(folder):
            raise refused(self.load.table.name, _SETTINGS)
        with _write_lock:  # or the commit takes the transaction of another load
            rows = turned(self.location.rows(), self.load, old)
            names = [quoted(f.name) for f in turned_fields(self.load, old)]
            fields = turned_fields(self.load, old)
            rows = rows.select(*names).to(struct_type(fields))
            self.merges.tasks.prove_lease()
            self.location.save(self._overwriting(rows))
        sync_file_system(folder)  # before the load's commit, which needs it
        return number

    def settle(self, begun: _Begun) -> None:
        """Waits until the load's files are there, or links its parts."""
        if begun.table is None or begun.staged is not None:
            return
        job = begun.job
        if job is None:
            begun.staged = begun.table.linked()
            return
        pending = begun.pending or self.merges.start([job])[0]
        try:
            result = pending.result()
        except NeedsSpark as reason:
            begun.table, begun.reason = None, str(reason)
            return
        removed = [job.old[index] for index in result.removed]
        begun.staged = StagedFiles(result.files, removed, merged_result(self.load, result))

    def _published(self, table: DeltaFiles, staged: StagedFiles, way: LoadWay) -> LoadResult:
        """Commits the load by file actions."""
        self.merges.tasks.prove_lease()
        try:
            table.commit(staged, self._note(self._settings().get(_NOTE)))
        except Exception:
            if not self._committed_since(table.version):
                table.discard(staged)
                raise
        return msgspec.structs.replace(staged.result, way=way)

    def _settings(self) -> Mapping[str, str]:
        return self.spark.conf.getAll

    def _note(self, user: str | None) -> str:
        load = self.load.load
        note = CommitNote(load.key, load.number, load.token, user)
        return msgspec.json.encode(note).decode()

    def _load(self, old: tuple[Field, ...] | None, columns: EvolvedColumns) -> LoadResult:
        load = self.load
        if old is not None and columns.widened and not load.replaces:
            old = self._widen(old, columns.fields)
        dedups = load.mode is DestinationSyncMode.append_dedup
        fresh = load_frame.read_parts(self.spark, load)
        if not dedups:
            return self._write(load_frame.load_rows_as(fresh, load, columns.fields), columns.fields)
        load_frame.key_sql(load, columns.fields)
        load_frame.refuse_lost_keys(fresh, load, columns.fields)
        shaped = load_frame.load_rows_as(fresh, load, columns.fields, keep=order_columns(load))
        if old is not None and not load.replaces:
            table = functools.partial(self._rows_as, old, columns.fields)
            marks = load.deleted_column is not None
            compares = marks or load_frame.has_text_cursor(load, columns.fields)
            compares = compares or bool(mixed_keys(load))
            compared = self._version() if compares else None
            newest = load_frame.newest_beside(shaped, table, load, columns.fields)
            newest = newest.drop(load_frame.ARRIVAL)
            return self._merge(newest, shaped, old, columns.fields, compared)
        newest = load_frame.newest(shaped, load, columns.fields).drop(load_frame.ARRIVAL)
        found = self._counted(newest, columns.fields)
        kept = newest.drop(TWO).filter(f"NOT ({load_frame.deleted_sql(load, columns.fields)})")
        done = self._write(kept, columns.fields, count=True)
        return self._with_counts(done, found, load.load.rows - done.written - found.deletes)

    def _counted(self, newest: "DataFrame", fields: Sequence[Field]) -> "_Counts":
        """Counts rows of :func:`load_frame.newest` (one scan, only if there may be such rows)."""
        from pyspark.sql import functions as F

        deleted = load_frame.deleted_sql(self.load, fields)
        if deleted == "false" and (self.load.arrival or not self.load.cursor):
            return _Counts(0, 0)
        other = load_frame.other_form_sql(self.load, fields) or "false"
        counts = (F.count_if(TWO), F.count_if(F.expr(deleted)), F.count_if(F.expr(other)))
        one = newest.agg(*counts).collect()[0]
        return _Counts(int(one[0]), int(one[1]), int(one[2]))

    def _with_counts(self, done: LoadResult, found: "_Counts", superseded: int) -> LoadResult:
        if done.repeated:
            return done
        notes = (*done.notes, forms_note(self.load)) if found.mixed else done.notes
        return msgspec.structs.replace(done, superseded=superseded, notes=notes)

    # -- the table as it is

    def _rows_as(self, old: Sequence[Field], target: Sequence[Field]) -> "DataFrame":
        return load_frame.table_rows_as(self.location.rows(), old, self.load, target)

    def _columns(self) -> tuple[Field, ...] | None:
        from pyspark.errors import AnalysisException

        try:
            columns = row_schema(self.location.rows().schema).fields
        except AnalysisException as failure:
            if is_missing(failure):
                return None
            self.location.prove_apart()  # Delta takes a folder inside another table for a partition
            raise
        if isinstance(self.location, CatalogLocation):
            self.location.prove_delta()
        return columns

    def _last_load(self) -> LastLoad | None:
        """Returns the table's last load of this key. None, without reading, for a load that follows
        none: Delta itself skips it if the table has its number (:meth:`_skipped`)."""
        return self._last_load_in_history() if self.load.load.follows else None

    def _last_load_in_history(self) -> LastLoad | None:
        restored_to: int | None = None  # the lowest version that the table was restored to since
        for commit in self.location.history():
            note = parse_note(commit.note)
            if note is not None and note.penstock == self.load.load.key:
                return LastLoad(
                    note.number,
                    note.token,
                    restored_to is not None and restored_to < commit.version,
                )
            if commit.restored is not None:
                restored_to = (
                    commit.restored if restored_to is None else min(restored_to, commit.restored)
                )
        return self._last_load_in_log()

    def _last_load_in_log(self) -> LastLoad | None:
        """Reads the highest number of this key from the transaction ids in the table's log and its
        checkpoints, which outlive the history's entries. The result has no token."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        numbers: list[int] = []
        schema, log = "txn STRUCT<appId: STRING, version: BIGINT>", self.location.log_path()
        for kind, files in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
            reader = self.spark.read.format(kind).schema(schema)
            try:
                actions = reader.load(f"{load_frame.literal_path(log)}/{files}")
                of_key = actions.where(F.col("txn.appId") == self.load.load.key)
                newest = of_key.agg(F.max("txn.version")).collect()[0][0]
            except AnalysisException as failure:
                if not is_missing(failure):
                    raise
                continue
            if newest is not None:
                numbers.append(int(newest))
        return LastLoad(max(numbers)) if numbers else None

    def _skipped(self) -> LoadResult:
        """Returns the result of a load that Delta skipped because the table has its number or a
        higher one: ``repeated`` if it was this load. Raises ``TableAhead`` if it was another."""
        number = self.load.load.number
        result = already_committed(self.load.load, self._last_load_in_history() or LastLoad(number))
        if result is None:
            raise TableAhead(self.load.load, number)
        return result

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Sets transaction id and userMetadata for the one statement inside; restores both."""
        conf, load = self.spark.conf, self.load.load
        user = conf.get(_NOTE, None)
        try:
            conf.set(f"{_TXN}AppId", load.key)
            conf.set(f"{_TXN}Version", str(load.number))
            conf.set(_NOTE, self._note(user))
            yield
        finally:
            conf.unset(f"{_TXN}AppId")
            conf.unset(f"{_TXN}Version")
            if user is None:
                conf.unset(_NOTE)
            else:
                conf.set(_NOTE, user)

    def _committed_since(self, after: int) -> bool:
        """Returns whether this load is among the table's commits after version ``after``."""
        return self._committed_at(after) is not None

    def _committed_at(self, after: int = -1) -> int | None:
        """Returns the version of this load's commit if it is after version ``after``."""
        for commit in self.location.history():
            if commit.version <= after:
                return None
            note = parse_note(commit.note)
            own = self.load.load
            if note is not None and (note.penstock, note.number, note.token) == (
                own.key, own.number, own.token
            ):  # fmt: skip
                return commit.version
        return None

    # -- append, overwrite, and the first load of any mode

    def _write(
        self, content: "DataFrame", target: Sequence[Field], count: bool = False
    ) -> LoadResult:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        load = self.load.load
        observation = Observation()
        catalog_table = self.location if isinstance(self.location, CatalogLocation) else None
        # Spark cannot create a table by name from an observed query
        observed = count and catalog_table is None
        if observed:
            content = content.observe(observation, F.count(F.lit(1)).alias("written"))
        if load.replaces:
            writer = self._overwriting(content)
        else:
            writer = content.write.format("delta").mode("append").option(*_MERGES)
        if any(NEEDS_MAPPING.search(f.name) for f in target):
            writer = writer.option("delta.columnMapping.mode", "name")
        before = self._version()
        with self._transaction():
            self.location.save(writer)
        if not self._committed_since(before):
            return self._skipped()
        if not count:
            return LoadResult(load.rows)
        if catalog_table is not None:
            return LoadResult(catalog_table.written())
        return LoadResult(int(observation.get.get("written") or 0))

    def _overwriting(self, content: "DataFrame") -> "DataFrameWriter":
        """Returns a writer that replaces all rows of the table by ``content``. What a user gave the
        table stays: its schema unchanged if columns are only added, else the partitions and the
        comments of the columns that stay (Delta itself keeps properties and constraints, but no
        clustering)."""
        from pyspark.errors import AnalysisException

        try:
            old = self.location.rows().schema
        except AnalysisException as failure:
            if not is_missing(failure):
                raise
            old = content.schema
        content, partitions = _with_comments(content, old), list[str]()
        adds = _only_adds(old, content.schema)
        if self.load.history:  # tasks write no table that has partitions
            adds = adds and not self._partitions(content.schema)
        elif not adds:
            partitions = self._partitions(content.schema)
            # last, or Spark's catalogs take the table for a broken one
            names = sorted(content.columns, key=partitions.__contains__)
            content = content.select(*map(quoted, names))
        writer = content.write.format("delta").mode("overwrite").partitionBy(*partitions)
        # or a session's setting would leave the rows of partitions that do not come
        writer = writer.option("partitionOverwriteMode", "static")
        return writer.option("mergeSchema" if adds else "overwriteSchema", "true")

    def _partitions(self, new: "StructType") -> list[str]:
        """Returns the table's partition columns, without those by which Delta cannot partition
        ``new``."""
        details = self.spark.sql(f"DESCRIBE DETAIL {self.location.sql_name}")
        nested = ("struct<", "array<")
        simple = {f.name for f in new if not f.dataType.simpleString().startswith(nested)}
        return [p for p in details.select("partitionColumns").collect()[0][0] if p in simple]

    # -- append_dedup into an existing table

    def _merge(
        self,
        newest: "DataFrame",
        sent: "DataFrame",
        old: Sequence[Field],
        target: Sequence[Field],
        compared: int | None,
    ) -> LoadResult:
        """Merges the load by a MERGE statement. ``sent``: all its rows. ``compared``: the
        version of the table whose rows the load's were compared with; None: the statement compares
        them. Raises :class:`CommitConflict`."""
        load = self.load
        # a column that the table lacks is NULL in its rows
        theirs = (load_frame.path_sql(old, path, "t") or "NULL" for path in load.primary_key)
        source, ours, extra = self._matched(newest, sent, old, target)
        keys = zip(ours, theirs, strict=True)
        deleted = load_frame.deleted_sql(load, target, "s")
        newer = load_frame.replaces_sql(load, old, target)
        names = [quoted(f.name) for f in target]
        values = [f"{name} = s.{name}" for name in names]  # all but those of the order
        view = f"_penstock_load_{os.getpid()}_{next(_view_ids)}"
        statement = (
            f"MERGE WITH SCHEMA EVOLUTION INTO {self.location.sql_name} t USING {view} s "
            f"ON {' AND '.join(f'{s} <=> {t}' for s, t in keys)} "
            f"WHEN MATCHED AND ({newer}) AND ({deleted} OR {extra}) THEN DELETE "
            f"WHEN MATCHED AND ({newer}) THEN UPDATE SET {', '.join(values)} "
            f"WHEN NOT MATCHED AND NOT ({deleted} OR {extra}) THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f's.{name}' for name in names)})"
        )
        found = self._counted(newest, target)
        if not found.mixed:
            table, others = self._rows_as(old, target), found.others > 0
            mixed = load_frame.meets_other_form(newest, table, load, target, others=others)
            found = found._replace(mixed=int(mixed))
        others_of_keys = 0 if extra == "false" else source.filter(other_forms.EXTRA).count()
        source.createOrReplaceTempView(view)
        try:
            if compared not in (None, self._version()):
                raise CommitConflict("another writer's commit came after the rows were compared")
            with self._transaction():
                metrics = self.spark.sql(statement).collect()
        finally:
            self.spark.catalog.dropTempView(view)
        if not metrics:  # no row: Delta skipped the statement
            return self._skipped()
        done = LoadResult(int(metrics[0]["num_affected_rows"]))
        # of several rows of a key in the table each is counted as written
        older = max(0, load.load.rows - done.written + others_of_keys)
        if found.deletes > int(metrics[0]["num_deleted_rows"]) and older:
            older -= self._needless(newest, deleted, target, found, metrics[0])
        return self._with_counts(done, found, max(0, older))

    def _matched(
        self,
        newest: "DataFrame",
        sent: "DataFrame",
        old: Sequence[Field],
        target: Sequence[Field],
    ) -> "tuple[DataFrame, list[str], str]":
        """Returns the rows ``s`` of a merge, their expressions for the keys of the table's rows,
        and a condition: the row also replaces another row of its key."""
        load = self.load
        if not mixed_keys(load):
            return newest, load_frame.key_sql(load, target, "s"), "false"
        table, keys = self._rows_as(old, target), load_frame.key_sql(load, target)
        rows = other_forms.matched(newest, sent, table, load, keys)
        return rows, other_forms.match_sql(load, "s"), f"s.{other_forms.EXTRA}"

    def _needless(
        self,
        newest: "DataFrame",
        deleted: str,
        target: Sequence[Field],
        found: "_Counts",
        metrics: "Row",
    ) -> int:
        """Returns the number of deletes whose keys the table did not have. After the merge it has
        the keys of deletes that were older than its rows."""
        from pyspark.sql import functions as F

        keys = load_frame.key_sql(self.load, target, "s")
        same = zip(keys, load_frame.key_sql(self.load, target, "t"), strict=True)
        both = " AND ".join(f"{s} <=> {t}" for s, t in same)
        table = self._rows_as(self._columns() or (), target).alias("t")
        older = newest.alias("s").filter(deleted).join(table, F.expr(both), "left_semi").count()
        return found.deletes - int(metrics["num_deleted_rows"]) - older

    # -- columns that become wider

    def _widen(self, old: tuple[Field, ...], target: Sequence[Field]) -> tuple[Field, ...]:
        """Gives the table's columns the types of ``target`` in a separate commit and returns the
        new columns. Safe to repeat."""
        wider = {f.name: f for f in target}
        after = tuple(wider[f.name] for f in old)
        alters = self.widens and not self.load.history  # tasks do not write tables that have it
        if not (alters and self._alter(old, after)):
            self.location.save(self._overwriting(self._rows_as(old, after)))
        return after

    def _alter(self, old: Sequence[Field], after: Sequence[Field]) -> bool:
        from pyspark.errors import PySparkException

        changed = [new for was, new in zip(old, after, strict=True) if was.type != new.type]
        try:
            self.spark.sql(
                f"ALTER TABLE {self.location.sql_name} "
                "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
            )
            for field in changed:
                self.spark.sql(
                    f"ALTER TABLE {self.location.sql_name} ALTER COLUMN {quoted(field.name)} "
                    f"TYPE {ddl(field.type)}"
                )
        except PySparkException:
            return False  # Delta lacks this widening: the caller rewrites the table
        return True


def _only_adds(old: "StructType", new: "StructType") -> bool:
    """Returns whether each column of ``old`` is one of ``new``, of the same type and original
    names."""
    types = {f.name: f.dataType.simpleString() for f in new.fields}
    same = all(types.get(f.name) == f.dataType.simpleString() for f in old.fields)
    return same and set(row_schema(old).fields) <= set(row_schema(new).fields)


def _with_comments(content: "DataFrame", old: "StructType") -> "DataFrame":
    """Returns ``content`` with the comments of the columns of ``old``."""
    comments = {f.name: f.metadata["comment"] for f in old.fields if "comment" in f.metadata}
    for field in content.schema.fields:
        if field.name in comments:
            metadata = {**field.metadata, "comment": comments[field.name]}
            content = content.withMetadata(field.name, metadata)
    return content


TABLES = DeltaTables
