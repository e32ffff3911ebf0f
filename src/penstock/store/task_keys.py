"""Opens a task's port to its connector's keys in the state store, from any machine that reaches it.

It runs in a connector's process, so it imports no SQLAlchemy, and connects at the first call. Each
write is one transaction: it checks that the task may still write (``Store.begin_keys``), reads the
newest version of the key under a lock, and inserts the next version. Every wait is bounded (L11),
and a whole call is repeated if its database is unreachable for a while (``patience``). The text of
an error contains no key and no value (L10). Not here: the statements (``keys_ledger``), the
interface (``keys``)."""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from penstock.store import database_url, keys_ledger
from penstock.store.keys import PATH, SHARED, DryKeys, KeyAddress, KeyPort
from penstock.store.keys_ledger import Values
from penstock.store.patience import RUN_SECONDS, Patience

T = TypeVar("T")


def keys_url(place: str | Path) -> str:
    """Converts the ``place`` of ``open_store`` to the URL that :func:`open_keys` takes: absolute,
    for a process with another working folder. It may hold a password, so it is never shown (L10).
    Raises ``ConfigError``."""
    file = database_url.sqlite_file(place)
    return database_url.libpq_url(str(place)) if file is None else f"sqlite:///{file.absolute()}"


def open_keys(url: str, pipeline: str, task: str, *, dry: bool = False) -> KeyPort:
    """Opens a port to the keys of ``pipeline`` for ``task``, which ``Store.begin_keys`` has
    permitted to write. ``url``: from :func:`keys_url`. ``dry``: writes stay in this process, and
    the task needs no permission. Calls raise ``StateError``. Several ports of one task may be open,
    but not for states of one scope at the same time."""
    file = database_url.sqlite_file(url)
    patience = Patience()
    if file is not None:
        patience.seconds = database_url.BUSY_SECONDS
    postgres: list[Callable[[], KeyConnection]] = []

    def connect() -> KeyConnection:
        if file is not None:
            return _Sqlite(file, patience)
        if not postgres:  # its driver is imported at the first call
            postgres.append(_postgres(url, patience))
        return postgres[0]()

    port = StoreKeys(connect, pipeline, task, patience)
    return DryKeys(port) if dry else port


class KeyConnection:
    """Runs statements on one connection (``keys_ledger.Sql``). Raises ``StateError`` in place of
    the driver's exceptions ``failures``. ``place``: the database, for messages, without its
    password."""

    def __init__(
        self, conn: Any, failures: type[Exception], place: str, patience: Patience | None = None
    ) -> None:
        self._conn, self._failures, self._place = conn, failures, place
        self._patience = patience or Patience()

    def writing(self, place: KeyAddress, *, under: bool = False) -> AbstractContextManager[None]:
        """Opens a write transaction that excludes other writers of this key; ``under``: of
        every key of its scope and owner."""
        raise NotImplementedError

    def rows(self, sql: str, values: Values, *, share: bool = False) -> list[Any]:
        with self._errors():
            return self._conn.execute(self._native(sql, share), values).fetchall()

    def execute(self, sql: str, values: Values) -> None:
        with self._errors():
            self._conn.execute(self._native(sql, False), values)

    def close(self) -> None:
        with contextlib.suppress(self._failures):
            self._conn.close()

    def _native(self, sql: str, share: bool) -> str:
        return sql

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except self._failures as error:
            down = self._patience.is_down
            raise database_url.failed(error, self._place, down=down) from None


