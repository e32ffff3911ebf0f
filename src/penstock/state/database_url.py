"""Says how a store's database is reached: its place, bounds of waiting, dialect, and failures.

Light, for it is imported beside a connector: no SQLAlchemy, no driver. Neighbours: ``database``
(the driver's side) and ``task_keys`` (a task's). Nothing that is stored reaches the text of an
error (L10).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, StateError

BUSY_SECONDS = 30  # how long a transaction waits for another one's lock
CONNECT_SECONDS = 10
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
_SQLITE = "sqlite:///"
_IN_LIST = 500  # values in one IN (...)


def sqlite_file(place: str | Path) -> Path | None:
    """The SQLite file that ``place`` (a path, ``sqlite:///PATH`` or a Postgres URL) names; None: it
    is a Postgres. Raises ``ConfigError`` for any other URL."""
    if isinstance(place, str) and place.startswith(_POSTGRES):
        return None
    text = str(place)
    if text.startswith(_SQLITE):
        text = text.removeprefix(_SQLITE)
    elif "://" in text:
        raise ConfigError(
            f"a state store cannot be a {text.split('://', 1)[0]}:// URL",
            code="config.state_url",
            hint="give the path of a SQLite file, or postgresql://USER:PASSWORD@HOST/DATABASE",
        )
    return Path(text).expanduser()


def libpq_url(url: str) -> str:
    """A Postgres URL as libpq reads it."""
    return f"postgresql://{url.partition('://')[2]}"


def libpq_options() -> dict[str, Any]:
    return {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": BUSY_SECONDS * 1000,
        "application_name": "penstock",
        "prepare_threshold": None,  # poolers in transaction mode lose prepared statements
    }


def session_settings(busy_seconds: float) -> tuple[str, ...]:
    """Statements for a new Postgres session."""
    return (
        f"SET lock_timeout = '{busy_seconds}s'",
        f"SET statement_timeout = '{busy_seconds * 4}s'",
        "SET idle_in_transaction_session_timeout = '600s'",
    )


def postgres_sql(sql: str, *, share: bool = False) -> str:
    """Of a statement with ``?`` for values. ``share``: the rows it finds are locked against
    changes until the transaction ends."""
    return sql.replace("?", "%s") + (" FOR SHARE" if share else "")


def chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """In pieces that fit into one IN (...)."""
    rest = list(values)
    return (rest[at : at + _IN_LIST] for at in range(0, len(rest), _IN_LIST))


def driver_missing() -> StateError:
    return StateError(
        "the state store is a Postgres database, and its driver is not installed",
        code="state.driver_missing",
        hint="pip install 'penstock[postgres]'",
    )


def unreadable_url() -> ConfigError:
    return ConfigError(
        "the state store's URL cannot be read",
        code="config.state_url",
        hint="write postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
        "percent-encode special characters of the password",
    )


def failed(cause: Any, place: str) -> StateError:
    """``cause``: the database driver's exception. ``place``: without its password."""
    words = _first_words(cause)
    code, hint = "state.failed", "see that the database is whole and reachable, then run again"
    if "locked" in words or "lock timeout" in words:
        code, hint = "state.busy", "another process keeps the store busy: try again"
    elif "not a database" in words or "malformed" in words:
        code, hint = "state.unreadable", "restore the file from a copy, or name another store"
    elif "full" in words or "No space" in words:
        code, hint = "state.disk_full", "free some space; nothing that was committed is lost"
    elif "readonly" in words or "unable to open" in words:
        code, hint = "state.not_writable", "give the file back to you (chmod, chown), or move it"
    return StateError(f"the state store {place} failed: {words}", code=code, hint=hint)


def _first_words(cause: Any) -> str:
    """The database's primary message, without the rows and values that it may add below."""
    primary = getattr(getattr(cause, "diag", None), "message_primary", None)
    return primary or (str(cause).splitlines() or [type(cause).__name__])[0]
