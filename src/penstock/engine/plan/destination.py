"""Provides a run's destination: tables that Penstock writes, or a connector.

Decides here, once, what differs between the two. Moves no record. Neighbours:
``engine.plan.destination_endpoint`` is the connector, ``tables`` has the formats,
``engine.plan.open_source`` opens the other end.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.endpoint import Save
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.state import StoredState
from penstock.model.types import Field
from penstock.store.contract import Store
from penstock.tables.contract import TableFormat, TableName
from penstock.tables.formats import open_table

D = TypeVar("D")


class TableDestination:
    """The tables of one format. Its public names are those of ``DestinationEndpoint``. ``place``:
    the destination as plan and report show it. ``connectors``: none. ``has_tables``: refreshes,
    ``--recreate``, ``schema_evolution`` and ``deletes`` apply. ``guarantee``: as in ``plan``.
    ``written_to``: returns the name of what a stream is written to; None: its table."""

    has_tables = takes_undeclared = True
    guarantee = "exactly-once"
    install_seconds = 0.0
    connectors: tuple[DestinationEndpoint, ...] = ()
    written_to = None

    def __init__(self, table: TableFormat) -> None:
        self.place = table
        self.takes_parts = table.takes_parts

    def problems(self, streams: Sequence[PlannedStream]) -> list[str]:
        del streams
        return []

    def columns_of(self, table: TableName) -> Sequence[Field] | None:
        return self.place.columns_of(table)

    def fidelity(self, source_protocol: str, streams: Sequence[PlannedStream]) -> list[str]:
        del source_protocol, streams
        return []

    def form(self) -> None:
        return None

    def sent_whole(
        self, streams: Sequence[PlannedStream], states: Sequence[StoredState]
    ) -> list[str]:
        del streams, states
        return []

    def delivery(
        self, tables: Callable[[TableFormat], D], connector: Callable[[DestinationEndpoint], D]
    ) -> D:
        """Calls the function for this kind of destination, and returns its result."""
        del connector
        return tables(self.place)


DestinationEnd = TableDestination | DestinationEndpoint


def destination_of(
    pipeline: Pipeline, home: Home, store: Store, observer: RunObserver, *, save: Save
) -> DestinationEnd:
    """Opens the pipeline's destination: a table format or a connector. Raises ``ConfigError``,
    ``SourceError``."""
    ref = parse_ref(pipeline.destination.use)
    if ref.kind is not RefKind.table:
        return DestinationEndpoint(pipeline, home, store, observer, save=save)
    return TableDestination(table_of(pipeline))


def table_of(pipeline: Pipeline) -> TableFormat:
    """Opens the table format of a destination that is a table. Raises ``ConfigError``."""
    ref = parse_ref(pipeline.destination.use)
    options = {k: str(v) for k, v in pipeline.destination.config.items()}
    path = options.pop("path", None) or ref.target
    if not path:
        raise ConfigError(
            f"the destination {pipeline.destination.use!r} has no path",
            code="config.destination",
            hint="write `config: {path: ./lake}`",
        )
    return open_table(ref.format or "", path, options)
