"""Reads a model whose query a Postgres database runs: its columns, and its rows as Parquet files.

The rows come by ``COPY``, in blocks, and are parsed by column. The query runs in one read-only
transaction. ``:cursor`` is bound: its value is a parameter of ``set_config``, and the query has
``current_setting`` in its place, cast to the column's type; never is it part of a text. Not here:
the connection (``postgres_session``), queries that Spark runs (``model``), when rows are read
(``engine.query.query_reader``). The driver, psycopg, comes with ``penstock[postgres]``.
"""

import io
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import ConfigError, SourceError
from penstock.model.types import DataType, Field, Kind
from penstock.spark.model import CURSOR, Model, QueryDatabase
from penstock.spark.postgres_session import Silence, cancelled_when, transaction, unreachable, words

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

BLOCK_BYTES = 8 << 20
SCHEMES = ("postgres://", "postgresql://")
_FILE_BYTES = 256 << 20  # of text in one Parquet file
_SETTING = "penstock.cursor"
_TOKEN = re.compile(
    r"--[^\n]*"
    r"|/\*.*?\*/"
    r"|[eE]'(?:[^'\\]|\\.|'')*'"
    r"|'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|\$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$"
    r"|[A-Za-z_][\w$]*"
    r"|::"
    r"|:(?P<parameter>[A-Za-z_]\w*)"
    r"|(?P<end>;)"
    r"|(?P<blank>\s+)"
    r"|.",
    re.DOTALL,
)
_COMMENTS = ("--", "/*")
_TEXT, _JSON = DataType(Kind.string), DataType(Kind.json)
_KINDS = {
    16: DataType(Kind.boolean),
    20: DataType(Kind.integer),
    21: DataType(Kind.integer),
    23: DataType(Kind.integer),
    26: DataType(Kind.integer),
    700: DataType(Kind.number),
    701: DataType(Kind.number),
    1082: DataType(Kind.date),
    1114: DataType(Kind.timestamp_ntz),
    1184: DataType(Kind.timestamp),
    17: DataType(Kind.binary),
    114: _JSON,
    3802: _JSON,
}
_NUMERIC, _TIMESTAMP, _BINARY = 1700, 1184, 17
_UUID, _TEXTS = 2950, (25, 1042, 1043, 19)
_MOST_DIGITS = 38
_BY_JSON = ("A", "C")  # categories of types: arrays, composites
_ORDERED = {20, 21, 23, 26, 700, 701, _NUMERIC, 1082, 1114, 1184, _UUID, *_TEXTS}


class ResultColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the answer. ``oid``: of its type, which is called ``type``. ``by_json``: its
    values come as JSON."""

    field: Field
    oid: int
    type: str
    by_json: bool = False


def model_of(query: str, url: str, name: str | None) -> Model:
    """Reads a query that the database at ``url`` runs. Raises ``ConfigError`` (``source.query``,
    ``source.datasource``)."""
    if not url.startswith(SCHEMES):
        raise ConfigError(
            f"source.config.datasource: {_scheme(url)} cannot be queried",
            code="source.datasource",
            where="source.config.datasource",
            hint="give postgres://USER:PASSWORD@HOST/DATABASE, or leave it out: Spark reads the"
            " query then",
        )
    pieces, at, last = list[str](), 0, 0
    ended = False
    for token in _TOKEN.finditer(query):
        said = token[0].startswith(_COMMENTS) or token["blank"] is not None
        if token["end"] is not None:
            ended = True
        elif not said:
            if ended:
                raise _refused("a model is one statement", "leave out what follows the ';'")
            last = token.end()
        if token["parameter"] == CURSOR:
            pieces.append(query[at : token.start()])
            at = token.end()
    pieces.append(query[at:last])
    if not "".join(pieces).strip():
        raise _refused("the query is empty", "write a SELECT")
    return Model(
        name=name or "query",
        query=query,
        cursor=len(pieces) > 1,
        database=QueryDatabase(url=url, pieces=tuple(pieces)),
    )


def describe(model: Model) -> tuple[ResultColumn, ...]:
    """Asks the database for the columns of the query; no row is read. Raises ``ConfigError``
    (``source.query``), ``SourceError`` (``source.unreachable``)."""
    with transaction(model, Silence()) as connection:
        return _described(connection, model)


def fetch(
    model: Model,
    folder: Path,
    *,
    cursor: tuple[str, str] | None = None,
    limit: int | None = None,
    stopped: Callable[[], bool],
    every: float,
) -> tuple[ResultColumn, ...]:
    """Runs the query and writes its rows to ``folder`` as Parquet files, whose columns are called
    ``c0``, ``c1``, ...; returns the columns. ``cursor``: a column, and the value as text that
    ``:cursor`` is bound to; None: NULL. ``stopped``: asked every so many seconds; where it says so
    the query is cancelled. Raises as :func:`describe`, and ``SourceError``
    (``source.query_failed``) where the query fails on its rows."""
    folder.mkdir(mode=0o700, parents=True)
    silent = Silence()
    with (
        transaction(model, silent) as connection,
        cancelled_when(connection, model, silent, stopped, every),
    ):
        columns = _described(connection, model)
        bound = "NULL"
        if cursor is not None:
            name, value = cursor
            of = next(c for c in columns if c.field.source == name)
            connection.execute("SELECT set_config(%s, %s, true)", (_SETTING, value))
            bound = f"CAST(current_setting('{_SETTING}') AS {of.type})"
            if of.oid in _TEXTS:  # the highest value was found byte by byte
                bound = f"(CAST(current_setting('{_SETTING}') AS text) COLLATE \"C\")"
        chosen = ", ".join(_expression(i, c) for i, c in enumerate(columns))
        names = ", ".join(f"c{i}" for i in range(len(columns)))
        most = "" if limit is None else f" LIMIT {limit:d}"
        text = _around(model, bound, f"SELECT {chosen}", f" ({names}){most}")
        with (
            _failing(model, _failed),
            connection.cursor().copy(f"COPY ({text}) TO STDOUT (FORMAT csv)".encode()) as rows,
        ):
            _write(rows, columns, folder, model)
    return columns


def frame(spark: "SparkSession", folder: Path, columns: Sequence[ResultColumn]) -> "DataFrame":
    """Returns the rows that :func:`fetch` wrote as a DataFrame with the columns' names."""
    from pyspark.sql import functions as F

    rows = spark.read.parquet(str(folder))
    return rows.select(*(F.col(f"c{i}").alias(c.field.name) for i, c in enumerate(columns)))


