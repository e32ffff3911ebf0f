"""Opens a store's SQLite or Postgres database: connections, transactions, locks, clock, errors.

SQLite and Postgres differ here, and in ``task_keys``, which opens a task's own connection. Not
here: tables (``schema``), what is written in them (``sql``, ``ledger``). Every wait is bounded
(L11). A transaction whose database is unreachable raises ``Outage``; ``Patience`` then repeats the
whole call. The text of an error contains no stored value, not even connector configuration
(L10)."""

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Table,
    bindparam,
    create_engine,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy import __version__ as sqlalchemy_version
from sqlalchemy.engine import URL, Connection, CursorResult, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.sql.expression import Select

from penstock.errors import StateError
from penstock.files import make_folder, write_new
from penstock.store import database_url, schema, write_tokens
from penstock.store.database_url import BUSY_SECONDS
from penstock.store.patience import Outage, Patience
from penstock.store.write_tokens import WriteToken, WriteTokens

_STORE_LOCK = 0x70656E73746F636B  # Postgres advisory lock of everything that is not one pipeline's
_WRITE = "penstock_write"
_BUSY_SLICE = 1.0  # seconds
LEAST_BYTES = 128 << 10
"""The least free bytes for an SQLite store: the mapped file, its write-ahead log, and a few
rows."""


class Database:
    """Runs transactions on one open database; safe for use by several threads. ``place``: the file
    or the URL without its password, for messages. Any call raises ``StateError`` in place of the
    database's exceptions: ``Outage`` if a repeated call may succeed."""

    def __init__(self, engine: Engine, place: str, patience: Patience) -> None:
        self.place, self.patience = place, patience
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._tokens = WriteTokens()

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Opens a read transaction: on SQLite a single snapshot, which blocks no writer."""
        with self._errors(), self._engine.connect() as conn:
            yield conn

    @contextmanager
    def writing(self, done: Callable[[Connection], bool] | None = None) -> Generator[Connection]:
        """Opens a write transaction: committed at the end of the block, rolled back on any
        exception. On SQLite it excludes every other writer from its start. ``done``: checks, in
        another transaction, whether this one is committed if the commit got no answer; None: the
        call may be repeated in either case."""
        committing = False
        try:
            with self._errors(), self._engine.connect() as conn:
                conn = conn.execution_options(**{_WRITE: True})
                with conn.begin() as transaction:
                    yield conn
                    committing = True
                    transaction.commit()
        except Outage:
            if not (committing and done is not None and self._is_done(done)):
                raise

    @contextmanager
    def recognised(self, pipeline: str) -> Generator[WriteToken | None]:
        """Draws the token of a write transaction of the pipeline, by which :meth:`is_written`
        recognises it; None on SQLite, which answers every commit."""
        if self._is_sqlite:
            yield None
        else:
            with self._tokens.one(pipeline) as written:
                yield written

    def stamp(self, conn: Connection, written: WriteToken | None) -> float:
        """Writes the token, and returns :meth:`now`."""
        return self.now(conn) if written is None else write_tokens.put(conn, written)

    def is_written(self, conn: Connection, written: WriteToken | None) -> bool:
        """Returns whether the transaction with this token is committed. Call it under the
        pipeline's lock."""
        return written is not None and write_tokens.is_put(conn, written)

    def _is_done(self, done: Callable[[Connection], bool]) -> bool:
        def asked() -> bool:
            with self._errors(), self._engine.begin() as conn:
                return done(conn)

        return self.patience.repeat(asked)

    def lock_store(self, conn: Connection) -> None:
        """Excludes other transactions that call this, until this write transaction ends."""
        if not self._is_sqlite:
            conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _STORE_LOCK})

    @contextmanager
    def patient(self, conn: Connection) -> Generator[None]:
        """Lets the statements in the block take long, for a migration."""
        if self._is_sqlite:
            yield
            return
        link: Any = conn.connection.driver_connection
        milliseconds = database_url.MIGRATION_SECONDS * 1000
        conn.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
        link.patient = True
        try:
            yield
        finally:
            link.patient = False

    def now(self, conn: Connection) -> float:
        """Returns seconds since 1970 by the store's own clock: for Postgres the server's."""
        if self._is_sqlite:
            return time.time()
        return float(conn.scalar(text("SELECT extract(epoch FROM clock_timestamp())")) or 0)

    def close(self) -> None:
        """Closes all connections."""
        self.patience.close()
        self._engine.dispose()

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            # Neither the statement's parameters nor the server's DETAIL may travel on: see charter.
            cause = error.orig if isinstance(error, DBAPIError) else type(error).__name__
            failure = database_url.failed(cause, self.place, down=self.patience.is_down)
            if isinstance(failure, Outage) and not self._is_sqlite:
                self._engine.dispose()  # the others of its pool are lost too
            raise failure from None


