"""From what a user wrote to an open store. Imports the database layer only when called."""

from pathlib import Path

from penstock.errors import ConfigError
from penstock.state.contract import Store

_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
_SQLITE = "sqlite:///"


def open_store(place: str | Path) -> Store:
    """Open a store, creating it where there is none.

    ``place``: a path (or ``sqlite:///PATH``) of a SQLite file, or ``postgresql://...``. Raises
    ``ConfigError`` for any other URL and ``StateError`` where the store cannot be reached, is not
    ours, or was written by a newer Penstock.
    """
    from penstock.state import database
    from penstock.state.sql import SqlStore

    if isinstance(place, str) and place.startswith(_POSTGRES):
        return SqlStore(database.open_postgres(place))
    text = str(place)
    if text.startswith(_SQLITE):
        text = text.removeprefix(_SQLITE)
    elif "://" in text:
        raise ConfigError(
            f"a state store cannot be a {text.split('://', 1)[0]}:// URL",
            code="config.state_url",
            hint="give the path of a SQLite file, or postgresql://USER:PASSWORD@HOST/DATABASE",
        )
    return SqlStore(database.open_sqlite(Path(text).expanduser()))
