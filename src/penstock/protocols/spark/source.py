"""Reads the rows that a Spark job has staged for a lane, and says what a model takes.

Rows stay columns. Not here: the query, which Spark alone runs (``engine.plan.model_source`` has it
analysed, ``engine.sync.model_rows`` has its rows staged); so that what is asked without Spark
(``check``, ``discover``) answers as far as nothing has to be run. Neighbours: ``stream_config`` has
the rules for modes, ``model.staged_rows`` says what is read.
"""

from collections.abc import Iterator
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
    ConnectorExited,
    Event,
    LogEvent,
    Reject,
    State,
    Status,
    StreamStatus,
)
from penstock.model.staged_rows import DELETED_AT, KEY, KIND, REASONS, SEND, StagedRows
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
        if staged.last is not None:
            yield State(scope, staged.last)
        yield StreamStatus(stream, Status.complete)
        yield ConnectorExited(0)


def _events(path: str, staged: StagedRows, stream: StreamId) -> Iterator[Batch | Reject]:
    """The rows of one file that are sent, and those that are refused."""
    import pyarrow.parquet as pq

    wanted = [f"c{index}" for index in range(len(staged.columns))]
    columns = [*wanted, KIND, SEND] if staged.changes else wanted
    for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=columns):
        table: Table = pa.Table.from_batches([batch])
        if staged.changes:
            for kind, reason in REASONS.items():
                refused = Columns(_named(table.filter(pc.field(KIND) == kind), staged))
                for raw in refused:
                    yield Reject(stream, reason, raw, size=len(raw))
            table = table.filter(pc.field(SEND))
        if table.num_rows:
            rows = _named(table, staged)
            yield Batch(stream, Columns(rows), [staged.at] * len(rows), size=rows.nbytes)


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
