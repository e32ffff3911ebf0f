"""Reads a model with Spark, that is a query, a table or files, as the rows of one stream.

Analyses the model, which runs nothing, and writes its rows into a folder as Parquet. Not here: what
a reference means and which queries are refused (``transforms.spark_model``), when rows are written
(``engine.query.query_reader``), Spark's messages in one line (``query``), types (``types``)."""

import datetime
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.codec.csv_lines import CsvDialect
from penstock.errors import ConfigError, LogError, SourceError
from penstock.model.catalog import FieldPath
from penstock.model.database_query import CURSOR, DatabaseQuery
from penstock.model.types import DataType, Field, Kind
from penstock.spark.key_types import retyped
from penstock.spark.parquet_types import TypesDiffer, widened
from penstock.spark.query import AROUND, DISK_FULL, silence, spark_words
from penstock.spark.shared_folders import write_parquet
from penstock.spark.types import data_type, json_text, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T

HANDED_OVER = "rows"
"""The :attr:`Model.where` of rows that a program passes in."""

_QUERY_CODE, _FAILED = "source.query", "source.query_failed"
_BIND = "spark.sql.legacy.parameterSubstitution.constantsOnly"
"""The setting that binds parameters after parsing: the parser of an extension (Delta's) loses those
that Spark 4.1 puts into the text before parsing."""
_AS_TEXT = ("time(", "interval")
_AS_JSON = ("map<", "variant")
_INSIDE_UNFIT = ("variant", "interval", "geography", "geometry", "time(", "void")
_MOST_TEXT = 300
_PYTHON, _RAISED = "from the Python worker", re.compile(r"[\w.]*(?:Error|Exception)\b")
_NANOS = "TIMESTAMP(NANOS"
_NANOS_SAID = (
    ". Spark reads no times of nanoseconds: write the file with microseconds, or set in the "
    'pipeline file `spark: { conf: { spark.sql.legacy.parquet.nanosAsLong: "true" } }`, and they '
    "come as whole numbers: SELECT timestamp_micros(t DIV 1000)"
)
_CANNOT_MERGE = "CANNOT_MERGE_SCHEMAS"
_OF_FILES = ("[FAILED_READ_FILE", f"[{_CANNOT_MERGE}")
"""Prefixes of Spark's messages about files that PySpark raises as Java errors."""


class TextFiles(msgspec.Struct, frozen=True):
    """Files of lines that are records (``spark.text_files``). ``kind``: csv or json. ``dialect``:
    of CSV."""

    kind: str
    dialect: CsvDialect = CsvDialect()


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a model. ``name``: of its stream. ``query``: one SELECT; or, if None, ``format``
    and ``path`` of files that Spark reads with ``options``. ``text``: the files are lines, which
    Penstock's own tasks decode. ``untyped``: columns, and fields of objects, whose values are all
    null and whose type is unknown: they are text here. ``cursor``: the query has the parameter
    :data:`CURSOR`. ``types``: of columns that have another type here than on their own
    (``key_types``). ``tables``: the table format whose tables it reads, if that needs jars.
    ``database``: what runs the query (``databases.postgres``); None: Spark. ``where``: its position
    in the pipeline file, for errors."""

    name: str
    query: str | None = None
    format: str = ""
    path: str = ""
    options: dict[str, str] = {}
    text: TextFiles | None = None
    untyped: tuple[FieldPath, ...] = ()
    cursor: bool = False
    types: dict[str, str] = {}
    tables: str | None = None
    database: DatabaseQuery | None = None
    where: str = "source.use"


def frame(spark: "SparkSession", model: Model, cursor: Any = None) -> "DataFrame":
    """Returns the model's rows as a DataFrame, which runs nothing. ``cursor``: a Python value that
    is bound, never written into the query; None: NULL. Raises ``ConfigError`` (``source.query``)
    with Spark's message."""
    from pyspark.errors import PySparkException

    silence()
    try:
        if model.query is None:
            rows = _of_files(spark, model)
        else:
            if model.cursor:
                spark.conf.set(_BIND, "true")
            given = {CURSOR: cursor} if model.cursor else None
            rows = spark.sql(AROUND.format(query=model.query), args=given)
        rows = retyped(rows, model.types) if model.types else rows
        rows.schema  # noqa: B018  (a Connect server reads the query only now)
    except PySparkException as failure:
        words = spark_words(failure, model.query or "")
        raise fault(model, [words + (_NANOS_SAID if _NANOS in words else "")]) from None
    except TypesDiffer as differ:
        raise fault(model, [str(differ)]) from None
    return rows


