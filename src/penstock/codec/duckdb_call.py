"""Runs SQL over one Arrow column by the process's only DuckDB, which keeps no data.

DuckDB's JSON functions are built in, so nothing is downloaded or loaded from disk. The first query
imports it: a process that only plans never loads it. Before the first query the guard checks that
this version keeps the digits of numbers; if it does not, every query of the process fails. A
process that forks after the first query must not query again: spawn instead. Neighbours:
``codec.bodies``, ``codec.values`` and ``codec.json_text`` make the queries."""

import threading
from typing import TYPE_CHECKING

from penstock.codec.untyped import Array, Table, pa
from penstock.config.packages import install
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import duckdb

_lock = threading.Lock()
_root: "duckdb.DuckDBPyConnection | None" = None
_local = threading.local()

# If one field of its structure is a DECIMAL, from_json keeps every number's own text; without it
# numbers that become text pass through a double and lose digits. 2.0.1 ignores it.
RAW_NUMBERS = "DECIMAL(1,0)"


_NUMBERS = (
    "12345678901234567890.1234567890",
    "0.1000000000000000055",
    "9007199254740993",
    "123456789012345678901234567890",
    "1.50",
    "-0",
    "1E+2",
    "1e400",
)
"""Numbers that a double cannot hold, or writes differently."""


def run_query(sql: str, column: Array) -> Table:
    """Runs ``sql`` over the table ``bodies``, whose only column ``b`` is ``column``; returns one
    row per row of the column, in order. Raises ``duckdb.Error``."""
    cursor = _cursor()
    _local.bodies.table = pa.table({"b": column})
    try:
        return cursor.sql(sql).to_arrow_table()
    finally:
        _local.bodies.table = None


class _CurrentBodies:
    """Gives DuckDB the current table ``bodies``. Registered once per thread, since registering
    takes a millisecond."""

    table: Table = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def warm() -> None:
    """Opens this process's DuckDB, so that the first query pays no start-up. Like every query,
    raises ``ConfigError`` (``config.duckdb``) if this DuckDB version does not keep the digits of
    numbers."""
    _cursor()


def version() -> str:
    """Returns the version of DuckDB that is installed."""
    import duckdb

    return duckdb.__version__


def input_errors() -> tuple[type[Exception], ...]:
    """Returns the classes of DuckDB's errors for an input that it cannot process. If its message
    quotes bytes that are not UTF-8, some Pythons raise the second instead."""
    import duckdb

    return duckdb.InvalidInputException, UnicodeDecodeError


def _cursor() -> "duckdb.DuckDBPyConnection":
    cursor = getattr(_local, "cursor", None)
    return _open_cursor() if cursor is None else cursor


def _open_cursor() -> "duckdb.DuckDBPyConnection":
    """Opens this thread's cursor, and the process's DuckDB with the first."""
    global _root
    import duckdb

    with _lock:
        if _root is None:
            root = duckdb.connect(
                config={
                    "threads": 1,
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                }
            )
            _guard(root)
            _root = root
        cursor, bodies = _root.cursor(), _CurrentBodies()
        cursor.execute("SET enable_progress_bar = false")
        bodies.table = pa.table({"b": pa.array([], pa.string())})
        cursor.register("bodies", bodies)
        _local.cursor, _local.bodies = cursor, bodies
    return cursor


def _guard(root: "duckdb.DuckDBPyConnection") -> None:
    """Raises ``ConfigError`` if numbers lose digits in the queries that ``codec.bodies`` makes."""
    numbers = ", ".join(f"('{number}')" for number in _NUMBERS)
    structure = f'{{"x":"JSON","list":["VARCHAR"],"y":"{RAW_NUMBERS}"}}'
    lost = root.execute(
        f"SELECT n, s.x, s.list[1] FROM (SELECT n, from_json('{{\"x\":' || n || ',\"list\":[' || n "
        f"|| ']}}', '{structure}') AS s FROM (VALUES {numbers}) AS numbers (n)) "
        "WHERE s.x IS DISTINCT FROM n OR s.list[1] IS DISTINCT FROM n"
    ).fetchone()
    if lost is not None:
        raise ConfigError(
            f"DuckDB {version()} does not keep the digits of JSON numbers: it reads {lost[0]} as "
            f"{lost[1]}, so no record was decoded",
            code="config.duckdb",
            hint=install(_permitted()),
        )


def _permitted() -> str:
    """Returns the requirement of DuckDB that this package states."""
    from importlib import metadata  # an import of 100 ms, for a sentence of an error

    stated = metadata.requires("penstock") or ()
    return next((r for r in stated if r.startswith("duckdb")), "duckdb")
