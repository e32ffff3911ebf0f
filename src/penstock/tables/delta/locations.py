"""Reads and writes one Delta table, found by folder (or URI) or by name in a Spark catalog.

:class:`FolderLocation` and :class:`CatalogLocation` implement :class:`TableLocation`: rows,
history, log folder, save. :class:`CommitNote` is the JSON that Penstock writes as the userMetadata
of its commits (L3). All tables of a destination are under one ``PATH``, or in one
``catalog:CATALOG.DATABASE`` (:class:`CatalogDatabase`), with the name ``NAMESPACE__NAME`` or
``NAME``. Not here: which rows are written, and the commit's transaction id (``delta``)."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import ConfigError, DestinationError
from penstock.spark.session import SCRATCH_WAREHOUSE
from penstock.spark.types import quoted
from penstock.tables.contract import NestedTable, TableName
from penstock.tables.delta.spec import LOG
from penstock.tables.frame.load_frame import literal_path
from penstock.tables.nested_folders import nested_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

PREFIX = "catalog:"
_SEPARATOR = "__"
_MAX_NAME = 120  # Hive's metastores take 128
_MISSING = {
    "PATH_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
}
_LEVELS = 3  # of folders below a new table, on an object store
_LOG_ENTRY = re.compile(r"\d{20}\.json")
_WORD = re.compile(r"[A-Za-z0-9_]+")


class CommitNote(msgspec.Struct, frozen=True):
    """Identifies the load of a commit by its key, number and token. ``user``: the userMetadata that
    the session was set to write."""

    penstock: str  # the load's key; the field's name is stored in tables
    number: int
    token: str
    user: str | None = None


def parse_note(note: str) -> CommitNote | None:
    """Parses a commit's userMetadata; None: another program wrote it."""
    if '"penstock"' not in note:
        return None
    try:
        return msgspec.json.decode(note, type=CommitNote)
    except msgspec.DecodeError:
        return None


class HistoryEntry(msgspec.Struct, frozen=True):
    """One entry of a table's history. ``note``: Delta's userMetadata, set by the writer.
    ``restored``: the version to which this commit restored the table (-1: the commit names a time
    instead); None: it restored nothing."""

    version: int
    note: str = ""
    restored: int | None = None


class TableLocation(Protocol):
    """One Delta table. ``sql_name``: its name in a SQL statement."""

    sql_name: str

    def rows(self) -> "DataFrame":
        """Returns the table's rows. Raises ``AnalysisException`` if there is no table
        (:func:`is_missing`)."""
        ...

    def history(self) -> Iterator[HistoryEntry]:
        """Yields the commits that remain in the log, newest first; none if there is no table.
        Taking only the newest is cheap."""
        ...

    def log_path(self) -> str:
        """Returns the path of the table's log folder."""
        ...

    def local_folder(self) -> Path | None:
        """Returns the table's folder if it is local; it need not exist yet. None: it is on an
        object store, or a catalog will choose it."""
        ...

    def save(self, writer: "DataFrameWriter") -> None:
        """Runs ``writer`` with this table as its target."""
        ...

    def prove_apart(self) -> None:
        """Proves, before a table is created on an object store, that its folder is neither inside
        another table's folder nor around one. Raises ``DestinationError``
        (``destination.nested``)."""
        ...


def is_missing(failure: BaseException) -> bool:
    """Returns whether ``failure`` is Spark's error for a table that does not exist."""
    from pyspark.errors import AnalysisException

    return isinstance(failure, AnalysisException) and failure.getCondition() in _MISSING


