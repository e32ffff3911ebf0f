"""Opens the state store that ``state`` in the pipeline file or the home folder names.

Not here: the store (``sql``), connections (``database``); both are imported only when a store is
opened, since SQLAlchemy takes long to import.
"""

from collections.abc import Callable
from pathlib import Path

from penstock.store.contract import Store
from penstock.store.database_url import sqlite_file
from penstock.store.patience import RUN_SECONDS, Patience


def open_store(place: str | Path) -> Store:
    """Opens a store, creating it where there is none.

    ``place``: a path (or ``sqlite:///PATH``) of a SQLite file, or ``postgresql://...``. Raises
    ``ConfigError`` for any other URL and ``StateError`` where the store cannot be reached, is not
    a database, or was written by a newer Penstock.
    """
    return _opened(place, Patience())


def open_store_of_run(
    place: str | Path, stopped: Callable[[], bool], log: Callable[[str], None]
) -> Store:
    """Does :func:`open_store` for a run, whose calls outlast a longer outage of a server than those
    of a verb. ``stopped``: whether the run was stopped: no call waits long then, and one that gets
    no answer raises ``Cancelled``. ``log``: takes a sentence where an outage begins and ends."""
    patience = Patience(stopped=stopped, log=log)
    store = _opened(place, patience)
    patience.seconds = max(patience.seconds, RUN_SECONDS)
    return store


def _opened(place: str | Path, patience: Patience) -> Store:
    file = sqlite_file(place)

    from penstock.store import database
    from penstock.store.sql import SqlStore

    if file is None:
        return SqlStore(database.open_postgres(str(place), patience))
    return SqlStore(database.open_sqlite(file, patience))
