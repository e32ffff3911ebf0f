"""Tables in Delta Lake, spoken in SQL and by the DataFrame writer; the jar is enough.

Every load is one commit that carries (key, number) as Delta's transaction id: a repeated load is
skipped by Delta itself (L3). It takes the id from two settings that it never resets, so they are
set around the one statement, under a lock that every write of this process holds. Widening a column
is a commit of its own before the load's. Neighbours: ``places`` says where a table is, ``rows``
gives the rows, ``evolution`` the columns, ``spark.jars`` finds the jars.
"""

import importlib.metadata
import itertools
import os
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.errors import ConfigError, PenstockError
from penstock.model.catalog import DestinationSyncMode
from penstock.model.types import Field
from penstock.spark.failures import table_failure
from penstock.spark.types import ddl, quoted, row_schema
from penstock.tables import rows
from penstock.tables.contract import LoadResult, SessionNeeds, TableLoad, TableName
from penstock.tables.folders import make_writable, prove_writable, sync_file_system
from penstock.tables.places import PREFIX, Database, InCatalog, InFolder, Place, is_missing

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
                with _write_lock:
                    place = self._place(spark, load.table)
                    outcomes.append(_Commit(spark, place, load, self._widens).run())
            except Exception as failure:
                outcomes.append(table_failure(failure, load.table.name))
        if self._local is not None:
            sync_file_system(self._local)
        return outcomes

    def _place(self, spark: "SparkSession", table: TableName) -> Place:
        if self._database is not None:
            return InCatalog(spark, self._database.name(table))
        return InFolder(spark, self.location(table), self._local is not None)


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
        columns = rows.target_columns(load, old, self.place.held)
        if old is not None and columns.widened and not load.load.replaces:
            old = self._widen(old, columns.fields)
        dedups = load.mode is DestinationSyncMode.append_dedup
        fresh = rows.read_parts(self.spark, load)
        if not dedups:
            return self._write(rows.in_shape(fresh, load, columns.fields), columns.fields)
        rows.key_sql(load, columns.fields)
        shaped = rows.in_shape(fresh, load, columns.fields, keep=rows.ORDER)
        newest = rows.newest(shaped, load, columns.fields).drop(*rows.ORDER)
        if old is not None and not load.load.replaces:
            return self._merge(newest, old, columns.fields)
        kept = newest.filter(f"NOT ({rows.gone_sql(load, columns.fields)})")
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

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Settings that give the one statement inside its transaction id."""
        conf = self.spark.conf
        try:
            conf.set(f"{_TXN}AppId", self.load.load.key)
            conf.set(f"{_TXN}Version", str(self.load.load.number))
            yield
        finally:
            conf.unset(f"{_TXN}AppId")
            conf.unset(f"{_TXN}Version")

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
        before = self.place.version()
        with self._transaction():
            self.place.save(writer)
        if self.place.version() == before:
            return LoadResult(0, repeated=True)
        if count:
            return LoadResult(named.written() if named else int(seen.get.get("written") or 0))
        return LoadResult(load.rows)

    # -- append_dedup into a table that is there

    def _merge(
        self, newest: "DataFrame", old: Sequence[Field], target: Sequence[Field]
    ) -> LoadResult:
        load = self.load
        keys = zip(rows.key_sql(load, target, "s"), rows.key_sql(load, old, "t"), strict=True)
        gone = rows.gone_sql(load, target, "s")
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
            return LoadResult(0, repeated=True)
        return LoadResult(int(metrics[0]["num_affected_rows"]))

    def _newer_sql(self, old: Sequence[Field], target: Sequence[Field]) -> str:
        """Whether the load's row ``s`` is not older than the table's row ``t``."""
        load = self.load
        at = load.metadata.extracted_at if load.metadata else ""
        tie = "true"
        if any(f.name == at for f in old):
            tie = f"t.{quoted(at)} IS NULL OR s.{quoted(at)} >= t.{quoted(at)}"
        ours = rows.path_sql(target, load.cursor, "s")
        theirs = rows.path_sql(old, load.cursor, "t")
        if ours is None or theirs is None:
            return tie
        return (
            f"{ours} > {theirs} OR ({theirs} IS NULL AND {ours} IS NOT NULL) "
            f"OR ({ours} <=> {theirs} AND ({tie}))"
        )

    # -- columns that become wider

    def _widen(self, old: tuple[Field, ...], target: Sequence[Field]) -> tuple[Field, ...]:
        """Give the table's columns their new types, in a commit of its own; the same again if that
        was done before."""
        wider = {f.name: f for f in target}
        after = tuple(wider[f.name] for f in old)
        if not (self.widens and self._alter(old, after)):
            content = rows.old_in_shape(self.place.held(), old, self.load, after)
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