class FolderLocation:
    """A table by its path. ``path``: a local folder where ``local``, else a URI."""

    def __init__(self, spark: "SparkSession", path: str, local: bool) -> None:
        self.spark = spark
        self.path = path
        self.local = local
        self.sql_name = f"delta.{quoted(path)}"

    def rows(self) -> "DataFrame":
        return self.spark.read.format("delta").load(self.path)

    def history(self) -> Iterator[HistoryEntry]:
        if not self.local:
            yield from _history(self, self.spark)
            return
        log = Path(self.path, LOG)
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = [n for n in os.listdir(log) if _LOG_ENTRY.fullmatch(n)]
        for name in sorted(names, reverse=True):
            with suppress(FileNotFoundError):  # Delta's log cleanup removed it meanwhile
                yield read_log_entry(log / name)

    def log_path(self) -> str:
        return f"{self.path}/_delta_log"

    def local_folder(self) -> Path | None:
        return Path(self.path) if self.local else None

    def save(self, writer: "DataFrameWriter") -> None:
        writer.save(self.path)

    def prove_apart(self) -> None:
        there = self.local or self._has_log(literal_path(self.path))
        nested = None if there else self._nested()
        if nested is not None:
            raise nested_failure(self.path, nested)

    def _nested(self) -> NestedTable | None:
        """Returns the Delta table on the object store whose folder would be around this one, or
        inside it, at most :data:`_LEVELS` levels below."""
        scheme, _, place = self.path.partition("://")
        names = place.rstrip("/").split("/")
        for count in range(len(names) - 1, 0, -1):
            above = f"{scheme}://{'/'.join(names[:count])}"
            if self._has_log(literal_path(above)):
                return NestedTable(above, outer=True, new=True)
        for levels in range(1, _LEVELS + 1):
            below = "/*" * levels
            if self._has_log(literal_path(self.path) + below):
                return NestedTable(self.path + below, outer=False, new=True)
        return None

    def _has_log(self, folders: str) -> bool:
        """Returns whether one of the folders that the pattern names has a Delta log."""
        from pyspark.errors import AnalysisException

        try:
            _ = self.spark.read.text(f"{folders}/{LOG}/*.json").schema
        except AnalysisException as failure:
            if is_missing(failure):
                return False
            raise
        return True


class CatalogLocation:
    """A table of a catalog. ``name``: catalog, database and table."""

    def __init__(self, spark: "SparkSession", name: tuple[str, str, str]) -> None:
        self.spark = spark
        self.sql_name = ".".join(map(quoted, name))

    def rows(self) -> "DataFrame":
        return self.spark.table(self.sql_name)

    def history(self) -> Iterator[HistoryEntry]:
        yield from _history(self, self.spark)

    def log_path(self) -> str:
        detail = self.spark.sql(f"DESCRIBE DETAIL {self.sql_name}")
        return f"{detail.select('location').collect()[0][0]}/_delta_log"

    def local_folder(self) -> Path | None:
        from pyspark.errors import AnalysisException

        try:
            detail = self.spark.sql(f"DESCRIBE DETAIL {self.sql_name}")
            url = urlsplit(str(detail.select("location").collect()[0][0]))
        except AnalysisException as failure:
            if not is_missing(failure):
                raise
            url = urlsplit(self.spark.conf.get("spark.sql.warehouse.dir") or "")
        return Path(unquote(url.path)) if url.scheme == "file" and url.path else None

    def save(self, writer: "DataFrameWriter") -> None:
        writer.saveAsTable(self.sql_name)

    def prove_apart(self) -> None:
        return None  # the catalog gives each table a folder of its own

    def written(self) -> int:
        """Returns how many rows the table's newest commit wrote."""
        history = self.spark.sql(f"DESCRIBE HISTORY {self.sql_name} LIMIT 1")
        metrics = history.selectExpr("operationMetrics['numOutputRows']").collect()
        return int(metrics[0][0] or 0)

    def prove_delta(self) -> None:
        """Raises ``DestinationError`` (``destination.not_ours``) if the table has another format,
        so that it is neither written to nor replaced."""
        detail = self.spark.sql(f"DESCRIBE DETAIL {self.sql_name}")
        table_format = detail.select("format").collect()[0][0]
        if table_format != "delta":
            raise DestinationError(
                f"{self.sql_name} is a {table_format} table: nothing is written there",
                code="destination.not_ours",
                where=self.sql_name,
                hint="drop or rename it, or choose another database",
            )


def read_log_entry(path: Path) -> HistoryEntry:
    """Reads the commitInfo from one file of a local log. The file may hold 100 MB of other actions,
    which are skipped line by line."""
    version = int(path.name[:20])
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"commitInfo"'):
                info = msgspec.json.decode(line, type=_LogLine).commitInfo
                return _history_entry(
                    version, info.userMetadata, info.operation, info.operationParameters
                )
    return HistoryEntry(version)


