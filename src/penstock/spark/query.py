"""Analyses and runs a user's SQL queries over the rows of a stream (``spark-sql`` transforms).

A query reads the table ``input``: a common table expression around the query, over a temporary view
with a unique name, so that concurrent loads do not share one and only a query is accepted. Spark's
analysis gives the columns of the result; its error messages are shortened to one line. Not here:
types (``types``), which queries run and what happens to the rows
(``engine.deliver.stream_queries``)."""

import itertools
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ConfigError, DestinationError, LogError, PenstockError
from penstock.model.names import clean_columns
from penstock.model.table_columns import CHANGE_LIST
from penstock.model.types import CHANGES, EXTRA, EXTRACTED_AT, RAW_ID, SEQ, Field, RowSchema
from penstock.spark.error_text import summary
from penstock.spark.shared_folders import write_parquet
from penstock.spark.types import (
    SOURCE_NAME,
    ddl,
    quoted,
    row_schema,
    spark_type,
    struct_type,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T

INPUT = "input"
CODE, FAILED = "transform.query", "transform.failed"
AROUND = "SELECT * FROM (\n{query}\n)"
_WITH_INPUT = f"WITH {INPUT} AS (SELECT * FROM {{view}}) {AROUND}"
_LINES_BEFORE = 1
_MOST_COLUMNS, _MOST_QUERY = 40, 300
_NO_TABLE_HAS = ("map<", "variant", "interval", "geography", "geometry")

_PLACE = re.compile(r"\(?\bline (\d+),? pos (\d+)\)?")
_AROUND_MISSES = ": missing ')'"  # what comes after the query, which Spark expected earlier
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQL_STATE = re.compile(r"[.;]? ?SQLSTATE: .*$")
_VALUE = re.compile(r"'[^']*'")
_views = itertools.count()
DISK_FULL = "No space left on device"


class Query(msgspec.Struct, frozen=True):
    """Holds the SQL text of a query. ``where``: its position in the pipeline file, for errors."""

    text: str
    where: str


class QueryColumns(msgspec.Struct, frozen=True):
    """Holds the columns of a result. ``names``: the last query's name of each column -> the cleaned
    name."""

    schema: RowSchema
    names: dict[str, str]


def answer(
    spark: "SparkSession",
    queries: Sequence[Query],
    given: RowSchema,
    *,
    taken: Mapping[str, str],
    reserved: Sequence[str],
) -> QueryColumns:
    """Returns the result columns of the queries, each applied to the result of the one before, for
    rows of the schema ``given``; Spark analyses them and runs nothing. ``taken``: original ->
    cleaned names of earlier runs; ``reserved``: names of the table's metadata columns. Raises
    ``ConfigError`` (``transform.query``)."""
    rows = spark.createDataFrame([], struct_type(given.fields))
    with _asked(spark, queries, rows, given, taken, reserved) as (_, found):
        return found


def write(
    spark: "SparkSession",
    queries: Sequence[Query],
    rows: "DataFrame",
    given: RowSchema,
    folder: str,
    *,
    taken: Mapping[str, str],
    reserved: Sequence[str],
) -> QueryColumns:
    """Runs the queries over ``rows`` (columns of ``given``, and EXTRACTED_AT) and writes the result
    to ``folder`` as parts: the columns of the answer and the internal ones. Each row gets the
    newest extraction time of the rows, a sequence number in the order of the last query's result,
    and an empty change list. ``taken``, ``reserved``: as in :func:`answer`.

    Raises ``ConfigError`` (``transform.query``), and ``DestinationError`` (``transform.failed``) if
    a query fails on the rows."""
    from pyspark.sql import functions as F

    users = rows.select(*(F.col(quoted(f.name)) for f in given.fields))
    with _asked(spark, queries, users, given, taken, reserved) as (made, found):
        try:
            newest = rows.agg(F.unix_micros(F.max(EXTRACTED_AT)).alias("at")).collect()[0]["at"]
            at = F.current_timestamp() if newest is None else F.timestamp_micros(F.lit(newest))
            answers = made.select(
                "*",
                F.monotonically_increasing_id().alias(SEQ),
                F.expr("uuid()").alias(RAW_ID),
                at.alias(EXTRACTED_AT),
                F.array().cast(ddl(CHANGE_LIST)).alias(CHANGES),
            )
            write_parquet(answers, Path(folder), LogError)
        except Exception as failure:
            if DISK_FULL in str(failure) or isinstance(failure, PenstockError):
                raise  # not the query's fault
            raise _failed(failure, queries[-1]) from None
    return found


@contextmanager
def _asked(
    spark: "SparkSession",
    queries: Sequence[Query],
    rows: "DataFrame",
    given: RowSchema,
    taken: Mapping[str, str],
    reserved: Sequence[str],
) -> "Generator[tuple[DataFrame, QueryColumns]]":
    """Applies the queries to ``rows``, each to the result of the one before, and yields the result
    and its columns; drops the temporary views at the end of the block."""
    views: list[str] = []
    found = QueryColumns(given, {})
    try:
        for query in queries:
            views.append(f"_penstock_input_{os.getpid()}_{next(_views)}")
            rows.createOrReplaceTempView(views[-1])
            frame, columns = _analysed(spark, query, views[-1], found.schema)
            last = query is queries[-1]
            found = _columns(
                columns, query, found.schema, taken if last else {}, reserved if last else ()
            )
            rows = _in_shape(frame, found.schema)
        yield rows, found
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def _analysed(
    spark: "SparkSession", query: Query, view: str, given: RowSchema
) -> "tuple[DataFrame, T.StructType]":
    from pyspark.errors import PySparkException

    silence()
    try:
        frame = spark.sql(_WITH_INPUT.format(view=view, query=query.text))
        found = frame.schema  # a Connect server reads the query only now
    except PySparkException as failure:
        raise _fault([spark_words(failure, query.text)], query, given) from None
    if not _reads_input(spark, query):
        raise _fault(["the query does not read the table input"], query, given)
    return frame, found


def _reads_input(spark: "SparkSession", query: Query) -> bool:
    """Returns whether the query reads ``input``: its analysis without that table fails. True as
    well if the user's catalog has a table of that name, which hides the answer."""
    from pyspark.errors import PySparkException

    try:
        found = spark.sql(AROUND.format(query=query.text)).schema
    except PySparkException:
        return True
    del found
    return spark.catalog.tableExists(INPUT)  # in the user's own catalog: unknown


def _columns(
    found: "T.StructType",
    query: Query,
    given: RowSchema,
    taken: Mapping[str, str],
    reserved: Sequence[str],
) -> QueryColumns:
    """Makes the fields of a result, with cleaned names. A field's original name is the query's, or
    the property's where a column passes unchanged under its own name. Raises ``ConfigError`` for
    duplicate names and for types that no table has."""
    names = [f.name for f in found.fields]
    problems = [
        f"the column '{name}' comes {names.count(name)} times; name each with AS"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    problems += [
        f"the column '{f.name}' is {f.dataType.simpleString()[:80]}, a type of no table; "
        "CAST it to another"
        for f in found.fields
        if unfit(f.dataType)
    ]
    if problems:
        raise _fault(problems, query, given)
    sources = {f.name: f.source for f in given.fields}
    if sources.get(EXTRA) in {f.source for f in row_schema(found).fields}:
        taken = {**taken, EXTRA: EXTRA}
    cleaned = clean_columns(names, taken, reserved)
    fields: list[Field] = []
    for field, typed in zip(found.fields, row_schema(found).fields, strict=True):
        kept = typed.source == sources.get(field.name) and typed.source not in names
        original = typed.source if kept else field.name
        fields.append(Field(cleaned[field.name], original, typed.type))
    return QueryColumns(RowSchema(tuple(fields)), cleaned)


def unfit(kind: "T.DataType") -> bool:
    """Returns whether no table has the type, also inside an array or struct."""
    from pyspark.sql import types as T

    if isinstance(kind, T.ArrayType):
        return unfit(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(unfit(f.dataType) for f in kind.fields)
    return kind.simpleString().startswith(_NO_TABLE_HAS)


def _in_shape(frame: "DataFrame", schema: RowSchema) -> "DataFrame":
    from pyspark.sql import functions as F

    named = frame.toDF(*(f.name for f in schema.fields))
    columns: list[Column] = []
    for field, found in zip(schema.fields, frame.schema.fields, strict=True):
        column, kind = F.col(quoted(field.name)), spark_type(field.type)
        if found.dataType.simpleString() != kind.simpleString():
            column = column.cast(kind)
        columns.append(column.alias(field.name, metadata={SOURCE_NAME: field.source}))
    return named.select(*columns)


# -- words


def _fault(problems: Sequence[str], query: Query, given: RowSchema) -> ConfigError:
    names = [f.name for f in given.fields]
    more = len(names) - _MOST_COLUMNS
    shown = [*names[:_MOST_COLUMNS], *([f"and {more} more"] if more > 0 else [])]
    lines = [f"{query.where}: {problem}" for problem in problems]
    return ConfigError(
        lines[0] if len(lines) == 1 else f"{len(lines)} faults in spark-sql ({query.where})",
        code=CODE,
        where=query.where,
        problems=lines,
        hint=f"the columns of {INPUT} are: {', '.join(shown) or 'none'}",
    )


def _failed(failure: Exception, query: Query) -> DestinationError:
    """Makes the error for a query that failed on rows; quotes none of their values."""
    text = " ".join(query.text.split())
    shown = text if len(text) <= _MOST_QUERY else text[: _MOST_QUERY - 3] + "..."
    words = _VALUE.sub("'...'", spark_words(failure, query.text))
    return DestinationError(
        f"spark-sql failed on the rows: {words}; the query is: {shown}",
        code=FAILED,
        where=query.where,
        hint="correct the query and run again: what was read is kept, and loaded with the query "
        "that "
        "the pipeline file then has",
    )


def spark_words(failure: Exception, text: str) -> str:
    """Shortens Spark's message about a query to one line, with line and position in ``text``, the
    query as the user wrote it."""
    said = summary(failure, limit=2000)
    line = next((x.strip() for x in said.splitlines() if x.strip()), type(failure).__name__)
    line = _SQL_STATE.sub("", _CONDITION.sub("", line))
    line = _PLACE.sub("", line).replace(_AROUND_MISSES, "").strip(" ;")
    place = _PLACE.search(str(failure))
    number = int(place.group(1)) - _LINES_BEFORE if place is not None else 0
    if place is None or number > text.count("\n") + 1:
        return line
    return f"{line} (line {number}, pos {place.group(2)})"


def silence() -> None:
    """Keeps PySpark from printing the exceptions of queries that it raises."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