def refuse_cursor(model: Model, columns: Sequence[ResultColumn], name: str) -> None:
    """Raises ``ConfigError`` for a cursor whose values have no order that is the same here and in
    the database."""
    of = next((c for c in columns if c.field.source == name), None)
    unordered = of is not None and of.oid == _NUMERIC and of.field.type == _TEXT
    if of is not None and (unordered or of.oid not in _ORDERED):
        raise ConfigError(
            f"stream {model.name}: the cursor {name} is {of.type}, whose values are not ordered"
            " here as in the database",
            code="config.cursor",
            stream=model.name,
            hint="CAST it in the query to an integer, NUMERIC(P, S), text, uuid, date or timestamp",
        )


# -- the columns


def _described(connection: "psycopg.Connection[Any]", model: Model) -> tuple[ResultColumn, ...]:
    text = _around(model, "NULL", "SELECT *", " LIMIT 0")
    with _failing(model, _faulty):
        described = connection.execute(text.encode()).description or ()
    oids = sorted({c.type_code for c in described})
    types = connection.execute(
        "SELECT oid, typcategory::text, format_type(oid, NULL) FROM pg_type WHERE oid = ANY(%s)",
        (oids,),
    ).fetchall()
    known = {oid: (category, name) for oid, category, name in types}
    found: list[ResultColumn] = []
    for column in described:
        oid = column.type_code
        category, name = known.get(oid, ("", "text"))
        kind = _KINDS.get(oid)
        by_json = kind is None and category in _BY_JSON
        if oid == _NUMERIC:
            kind = _decimal(column.precision, column.scale)
        found.append(
            ResultColumn(
                field=Field(column.name, column.name, kind or (_JSON if by_json else _TEXT)),
                oid=oid,
                type=name,
                by_json=by_json,
            )
        )
    _refuse_names(model, [c.field.name for c in found])
    return tuple(found)


def _decimal(precision: int | None, scale: int | None) -> DataType:
    """A numeric without bounds, or wider than a decimal is, stays text with every digit."""
    scale = scale or 0
    if precision is None or not 0 <= scale <= precision <= _MOST_DIGITS:
        return _TEXT
    return DataType(Kind.decimal, precision=precision, scale=scale)


def _around(model: Model, bound: str, before: str, after: str) -> str:
    assert model.database is not None
    query = bound.join(model.database.pieces)
    return f"{before} FROM (\n{query}\n) AS penstock_model{after}"


def _expression(index: int, column: ResultColumn) -> str:
    name = f"c{index}"
    if column.by_json:
        return f"to_json({name})"
    if column.oid == _TIMESTAMP:
        return f"{name} AT TIME ZONE 'UTC'"
    if column.oid == _BINARY:
        return f"encode({name}, 'hex')"
    return name


# -- rows


