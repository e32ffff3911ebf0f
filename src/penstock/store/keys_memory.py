"""Keeps the connector keys of ``store.memory`` in an SQLite database in memory, so that the rules
of ``keys_ledger`` and the port of ``task_keys`` serve that store too."""

import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from penstock.store.keys import KeyAddress
from penstock.store.task_keys import KeyConnection

_TABLES = (
    "penstock_key_tasks (pipeline, task, marks, PRIMARY KEY (pipeline, task))",
    "penstock_keys (pipeline, slot, version, scope, owner, key, value, task, covers, mark, gone, "
    "PRIMARY KEY (pipeline, slot, version))",
)


class MemoryLink(KeyConnection):
    """Connects every task and the driver to one SQLite database in memory. ``lock``: the store's,
    reentrant."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        super().__init__(conn, sqlite3.Error, "in memory")
        self._lock = lock
        for table in _TABLES:
            self.execute(f"CREATE TABLE {table}", ())

    @contextmanager
    def writing(self, place: KeyAddress, *, under: bool = False) -> Generator[None]:
        del place, under  # the lock excludes every writer, not only those of this key
        with self._lock:
            yield

    def close(self) -> None:
        """No-op: the content stays, as a database's would."""

    @contextmanager
    def _errors(self) -> Generator[None]:
        with self._lock, super()._errors():
            yield
