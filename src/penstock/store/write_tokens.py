"""Recognises a write transaction whose commit got no answer, by a token that it wrote itself.

Each write of a run into Postgres puts its own token into a row of ``penstock_names``, in the
statement that reads the server's clock. If the answer to the commit is lost, a new connection locks
the pipeline's row, which waits until the old session has ended, and looks for the token: it exists
if, and only if, the transaction was committed. Concurrent writes have different rows. SQLite needs
none of this: it answers. Not here: the lease (``sql``), when a write is repeated (``patience``)."""

import json
import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.engine import Connection

_KIND = "write:"  # of the rows; ``remembered`` has no such kind, so they mean nothing to it
_PUT = text(
    "INSERT INTO penstock_names (pipeline, kind, body) VALUES (:pipeline, :kind, :body) "
    "ON CONFLICT (pipeline, kind) DO UPDATE SET body = excluded.body "
    "RETURNING extract(epoch FROM clock_timestamp())"
)
_FIND = text("SELECT body FROM penstock_names WHERE pipeline = :pipeline AND kind = :kind")


class WriteToken(NamedTuple):
    """Names one write transaction. ``kind``: the row that has its token."""

    pipeline: str
    kind: str
    body: str


class WriteTokens:
    """Gives rows to the write transactions of one process; safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    @contextmanager
    def one(self, pipeline: str) -> Generator[WriteToken]:
        """Draws the token of a write, whose row no other write has during the block."""
        with self._lock:
            slot = next(n for n in range(len(self._taken) + 1) if n not in self._taken)
            self._taken.add(slot)
        try:
            yield WriteToken(pipeline, f"{_KIND}{slot}", json.dumps({"token": uuid.uuid4().hex}))
        finally:
            with self._lock:
                self._taken.discard(slot)


def put(conn: Connection, written: WriteToken) -> float:
    """Writes the token; returns the server's clock, in seconds since 1970."""
    return float(conn.scalar(_PUT, written._asdict()) or 0)


def is_put(conn: Connection, written: WriteToken) -> bool:
    """Returns whether the transaction that was to write this token is committed. The caller holds a
    lock that the transaction holds until its end."""
    named = {"pipeline": written.pipeline, "kind": written.kind}
    return conn.scalar(_FIND, named) == written.body
