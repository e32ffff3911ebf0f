"""Defines a query that a database runs, and one read of that query.

Data only. Neighbours: ``databases`` runs it, ``engine.worker.database_source`` reads it in a
lane."""

import msgspec

CURSOR = "cursor"
"""The name of the cursor parameter in a query that is read incrementally."""


class DatabaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """``url``: the database's address, which may hold a password. ``pieces``: the query's text, cut
    at each parameter ``:cursor``. ``name``: of its stream. ``where``: its position in the pipeline
    file, for errors."""

    url: str
    pieces: tuple[str, ...]
    name: str
    where: str = "source.use"

    def __repr__(self) -> str:
        return f"DatabaseQuery({self.name!r}, ...)"


class DatabaseRead(msgspec.Struct, frozen=True, kw_only=True):
    """One read of a query. ``cursor``: a column, and the value as text that ``:cursor`` is bound
    to; None: NULL. ``limit``: the most rows. ``at``: when it began, epoch milliseconds.
    ``follows``: the column whose highest value is the state of the rows. ``last``: the state if
    there is no such column; None: there is none."""

    query: DatabaseQuery
    cursor: tuple[str, str] | None = None
    limit: int | None = None
    at: int = 0
    follows: str | None = None
    last: str | None = None
