"""A task's port to its connector's keys in the state store, from any machine that reaches it.

It runs beside a connector: no SQLAlchemy, and nothing is opened before the first call. One write is
one transaction: the task must still be allowed to write (``Store.begin_keys``), the newest version
of the key is read under its lock, and the new one goes on top of it. Versions of one task that no
checkpoint lies between replace each other, so that a key written in a loop stays small. Which
versions become durable is ``keys_ledger``'s. Every wait is bounded (L11); no key and no value
reaches the text of an error (L10).
"""

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import StateError
from penstock.state import database_url
from penstock.state.keys import SHARED, DryKeys, KeyPort, Place, keys_closed

_QUIET_SECONDS = 30.0

_NEWEST = (
    "SELECT version, value FROM penstock_keys WHERE pipeline = ? AND slot = ? "
    "ORDER BY version DESC LIMIT 1"
)
_MAY_WRITE = "SELECT task FROM penstock_key_tasks WHERE pipeline = ? AND task = ?"
_NEXT_MARK = "UPDATE penstock_key_tasks SET marks = marks + 1 WHERE pipeline = ? AND task = ?"
_LAST_MARK = "SELECT marks FROM penstock_key_tasks WHERE pipeline = ? AND task = ?"
_SUPERSEDED = "DELETE FROM penstock_keys WHERE pipeline = ? AND slot = ? AND task = ? AND mark = ?"
_INSERT = (
    "INSERT INTO penstock_keys (pipeline, slot, version, scope, owner, key, value, task, covers, "
    "mark) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DISCARD = "DELETE FROM penstock_keys WHERE pipeline = ? AND task = ? AND mark = ?"

Values = tuple[Any, ...]


def keys_url(place: str | Path) -> str:
    """What :func:`open_keys` takes, of what ``open_store`` takes: absolute, for a process with
    another working folder. It may hold a password: never shown. Raises ``ConfigError``."""
    file = database_url.sqlite_file(place)
    return database_url.libpq_url(str(place)) if file is None else f"sqlite:///{file.absolute()}"


def open_keys(url: str, pipeline: str, task: str, *, dry: bool = False) -> KeyPort:
    """The keys of ``pipeline`` for ``task``, which the driver has told the store
    (``Store.begin_keys``). ``url``: of :func:`keys_url`. ``dry``: what is written stays in this
    process, and the task need not be known. Calls raise ``StateError``; ports of one task may be
    open side by side, but not for states of one scope at the same time."""
    file = database_url.sqlite_file(url)
    connect: Callable[[], _Link] = (
        (lambda: _Postgres(url)) if file is None else (lambda: _Sqlite(file))
    )
    port = StoreKeys(connect, pipeline, task)
    return DryKeys(port) if dry else port


def slot_of(place: Place) -> str:
    text = json.dumps([place.scope, place.owner, place.key])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class _Link(Protocol):
    """A connection. Its driver's exceptions leave it as ``StateError``."""

    def is_alive(self) -> bool:
        """Asked after a pause: networks forget connections that say nothing."""
        ...

    def writing(self, slot: str) -> AbstractContextManager[None]:
        """A write transaction that keeps other writers of this slot out."""
        ...

    def rows(self, sql: str, values: Values, *, share: bool = False) -> list[Any]:
        """``share``: what is read must still stand when the transaction ends."""
        ...

    def execute(self, sql: str, values: Values) -> None: ...

    def close(self) -> None: ...


class StoreKeys:
    """``KeyPort``; safe for use by several threads. After a failure the next call connects anew."""

    def __init__(self, connect: Callable[[], _Link], pipeline: str, task: str) -> None:
        self._connect, self._pipeline, self._task = connect, pipeline, task
        self._link: _Link | None = None
        self._used = 0.0
        self._lock = threading.Lock()
        self._scope = SHARED
        self._mark: int | None = None  # of what was written since the last checkpoint
        self._covered: dict[str, int] = {}  # the last checkpoint of each scope

    def get(self, place: Place) -> str | None:
        with self._linked() as link:
            newest = self._newest(link, slot_of(place))
        return None if newest is None else newest[1].decode()

    def put(self, place: Place, value: str) -> None:
        self._write(place, value, lambda _: True)

    def compare_and_swap(self, place: Place, expected: str | None, new: str) -> bool:
        wanted = None if expected is None else expected.encode()
        return self._write(place, new, lambda found: found == wanted)

    def begin(self, scope: str) -> None:
        given_up = self._mark
        if given_up is not None:
            with self._linked() as link:
                link.execute(_DISCARD, (self._pipeline, self._task, given_up))
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

    def _write(self, place: Place, value: str, agrees: Callable[[bytes | None], bool]) -> bool:
        slot = slot_of(place)
        names = (place.scope, place.owner.encode(), place.key.encode())
        with self._linked() as link:
            with link.writing(slot):
                newest = self._newest(link, slot)
                if not agrees(None if newest is None else newest[1]):
                    return False
                mark = self._permitted(link)
                link.execute(_SUPERSEDED, (self._pipeline, slot, self._task, mark))
                version = 1 if newest is None else newest[0] + 1
                stamp = (self._task, self._scope, mark)
                link.execute(
                    _INSERT, (self._pipeline, slot, version, *names, value.encode(), *stamp)
                )
            self._mark = mark
        return True

    def _newest(self, link: _Link, slot: str) -> tuple[int, bytes] | None:
        found = link.rows(_NEWEST, (self._pipeline, slot))
        return (found[0][0], bytes(found[0][1])) if found else None

    def _permitted(self, link: _Link) -> int:
        """The mark of what is written now."""
        mine = (self._pipeline, self._task)
        if self._mark is not None:
            found = link.rows(_MAY_WRITE, mine, share=True)
        else:
            link.execute(_NEXT_MARK, mine)
            found = link.rows(_LAST_MARK, mine)
        if not found:
            raise keys_closed(self._pipeline, self._task)
        return self._mark or int(found[0][0])

    @contextmanager
    def _linked(self) -> Generator[_Link]:
        with self._lock:
            quiet = time.monotonic() - self._used > _QUIET_SECONDS
            if quiet and self._link is not None and not self._link.is_alive():
                self._drop()
            self._link = self._link or self._connect()
            try:
                yield self._link
            except BaseException:
                self._drop()
                raise
            self._used = time.monotonic()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


class _Sqlite:
    """A file that the driver has made: one that is not there is not made here."""

    def __init__(self, file: Path) -> None:
        self._place = str(file)
        with self._errors():
            self._conn = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=database_url.BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            self._conn.execute("PRAGMA synchronous = FULL")  # a sealed checkpoint finds its writes

    def is_alive(self) -> bool:
        return True

    @contextmanager
    def writing(self, slot: str) -> Generator[None]:
        del slot  # every writer is kept out
        with self._errors():
            self._conn.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._conn.in_transaction:  # a full disk has ended it already
                    self._conn.execute("ROLLBACK")
                raise
            self._conn.execute("COMMIT")

    def rows(self, sql: str, values: Values, *, share: bool = False) -> list[Any]:
        del share
        with self._errors():
            return self._conn.execute(sql, values).fetchall()

    def execute(self, sql: str, values: Values) -> None:
        with self._errors():
            self._conn.execute(sql, values)

    def close(self) -> None:
        self._conn.close()

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise database_url.failed(error, self._place) from None


class _Postgres:
    def __init__(self, url: str) -> None:
        try:
            import psycopg
            from psycopg import conninfo
        except ModuleNotFoundError:
            raise database_url.driver_missing() from None
        self._failures = psycopg.Error
        target = database_url.libpq_url(url)
        try:
            given = conninfo.conninfo_to_dict(target)
        except psycopg.ProgrammingError:
            raise database_url.unreadable_url() from None
        self._place = f"postgresql://{given.get('host', '')}/{given.get('dbname', '')}"
        options = {k: v for k, v in database_url.libpq_options().items() if k not in given}
        with self._errors():
            self._conn = psycopg.connect(target, autocommit=True, **options)
            # what is read after a lock must be what its last holder left
            self._conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            for statement in database_url.session_settings(database_url.BUSY_SECONDS):
                self.execute(statement, ())

    def is_alive(self) -> bool:
        try:
            self.rows("SELECT 1", ())
        except StateError:
            return False
        return True

    @contextmanager
    def writing(self, slot: str) -> Generator[None]:
        with self._errors(), self._conn.transaction():
            number = int(slot[:16], 16) - (1 << 63)
            self.execute("SELECT pg_advisory_xact_lock(?)", (number,))
            yield

    def rows(self, sql: str, values: Values, *, share: bool = False) -> list[Any]:
        text: Any = sql.replace("?", "%s") + (" FOR SHARE" if share else "")
        with self._errors():
            return self._conn.execute(text, values).fetchall()

    def execute(self, sql: str, values: Values) -> None:
        text: Any = sql.replace("?", "%s")
        with self._errors():
            self._conn.execute(text, values)

    def close(self) -> None:
        with contextlib.suppress(self._failures):
            self._conn.close()

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except self._failures as error:
            raise database_url.failed(error, self._place) from None