class StoreKeys:
    """Reads and writes keys in the store (``KeyPort``); safe for use by several threads. After a
    failure the next attempt opens a new connection."""

    def __init__(
        self,
        connect: Callable[[], KeyConnection],
        pipeline: str,
        task: str,
        patience: Patience | None = None,
    ) -> None:
        self._connect, self._pipeline, self._task = connect, pipeline, task
        self._patience = patience or Patience()
        self._link: KeyConnection | None = None
        self._lock = threading.Lock()
        self._scope = SHARED
        self._mark: int | None = None  # of what was written since the last checkpoint
        self._covered: dict[str, int] = {}  # the last checkpoint of each scope

    def get(self, place: KeyAddress) -> str | None:
        return self._whole(lambda link: keys_ledger.newest(link, self._pipeline, place)[1])

    def put(self, place: KeyAddress, value: str) -> None:
        self._write(place, value, lambda _: True)

    def compare_and_swap(self, place: KeyAddress, expected: str | None, new: str) -> bool:
        return self._write(place, new, lambda found: found == expected)

    def delete(self, place: KeyAddress) -> bool:
        return self._write(place, None, lambda found: found is not None)

    def delete_under(self, under: KeyAddress) -> int:
        before = 0  # what an attempt deleted whose commit got no answer

        def deleted(link: KeyConnection) -> int:
            nonlocal before
            with link.writing(under, under=True):
                count = keys_ledger.count_under(link, self._pipeline, under)
                if not count:
                    return before
                mark = keys_ledger.mark_for(link, self._pipeline, self._task, self._mark)
                stamp = (self._task, self._scope, mark)
                keys_ledger.delete_under(link, self._pipeline, under, stamp)
                before = count
            self._mark = mark
            return count

        return self._whole(deleted)

    def count_under(self, under: KeyAddress) -> int:
        return self._whole(lambda link: keys_ledger.count_under(link, self._pipeline, under))

    def page_under(self, under: KeyAddress, after: str | None = None) -> list[tuple[str, str]]:
        return self._whole(lambda link: keys_ledger.page_under(link, self._pipeline, under, after))

    def begin(self, scope: str) -> None:
        given_up = self._mark
        if given_up is not None:
            self._whole(
                lambda link: keys_ledger.discard(link, self._pipeline, self._task, given_up)
            )
        with self._lock:
            self._scope, self._mark = scope, None

    def checkpoint(self) -> int:
        with self._lock:
            if self._mark is not None:
                self._covered[self._scope], self._mark = self._mark, None
            return self._covered.get(self._scope, 0)

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _write(
        self, place: KeyAddress, value: str | None, agrees: Callable[[str | None], bool]
    ) -> bool:
        lost: tuple[int, keys_ledger.Stamp] | None = None  # of an attempt without an answer

        def written(link: KeyConnection) -> bool:
            nonlocal lost
            with link.writing(place):
                if lost is not None and keys_ledger.is_put(link, self._pipeline, place, *lost):
                    mark = lost[1][2]
                else:
                    version, found = keys_ledger.newest(link, self._pipeline, place)
                    if not agrees(found):
                        return False
                    mark = keys_ledger.mark_for(link, self._pipeline, self._task, self._mark)
                    stamp = (self._task, self._scope, mark)
                    keys_ledger.put(link, self._pipeline, place, version + 1, value, stamp)
                    lost = version + 1, stamp
            self._mark = mark
            return True

        return self._whole(written)

    def _whole(self, call: Callable[[KeyConnection], T]) -> T:
        """Makes a call that is at most one transaction; repeats it on a new connection if the
        database was unreachable. No other thread writes between two attempts."""

        def attempt() -> T:
            self._link = self._link or self._connect()
            try:
                return call(self._link)
            except BaseException:
                self._drop()
                raise

        with self._lock:
            return self._patience.whole(attempt)

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


class _Sqlite(KeyConnection):
    """Connects to the SQLite file of the store, which must exist: the driver creates it."""

    def __init__(self, file: Path, patience: Patience) -> None:
        super().__init__(None, sqlite3.Error, str(file), patience)
        with self._errors():
            self._conn = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=database_url.BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            # writes must outlive a power cut before the checkpoint that covers them is sealed
            self._conn.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def writing(self, place: KeyAddress, *, under: bool = False) -> Generator[None]:
        del place, under  # the transaction excludes every writer, not only those of this key
        with self._errors():
            self._conn.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._conn.in_transaction:  # a full disk has ended it already
                    self._conn.execute("ROLLBACK")
                raise
            self._conn.execute("COMMIT")


def _postgres(url: str, patience: Patience) -> Callable[[], KeyConnection]:
    """Returns what connects to a Postgres store. Raises ``StateError``, ``ConfigError`` where no
    attempt can succeed."""
    try:
        import psycopg
        from psycopg import conninfo

        from penstock.store.bounded_connection import Link
    except ModuleNotFoundError:
        raise database_url.driver_missing() from None
    target = database_url.libpq_url(url)
    try:
        given = conninfo.conninfo_to_dict(target)
    except psycopg.ProgrammingError:
        raise database_url.unreadable_url() from None
    place = f"postgresql://{given.get('host', '')}/{given.get('dbname', '')}"
    options = {k: v for k, v in database_url.store_options().items() if k not in given}
    if "application_name" in given:
        options["application_name"] = given["application_name"]
    link = Link(patience.silence)

    def connect() -> KeyConnection:
        try:
            made = link.connect(target, autocommit=True, **options)
            # a read after the advisory lock must see what the lock's last holder committed
            made.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            for statement in database_url.session_settings(database_url.BUSY_SECONDS):
                made.execute(statement.encode())
            link.end_lost(made)
        except psycopg.Error as error:
            raise database_url.failed(error, place, down=patience.is_down) from None
        patience.seconds = RUN_SECONDS
        return _Postgres(made, psycopg.Error, place, patience)

    return connect


class _Postgres(KeyConnection):
    """Is connected to the Postgres database of the store; writers of one key wait for each other by
    an advisory lock."""

    @contextmanager
    def writing(self, place: KeyAddress, *, under: bool = False) -> Generator[None]:
        with self._errors(), self._conn.transaction():
            if place.scope == PATH:  # what is deleted by how keys begin waits for writers of a key
                kind = "" if under else "_shared"
                every = _lock_number(keys_ledger.slot_of(KeyAddress(PATH, place.owner, "")), 16)
                self.execute(f"SELECT pg_advisory_xact_lock{kind}(?)", (every,))
            if not under:
                number = _lock_number(keys_ledger.slot_of(place), 0)
                self.execute("SELECT pg_advisory_xact_lock(?)", (number,))
            yield

    def _native(self, sql: str, share: bool) -> str:
        return database_url.postgres_sql(sql, share=share)


def _lock_number(slot: str, at: int) -> int:
    """Converts sixteen hexadecimal digits of a slot to the number of an advisory lock."""
    return int(slot[at : at + 16], 16) - (1 << 63)
