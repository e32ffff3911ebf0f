"""Queries a source connector: the facade of the source role.

Validates the config against the connector's own schema before the connector gets it, and masks its
secrets in every answer, error and line (L10). Not here: a run's reading (``engine`` does that over
``launch.connect``), building (``install``).
"""

from collections.abc import Generator
from pathlib import Path
from typing import Any

from penstock.connectors import kept_catalog
from penstock.connectors.connector import RunnableConnector
from penstock.connectors.kept_catalog import KeptCatalog
from penstock.connectors.launch import connect
from penstock.connectors.reference import ConnectorRef
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog
from penstock.model.events import Event, LogEvent
from penstock.protocols.contract import ProtocolPackage, SourceRole
from penstock.protocols.reading import ReadRequest
from penstock.runtimes.contract import ConnectionStats, RunTimeouts
from penstock.runtimes.masking import Masker

DISCOVER_TIMEOUTS = RunTimeouts(total=3600.0)


class SourceConnector(RunnableConnector):
    """A source that can be run; see ``RunnableConnector``. Methods raise ``SourceError``."""

    ROLE = "source"

    @classmethod
    def takes(cls, ref: ConnectorRef, protocol: ProtocolPackage) -> None:
        role_of(protocol, ref)

    @property
    def role(self) -> SourceRole:
        return role_of(self.protocol, self.ref)

    def kept_catalog(self, key: str) -> KeptCatalog | None:
        """Returns the catalog that the last discovery returned under the configuration with hash
        ``key``; None for a local source, whose code may have changed."""
        return None if self._entry is None else kept_catalog.load(Path(self._entry.path), key)

    def keep_catalog(self, key: str, catalog: Catalog, *, first: bool = False) -> None:
        """Keeps the catalog of an installed source. ``first``: from now on the source is discovered
        before it is read."""
        if self._entry is not None:
            kept_catalog.store(Path(self._entry.path), key, catalog, first=first)

    def discover(
        self, config: dict[str, Any], timeouts: RunTimeouts = DISCOVER_TIMEOUTS
    ) -> Catalog:
        """Returns the source's catalog, and logs notes on it. Raises ``ConfigError`` (the config
        does not fit), ``SourceError``."""
        self._consented()
        self._validated(config)
        with self._asked(self.secrets(config)) as connection:
            catalog = connection.discover(config, timeouts, self._log)
        for note in catalog.notes:
            self._log(LogEvent("WARN", note))
        return catalog

    def read(self, request: ReadRequest) -> Generator[Event]:
        """Yields the source's events, in this process (`penstock preview`); its stderr is
        dropped."""
        secrets = Masker(self.secrets(request.config))
        return connect(self.launch(), secrets, ConnectionStats()).read(request)


def role_of(protocol: ProtocolPackage, ref: ConnectorRef) -> SourceRole:
    """Returns the protocol's rules for sources. Raises ``ConfigError``
    (``connector.not_a_source``)."""
    if protocol.source is None:
        raise ConfigError(
            f"{ref.text!r} is not a source connector: the {protocol.name} protocol has none",
            code="connector.not_a_source",
            hint="use it as a destination, or a source of another protocol",
        )
    return protocol.source
