"""Runs SQL over one Arrow column by the process's only DuckDB, which keeps no data.

DuckDB's JSON functions are built in, so that nothing is downloaded or loaded from disk. It is
imported by the first query: a process that only plans never loads it. A process that forks after
the first query must not query again: spawn instead. Neighbours: ``codec.bodies``, ``codec.values``
and ``codec.json_text`` make the queries.
"""

import threading
from typing import TYPE_CHECKING

from penstock.codec.untyped import Array, Table, pa
from penstock.errors import Defect

if TYPE_CHECKING:
    import duckdb

_lock = threading.Lock()
_root: "duckdb.DuckDBPyConnection | None" = None
_local = threading.local()

# If one field of its structure is a DECIMAL, from_json keeps every number's own text; without it
# numbers that become text pass through a double and lose digits. ``warm`` checks this.
RAW_NUMBERS = "DECIMAL(1,0)"


def run_query(sql: str, column: Array) -> Table:
    """Runs ``sql`` over the table ``bodies``, whose only column ``b`` is ``column``; returns a row
    per row of it, in order. Raises ``duckdb.Error``."""
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
    """Runs a first query, so that later ones pay no start-up. Raises ``Defect`` (``codec.digits``)
    where this DuckDB version does not keep the digits of numbers."""
    text = "12345678901234567890.1234567890"
    body = pa.array([f'{{"x":{text}}}'])
    structure = f'{{"x":"JSON","y":"{RAW_NUMBERS}"}}'
    result = run_query(f"SELECT from_json(b, '{structure}').x AS x FROM bodies", body)
    if result.column(0)[0].as_py() != text:
        import duckdb

        raise Defect(
            f"DuckDB {duckdb.__version__} does not keep the digits of JSON numbers",
            code="codec.digits",
            hint="install the duckdb version that penstock was locked with",
        )


def input_error_class() -> type[Exception]:
    """The class of DuckDB's error for an input that it cannot process."""
    import duckdb

    return duckdb.InvalidInputException


def _cursor() -> "duckdb.DuckDBPyConnection":
    cursor = getattr(_local, "cursor", None)
    return _open_cursor() if cursor is None else cursor


def _open_cursor() -> "duckdb.DuckDBPyConnection":
    """Opens this thread's cursor, and the process's DuckDB with the first."""
    global _root
    import duckdb

    with _lock:
        if _root is None:
            _root = duckdb.connect(
                config={
                    "threads": 1,
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                }
            )
        cursor, bodies = _root.cursor(), _CurrentBodies()
        bodies.table = pa.table({"b": pa.array([], pa.string())})
        cursor.register("bodies", bodies)
        _local.cursor, _local.bodies = cursor, bodies
    return cursor
