"""Declares a model's options, and answers ``check`` and ``discover`` without Spark as far as
nothing has to be run.

Not here: its columns (``engine.plan.model_source``), its rows (``engine.query``, in the lane
``engine.worker.staged_source``). Neighbour: ``stream_config`` has the rules for modes.
"""

from collections.abc import Iterator
from typing import Any

from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, CheckResult, ConfiguredStream, ConnectorSpec, Stream
from penstock.model.events import Event, LogEvent
from penstock.protocols.connection import EventSink
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.spark.stream_config import configure
from penstock.runtimes.contract import ConnectionStats, RunTimeouts

PROTOCOL = "spark"
_LATER = "Spark reads the query when a pipeline of it runs"
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
            "description": "The database that runs the query instead of Spark: "
            "postgres://USER:PASSWORD@HOST/DATABASE.",
        },
        "separator": {
            "type": "string",
            "pattern": r"^[\t !#-~]$",
            "description": "Of CSV and TSV files: the character of ASCII between fields. Default: "
            "a comma; of TSV a tab.",
        },
        "escape": {
            "type": "string",
            "enum": ["", "\\"],
            "default": "",
            "description": "Of CSV and TSV files: a backslash escapes the character after it. "
            "Default: a backslash is a character like others (RFC 4180).",
        },
        "allow_empty": {
            "type": "boolean",
            "default": False,
            "description": "A query without rows may remove all rows that were sent.",
        },
    },
}


class SparkSource:
    """``contract.SourceRole`` and ``connection.SourceConversation`` of ``protocols``; its runtime
    is not used."""

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
        del runtime, request
        raise ConfigError(
            "a query is read by Spark: it cannot be read here",
            code="source.needs_spark",
            hint="run it: `penstock run SOURCE DESTINATION --dry-run --limit 20` keeps nothing",
        )
