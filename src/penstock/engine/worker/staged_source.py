"""Reads the rows that a query's reader has staged for a lane, as the events of a source.

Rows stay in columns. Not here: the query, which only Spark runs (``engine.query.query_reader`` has
its rows staged). Neighbours: ``model.staged_rows`` defines what is read, ``engine.worker.lane``
seals it.
"""

from collections.abc import Generator, Iterator, Sequence

from penstock.codec.columns import Columns
from penstock.codec.untyped import Table, pa
from penstock.codec.untyped import compute as pc
from penstock.model.catalog import Change, StreamId
from penstock.model.events import (
    Batch,
    ComparedRows,
    ConnectorExited,
    Event,
    Reject,
    State,
    Status,
    StreamStatus,
)
from penstock.model.staged_rows import (
    BROKEN,
    DELETED_AT,
    GIVEN,
    HELD,
    KIND,
    LINE,
    REASONS,
    SEND,
    StagedRows,
)
from penstock.model.state import StateScope, StateType
from penstock.runtimes.contract import ConnectionStats

_ROWS = 1 << 16


def staged_events(staged: StagedRows, stream: StreamId, stats: ConnectionStats) -> Generator[Event]:
    """Yields the rows as a source's events; the last one is ``ConnectorExited``. ``stats``: counts
    the bytes."""
    stats.spoke = True
    scope = StateScope(StateType.stream, stream)
    for index, path in enumerate(staged.files):
        for event in _events(path, staged, stream):
            stats.bytes += event.size
            yield event
        if staged.states:
            yield State(scope, staged.states[index])
    for path in staged.broken if staged.changes else ():
        yield from _broken_lines(path, stream)
    if staged.last is not None:
        yield State(scope, staged.last)
    yield StreamStatus(stream, Status.complete)
    yield ConnectorExited(0)


def _events(path: str, staged: StagedRows, stream: StreamId) -> Iterator[Batch | Reject]:
    """Yields the rows of one file that are sent, those that are refused, and those that only test
    the transforms."""
    import pyarrow.parquet as pq

    wanted = [f"c{index}" for index in range(len(staged.columns))]
    columns = [*wanted, KIND, SEND] if staged.changes else wanted
    whole = not staged.changes and bool(staged.broken)
    columns += [*([GIVEN] if staged.given else []), *([BROKEN, LINE] if whole else [])]
    columns = [*columns, HELD] if staged.compared else columns
    for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=columns):
        table: Table = pa.Table.from_batches([batch])
        if whole:
            yield from _broken(table, stream)
            table = table.filter(pc.is_null(table[BROKEN]))
        if staged.changes:
            for kind, reason in REASONS.items():
                for _, rows in _bodies(table.filter(pc.field(KIND) == kind), staged):
                    for raw in rows:
                        yield Reject(stream, reason, raw, size=len(raw))
            if staged.compared:
                yield from _probed(
                    table.filter(pc.field(KIND) == Change.same.value), staged, stream
                )
            table = table.filter(pc.field(SEND))
        for part, rows in _bodies(table, staged):
            size = rows.table.nbytes if isinstance(rows, Columns) else sum(map(len, rows))
            times, compared = [staged.at] * len(rows), _compared(part, staged)
            yield Batch(stream, rows, times, size=size, compared=compared)


def _broken_lines(path: str, stream: StreamId) -> Iterator[Reject]:
    """Yields the lines of one file of staged rows that are not rows."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=[BROKEN, LINE]):
        yield from _broken(pa.Table.from_batches([batch]), stream)


def _broken(table: Table, stream: StreamId) -> Iterator[Reject]:
    for row in table.select([BROKEN, LINE]).filter(pc.is_valid(table[BROKEN])).to_pylist():
        yield Reject(stream, row[BROKEN], row[LINE], size=len(row[LINE]))


def _bodies(table: Table, staged: StagedRows) -> Iterator[tuple[Table, Sequence[bytes]]]:
    """Yields the rows as the bodies of batches, in their order; rows with GIVEN as they were
    given."""
    if not table.num_rows:
        return
    if not staged.given or table[GIVEN].null_count == table.num_rows:
        yield table, Columns(_named(table, staged))
        return
    mask = table[GIVEN].is_valid().to_pylist()
    first = 0
    for number in range(1, len(mask) + 1):
        if number < len(mask) and mask[number] == mask[first]:
            continue
        rows = table.slice(first, number - first)
        if not mask[first]:
            yield rows, Columns(_named(rows, staged))
        elif staged.given == "record":
            yield rows, [each[0].encode() for each in rows[GIVEN].to_pylist()]
        else:
            yield rows, Columns(_named(_as_given(rows, staged), staged))
        first = number


def _as_given(rows: Table, staged: StagedRows) -> Table:
    """Returns the rows with the texts of their fields in place of the columns."""
    given = rows[GIVEN].combine_chunks()
    for index in range(len(staged.columns)):
        at = rows.column_names.index(f"c{index}")
        rows = rows.set_column(at, f"c{index}", pc.list_element(given, index))
    return rows


def _probed(table: Table, staged: StagedRows, stream: StreamId) -> Iterator[Batch]:
    for part, rows in _bodies(table, staged):
        times, compared = [staged.at] * len(rows), _compared(part, staged, probe=True)
        yield Batch(stream, rows, times, stands_for=0, compared=compared)


def _compared(table: Table, staged: StagedRows, *, probe: bool = False) -> ComparedRows | None:
    if not staged.compared:
        return None
    keys = table.select([f"c{index}" for index in staged.compared])
    keys = keys.replace_schema_metadata()  # Spark's own metadata lists all columns
    held = table.column(HELD).combine_chunks()
    return ComparedRows(keys, held, staged.folder, staged.at, staged.removals, probe)


def _named(table: Table, staged: StagedRows) -> Table:
    """Returns the rows under the columns' original names. Marks columns that are never null. A
    removed row has the time at which the removal was seen, in the model's own column for this if
    there is one."""
    wanted = [f"c{index}" for index in range(len(staged.columns))]
    values = table.select(wanted)
    fields = [
        field.with_name(name).with_nullable(name not in staged.required)
        for field, name in zip(values.schema, staged.columns, strict=True)
    ]
    columns = list(values.columns)
    if staged.removals:
        at = pa.scalar(staged.at, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        gone = pc.equal(table[KIND], Change.removed.value)
        if DELETED_AT in staged.columns:
            own = staged.columns.index(DELETED_AT)
            columns[own] = pc.if_else(gone, at.cast(columns[own].type), columns[own])
        else:
            columns.append(pc.if_else(gone, at, pa.scalar(None, at.type)))
            fields.append(pa.field(DELETED_AT, at.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
