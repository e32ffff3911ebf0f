"""Reads a store's URL, and gives connection options, timeouts, the SQL dialect and ``StateError``.

Connector processes import it too, so it imports neither SQLAlchemy nor a database driver. Not here:
connections (``database`` in the driver, ``task_keys`` in a task). The text of an error contains no
stored value (L10)."""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.config.packages import install_extra
from penstock.errors import ConfigError, StateError
from penstock.store.patience import Outage

BUSY_SECONDS = 30  # how long a transaction waits for another one's lock
CONNECT_SECONDS = 10
STATEMENT_SECONDS = 35  # of the server, for one statement; less than it may be silent
MIGRATION_SECONDS = 600
IDLE_SECONDS = 60  # in a transaction without a statement: its process is gone, or is stopped
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
_SQLITE = "sqlite:///"
_LOST_SESSION = (
    "a session that was lost may hold a lock: end its process at the server, see"
    " `SELECT pid, state FROM pg_stat_activity WHERE application_name LIKE 'penstock:%'`"
)
_IN_LIST = 500  # values in one IN (...)
_PASSING = {
    "25006",  # read-only: the server was demoted, and another is the primary now
    "25P03", "57P05",  # the session was idle for too long
    "40001", "40P01",  # serialization, deadlock
    "53300",  # too many connections
    "57014",  # the statement took too long
    "57P01", "57P02", "57P03",  # shutdown, crash, starting up
}  # fmt: skip
_LOCK_TIMEOUT = "55P03"
_CONNECTIONS = ("OperationalError", "InterfaceError", "ConnectionTimeout")
_LASTING = ("authentication", "does not exist", "pg_hba", "permi", "certificate")


def sqlite_file(place: str | Path) -> Path | None:
    """Returns the SQLite file that ``place`` names (a path or ``sqlite:///PATH``), or None for a
    Postgres URL. Raises ``ConfigError`` for any other URL."""
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
    """Rewrites a Postgres URL of any accepted scheme to ``postgresql://``, which libpq reads."""
    return f"postgresql://{url.partition('://')[2]}"


def libpq_options() -> dict[str, Any]:
    """Returns connection options of libpq and psycopg; an option in the URL takes precedence."""
    return {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": BUSY_SECONDS * 1000,
        "application_name": "penstock",
        "prepare_threshold": None,  # poolers in transaction mode lose prepared statements
    }


def store_options() -> dict[str, Any]:
    """Returns :func:`libpq_options` for a store: of several hosts, selects the writable one."""
    return {**libpq_options(), "target_session_attrs": "read-write"}


def session_settings(busy_seconds: float) -> tuple[str, ...]:
    """Returns the statements that bound the waits of a new Postgres session. ``busy_seconds``: for
    another transaction's lock."""
    return (
        f"SET lock_timeout = '{busy_seconds}s'",
        f"SET statement_timeout = '{busy_seconds + STATEMENT_SECONDS - BUSY_SECONDS}s'",
        f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'",
    )


def postgres_sql(sql: str, *, share: bool = False) -> str:
    """Translates a statement with ``?`` for values into psycopg's ``%s``. ``share``: locks the rows
    that it reads against changes until the transaction ends."""
    return sql.replace("?", "%s") + (" FOR SHARE" if share else "")


def chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Splits values into lists of at most 500, each for one ``IN (...)``."""
    rest = list(values)
    return (rest[at : at + _IN_LIST] for at in range(0, len(rest), _IN_LIST))


def driver_missing() -> StateError:
    """Makes the error for a Postgres store without the package ``psycopg``."""
    return StateError(
        "the state store is a Postgres database, and its driver is not installed",
        code="state.driver_missing",
        hint=install_extra("postgres"),
    )


def dialect_missing(sqlalchemy: str) -> StateError:
    """Makes the error for a Postgres store where SQLAlchemy is older than version 2."""
    return StateError(
        "the state store is a Postgres database, which needs SQLAlchemy 2, and "
        f"{sqlalchemy} is installed",
        code="state.driver_missing",
        hint="Airflow 2 allows no newer one: give Penstock an environment of its own, as "
        "docs/install.md shows for Postgres",
    )


def unreadable_url() -> ConfigError:
    """Makes the error for a Postgres URL that cannot be parsed; it does not quote the URL."""
    return ConfigError(
        "the state store's URL cannot be read",
        code="config.state_url",
        hint="write postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
        "percent-encode special characters of the password",
    )


def failed(cause: Any, place: str, *, down: bool = False) -> StateError:
    """Makes a ``StateError`` from a database driver's exception, with a code and hint by its
    message; an ``Outage`` if the failure may pass. ``place``: the file or the URL without its
    password. ``down``: an outage is going on, so a lock may belong to a lost session."""
    words = _first_words(cause)
    code, hint = "state.failed", "see that the database is whole and reachable, then run again"
    if "locked" in words or "lock timeout" in words:
        code, hint = "state.busy", "another process keeps the store busy: try again"
        if down:
            hint = _LOST_SESSION
    elif "not a database" in words or "malformed" in words:
        code, hint = "state.unreadable", "restore the file from a copy, or name another store"
    elif "full" in words or "No space" in words:
        code, hint = "state.disk_full", "free some space; nothing that was committed is lost"
    elif "readonly" in words or "unable to open" in words:
        code, hint = "state.not_writable", "make the file yours again (chmod, chown), or move it"
    passes = _passes(cause, words, down=down)
    if passes and code == "state.failed":
        code, hint = "state.unreachable", _unreachable(place)
    kind = Outage if passes else StateError
    return kind(f"the state store {place} failed: {words}", code=code, hint=hint)


def _unreachable(place: str) -> str:
    from shlex import quote
    from urllib.parse import parse_qs, urlsplit

    words = ["pg_isready"]
    try:
        url = urlsplit(place)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        given = {"-h": url.hostname or asked.get("host"), "-p": url.port or asked.get("port")}
        words += [f"{option} {quote(str(value))}" for option, value in given.items() if value]
    except ValueError:  # several hosts: libpq's environment names them too
        pass
    return (
        f"see that the server answers (`{' '.join(words)}`) and can be written, then give the same"
        " command again: what is committed is kept"
    )


def _passes(cause: Any, words: str, *, down: bool) -> bool:
    """Returns whether the same call may succeed later."""
    if isinstance(cause, sqlite3.Error):
        return "locked" in words
    state = getattr(cause, "sqlstate", None)
    if state is None:  # no answer of the server, or one to the attempt to connect
        lasting = any(word in str(cause) for word in _LASTING)
        return type(cause).__name__ in _CONNECTIONS and not lasting
    return state in _PASSING or state.startswith("08") or (down and state == _LOCK_TIMEOUT)


def _first_words(cause: Any) -> str:
    """Returns the database's primary message, without the rows and values of the lines after it."""
    primary = getattr(getattr(cause, "diag", None), "message_primary", None)
    return primary or (str(cause).splitlines() or [type(cause).__name__])[0]
