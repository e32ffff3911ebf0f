"""Reads the rows of a query that a database runs for a lane, as the events of a source.

Rows stay in columns. Not here: the database (``databases``), rows that Spark compares with the rows
sent before (``database_files``). Neighbour: ``engine.worker.lane`` seals what is read.
"""

from collections.abc import Generator
from contextlib import closing
from decimal import Decimal
from typing import Any

from penstock.codec.columns import Columns
from penstock.codec.untyped import Array, Table, pa
from penstock.codec.untyped import compute as pc
from penstock.databases.postgres_rows import DatabaseRows
from penstock.model.catalog import StreamId
from penstock.model.database_query import DatabaseRead
from penstock.model.events import (
    Batch,
    ConnectorExited,
    Event,
    State,
    Status,
    StreamStatus,
    Tick,
)
from penstock.model.staged_rows import cursor_state
from penstock.model.state import StateScope, StateType
from penstock.runtimes.contract import ConnectionStats

TICK_SECONDS = 0.5


def database_events(
    read: DatabaseRead, stream: StreamId, stats: ConnectionStats
) -> Generator[Event]:
    """Yields the rows as a source's events; the last one is ``ConnectorExited``. ``stats``: counts
    the bytes. Raises what ``DatabaseRows.tables`` raises."""
    stats.spoke = True
    highest = HighestCursor()
    with closing(DatabaseRows(read, TICK_SECONDS).tables()) as tables:
        for table in tables:
            if table is None:
                yield Tick()
                continue
            if read.follows is not None:
                highest.add(_column(table, read.follows))
            stats.bytes += table.nbytes
            rows = Columns(table)
            yield Batch(stream, rows, [read.at] * len(rows), size=table.nbytes)
    state = read.last
    if read.follows is not None and (found := highest.text()) is not None:
        state = cursor_state(stream, read.follows, found)
    if state is not None:
        yield State(StateScope(StateType.stream, stream), state)
    yield StreamStatus(stream, Status.complete)
    yield ConnectorExited(0)


class HighestCursor:
    """Finds the highest value of a column that comes in pieces. Ignores NaN."""

    def __init__(self) -> None:
        self._found: Any = None

    def add(self, column: Array) -> None:
        """Adds a piece."""
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        top = pc.max(column)
        if not top.is_valid:
            return
        both = [top] if self._found is None else [self._found, top]
        self._found = pc.max(pa.array([one.as_py() for one in both], column.type))

    def text(self) -> str | None:
        """Returns the value as Spark writes it, timestamps in UTC; None: there was none."""
        if self._found is None:
            return None
        value, kind = self._found.as_py(), self._found.type
        if pa.types.is_timestamp(kind):
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text if kind.tz is None else f"{text}Z"
        if isinstance(value, Decimal):
            return f"{value:f}"
        if isinstance(value, float):
            return repr(value).replace("inf", "Infinity")
        return str(value)


def _column(table: Table, name: str) -> Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