def _write(
    rows: "Iterable[Any]", columns: Sequence[ResultColumn], folder: Path, model: Model
) -> None:
    """Writes blocks of CSV as Parquet; there is one file at least."""
    import pyarrow.parquet as pq

    schema, number, size = _schema(columns), 0, 0
    writer = pq.ParquetWriter(str(folder / f"part-{number:05d}.parquet"), schema)
    try:
        for block in _blocks(rows):
            if size > _FILE_BYTES:
                writer.close()
                number, size = number + 1, 0
                writer = pq.ParquetWriter(str(folder / f"part-{number:05d}.parquet"), schema)
            writer.write_table(_table(block, columns, schema, model))
            size += len(block)
    finally:
        writer.close()


def _blocks(rows: "Iterable[Any]") -> Generator[bytes]:
    """Whole rows: each message of COPY is one."""
    block = bytearray()
    for row in rows:
        block += row
        if len(block) >= BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _schema(columns: Sequence[ResultColumn]) -> Any:
    import pyarrow as pa

    return pa.schema([(f"c{i}", _arrow(c.field.type)) for i, c in enumerate(columns)])


def _arrow(kind: DataType) -> Any:
    import pyarrow as pa

    made: dict[Kind, Any] = {
        Kind.boolean: pa.bool_(),
        Kind.integer: pa.int64(),
        Kind.number: pa.float64(),
        Kind.date: pa.date32(),
        Kind.timestamp_ntz: pa.timestamp("us"),
        Kind.timestamp: pa.timestamp("us", tz="UTC"),
        Kind.binary: pa.binary(),
    }
    if kind.kind is Kind.decimal:
        return pa.decimal128(kind.precision or _MOST_DIGITS, kind.scale or 0)
    return made.get(kind.kind, pa.string())


def _table(block: bytes, columns: Sequence[ResultColumn], schema: Any, model: Model) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    texts = {Kind.binary: pa.string(), Kind.timestamp: pa.timestamp("us")}
    types = {
        f"c{i}": texts.get(c.field.type.kind, schema.field(i).type) for i, c in enumerate(columns)
    }
    try:
        table = csv.read_csv(
            io.BytesIO(block),
            # one block: a row may be longer than any bound
            read_options=csv.ReadOptions(column_names=list(types), block_size=len(block) + 1),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as e:
        said = str(e).partition("\n")[0]
        raise SourceError(
            f"a value of the query's rows fits no column: {said}",
            code="source.query_failed",
            stream=model.name,
            hint="dates like 'infinity' and NUMERIC's NaN have no equal: CAST the column to text",
        ) from None
    made: list[Any] = []
    for index, column in enumerate(columns):
        values = table.column(index)
        if column.field.type.kind is Kind.binary:
            values = pa.chunked_array(
                [pa.array([None if v is None else bytes.fromhex(v) for v in values.to_pylist()],
                          pa.binary())]
            )  # fmt: skip
        made.append(values.cast(schema.field(index).type))
    return pa.table(made, schema=schema)


# -- words


@contextmanager
def _failing(model: Model, error: "Callable[[Model, Exception], Exception]") -> Generator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as e:
        raise error(model, e) from None


def _faulty(model: Model, failure: Exception) -> ConfigError:
    return ConfigError(
        f"{model.where}: {words(failure)}",
        code="source.query",
        where=model.where,
        problems=[f"{model.where}: {words(failure)}"],
        hint="the words are the database's; a model is one SELECT that it can run",
    )


def _failed(model: Model, failure: Exception) -> SourceError:
    if getattr(failure, "sqlstate", None) is None:  # the connection was lost
        return unreachable(failure)
    return SourceError(
        f"the query failed on its rows: {words(failure)}",
        code="source.query_failed",
        stream=model.name,
        where=model.where,
        hint="nothing was read and nothing was changed: mend the query and run again",
    )


def _refuse_names(model: Model, names: Sequence[str]) -> None:
    lowered = [name.lower() for name in names]
    problems = [
        f"{model.where}: the column '{name}' comes {lowered.count(name)} times; name each with AS"
        for name in dict.fromkeys(lowered)
        if lowered.count(name) > 1
    ]
    if not names:
        problems = [f"{model.where}: it has no columns"]
    if problems:
        raise ConfigError(
            problems[0],
            code="source.query",
            where=model.where,
            problems=problems,
            hint="every column needs a name of its own",
        )


def _refused(what: str, advice: str) -> ConfigError:
    where = "source.use"
    return ConfigError(
        f"{where}: {what}",
        code="source.query",
        where=where,
        problems=[f"{where}: {what}"],
        hint=advice,
    )


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    return f"{scheme}://" if found else "it"
