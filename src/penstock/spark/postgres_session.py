"""Opens a session on the Postgres that runs a model's query, and bounds the waits for it (L11).

A query may run for hours, so that no wait for its rows has a bound of time alone: another
connection looks whether the server still answers, and a run that was stopped cancels the query. Not
here: the query, its columns and rows (``postgres``). Connections are those of the store
(``store.bounded_connection``).
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.config.packages import install_extra
from penstock.errors import ConfigError, SourceError
from penstock.spark.model import Model
from penstock.store.database_url import libpq_options, libpq_url

if TYPE_CHECKING:
    import psycopg

_CANCEL_SECONDS = 5.0
_ANSWER_SECONDS = 60.0  # for what is no query of the user's; and between two looks at the server
_PROBES = 2  # that fail one after the other: the server is gone
_SESSION = (
    "SET TIME ZONE 'UTC'",
    "SET datestyle = 'ISO'",
    "SET intervalstyle = 'iso_8601'",
    "SET client_encoding = 'UTF8'",
)


class Silence:
    """For how many seconds the server may be silent now; None: for as long as a query takes."""

    def __init__(self) -> None:
        self.seconds: float | None = _ANSWER_SECONDS

    def most(self) -> float | None:
        return self.seconds


@contextmanager
def transaction(model: Model, bound: Silence) -> "Generator[psycopg.Connection[Any]]":
    """One read-only transaction that sees one state of the database."""
    assert model.database is not None
    try:
        import psycopg

        from penstock.store.bounded_connection import Link
    except ImportError:
        raise ConfigError(
            "the model's query is run by Postgres, and its driver is not installed",
            code="source.driver_missing",
            hint=install_extra("postgres"),
        ) from None
    try:
        url = libpq_url(model.database.url)
        connection = Link(bound.most).connect(url, **libpq_options())
    except psycopg.Error as e:
        raise unreachable(e) from None
    with connection:
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for statement in _SESSION:
            connection.execute(statement.encode())
        yield connection


@contextmanager
def cancelled_when(
    connection: "psycopg.Connection[Any]",
    model: Model,
    bound: Silence,
    stopped: Callable[[], bool],
    every: float,
) -> Generator[None]:
    """Lets a query run for hours, until the run is cancelled or the server answers no new
    connection (L11)."""
    import psycopg

    done = threading.Event()

    def watch() -> None:
        looked, failed = time.monotonic(), 0
        while not done.wait(every):
            if stopped():
                bound.seconds = _CANCEL_SECONDS
                with suppress(psycopg.Error):  # a server that is stopped takes no order
                    connection.cancel_safe(timeout=_CANCEL_SECONDS)
            elif time.monotonic() - looked > _ANSWER_SECONDS:
                failed = 0 if _answers(model) else failed + 1
                looked = time.monotonic()
                if failed == _PROBES:
                    bound.seconds = 0.0

    thread = threading.Thread(target=watch, name="penstock-model-database", daemon=True)
    bound.seconds = None
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _answers(model: Model) -> bool:
    """Whether the model's database answers a new connection."""
    import psycopg

    try:
        with transaction(model, Silence()):
            return True
    except (SourceError, psycopg.Error):
        return False


def unreachable(failure: Exception) -> SourceError:
    return SourceError(
        f"the model's database cannot be reached: {words(failure)}",
        code="source.unreachable",
        where="source.config.datasource",
        hint="check host, port, user and password of the datasource, and what may reach it",
    )


def words(failure: Exception) -> str:
    """The database's message in one line."""
    message = getattr(getattr(failure, "diag", None), "message_primary", None)
    return " ".join(str(message or failure).split()) or type(failure).__name__
