"""Reads the rows of a query that Postgres runs as Arrow tables, in a task of Spark.

The rows come by binary ``COPY``, which is parsed by column, without Python's lock. One transaction
describes the query and exports its snapshot; the one that reads imports it, so that columns and
rows come from one state of the database. The reader never waits for long: it gets a block, or None.
A query whose reader goes away is cancelled; the server cancels one whose reader died (Postgres 14
and later).

Not here: what the rows become (``engine.worker.database_source``, ``database_files``). Neighbours:
``postgres`` has the statement, ``postgres_binary`` and ``postgres_session`` the connections."""

import re
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import Any

from penstock.byte_queue import ByteQueue, QueueAbandoned, QueueEnd, TooLong, WriterFailed
from penstock.codec.arrow import arrow_type
from penstock.codec.untyped import Array, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.databases.postgres import SETTING, ResultColumn, described, statement
from penstock.databases.postgres_binary import BLOCK_BYTES, BinaryConnection
from penstock.databases.postgres_session import (
    CANCEL_SECONDS,
    SESSION,
    ServerWatch,
    cancel,
    transaction,
    unreachable,
    words,
)
from penstock.errors import SourceError
from penstock.model.database_query import DatabaseQuery, DatabaseRead
from penstock.model.types import DataType, Kind

_AHEAD_BYTES = 2 * BLOCK_BYTES
_CHECK = "client_connection_check_interval"  # Postgres 14
_ENDS_WITH_ITS_READER = (
    f"SELECT set_config(name, '10s', true) FROM pg_settings WHERE name = '{_CHECK}'"
    " AND version() !~* 'msvc|visual c|mingw|windows'"  # which cannot look at a connection
)
_SERVER_SAID = re.compile(r"\b[A-Z]{3,}: {2}([^\n]+)")  # ERROR, in the server's language
_DAYS = (-719_162, 2_932_896)  # of the years 1 to 9999
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


class DatabaseRows:
    """Reads a query once. ``columns``: of the result, available after the first row or the end."""

    def __init__(self, read: DatabaseRead, every: float) -> None:
        """``every``: the most seconds after which :meth:`tables` yields."""
        self._read, self._every = read, every
        self._queue: ByteQueue[Any] = ByteQueue(_AHEAD_BYTES)
        self._session: int | None = None
        self.columns: tuple[ResultColumn, ...] = ()

    def tables(self) -> Generator[Table | None]:
        """Yields the rows, under the columns' names; None while there are none yet. Raises
        ``ConfigError`` (``source.query``), ``SourceError`` (``source.unreachable``,
        ``source.query_failed``). Close it always: that cancels the query."""
        thread = threading.Thread(target=self._pull, name="database", daemon=True)
        thread.start()
        try:
            with ServerWatch(self._read.query) as watch:
                while True:
                    try:
                        block = self._queue.get(self._every)
                    except TooLong:
                        if watch.gone:
                            silent = "it no longer answers"
                            raise unreachable(ConnectionError(silent)) from None
                        block = None
                    except WriterFailed as e:
                        raise e.cause from None
                    if isinstance(block, QueueEnd):
                        return
                    yield None if block is None else _table(block, self.columns, self._read.query)
        finally:
            self._queue.abandon()
            if thread.is_alive() and self._session is not None:
                cancel(self._read.query, self._session)
            thread.join(CANCEL_SECONDS)  # the process's end ends it too

    def _pull(self) -> None:
        try:
            with BinaryConnection(self._read.query) as connection:
                for block in self._blocks(connection):
                    self._queue.put(block, block.nbytes)
        except QueueAbandoned:
            return
        except BaseException as e:  # raised again in the reading thread
            self._queue.fail(_failed(self._read.query, e))
            return
        self._queue.end()

    def _blocks(self, connection: BinaryConnection) -> "Generator[Any]":
        """Yields the answer in record batches."""
        with ExitStack() as opened:
            with transaction(self._read.query) as described_in:
                found = described_in.execute("SELECT pg_export_snapshot()").fetchone()
                assert found is not None
                self.columns = described(described_in, self._read.query)
                self._begin(connection, str(found[0]))
                rows = opened.enter_context(connection.rows(statement(self._read, self.columns)))
            # The reading transaction has the tables now: the other one need not live as long.
            yield from rows

    def _begin(self, connection: BinaryConnection, snapshot: str) -> None:
        connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.run(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        for setting in SESSION:
            connection.run(setting.replace("SET ", "SET LOCAL ", 1))
        connection.value(_ENDS_WITH_ITS_READER)
        if self._read.cursor is not None:
            connection.value("SELECT set_config($1, $2, true)", SETTING, self._read.cursor[1])
        self._session = connection.value("SELECT pg_backend_pid()")


# -- rows


def arrow_of(kind: DataType) -> Any:
    """Returns the Arrow type of a column of the answer."""
    return pa.string() if kind.kind is Kind.json else arrow_type(kind)


def _table(block: Any, columns: Sequence[ResultColumn], query: DatabaseQuery) -> Table:
    try:
        made = [_values(block.column(i), c) for i, c in enumerate(columns)]
    except (pa.ArrowInvalid, ValueError) as e:
        said = str(e).partition("\n")[0]
        raise SourceError(
            f"a value of the query's rows fits no column: {said}",
            code="source.query_failed",
            stream=query.name,
            hint="dates like 'infinity' and NUMERIC's NaN have no counterpart: CAST the column to "
            "text",
        ) from None
    fields = [pa.field(c.field.name, a.type) for c, a in zip(columns, made, strict=True)]
    return pa.Table.from_arrays(made, schema=pa.schema(fields))


def _values(values: Array, column: ResultColumn) -> Array:
    kind = column.field.type.kind
    if kind is Kind.date:
        _refuse_beyond(values.view(pa.int32()), _DAYS, column)
    elif kind in (Kind.timestamp, Kind.timestamp_ntz):
        _refuse_beyond(values.view(pa.int64()), _MICROS, column)
    elif kind in (Kind.string, Kind.json):
        values.validate(full=True)  # a database may hold bytes that are not valid text
    return pc.cast(values, arrow_of(column.field.type))


def _refuse_beyond(numbers: Array, years: tuple[int, int], column: ResultColumn) -> None:
    least, most = pc.min_max(numbers).as_py().values()
    if least is not None and not years[0] <= least <= most <= years[1]:
        raise ValueError(f"{column.field.name} has a date that is not in the years 1 to 9999")


def _failed(query: DatabaseQuery, failure: BaseException) -> BaseException:
    """Makes the error for a failure of the database, with its message and without the lines after
    it, which may have values. Returns any other failure unchanged."""
    import psycopg
    from adbc_driver_manager import Error

    if not isinstance(failure, (psycopg.Error, Error, OSError, pa.ArrowException)):
        return failure
    said = _SERVER_SAID.search(str(failure))
    message = said[1].strip() if said is not None else None
    if isinstance(failure, psycopg.Error) and failure.sqlstate is not None:
        message = words(failure)
    if message is None:  # the connection was lost
        return unreachable(ConnectionError(" ".join(str(failure).split())[:300]))
    return SourceError(
        f"the query failed on its rows: {message}",
        code="source.query_failed",
        stream=query.name,
        where=query.where,
        hint="nothing was read and nothing was changed: correct the query and run again",
    )
