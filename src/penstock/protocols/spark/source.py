"""Reads the rows that a Spark job has staged for a lane, and says what a model takes.

Rows stay columns. Not here: the query, which Spark alone runs (``engine.plan.model_source`` has it
analysed, ``engine.sync.model_rows`` has its rows staged); so that what is asked without Spark
(``check``, ``discover``) answers as far as nothing has to be run. Neighbours: ``stream_config`` has
the rules for modes, ``model.staged_rows`` says what is read.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec.columns import Columns
from penstock.codec.untyped import Table
from penstock.codec.untyped import compute as pc
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    Change,
    CheckResult,
    ConfiguredStream,
    ConnectorSpec,
    Stream,
    StreamId,
)
from penstock.model.events import (
    Batch,
    ComparedRows,
    ConnectorExited,
    Event,
    LogEvent,
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
    KEY,
    KIND,
    LINE,
    REASONS,
    SEND,
    StagedRows,
)
from penstock.model.state import StateScope, StateType
from penstock.protocols.connection import EventSink
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.spark.stream_config import configure
from penstock.runtimes.contract import ConnectionStats, RunTimeouts

PROTOCOL = "spark"
_LATER = "Spark reads the query when a pipeline of it runs"
_ROWS = 1 << 16
_CONFIG = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "stream": {
            "type": "string",
            "minLength": 1,
            "description": "The name of the stream. Default: that of the table or file; `query`.",
        },
        "datasource": {
            "type": "string",
            "minLength": 1,
            "secret": True,
            "description": "The database that runs the query in Spark's place: "
            "postgres://USER:PASSWORD@HOST/DATABASE.",
        },
        "separator": {
            "type": "string",
            "pattern": r"^[\t !#-~]$",
            "description": "Of CSV and TSV files: what stands between fields, one character of "
            "ASCII. Default: a comma, of TSV a tab.",
        },
        "escape": {
            "type": "string",
            "enum": ["", "\\"],
            "default": "",
            "description": "Of CSV and TSV files: a backslash takes the meaning from the character "
            "after it. Default: a backslash is a character like others (RFC 4180).",
        },
        "allow_empty": {
            "type": "boolean",
            "default": False,
            "description": "A query without rows may have all rows that were sent removed.",
        },
    },
}


class SparkSource:
    """``contract.SourceRole`` and ``connection.SourceConversation`` of ``protocols``; the runtime
    is what reading is measured by."""

    def catalog_of(self, raw: Any) -> Catalog:
        del raw
        raise ConfigError(
            "a query takes no catalog file", code="config.catalog", hint="leave `catalog` out"
        )

    def configure(self, stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
        return configure(stream, overrides)

    def spec(
        self, runtime: ConnectionStats, timeouts: RunTimeouts, log: EventSink
    ) -> ConnectorSpec:
        del runtime, timeouts, log
        return ConnectorSpec(protocol=PROTOCOL, config_schema=_CONFIG)

    def check(
        self,
        runtime: ConnectionStats,
        config: dict[str, Any],
        timeouts: RunTimeouts,
        log: EventSink,
    ) -> CheckResult:
        del runtime, config, timeouts, log
        return CheckResult(True, _LATER)

    def discover(
        self,
        runtime: ConnectionStats,
        config: dict[str, Any],
        timeouts: RunTimeouts,
        log: EventSink,
    ) -> Catalog:
        del runtime, config, timeouts
        log(LogEvent("INFO", f"{_LATER}; its columns are known then"))
        return Catalog((), open=True)

    def read(self, runtime: ConnectionStats, request: ReadRequest) -> Iterator[Event]:
        runtime.spoke = True
        if KEY not in request.config:
            raise ConfigError(
                "a query is read by Spark: it cannot be read here",
                code="source.needs_spark",
                hint="run it: `penstock run SOURCE DESTINATION --dry-run --limit 20` keeps nothing",
            )
        staged = msgspec.convert(request.config[KEY], StagedRows)
        stream = request.streams[0].id
        scope = StateScope(StateType.stream, stream)
        for index, path in enumerate(staged.files):
            for event in _events(path, staged, stream):
                runtime.bytes += event.size
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
    """The rows of one file that are sent, those that are refused, and those that transforms are
    only to be tried on."""
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
    """The lines of one file of staged rows that are no rows."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=[BROKEN, LINE]):
        yield from _broken(pa.Table.from_batches([batch]), stream)


def _broken(table: Table, stream: StreamId) -> Iterator[Reject]:
    for row in table.select([BROKEN, LINE]).filter(pc.is_valid(table[BROKEN])).to_pylist():
        yield Reject(stream, row[BROKEN], row[LINE], size=len(row[LINE]))


def _bodies(table: Table, staged: StagedRows) -> Iterator[tuple[Table, Sequence[bytes]]]:
    """The rows as the bodies of batches, in their order: those with GIVEN as what was given."""
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
    """Rows with the texts of their fields in the place of the columns."""
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
    keys = keys.replace_schema_metadata()  # Spark's own tells of all columns
    held = table.column(HELD).combine_chunks()
    return ComparedRows(keys, held, staged.folder, staged.at, staged.removals, probe)


def _named(table: Table, staged: StagedRows) -> Table:
    """Rows under the columns' original names; columns that are never null say so, and a removed
    row when that was seen, in the model's own column where it has one for that."""
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
