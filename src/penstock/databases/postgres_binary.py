"""Runs statements on a Postgres by ADBC's driver, which reads rows by binary ``COPY`` into Arrow.

Uses the driver's plain interface: its DBAPI also imports what makes frames (polars, if it is
installed, and ``pyarrow.dataset``), an eighth of a second of a short run. Calls of one connection
come from one thread. Not here: which statements (``postgres_rows``), connections of psycopg
(``postgres_session``). The driver comes with ``penstock[postgres]``."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from penstock.codec.untyped import pa
from penstock.databases.postgres_session import connection_words, driver_missing, unreachable
from penstock.model.database_query import DatabaseQuery

BLOCK_BYTES = 8 << 20


class BinaryConnection:
    """A connection; every statement is committed by itself, unless it is inside BEGIN. A context
    manager. Methods raise ``adbc_driver_manager.Error``, also ``OSError`` and Arrow's errors."""

    def __init__(self, query: DatabaseQuery) -> None:
        """Raises ``ConfigError`` (``source.driver_missing``), ``SourceError``
        (``source.unreachable``)."""
        try:
            import adbc_driver_manager
            import adbc_driver_postgresql
        except ImportError:
            raise driver_missing() from None
        self._adbc: Any = adbc_driver_manager
        words = connection_words(query)
        with ExitStack() as opened:
            try:
                database = opened.enter_context(adbc_driver_postgresql.connect(words))
                self._connection = opened.enter_context(
                    adbc_driver_manager.AdbcConnection(database)
                )
            except adbc_driver_manager.Error as e:
                raise unreachable(e) from None
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def run(self, sql: str) -> None:
        """Runs a statement that has no rows."""
        with self._adbc.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            statement.execute_update()

    def value(self, sql: str, *parameters: str) -> Any:
        """Returns the first value of an answer; None: it has no row. ``parameters``: for ``$1``,
        ``$2``."""
        with self._adbc.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            if parameters:
                names = [str(index) for index in range(len(parameters))]
                statement.bind(pa.record_batch([[each] for each in parameters], names=names))
            answer, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(answer) as rows:
                table = rows.read_all()
        return table.column(0)[0].as_py() if table.num_rows else None

    @contextmanager
    def rows(self, sql: str) -> Generator[Any]:
        """Runs a query, and gives the reader of its rows: record batches of about
        :data:`BLOCK_BYTES`."""
        with self._adbc.AdbcStatement(self._connection) as statement:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BLOCK_BYTES)})
            statement.set_sql_query(sql)
            answer, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(answer) as batches:
                yield batches