def _of_files(spark: "SparkSession", model: Model) -> "DataFrame":
    try:
        rows = spark.read.format(model.format).options(**model.options).load(model.path)
        rows.schema  # noqa: B018  (as in frame)
    except Exception as failure:  # not PySpark's own, where a job of Spark found it
        if _CANNOT_MERGE in str(failure) and model.format == "parquet":
            return widened(spark, model.path)
        said = _shown(failure)
        if said is failure:
            raise
        raise said from None
    return rows


def _shown(failure: Exception) -> Exception:
    """Converts Java's failure to read a file to the exception that PySpark raises for it; returns
    any other failure unchanged."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    text = str(failure)
    if not isinstance(failure, Py4JJavaError) or not any(word in text for word in _OF_FILES):
        return failure
    said = next(line for line in text.splitlines() if any(word in line for word in _OF_FILES))
    return PySparkException(said[said.index("[") :])


def columns(rows: "DataFrame", model: Model) -> tuple[Field, ...]:
    """Returns the columns of a model's rows, with the types of the stream; ``nullable`` as in
    Spark's schema. Raises ``ConfigError`` (``source.query``) for duplicate names and for types that
    no table has."""
    fields = rows.schema.fields
    names = [f.name.lower() for f in fields]
    problems = [
        f"the column '{name}' comes {names.count(name)} times; name each with AS"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    problems += [
        f"the column '{f.name}' is {f.dataType.simpleString()[:80]}, a type of no table; "
        "CAST it to another"
        for f in fields
        if unfit(f.dataType)
    ]
    if not fields:
        problems.append("it has no columns")
    if problems:
        raise fault(model, problems)
    return tuple(Field(f.name, f.name, type_of(f.dataType), f.nullable) for f in fields)


def untyped_columns(rows: "DataFrame", model: Model) -> frozenset[FieldPath]:
    """Returns the columns, and fields of objects, of rows from a program whose values are all null
    and whose type is unknown. A query's NULL is text: its author can CAST it."""
    if model.where != HANDED_OVER:
        return frozenset()
    void = [f.name for f in rows.schema.fields if f.dataType.simpleString() == "void"]
    return frozenset((*model.untyped, *((name,) for name in void)))


def by_position(rows: "DataFrame") -> "list[Column]":
    """Returns the model's columns as ``c0``, ``c1``, ..., with maps and variants as JSON text, and
    times, intervals and void as text, which Parquet lacks."""
    from pyspark.sql import functions as F

    found: list[Column] = []
    for index, field in enumerate(rows.schema.fields):
        column, kind = F.col(quoted(field.name)), field.dataType.simpleString()
        if kind.startswith(_AS_JSON):
            column = json_text(column)
        elif kind.startswith(_AS_TEXT) or kind == "void":
            column = column.cast("string")
        found.append(column.alias(f"c{index}"))
    return found


def write(rows: "DataFrame", folder: Path, model: Model) -> tuple[str, ...]:
    """Runs the model and writes its rows to ``folder`` as Parquet; returns the files that Spark
    wrote, sorted. Raises ``SourceError`` (``source.query_failed``) if the query fails on the
    rows."""
    with failing(model):
        write_parquet(rows, folder, LogError)
    return tuple(sorted(str(p) for p in folder.glob("part-*.parquet")))


@contextmanager
def failing(model: Model) -> "Generator[None]":
    """Raises ``SourceError`` if Spark reports in the block that the query fails on its rows, or
    that a file cannot be read."""
    from pyspark.errors import PySparkException

    try:
        yield
    except Exception as failure:
        said = _shown(failure)
        if not isinstance(said, PySparkException):
            raise
        raise _failed(said, model) from None