def open_sqlite(path: Path, patience: Patience | None = None) -> Database:
    """Opens or creates a SQLite file; it and its ``-wal`` and ``-shm`` files have mode 0600. Raises
    ``StateError``; refuses another program's database (``state.not_a_store``) unchanged."""
    patience = patience or Patience()
    patience.seconds = BUSY_SECONDS
    with _file_errors(path):
        _create_file(path)
        refuse_full(path)
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        # SQLite waits without looking at signals: short waits, repeated
        connect_args={"timeout": min(_BUSY_SLICE, BUSY_SECONDS), "isolation_level": None},
        hide_parameters=True,
        future=True,  # SQLAlchemy 1.4 as 2
    )

    def set_up(connection: sqlite3.Connection, _record: Any) -> None:
        _refuse_other_programs(connection, path)
        with _file_errors(path):
            _make_private(path)
        _set_up_sqlite(connection)

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin_sqlite)
    return _migrated(Database(engine, str(path), patience))


def open_postgres(url: str, patience: Patience | None = None) -> Database:
    """Opens a store in a Postgres database. ``url``: like
    ``postgresql://user:password@host:port/database``, with any libpq option after ``?``. Raises
    ``ConfigError`` for a URL that cannot be read, and ``StateError`` if the server cannot be
    reached, or if ``psycopg`` or SQLAlchemy 2, which has a dialect for it, is not installed."""
    try:
        from penstock.store.bounded_connection import BoundedConnection, Link

        target = make_url(url).set(drivername="postgresql+psycopg")
        options = database_url.store_options()
        engine = create_engine(
            target,
            connect_args={k: v for k, v in options.items() if k not in target.query},
            hide_parameters=True,
        )
    except ModuleNotFoundError:
        raise database_url.driver_missing() from None
    except NoSuchModuleError:
        raise database_url.dialect_missing(sqlalchemy_version) from None
    except (ArgumentError, ValueError):
        raise database_url.unreadable_url() from None
    patience = patience or Patience()
    link = Link(patience.silence)

    def connect(_dialect: Any, _record: Any, args: list[Any], options: dict[str, Any]) -> Any:
        return link.connect(*args, **options)

    def set_up(connection: BoundedConnection, _record: Any) -> None:
        for statement in database_url.session_settings(BUSY_SECONDS):
            connection.execute(statement.encode())
        link.end_lost(connection)
        connection.commit()

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", set_up)
    place = target.render_as_string(hide_password=True)
    return _migrated(Database(engine, place, patience))


def _migrated(database: Database) -> Database:
    def migrated() -> None:
        with database.reading() as conn:
            current = schema.stored_version(conn, database.place) == len(schema.MIGRATIONS)
        if not current:
            with database.writing() as conn, database.patient(conn):
                database.lock_store(conn)
                schema.migrate(conn, database.place)

    try:
        database.patience.whole(migrated)
        return database
    except BaseException:
        database.close()
        raise


def _create_file(path: Path) -> None:
    """Creates the file with mode 0600 if it is missing. Does not open an existing file: closing it
    would drop this process's locks on it (POSIX)."""
    make_folder(path.parent, 0o700)
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
            f"{path} is another program's database, not a state store of Penstock",
            code="state.not_a_store",
            hint="name a file of its own for the state store; it is created if it does not exist",
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


class PlainSql:
    """Runs plain SQL in an open transaction of the driver: ``keys_ledger.Sql`` over SQLAlchemy."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def rows(self, sql: str, values: tuple[Any, ...], *, share: bool = False) -> list[Any]:
        return [*self._run(sql, values, share=share)]

    def execute(self, sql: str, values: tuple[Any, ...]) -> None:
        self._run(sql, values)

    def _run(
        self, sql: str, values: tuple[Any, ...], *, share: bool = False
    ) -> "CursorResult[Any]":
        if self._conn.dialect.name != "sqlite":
            sql = database_url.postgres_sql(sql, share=share)
        return self._conn.exec_driver_sql(sql, values)


def rows_of(table: Table, pipeline: str) -> "Select[Any]":
    """Selects a pipeline's rows of a table."""
    return select(table).where(table.c.pipeline == pipeline)


def insert_all(conn: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Inserts rows (column: value), in one call; no-op if there are none."""
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


def refuse_full(path: Path) -> None:
    """Raises ``StateError`` (``state.disk_full``) if the disk of the SQLite file ``path`` has less
    than :data:`LEAST_BYTES` left: SQLite maps a file of the store into memory, and a page without a
    block on the disk ends the process by SIGBUS. Raises ``OSError``. Not here: a full disk, which
    SQLite reports (``database_url.failed``)."""
    disk = os.statvfs(path.parent)
    blocks = disk.f_bavail
    if not blocks and not os.geteuid():
        blocks = disk.f_bfree  # what is reserved for root counts
    left = blocks * disk.f_frsize
    if disk.f_blocks and left < LEAST_BYTES:
        raise StateError(
            f"the disk that holds the state store {path} is full: {left >> 10} kB are left",
            code="state.disk_full",
            where=str(path),
            hint=f"free at least {LEAST_BYTES >> 10} kB there, then run again; nothing that was "
            "committed is lost",
        )
