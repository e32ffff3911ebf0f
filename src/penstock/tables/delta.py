"""Tables in Delta Lake, spoken in SQL and by the DataFrame writer; the jar is enough.

Every load is one commit that carries (key, number) as Delta's transaction id: a load whose number
the table has is skipped by Delta itself (L3). It takes the id from two settings that it never
resets, so they are set around the one statement, under a lock that every write of this process
holds. The commit's userMetadata has the same and the load's token, by which the table's history
tells a repeated load from another home's, and where the table stands. Widening a column is a commit
of its own before the load's. A commit that another writer got in the way of is tried again.
Neighbours: ``delta_places`` says where a table is, ``load_frame``
gives the rows, ``schema_evolution`` the columns, ``spark.jars`` finds the jars.
"""

import importlib.metadata
import itertools
import os
import random
import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import ConfigError, DestinationError, PenstockError
from penstock.files import sync_file_system
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode
from penstock.model.types import Field, RowSchema
from penstock.spark.error_text import table_failure
from penstock.spark.types import ddl, quoted, row_schema
from penstock.tables import load_frame
from penstock.tables.contract import (
    Ahead,
    Held,
    LoadResult,
    SessionNeeds,
    TableLoad,
    TableName,
    judge,
)
from penstock.tables.delta_places import (
    PREFIX,
    Commit,
    Database,
    InCatalog,
    InFolder,
    Place,
    is_missing,
)
from penstock.tables.parquet_folders import make_writable, prove_writable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARTIFACTS = {  # by Spark's minor version
    "4.1": ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
    "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
}
TYPE_WIDENING = "type_widening"  # option: Delta's own, which locks some other readers out
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    # the artifact asks for 33 files, of which Spark has most and Delta needs none
    "spark.jars.excludes": "org.*:*,com.*:*,io.unitycatalog:*,io.delta:delta-kernel*",
}
_TXN = "spark.databricks.delta.write.txn"
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"
_CONFLICT = re.compile(
    r"(?:Concurrent(?:Append|Write|Transaction|DeleteRead|DeleteDelete|Modification)"
    r"|ProtocolChanged|MetadataChanged|FileAlreadyExists)Exception|DELTA_CONCURRENT_"
    r"|DELTA_(?:PROTOCOL|METADATA)_CHANGED|TABLE_OR_VIEW_ALREADY_EXISTS|DELTA_TABLE_ALREADY_EXISTS"
)
CONFLICT_TRIES = 8
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")

_write_lock = threading.RLock()
_views = itertools.count()


