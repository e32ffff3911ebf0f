"""Keeps connector keys of ``state.memory`` in an SQLite database that lives in memory.

So the twin has the rules of ``keys_ledger``, and its tasks the port of ``task_keys``.
"""

import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from penstock.state.keys import Place
from penstock.state.task_keys import Link

_TABLES = (
    "penstock_key_tasks (pipeline, task, marks, PRIMARY KEY (pipeline, task))",
    "penstock_keys (pipeline, slot, version, scope, owner, key, value, task, covers, mark, "
    "PRIMARY KEY (pipeline, slot, version))",
)


class MemoryLink(Link):
    """Of every task, and the driver's. ``lock``: the store's, reentrant."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        super().__init__(conn, sqlite3.Error, "in memory")
        self._lock = lock
        for table in _TABLES:
            self.execute(f"CREATE TABLE {table}", ())

    @contextmanager
    def writing(self, place: Place) -> Generator[None]:
        del place  # every writer is kept out
        with self._lock:
            yield

    def close(self) -> None:
        """Nothing to close: the content stays, as a database's would."""

    @contextmanager
    def _errors(self) -> Generator[None]:
        with self._lock, super()._errors():
            yield
