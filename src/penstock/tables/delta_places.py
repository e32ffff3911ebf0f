"""Where a Delta table is: a folder (or URI), or a name in a catalog of the Spark session.

Both answer the same questions: is it there, what does it hold, which version, and write to it. Not
here: what is written (``delta``). A destination is one place for all its tables: ``PATH``, or
``catalog:CATALOG.DATABASE``, whose tables are called ``NAMESPACE__NAME`` or ``NAME``.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.errors import ConfigError, DestinationError
from penstock.spark.session import SCRATCH_WAREHOUSE
from penstock.spark.types import quoted
from penstock.tables.contract import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

PREFIX = "catalog:"
_JOINT = "__"
_MAX_NAME = 120  # Hive's metastores take 128
_MISSING = {
    "PATH_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
}
_LOG_ENTRY = re.compile(r"\d{20}\.json")
_WORD = re.compile(r"[A-Za-z0-9_]+")


class Commit(msgspec.Struct, frozen=True):
    """One entry of a table's history. ``note``: the writer's own text (Delta's userMetadata).
    ``restored``: it went back to this version (-1: to one that it names by time)."""

    version: int
    note: str = ""
    restored: int | None = None


class Place(Protocol):
    """One table. ``sql_name``: how SQL calls it."""

    sql_name: str

    def held(self) -> "DataFrame":
        """Its rows; an ``AnalysisException`` where it is not there (:func:`is_missing`)."""
        ...

    def history(self) -> Iterator[Commit]:
        """Newest first, as far as its log is kept; nothing where it is not there. The newest alone
        costs little."""
        ...

    def log_path(self) -> str:
        """The folder of its log."""
        ...

    def save(self, writer: "DataFrameWriter") -> None: ...


def is_missing(failure: BaseException) -> bool:
    """Whether Spark says that there is no such table."""
    from pyspark.errors import AnalysisException

    return isinstance(failure, AnalysisException) and failure.getCondition() in _MISSING


class InFolder:
    """``path``: a local folder where ``local``, else a URI."""

    def __init__(self, spark: "SparkSession", path: str, local: bool) -> None:
        self.spark = spark
        self.path = path
        self.local = local
        self.sql_name = f"delta.{quoted(path)}"

    def held(self) -> "DataFrame":
        return self.spark.read.format("delta").load(self.path)

    def history(self) -> Iterator[Commit]:
        if not self.local:
            yield from _history(self, self.spark)
            return
        log = Path(self.path, "_delta_log")
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = [n for n in os.listdir(log) if _LOG_ENTRY.fullmatch(n)]
        for name in sorted(names, reverse=True):
            with suppress(FileNotFoundError):  # cleaned up meanwhile
                yield _read_commit(log / name)

    def log_path(self) -> str:
        return f"{self.path}/_delta_log"

    def save(self, writer: "DataFrameWriter") -> None:
        writer.save(self.path)


class InCatalog:
    """``name``: catalog, database and table."""

    def __init__(self, spark: "SparkSession", name: tuple[str, str, str]) -> None:
        self.spark = spark
        self.sql_name = ".".join(map(quoted, name))

    def held(self) -> "DataFrame":
        return self.spark.table(self.sql_name)

    def history(self) -> Iterator[Commit]:
        yield from _history(self, self.spark)

    def log_path(self) -> str:
        found = self.spark.sql(f"DESCRIBE DETAIL {self.sql_name}").select("location").collect()
        return f"{found[0][0]}/_delta_log"

    def save(self, writer: "DataFrameWriter") -> None:
        writer.saveAsTable(self.sql_name)

    def written(self) -> int:
        """The rows that its newest commit wrote."""
        history = self.spark.sql(f"DESCRIBE HISTORY {self.sql_name} LIMIT 1")
        found = history.selectExpr("operationMetrics['numOutputRows']").collect()
        return int(found[0][0] or 0)

    def prove_delta(self) -> None:
        """Nothing that is no Delta table is written to or replaced. ``DestinationError``."""
        found = self.spark.sql(f"DESCRIBE DETAIL {self.sql_name}").select("format").collect()
        if found[0][0] != "delta":
            raise DestinationError(
                f"{self.sql_name} is a {found[0][0]} table: nothing is written there",
                code="destination.not_ours",
                where=self.sql_name,
                hint="drop or rename it, or choose another database",
            )


def _read_commit(path: Path) -> Commit:
    """Of a file of a local log. It may hold 100 MB of other actions."""
    version = int(path.name[:20])
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"commitInfo"'):
                info = msgspec.json.decode(line, type=_Line).commitInfo
                return _commit(version, info.userMetadata, info.operation, info.operationParameters)
    return Commit(version)


class _Info(msgspec.Struct):
    userMetadata: str | None = None
    operation: str | None = None
    operationParameters: dict[str, Any] = {}


class _Line(msgspec.Struct):
    commitInfo: _Info


def _history(place: Place, spark: "SparkSession") -> Iterator[Commit]:
    from pyspark.errors import AnalysisException

    try:
        _ = place.held().schema
    except AnalysisException as failure:
        if is_missing(failure):
            return
        raise
    seen: int | None = None
    for limit in (" LIMIT 1", ""):  # all of it only where the newest does not do
        found = spark.sql(f"DESCRIBE HISTORY {place.sql_name}{limit}")
        rows = found.select("version", "userMetadata", "operation", "operationParameters")
        for row in rows.orderBy(rows.version.desc()).collect():
            if seen is None or row[0] < seen:
                yield _commit(int(row[0]), row[1], row[2], row[3] or {})
                seen = int(row[0])


def _commit(
    version: int, note: str | None, operation: str | None, how: Mapping[str, Any]
) -> Commit:
    restored = None
    if operation == "RESTORE":
        back = str(how.get("version"))
        restored = int(back) if back.isdecimal() else -1
    return Commit(version, note or "", restored)


class Database:
    """``catalog:CATALOG.DATABASE``. Raises ``ConfigError`` (``config.destination``)."""

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
        """Create the database where it is missing. Raises ``ConfigError``
        (``destination.catalog_in_memory``) for a catalog that ends with the session."""
        kept_in = spark.conf.get("spark.sql.catalogImplementation")
        warehouse = spark.conf.get("spark.sql.warehouse.dir") or ""
        scratch = warehouse.rstrip("/").endswith(SCRATCH_WAREHOUSE)
        if self.catalog == "spark_catalog" and kept_in == "in-memory" and scratch:
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
    """The name in a database, of ASCII letters, digits and ``_``: ``NAMESPACE__NAME``, or ``NAME``.
    Where that is not the table's name letter by letter, or could be another table's too, eight
    digits of a hash follow."""
    plain = _JOINT.join(part for part in (table.namespace, table.name) if part)
    fits = re.sub(r"[^A-Za-z0-9_]", "_", plain)[: _MAX_NAME - 9]
    namespace, joint, name = plain.partition(_JOINT)
    told = (namespace, name) if joint else (None, plain)
    if fits == plain and told == (table.namespace, table.name):
        return plain
    whole = f"{table.namespace or ''}\0{table.name}"
    return f"{fits}_{hashlib.sha256(whole.encode()).hexdigest()[:8]}"
