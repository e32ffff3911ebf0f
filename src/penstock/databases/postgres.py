"""Describes a query that a Postgres database runs: its columns, and the statement that reads its
rows.

``:cursor`` is bound: its value is a parameter of ``set_config``, and the query has
``current_setting`` in its place, cast to the column's type; the value is never part of a text. No
row is read here. Neighbours: ``postgres_rows`` reads them, ``postgres_session`` connects. The
drivers, psycopg and ADBC, come with ``penstock[postgres]``."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.databases.postgres_session import transaction, words
from penstock.errors import ConfigError
from penstock.model.database_query import CURSOR, DatabaseQuery, DatabaseRead
from penstock.model.types import DataType, Field, Kind

if TYPE_CHECKING:
    import psycopg

SCHEMES = ("postgres://", "postgresql://")
SETTING = "penstock.cursor"
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
_NUMERIC, _REAL, _OID = 1700, 700, 26
_UUID, _TEXTS = 2950, (25, 1042, 1043, 19)
_MOST_DIGITS = 38
_BY_JSON = ("A", "C")  # categories of types: arrays, composites
_AS_THEY_ARE = {16, 20, 21, 23, 701, 1082, 1114, 1184, 17, *_TEXTS}
_AS_TEXT = {114, 3802, _UUID, 1083, 1186, 1266}
"""Types whose cast to text equals their output function, unlike inet and bpchar."""
_ORDERED = {20, 21, 23, 26, 700, 701, _NUMERIC, 1082, 1114, 1184, _UUID, *_TEXTS}


class ResultColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the answer. ``oid``: of its type, whose name is ``type``. ``by_json``: its values
    come as JSON."""

    field: Field
    oid: int
    type: str
    by_json: bool = False


def query_of(query: str, url: str, name: str | None) -> DatabaseQuery:
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
    return DatabaseQuery(url=url, pieces=tuple(pieces), name=name or "query")


def describe(query: DatabaseQuery) -> tuple[ResultColumn, ...]:
    """Gets the columns of the query from the database; reads no row. Raises ``ConfigError``
    (``source.query``), ``SourceError`` (``source.unreachable``)."""
    with transaction(query) as connection:
        return described(connection, query)


def refuse_cursor(query: DatabaseQuery, columns: Sequence[ResultColumn], name: str) -> None:
    """Raises ``ConfigError`` for a cursor whose values are not ordered alike here and in the
    database."""
    of = next((c for c in columns if c.field.source == name), None)
    unordered = of is not None and of.oid == _NUMERIC and of.field.type == _TEXT
    if of is not None and (unordered or of.oid not in _ORDERED):
        raise ConfigError(
            f"stream {query.name}: the cursor {name} is {of.type}, whose order here differs from "
            "the database's",
            code="config.cursor",
            stream=query.name,
            hint="CAST it in the query to an integer, NUMERIC(P, S), text, uuid, date or timestamp",
        )


# -- the columns


def described(
    connection: "psycopg.Connection[Any]", query: DatabaseQuery
) -> tuple[ResultColumn, ...]:
    """Like :func:`describe`, in an open transaction, which holds the query's tables unchanged until
    its end."""
    text = _around(query, "NULL", "SELECT *", " LIMIT 0")
    with _failing(query, _faulty):
        answer = connection.execute(text.encode()).description or ()
    oids = sorted({c.type_code for c in answer})
    types = connection.execute(
        "SELECT oid, typcategory::text, format_type(oid, NULL) FROM pg_type WHERE oid = ANY(%s)",
        (oids,),
    ).fetchall()
    known = {oid: (category, name) for oid, category, name in types}
    found: list[ResultColumn] = []
    for column in answer:
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
    _refuse_names(query, [c.field.name for c in found])
    return tuple(found)


def _decimal(precision: int | None, scale: int | None) -> DataType:
    """Returns a decimal; a numeric without bounds, or wider than a decimal, stays text with every
    digit."""
    scale = scale or 0
    if precision is None or not 0 <= scale <= precision <= _MOST_DIGITS:
        return _TEXT
    return DataType(Kind.decimal, precision=precision, scale=scale)


def statement(read: DatabaseRead, columns: Sequence[ResultColumn]) -> str:
    """Returns the SELECT of the rows, whose columns are named ``c0``, ``c1``, ... Every value comes
    in a form that is the same in Arrow. The cursor's value is that of the setting
    :data:`SETTING`."""
    bound = "NULL"
    if read.cursor is not None:
        of = next(c for c in columns if c.field.source == read.cursor[0])
        bound = f"CAST(current_setting('{SETTING}') AS {of.type})"
        if of.oid in _TEXTS:  # the highest value was found byte by byte
            bound = f"(CAST(current_setting('{SETTING}') AS text) COLLATE \"C\")"
    chosen = ", ".join(f"{_expression(i, c)} AS c{i}" for i, c in enumerate(columns))
    names = ", ".join(f"c{i}" for i in range(len(columns)))
    most = "" if read.limit is None else f" LIMIT {read.limit:d}"
    return _around(read.query, bound, f"SELECT {chosen}", f" ({names}){most}")


def _around(query: DatabaseQuery, bound: str, before: str, after: str) -> str:
    return f"{before} FROM (\n{bound.join(query.pieces)}\n) AS penstock_model{after}"


def _expression(index: int, column: ResultColumn) -> str:
    """Returns the expression of a value in that form; text is what the output function of its type
    writes."""
    name, oid = f"c{index}", column.oid
    if oid in _AS_THEY_ARE:
        return name
    if oid == _OID:
        return f"CAST({name} AS bigint)"
    if oid == _REAL:  # 0.1 stays 0.1
        return f"CAST(CAST({name} AS text) AS double precision)"
    if column.by_json:
        return f"CAST(to_json({name}) AS text)"
    if oid in _AS_TEXT or oid == _NUMERIC:  # ADBC makes text of a numeric too, and takes longer
        return f"CAST({name} AS text)"
    # IS DISTINCT FROM: a record of NULLs is a value
    return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN format('%s', {name}) END"


# -- words


@contextmanager
def _failing(
    query: DatabaseQuery, error: "Callable[[DatabaseQuery, Exception], Exception]"
) -> Generator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as e:
        raise error(query, e) from None


def _faulty(query: DatabaseQuery, failure: Exception) -> ConfigError:
    return ConfigError(
        f"{query.where}: {words(failure)}",
        code="source.query",
        where=query.where,
        problems=[f"{query.where}: {words(failure)}"],
        hint="the message is the database's; a model is one SELECT that it can run",
    )


def _refuse_names(query: DatabaseQuery, names: Sequence[str]) -> None:
    lowered = [name.lower() for name in names]
    problems = [
        f"{query.where}: the column '{name}' comes {lowered.count(name)} times; name each with AS"
        for name in dict.fromkeys(lowered)
        if lowered.count(name) > 1
    ]
    if not names:
        problems = [f"{query.where}: it has no columns"]
    if problems:
        raise ConfigError(
            problems[0],
            code="source.query",
            where=query.where,
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
