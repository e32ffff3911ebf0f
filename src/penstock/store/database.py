"""Opens a store's SQLite or Postgres database: connections, transactions, locks, clock, errors.

SQLite and Postgres differ here, and in ``task_keys``, which opens a task's own connection. Not
here: tables (``schema``), what is written in them (``sql``, ``ledger``). Every wait is bounded
(L11). No stored value reaches the text of an error: connector configuration is stored too (L10).
"""

import sqlite3
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    CursorResult,
    Engine,
    Select,
    Table,
    bindparam,
    create_engine,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from penstock.errors import StateError
from penstock.files import write_new
from penstock.store import database_url, schema
from penstock.store.database_url import BUSY_SECONDS

_STORE_LOCK = 0x70656E73746F636B  # Postgres advisory lock of everything that is not one pipeline's
_WRITE = "penstock_write"


class Database:
    """Runs transactions on one open database; safe for use by several threads. ``place``: the file
    or the URL without its password, for messages. Any call raises ``StateError`` in place of the
    database's exceptions."""

    def __init__(self, engine: Engine, place: str) -> None:
        self.place = place
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Opens a read transaction: on SQLite one snapshot, which blocks no writer."""
        with self._errors(), self._engine.connect() as conn:
            yield conn

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Opens a write transaction: committed at the end of the block, rolled back on any
        exception. On SQLite it excludes every other writer from its start."""
        with self._errors(), self._engine.connect() as conn:
            conn = conn.execution_options(**{_WRITE: True})
            with conn.begin():
                yield conn

    def lock_store(self, conn: Connection) -> None:
        """Excludes other transactions that call this, until this write transaction ends."""
        if not self._is_sqlite:
            conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _STORE_LOCK})

    def now(self, conn: Connection) -> float:
        """Returns seconds since 1970 by the store's own clock: for Postgres the server's."""
        if self._is_sqlite:
            return time.time()
        return float(conn.scalar(text("SELECT extract(epoch FROM clock_timestamp())")) or 0)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            # Neither the statement's parameters nor the server's DETAIL may travel on: see charter.
            raise _as_state_error(error, self.place) from None


def open_sqlite(path: Path) -> Database:
    """Opens or creates a SQLite file; it and its ``-wal`` and ``-shm`` files have mode 0600.
    Raises ``StateError``; another program's database is refused (``state.not_a_store``) as it is.
    """
    with _file_errors(path):
        _create_file(path)
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS, "isolation_level": None},
        hide_parameters=True,
    )

    def set_up(connection: sqlite3.Connection, _record: Any) -> None:
        _refuse_other_programs(connection, path)
        with _file_errors(path):
            _make_private(path)
        _set_up_sqlite(connection)

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin_sqlite)
    return _migrated(Database(engine, str(path)))


def open_postgres(url: str) -> Database:
    """Opens a store in a Postgres database. ``url``: as
    ``postgresql://user:password@host:port/database``, with any libpq option after ``?``. Raises
    ``ConfigError`` for a URL that cannot be read, and ``StateError`` where the server cannot be
    reached or ``psycopg`` is not installed."""
    try:
        target = make_url(url).set(drivername="postgresql+psycopg")
        libpq = database_url.libpq_options()
        engine = create_engine(
            target,
            connect_args={k: v for k, v in libpq.items() if k not in target.query},
            pool_pre_ping=True,
            hide_parameters=True,
        )
    except ModuleNotFoundError:
        raise database_url.driver_missing() from None
    except (ArgumentError, ValueError):
        raise database_url.unreadable_url() from None
    event.listen(engine, "connect", _set_up_postgres)
    return _migrated(Database(engine, target.render_as_string(hide_password=True)))


def _migrated(database: Database) -> Database:
    try:
        with database.reading() as conn:
            current = schema.stored_version(conn, database.place) == len(schema.MIGRATIONS)
        if not current:
            with database.writing() as conn:
                database.lock_store(conn)
                schema.migrate(conn, database.place)
        return database
    except BaseException:
        database.close()
        raise


def _create_file(path: Path) -> None:
    """Creates the file with mode 0600 where there is none. A file that exists is not opened here:
    closing it would drop this process's locks on it (POSIX)."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        write_new(path, b"")
    except FileExistsError:
        if not path.is_file():
            raise IsADirectoryError(f"{path} is not a file") from None


def _make_private(path: Path) -> None:
    """Narrows the mode to 0600. SQLite gives the -wal and -shm files that it makes the mode of the
    database."""
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if each.exists() and stat.S_IMODE(each.stat().st_mode) & 0o077:
            each.chmod(0o600)


@contextmanager
def _file_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"the state store {path} cannot be opened: {error.strerror or error}",
            code="state.not_writable",
            hint="choose a place you may write to: PENSTOCK_HOME, or `state` in the pipeline file",
        ) from error


def _refuse_other_programs(connection: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if tables and schema.SCHEMA.name not in tables:
        raise StateError(
            f"{path} is the database of another program, and no state store of Penstock's",
            code="state.not_a_store",
            hint="name a file of its own for the state store; it is made where there is none",
        )


def _set_up_sqlite(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # a commit outlives a power cut (L3)
    deadline = time.monotonic() + BUSY_SECONDS
    while True:  # the change to WAL does not honour the busy timeout
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(conn: Connection) -> None:
    write = conn.get_execution_options().get(_WRITE, False)
    conn.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _set_up_postgres(connection: Any, _record: Any) -> None:
    for statement in database_url.session_settings(BUSY_SECONDS):
        connection.execute(statement)
    connection.commit()


def _as_state_error(error: SQLAlchemyError, place: str) -> StateError:
    cause = error.orig if isinstance(error, DBAPIError) else type(error).__name__
    return database_url.failed(cause, place)


class PlainSql:
    """Runs plain SQL in an open transaction of the driver: ``keys_ledger.Sql`` over SQLAlchemy."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def rows(self, sql: str, values: tuple[Any, ...], *, share: bool = False) -> list[Any]:
        return [*self._run(sql, values, share=share)]

    def execute(self, sql: str, values: tuple[Any, ...]) -> None:
        self._run(sql, values)

    def _run(self, sql: str, values: tuple[Any, ...], *, share: bool = False) -> CursorResult[Any]:
        if self._conn.dialect.name != "sqlite":
            sql = database_url.postgres_sql(sql, share=share)
        return self._conn.exec_driver_sql(sql, values)


def rows_of(table: Table, pipeline: str) -> Select[Any]:
    """Selects a pipeline's rows of a table."""
    return select(table).where(table.c.pipeline == pipeline)


def insert_all(conn: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Inserts rows (column: value), in one call; no-op where there are none."""
    if rows:
        conn.execute(insert(table), rows)


def update_all(
    conn: Connection, table: Table, values: dict[str, Any], keys: Sequence[dict[str, Any]]
) -> None:
    """Sets the same values in each of the rows that ``keys`` (column: value) identify."""
    if keys:
        named = [table.c[name] == bindparam(f"key_{name}") for name in keys[0]]
        parameters = [{f"key_{name}": value for name, value in key.items()} for key in keys]
        conn.execute(update(table).where(*named).values(**values), parameters)
