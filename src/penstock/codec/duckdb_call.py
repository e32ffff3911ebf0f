"""The one DuckDB of this process, used as a function from Arrow tables to an Arrow table.

No data stays in it. Its JSON functions are built in, so nothing is fetched or loaded from disk. It
is loaded with the first question, for who only plans asks none.
Neighbours: ``codec.bodies`` asks it. A process that forks after the first question must not ask
again: spawn instead.
"""

import threading
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.codec.untyped import Array, Table
from penstock.errors import Defect

if TYPE_CHECKING:
    import duckdb

_lock = threading.Lock()
_root: "duckdb.DuckDBPyConnection | None" = None
_local = threading.local()

# Where one field is a DECIMAL, from_json keeps every number as the text it came as; without it
# numbers that become text pass through a double and lose digits. ``warm`` proves it.
RAW_NUMBERS = "DECIMAL(1,0)"


def configure(threads: int) -> None:
    """Threads of a question (default 1); before or between questions."""
    _cursor().execute(f"SET threads = {int(threads)}")


def ask(sql: str, column: Array) -> Table:
    """The answer to a question over the table ``bodies``, whose one column ``b`` is ``column``; a
    row per row, in order. Raises ``duckdb.Error``."""
    cursor = _cursor()
    _local.given.table = pa.table({"b": column})
    try:
        return cursor.sql(sql).to_arrow_table()
    finally:
        _local.given.table = None


class _Given:
    """What ``bodies`` is at the moment: registered once, for registering takes a millisecond."""

    table: Table = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def warm() -> None:
    """Pay the start-up cost now. Raises ``Defect`` where this DuckDB does not keep digits."""
    text = "12345678901234567890.1234567890"
    body = pa.array([f'{{"x":{text}}}'])
    structure = f'{{"x":"JSON","y":"{RAW_NUMBERS}"}}'
    answer = ask(f"SELECT from_json(b, '{structure}').x AS x FROM bodies", body)
    if answer.column(0)[0].as_py() != text:
        import duckdb

        raise Defect(
            f"DuckDB {duckdb.__version__} does not keep the digits of JSON numbers",
            code="codec.digits",
            hint="install the duckdb version that penstock was locked with",
        )


def refuses() -> type[Exception]:
    """What :func:`ask` raises of an input that DuckDB does not take."""
    import duckdb

    return duckdb.InvalidInputException


def _cursor() -> "duckdb.DuckDBPyConnection":
    cursor = getattr(_local, "cursor", None)
    return _opened() if cursor is None else cursor


def _opened() -> "duckdb.DuckDBPyConnection":
    """This thread's."""
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
        cursor, given = _root.cursor(), _Given()
        given.table = pa.table({"b": pa.array([], pa.string())})
        cursor.register("bodies", given)
        _local.cursor, _local.given = cursor, given
    return cursor
