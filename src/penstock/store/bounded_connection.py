"""Connects to Postgres so that every wait for the server also has a bound on this side (L11).

The server's own timeouts do not help if the server is stopped, or if bytes are lost while the
sockets stay open. Imports psycopg: import this module only when Postgres is used. Not here: the
bounds (``patience``), the options and settings of a session (``database_url``).

Each connection names itself (``application_name``). A connection that is given up here may live on
in the server, inside a transaction and with its locks. Its name is kept in :attr:`Link.lost`, and
the next connection ends that session. The name belongs to the connection even behind a pooler,
which sets it for the current user of a session; a process id would not."""

import time
import uuid
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen

from penstock.store import database_url

RV = TypeVar("RV")
_WAKE_SECONDS = 0.1
_NAME_BYTES = 63  # Postgres cuts names after these
_END_LOST = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = ANY(%s) AND pid <> pg_backend_pid()"
)


class Link:
    """Opens connections to one database. ``silence``: for how many seconds a statement may wait for
    a byte of the server; None: without limit. ``lost``: the names of connections that were given up
    and whose sessions may not have ended."""

    def __init__(self, silence: Callable[[], float | None]) -> None:
        self.silence = silence
        self.lost: set[str] = set()

    def connect(self, conninfo: str = "", **options: Any) -> "BoundedConnection":
        """Connects like ``psycopg.connect``, and raises the same errors."""
        unique = f":{uuid.uuid4().hex[:12]}"
        given = str(options.get("application_name") or "penstock")
        name = f"{given[: _NAME_BYTES - len(unique)]}{unique}"
        options["application_name"] = name
        silence = self.silence()
        if silence is not None and "connect_timeout" in options:
            most = min(int(options["connect_timeout"]), int(silence))
            options["connect_timeout"] = max(most, 2)  # libpq's least
        connection = BoundedConnection.connect(conninfo, **options)
        connection.link, connection.name = self, name
        return connection

    def end_lost(self, connection: "BoundedConnection") -> None:
        """Ends the sessions of connections that were given up, since they may hold locks."""
        if self.lost:
            names = [*self.lost]
            connection.execute(_END_LOST, (names,))
            self.lost.difference_update(names)


class BoundedConnection(psycopg.Connection[Any]):
    """A connection of a :class:`Link`. A wait that is too long closes the socket and raises
    ``OperationalError``. ``patient``: waits as long as the server takes, for a statement that has
    much to do (a migration)."""

    link: Link | None = None
    name = ""
    patient = False

    def wait(self, gen: PQGen[RV], *args: Any, **kw: Any) -> RV:
        try:
            try:
                wanted = next(gen)
            except StopIteration as end:  # nothing to wait for, as with most rows of a COPY
                return end.value
            bounded = self._bounded(gen, wanted)
            if self.link is None or self.link.silence() is None:
                return super().wait(bounded, *args, **kw)  # at a Ctrl-C it cancels a long query
            return self._wait_or_close(bounded)
        except (psycopg.OperationalError, KeyboardInterrupt):
            if self.closed and self.link is not None:
                self.link.lost.add(self.name)
            raise

    def _wait_or_close(self, gen: PQGen[RV]) -> RV:
        """Ends at once at a Ctrl-C: a stopped server would not obey an order to cancel."""
        try:
            return waiting.wait(gen, self.pgconn.socket, interval=_WAKE_SECONDS)
        except KeyboardInterrupt:
            self.pgconn.finish()
            raise

    def _bounded(self, gen: PQGen[RV], wanted: Any) -> Generator[Any, Any, RV]:
        """Passes on what ``gen`` waits for, and resumes several times a second, ready or not."""
        moved = time.monotonic()
        try:
            while True:
                ready = yield wanted
                if ready:
                    moved = time.monotonic()
                else:
                    self._refuse_silence(time.monotonic() - moved)
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _refuse_silence(self, seconds: float) -> None:
        most = None if self.link is None else self.link.silence()
        if self.patient and most is not None:
            most = max(most, database_url.MIGRATION_SECONDS)
        if most is not None and seconds > most:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server has not answered for {seconds:.0f} s")
