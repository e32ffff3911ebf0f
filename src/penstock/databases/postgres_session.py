"""Opens a session on the Postgres that runs a model's query, and bounds the waits for it (L11).

A query may run for hours, so a wait for its rows is not bounded by time alone: another connection
checks whether the server still answers, and a run that was stopped cancels the query. Not here: the
query and its columns (``postgres``), its rows (``postgres_rows``). Connections of psycopg are those
of the store (``store.bounded_connection``)."""

import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from penstock.config.packages import install_extra
from penstock.errors import ConfigError, SourceError
from penstock.model.database_query import DatabaseQuery
from penstock.store.database_url import libpq_options, libpq_url

if TYPE_CHECKING:
    import psycopg

CANCEL_SECONDS = 5.0
_ANSWER_SECONDS = 60.0  # for statements other than the query, and between two checks
_PROBES = 2  # so many failures in a row: the server is gone
SESSION = (
    "SET TIME ZONE 'UTC'",
    "SET datestyle = 'ISO'",
    "SET intervalstyle = 'iso_8601'",
    "SET client_encoding = 'UTF8'",
)


@contextmanager
def transaction(query: DatabaseQuery) -> "Generator[psycopg.Connection[Any]]":
    """Opens one read-only transaction that sees one state of the database."""
    try:
        import psycopg

        from penstock.store.bounded_connection import Link
    except ImportError:
        raise driver_missing() from None
    try:
        url = libpq_url(query.url)
        connection = Link(lambda: _ANSWER_SECONDS).connect(url, **libpq_options())
    except psycopg.Error as e:
        raise unreachable(e) from None
    with connection:
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for statement in SESSION:
            connection.execute(statement.encode())
        yield connection


class ServerWatch:
    """Checks every minute, during a query that may run for hours, whether the database answers a
    new connection. ``gone``: it does not, so that nothing more is to be waited for (L11)."""

    def __init__(self, query: DatabaseQuery) -> None:
        self._query, self._done = query, threading.Event()
        self.gone = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._look, name="database-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()  # a running check ends by itself

    def _look(self) -> None:
        failed = 0
        while not self._done.wait(_ANSWER_SECONDS):
            failed = 0 if _answers(self._query) else failed + 1
            if failed == _PROBES:
                self.gone = True
                return


def cancel(query: DatabaseQuery, session: int) -> None:
    """Has the server cancel what the session (its process id) runs. A stopped server obeys no
    order."""
    import psycopg

    from penstock.store.bounded_connection import Link

    with suppress(psycopg.Error):
        link = Link(lambda: CANCEL_SECONDS)
        with link.connect(libpq_url(query.url), **libpq_options()) as connection:
            connection.execute("SELECT pg_cancel_backend(%s)", (session,))


def connection_words(query: DatabaseQuery) -> str:
    """Returns the database's address and the connection's options, as libpq reads them. Raises
    ``SourceError`` if the address cannot be read."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    options = libpq_options() | {"application_name": f"penstock:{uuid.uuid4().hex[:12]}"}
    del options["prepare_threshold"]  # of psycopg
    try:
        return make_conninfo("", **(options | conninfo_to_dict(libpq_url(query.url))))
    except psycopg.Error as e:
        raise unreachable(e) from None


def _answers(query: DatabaseQuery) -> bool:
    """Returns whether the model's database answers a new connection."""
    import psycopg

    try:
        with transaction(query):
            return True
    except (SourceError, psycopg.Error):
        return False


def driver_missing() -> ConfigError:
    return ConfigError(
        "the model's query is run by Postgres, and its driver is not installed",
        code="source.driver_missing",
        hint=install_extra("postgres"),
    )


def unreachable(failure: Exception) -> SourceError:
    return SourceError(
        f"the model's database cannot be reached: {words(failure)}",
        code="source.unreachable",
        where="source.config.datasource",
        hint="check host, port, user and password of the datasource, and what may reach it",
    )


def words(failure: Exception) -> str:
    """Returns the database's message in one line."""
    message = getattr(getattr(failure, "diag", None), "message_primary", None)
    return " ".join(str(message or failure).split()) or type(failure).__name__
