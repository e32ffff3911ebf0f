"""Opens the state store that ``state`` in the pipeline file or the home folder names.

Not here: the store (``sql``), connections (``database``); both are imported only when a store is
opened, since SQLAlchemy takes long to import.
"""

from pathlib import Path

from penstock.store.contract import Store
from penstock.store.database_url import sqlite_file


def open_store(place: str | Path) -> Store:
    """Opens a store, creating it where there is none.

    ``place``: a path (or ``sqlite:///PATH``) of a SQLite file, or ``postgresql://...``. Raises
    ``ConfigError`` for any other URL and ``StateError`` where the store cannot be reached, is not
    a database, or was written by a newer Penstock.
    """
    file = sqlite_file(place)

    from penstock.store import database
    from penstock.store.sql import SqlStore

    opened = database.open_postgres(str(place)) if file is None else database.open_sqlite(file)
    return SqlStore(opened)
