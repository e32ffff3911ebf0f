"""Reads the rows that a Spark job has staged for a lane, and says what a model takes.

Rows stay columns. Not here: the query, which Spark alone runs (``engine.plan.endpoints`` has it
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
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    CheckResult,
    ConfiguredStream,
    ConnectorSpec,
    Stream,
)
from penstock.model.events import Batch, Event, Exited, Log, State, Status, StreamStatus
from penstock.model.staged_rows import KEY, StagedRows
from penstock.model.state import StateScope, StateType
from penstock.protocols.contract import EventSink, ReadRequest, StreamWish
from penstock.protocols.spark.stream_config import configure
from penstock.runtimes.contract import ConnectionStats, Timeouts

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
    },
}


class SparkSource:
    """``SourceRole`` and ``SourceConversation`` of ``protocols.contract``; the runtime is what
    reading is measured by."""

    def catalog_of(self, raw: Any) -> Catalog:
        del raw
        raise ConfigError(
            "a query takes no catalog file", code="config.catalog", hint="leave `catalog` out"
        )

    def configure(self, stream: Stream, wish: StreamWish) -> ConfiguredStream:
        return configure(stream, wish)

    def spec(self, runtime: ConnectionStats, timeouts: Timeouts, log: EventSink) -> ConnectorSpec:
        del runtime, timeouts, log
        return ConnectorSpec(protocol=PROTOCOL, config_schema=_CONFIG)

    def check(
        self, runtime: ConnectionStats, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> CheckResult:
        del runtime, config, timeouts, log
        return CheckResult(True, _LATER)

    def discover(
        self, runtime: ConnectionStats, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> Catalog:
        del runtime, config, timeouts
        log(Log("INFO", f"{_LATER}; its columns are known then"))
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
        for path in staged.files:
            for table in _tables(path, staged):
                runtime.bytes += table.nbytes
                times = [staged.at] * table.num_rows
                yield Batch(stream, Columns(table), times, size=table.nbytes)
        if staged.state is not None:
            yield State(scope, staged.state)
        yield StreamStatus(stream, Status.complete)
        yield Exited(0)


def _tables(path: str, staged: StagedRows) -> Iterator[Table]:
    """The rows of one file under their original names; columns that are never null say so."""
    import pyarrow.parquet as pq

    wanted = [f"c{index}" for index in range(len(staged.columns))]
    for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=wanted):
        table: Table = pa.Table.from_batches([batch])
        fields = [
            field.with_name(name).with_nullable(name not in staged.required)
            for field, name in zip(table.schema, staged.columns, strict=True)
        ]
        if table.num_rows:
            yield pa.Table.from_arrays(table.columns, schema=pa.schema(fields))