class _CommitInfo(msgspec.Struct):
    userMetadata: str | None = None
    operation: str | None = None
    operationParameters: dict[str, Any] = {}


class _LogLine(msgspec.Struct):
    commitInfo: _CommitInfo


def _history(table: TableLocation, spark: "SparkSession") -> Iterator[HistoryEntry]:
    from pyspark.errors import AnalysisException

    try:
        _ = table.rows().schema
    except AnalysisException as failure:
        if is_missing(failure):
            return
        raise
    oldest_yielded: int | None = None
    for limit in (" LIMIT 1", ""):  # the whole history is read only if the newest is not enough
        history = spark.sql(f"DESCRIBE HISTORY {table.sql_name}{limit}")
        rows = history.select("version", "userMetadata", "operation", "operationParameters")
        for row in rows.orderBy(rows.version.desc()).collect():
            if oldest_yielded is None or row[0] < oldest_yielded:
                yield _history_entry(int(row[0]), row[1], row[2], row[3] or {})
                oldest_yielded = int(row[0])


def _history_entry(
    version: int, note: str | None, operation: str | None, how: Mapping[str, Any]
) -> HistoryEntry:
    restored = None
    if operation == "RESTORE":
        back = str(how.get("version"))
        restored = int(back) if back.isdecimal() else -1
    return HistoryEntry(version, note or "", restored)


class CatalogDatabase:
    """Parses ``catalog:CATALOG.DATABASE`` and names its tables. Raises ``ConfigError``
    (``config.destination``)."""

    def __init__(self, text: str) -> None:
        catalog, _, database = text.removeprefix(PREFIX).partition(".")
        if not (_WORD.fullmatch(catalog) and _WORD.fullmatch(database)):
            raise ConfigError(
                f"{text!r} names no catalog and database",
                code="config.destination",
                where=text,
                hint=f"write delta:{PREFIX}CATALOG.DATABASE, as delta:{PREFIX}spark_catalog.shop",
            )
        self.catalog, self.database = catalog, database

    def name(self, table: TableName) -> tuple[str, str, str]:
        return self.catalog, self.database, table_name(table)

    def prepare(self, spark: "SparkSession") -> None:
        """Creates the database if it is missing. Raises ``ConfigError``
        (``destination.catalog_in_memory``) for a catalog that ends with the session."""
        implementation = spark.conf.get("spark.sql.catalogImplementation")
        warehouse = spark.conf.get("spark.sql.warehouse.dir") or ""
        scratch = warehouse.rstrip("/").endswith(SCRATCH_WAREHOUSE)
        if self.catalog == "spark_catalog" and implementation == "in-memory" and scratch:
            raise ConfigError(
                "spark_catalog lives in this session's memory, and its tables would end with it",
                code="destination.catalog_in_memory",
                where=f"{self.catalog}.{self.database}",
                hint="set spark.conf for a lasting catalog (spark.sql.catalogImplementation: hive, "
                "with spark.sql.warehouse.dir), or write to delta:PATH",
            )
        name = f"{quoted(self.catalog)}.{quoted(self.database)}"
        if not spark.catalog.databaseExists(name):
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {name}")


def table_name(table: TableName) -> str:
    """Returns the table's name in a database, of ASCII letters, digits and ``_``:
    ``NAMESPACE__NAME``, or ``NAME``. Appends eight digits of a hash if a character had to be
    replaced or cut, or if another table could get the same name."""
    plain = _SEPARATOR.join(part for part in (table.namespace, table.name) if part)
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", plain)[: _MAX_NAME - 9]
    namespace, separator, name = plain.partition(_SEPARATOR)
    parsed = (namespace, name) if separator else (None, plain)
    if identifier == plain and parsed == (table.namespace, table.name):
        return plain
    full_name = f"{table.namespace or ''}\0{table.name}"
    return f"{identifier}_{hashlib.sha256(full_name.encode()).hexdigest()[:8]}"