def _failed(failure: Exception, model: Model) -> SourceError:
    """Makes the error for a model whose query failed on its rows, or whose rows filled the disk."""
    if DISK_FULL in str(failure):
        return SourceError(
            "the disk is full: the rows of the query could not be written",
            code="log.full",
            hint="free some space where the log lies, then run again",
        )
    text = " ".join((model.query or f"{model.format} {model.path}").split())
    shown = text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."
    said = spark_words(failure, model.query or "")
    if _PYTHON in said:
        said = next((x for x in reversed(str(failure).splitlines()) if _RAISED.match(x)), said)
    return SourceError(
        f"the query failed on its rows: {said}; the query is: {shown}",
        code=_FAILED,
        where=model.where,
        hint="nothing was read and nothing was changed: correct the query and run again",
    )


def highest(rows: "DataFrame", column: str, kind: DataType, model: Model) -> str | None:
    """Returns the highest value of a column of staged rows as the text that the state keeps:
    Spark's text of the value, timestamps in UTC. None if no row has a value; NaN does not count.
    Raises ``SourceError``."""
    from pyspark.sql import functions as F

    value = F.col(column)
    if kind.kind is Kind.number:  # no row comes after NaN; the text of a FLOAT may be above it
        value = F.nanvl(value.cast("double"), F.lit(None))
    top = F.max(value)
    if kind.kind is Kind.timestamp:  # a Python datetime would be in the zone of this machine
        top = F.date_format(top, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    elif kind.kind is Kind.timestamp_ntz:
        top = F.date_format(top, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    with failing(model):
        return rows.agg(top.cast("string").alias("cursor")).collect()[0]["cursor"]


def cursor_value(text: str, kind: DataType) -> Any:
    """Converts the text of :func:`highest` to the Python value that is bound for a column of
    ``kind``; a timestamp without a zone counts as UTC, the session's zone. Raises
    ``ValueError``."""
    made: Mapping[Kind, Any] = {
        Kind.integer: int,
        Kind.number: float,
        Kind.decimal: Decimal,
        Kind.date: datetime.date.fromisoformat,
        Kind.timestamp: _instant,
        Kind.timestamp_ntz: _instant,
    }
    return made.get(kind.kind, str)(text)


def _instant(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


def type_of(kind: "T.DataType") -> DataType:
    """Converts a Spark type like :func:`penstock.spark.types.data_type`, but maps and variants to
    JSON."""
    from pyspark.sql import types as T

    if kind.simpleString().startswith(_AS_JSON):
        return DataType(Kind.json)
    if isinstance(kind, T.ArrayType):
        return DataType(Kind.array, item=type_of(kind.elementType))
    if isinstance(kind, T.StructType):
        inner = (Field(f.name, f.name, type_of(f.dataType)) for f in kind.fields)
        return DataType(Kind.struct, fields=tuple(inner))
    return data_type(kind)


def unfit(kind: "T.DataType", inside: bool = False) -> bool:
    """Returns whether no table can have the type. ``inside``: as part of another type, where it
    cannot become text."""
    from pyspark.sql import types as T

    if isinstance(kind, T.ArrayType):
        return unfit(kind.elementType, True)
    if isinstance(kind, T.MapType):
        return unfit(kind.keyType, True) or unfit(kind.valueType, True)
    if isinstance(kind, T.StructType):
        return not kind.fields or any(unfit(f.dataType, True) for f in kind.fields)
    known = _INSIDE_UNFIT if inside else ("geography", "geometry")
    return kind.simpleString().startswith(known)


def fault(model: Model, problems: list[str], hint: str | None = None) -> ConfigError:
    """Makes the error for a model that cannot be read. ``hint``: what to do about it."""
    lines = [f"{model.where}: {problem}" for problem in problems]
    return ConfigError(
        lines[0] if len(lines) == 1 else f"{len(lines)} faults in the query",
        code=_QUERY_CODE,
        where=model.where,
        problems=lines,
        hint=hint
        or "a source that Spark reads is a SELECT, a table of its catalog, or a path of files",
    )