class DeltaTables:
    """The destination ``delta:PATH``: PATH local or any URI that Spark writes to, or
    ``catalog:CATALOG.DATABASE`` of the Spark session."""

    name = "delta"

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        given = dict(options or {})
        self._widens = given.pop(TYPE_WIDENING, "false") == "true"
        if given:
            raise ConfigError(
                f"delta has no option {', '.join(sorted(given))}",
                code="config.unknown_option",
                hint=f"its only option is {TYPE_WIDENING}: true | false",
            )
        self._database = Database(path) if path.startswith(PREFIX) else None
        if self._database is not None:
            self._local, self._root = None, path
            return
        url = urlsplit(path)
        local = url.scheme == "file" or "://" not in path
        file_path = unquote(url.path) if url.scheme == "file" else path
        self._local = Path(file_path).expanduser().resolve() if local else None
        self._root = str(self._local) if self._local else path.rstrip("/")

    def needs(self) -> SessionNeeds:
        """Raises ``ConfigError`` (``spark.no_delta``) where no Delta exists for this Spark."""
        version = importlib.metadata.version("pyspark")
        minor = ".".join(version.split(".")[:2])
        if minor not in ARTIFACTS:
            raise ConfigError(
                f"there is no Delta Lake for Spark {version}",
                code="spark.no_delta",
                hint=f"use Spark {' or '.join(ARTIFACTS)}, or parquet:PATH, which needs no jar",
            )
        return SessionNeeds(ARTIFACTS[minor], dict(_CONF))

    def check(self) -> None:
        if self._local is not None:
            prove_writable(self._local)

    def location(self, table: TableName) -> str:
        if self._database is not None:
            return ".".join(self._database.name(table))
        return "/".join(p for p in (self._root, table.namespace, table.name) if p)

    def loads_once(self, mode: DestinationSyncMode) -> str | None:
        return None

    def unable(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        return None

    def commit(
        self, spark: "SparkSession", loads: Sequence[TableLoad]
    ) -> list[LoadResult | PenstockError]:
        if self._local is not None:
            make_writable(self._local)
        if self._database is not None and loads:
            try:
                self._database.prepare(spark)
            except Exception as failure:
                return [table_failure(failure, self.location(load.table)) for load in loads]
        outcomes: list[LoadResult | PenstockError] = []
        for load in loads:
            try:
                outcomes.append(self._commit(spark, load))
            except Exception as failure:
                outcomes.append(table_failure(failure, load.table.name))
        if self._local is not None:
            sync_file_system(self._local)
        return outcomes

    def _commit(self, spark: "SparkSession", load: TableLoad) -> LoadResult:
        """Under the same number until no other writer gets in the way, a few times."""
        for attempt in itertools.count(1):
            try:
                with _write_lock:
                    place = self._place(spark, load.table)
                    done = _Commit(spark, place, load, self._widens).run()
            except Exception as failure:
                if isinstance(failure, PenstockError) or not _CONFLICT.search(str(failure)):
                    raise
                if attempt == CONFLICT_TRIES:
                    raise _conflict(load, attempt) from failure
                time.sleep(min(0.1 * 2**attempt, 5.0) * random.uniform(0.5, 1.5))
            else:
                if attempt == 1:
                    return done
                note = f"another writer was at table {load.table.name}: committed at try {attempt}"
                return msgspec.structs.replace(done, notes=(*done.notes, note))
        raise AssertionError("unreachable")

    def _place(self, spark: "SparkSession", table: TableName) -> Place:
        if self._database is not None:
            return InCatalog(spark, self._database.name(table))
        return InFolder(spark, self.location(table), self._local is not None)


def _conflict(load: TableLoad, tries: int) -> DestinationError:
    return DestinationError(
        f"other writers changed table {load.table.name} each time this load was committed "
        f"({tries} tries)",
        code="destination.conflict",
        where=load.table.name,
        hint="nothing is lost: run again, and the load is repeated as it stands; best not at the "
        "time of the other writer",
    )


class _Mark(msgspec.Struct, frozen=True):
    """Our part of a commit's userMetadata. ``user``: what the session would have written."""

    penstock: str  # the load's key
    number: int
    token: str
    user: str | None = None


class _Commit:
    """One load into one table."""

    def __init__(self, spark: "SparkSession", place: Place, load: TableLoad, widens: bool) -> None:
        self.spark = spark
        self.place = place
        self.load = load
        self.widens = widens

    def run(self) -> LoadResult:
        load = self.load
        old = self._columns()
        known = judge(load.load, self._held() if old is not None else None)
        if known is not None:
            return known
        columns = load_frame.target_columns(load, old, self.place.held)
        if old is not None and columns.widened and not load.load.replaces:
            old = self._widen(old, columns.fields)
        dedups = load.mode is DestinationSyncMode.append_dedup
        fresh = load_frame.read_parts(self.spark, load)
        if not dedups:
            return self._write(load_frame.in_shape(fresh, load, columns.fields), columns.fields)
        load_frame.key_sql(load, columns.fields)
        shaped = load_frame.in_shape(fresh, load, columns.fields, keep=load_frame.ORDER)
        newest = load_frame.newest(shaped, load, columns.fields).drop(*load_frame.ORDER)
        if old is not None and not load.load.replaces:
            return self._merge(newest, old, columns.fields)
        kept = newest.filter(f"NOT ({load_frame.gone_sql(load, columns.fields)})")
        return self._write(kept, columns.fields, count=True)

    # -- what is there

    def _columns(self) -> tuple[Field, ...] | None:
        from pyspark.errors import AnalysisException

        try:
            found = row_schema(self.place.held().schema).fields
        except AnalysisException as failure:
            if is_missing(failure):
                return None
            raise
        if isinstance(self.place, InCatalog):
            self.place.prove_delta()
        return found

    def _held(self) -> Held | None:
        """What the table remembers of the load's key. Where the load follows none, Delta itself
        tells whether the table has its number (:meth:`_skipped`)."""
        return self._newest_mark() if self.load.load.follows else None

    def _newest_mark(self) -> Held | None:
        back: int | None = None  # the lowest version that the table was restored to since
        for commit in self.place.history():
            mark = _mark(commit.note)
            if mark is not None and mark.penstock == self.load.load.key:
                return Held(mark.number, mark.token, back is not None and back < commit.version)
            if commit.restored is not None:
                back = commit.restored if back is None else min(back, commit.restored)
        return self._in_log()

    def _in_log(self) -> Held | None:
        """From the transaction ids in checkpoints and in the commits of earlier versions: the
        history begins after them."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        numbers: list[int] = []
        shape, log = "txn STRUCT<appId: STRING, version: BIGINT>", self.place.log_path()
        for kind, files in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
            reader = self.spark.read.format(kind).schema(shape)
            try:
                found = reader.load(f"{load_frame.literal_path(log)}/{files}")
                mine = found.where(F.col("txn.appId") == self.load.load.key)
                newest = mine.agg(F.max("txn.version")).collect()[0][0]
            except AnalysisException as failure:
                if not is_missing(failure):
                    raise
                continue
            if newest is not None:
                numbers.append(int(newest))
        return Held(max(numbers)) if numbers else None

    def _skipped(self) -> LoadResult:
        """Delta has the number already, or a higher one: of this very load? Raises ``Ahead``."""
        number = self.load.load.number
        known = judge(self.load.load, self._newest_mark() or Held(number))
        if known is None:
            raise Ahead(self.load.load, number)
        return known

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Settings that give the one statement inside its transaction id and its mark."""
        conf, load = self.spark.conf, self.load.load
        user = conf.get(_NOTE, None)
        mark = _Mark(load.key, load.number, load.token, user)
        try:
            conf.set(f"{_TXN}AppId", load.key)
            conf.set(f"{_TXN}Version", str(load.number))
            conf.set(_NOTE, msgspec.json.encode(mark).decode())
            yield
        finally:
            conf.unset(f"{_TXN}AppId")
            conf.unset(f"{_TXN}Version")
            if user is None:
                conf.unset(_NOTE)
            else:
                conf.set(_NOTE, user)

    def _is_in(self, after: int) -> bool:
        """Is this load among the commits after this version?"""
        for commit in self.place.history():
            if commit.version <= after:
                return False
            mark = _mark(commit.note)
            ours = self.load.load
            if mark is not None and (mark.penstock, mark.number, mark.token) == (
                ours.key, ours.number, ours.token
            ):  # fmt: skip
                return True
        return False

    # -- append, overwrite, and the first load of any mode

    def _write(
        self, content: "DataFrame", target: Sequence[Field], count: bool = False
    ) -> LoadResult:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        load = self.load.load
        seen = Observation()
        named = self.place if isinstance(self.place, InCatalog) else None
        if count and named is None:  # Spark cannot create a table by name from an observed query
            content = content.observe(seen, F.count(F.lit(1)).alias("written"))
        writer = content.write.format("delta").mode("overwrite" if load.replaces else "append")
        writer = writer.option("overwriteSchema" if load.replaces else "mergeSchema", "true")
        if any(_NEEDS_MAPPING.search(f.name) for f in target):
            writer = writer.option("delta.columnMapping.mode", "name")
        before = next(self.place.history(), Commit(-1)).version
        with self._transaction():
            self.place.save(writer)
        if not self._is_in(before):
            return self._skipped()
        if count:
            return LoadResult(named.written() if named else int(seen.get.get("written") or 0))
        return LoadResult(load.rows)

    # -- append_dedup into a table that is there

    def _merge(
        self, newest: "DataFrame", old: Sequence[Field], target: Sequence[Field]
    ) -> LoadResult:
        load = self.load
        keys = zip(
            load_frame.key_sql(load, target, "s"), load_frame.key_sql(load, old, "t"), strict=True
        )
        gone = load_frame.gone_sql(load, target, "s")
        newer = self._newer_sql(old, target)
        view = f"_penstock_load_{os.getpid()}_{next(_views)}"
        statement = (
            f"MERGE WITH SCHEMA EVOLUTION INTO {self.place.sql_name} t USING {view} s "
            f"ON {' AND '.join(f'{s} <=> {t}' for s, t in keys)} "
            f"WHEN MATCHED AND ({newer}) AND ({gone}) THEN DELETE "
            f"WHEN MATCHED AND ({newer}) THEN UPDATE SET * "
            f"WHEN NOT MATCHED AND NOT ({gone}) THEN INSERT *"
        )
        newest.createOrReplaceTempView(view)
        try:
            with self._transaction():
                metrics = self.spark.sql(statement).collect()
        finally:
            self.spark.catalog.dropTempView(view)
        if not metrics:  # Delta answers nothing where it skipped the statement
            return self._skipped()
        return LoadResult(int(metrics[0]["num_affected_rows"]))

    def _newer_sql(self, old: Sequence[Field], target: Sequence[Field]) -> str:
        """Whether the load's row ``s`` is not older than the table's row ``t``."""
        load = self.load
        if load.arrival:
            return "true"
        at = load.metadata.extracted_at if load.metadata else ""
        tie = "true"
        if any(f.name == at for f in old):
            tie = f"t.{quoted(at)} IS NULL OR s.{quoted(at)} >= t.{quoted(at)}"
        ours = load_frame.cursor_sql(target, load.cursor, "s")
        theirs = load_frame.cursor_sql(old, load.cursor, "t")
        if ours is None or theirs is None:
            return tie
        newer = (
            f"{ours} > {theirs} OR ({theirs} IS NULL AND {ours} IS NOT NULL) "
            f"OR ({ours} <=> {theirs} AND ({tie}))"
        )
        bare = load_frame.bare_delete_sql(load, target, "s")
        return f"{newer} OR ({bare} AND ({tie}))"

    # -- columns that become wider

    def _widen(self, old: tuple[Field, ...], target: Sequence[Field]) -> tuple[Field, ...]:
        """Give the table's columns their new types, in a commit of its own; the same again if that
        was done before."""
        wider = {f.name: f for f in target}
        after = tuple(wider[f.name] for f in old)
        if not (self.widens and self._alter(old, after)):
            content = load_frame.old_in_shape(self.place.held(), old, self.load, after)
            writer = content.write.format("delta").mode("overwrite")
            self.place.save(writer.option("overwriteSchema", "true"))
        return after

    def _alter(self, old: Sequence[Field], after: Sequence[Field]) -> bool:
        from pyspark.errors import PySparkException

        changed = [new for was, new in zip(old, after, strict=True) if was.type != new.type]
        try:
            self.spark.sql(
                f"ALTER TABLE {self.place.sql_name} "
                "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
            )
            for field in changed:
                self.spark.sql(
                    f"ALTER TABLE {self.place.sql_name} ALTER COLUMN {quoted(field.name)} "
                    f"TYPE {ddl(field.type)}"
                )
        except PySparkException:
            return False  # not one of the widenings that Delta has
        return True


def _mark(note: str) -> _Mark | None:
    if '"penstock"' not in note:
        return None
    try:
        return msgspec.json.decode(note, type=_Mark)
    except msgspec.DecodeError:
        return None
