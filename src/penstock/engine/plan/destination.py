"""The destination of a pipeline, as a run takes it: tables that Penstock writes, or a connector.

What differs between the two is asked here, once. Moves no record. Neighbours:
``engine.plan.destination_endpoint`` is the connector, ``tables`` has the formats,
``engine.plan.open_source`` opens the other end.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.endpoint import Save
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.store.contract import Store
from penstock.tables.contract import PlannedDestination, TableFormat
from penstock.tables.formats import open_table

D = TypeVar("D")


class DestinationEnd(Protocol):
    """The destination of a pipeline. ``has_tables``: Penstock writes its tables; refreshes,
    ``--recreate``, ``schema_evolution`` and ``deletes`` are for these alone. ``guarantee``: as of
    ``penstock plan``. ``install_seconds``: that it took to install it."""

    has_tables: bool
    guarantee: str
    install_seconds: float

    @property
    def place(self) -> PlannedDestination:
        """The destination as plan and report see it."""
        ...

    @property
    def connectors(self) -> "Sequence[DestinationEndpoint]":
        """Its connector; none where it has tables."""
        ...

    @property
    def takes_undeclared(self) -> bool:
        """Whether it takes undeclared properties by default."""
        ...

    @property
    def takes_parts(self) -> bool:
        """As of ``TableFormat``."""
        ...

    @property
    def written_to(self) -> Callable[[PlannedStream], str] | None:
        """Names what a stream is written to; None: its table."""
        ...

    def problems(self, streams: Sequence[PlannedStream]) -> list[str]:
        """Returns the reasons why it cannot take these streams, a sentence each."""
        ...

    def fidelity(self, source_protocol: str, streams: Sequence[PlannedStream]) -> list[str]:
        """Returns the types and values that it narrows or loses, a sentence each."""
        ...

    def delivery(
        self,
        tables: Callable[[TableFormat], D],
        connector: Callable[[DestinationEndpoint], D],
    ) -> D:
        """Returns what the function makes that is for its kind."""
        ...


class TableDestination:
    """Implements :class:`DestinationEnd` for the tables of one format."""

    has_tables = takes_undeclared = True
    guarantee = "exactly-once"
    install_seconds = 0.0
    connectors: "tuple[DestinationEndpoint, ...]" = ()
    written_to = None

    def __init__(self, table: TableFormat) -> None:
        self.place: PlannedDestination = table
        self._table = table

    @property
    def takes_parts(self) -> bool:
        return self._table.takes_parts

    def problems(self, streams: Sequence[PlannedStream]) -> list[str]:
        del streams
        return []

    def fidelity(self, source_protocol: str, streams: Sequence[PlannedStream]) -> list[str]:
        del source_protocol, streams
        return []

    def delivery(
        self,
        tables: Callable[[TableFormat], D],
        connector: Callable[[DestinationEndpoint], D],
    ) -> D:
        del connector
        return tables(self._table)


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
