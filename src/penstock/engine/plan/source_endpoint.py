"""The source of a pipeline: asks its connector for the streams, and keeps that answer.

Moves no record. Neighbours: ``engine.plan.open_source`` makes it, ``engine.plan.model_source`` is
the source that Spark reads, ``engine.plan.prepare`` and the verbs that move no data start here.
"""

import time
from collections.abc import Callable, Set
from typing import Any

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.connectors.source import SourceConnector
from penstock.engine.plan.endpoint import SOURCE, Endpoint, Save
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog
from penstock.protocols.connection import EventSink
from penstock.store.contract import Store


class SourceEndpoint(Endpoint[SourceConnector]):
    """The source. ``connect``: returns the connector, which sends events beside its answers to the
    sink. ``cached_at``: when the source sent the catalog that :meth:`discover` returned from the
    cache (seconds since 1970); None: it was asked now."""

    def __init__(
        self,
        pipeline: Pipeline,
        connect: Callable[[EventSink], SourceConnector],
        store: Store,
        observer: RunObserver,
        *,
        save: Save,
    ) -> None:
        super().__init__(pipeline, pipeline.source, SOURCE, store, observer, save)
        self._section = pipeline.source
        self.cached_at: float | None = None
        began = time.monotonic()
        self.connector = connect(self.take)
        self.connector.changed(self.user_config, self.config)
        self.install_seconds = time.monotonic() - began
        self.package = self.connector.protocol

    def discover(self, *, refresh: bool = False) -> Catalog:
        """Returns the source's catalog, or that of the catalog file that the user gives. An
        installed source is asked once a day and configuration (the user's: one that the source
        changes itself, as a rotating token, makes no other catalog); ``refresh``: it is asked now.
        Raises ``ConfigError``, ``SourceError``."""
        self.cached_at = None
        if self._section.catalog is None:
            kept = None if refresh else self.connector.kept_catalog(self.base_hash)
            if kept is not None:
                self.cached_at = kept.at
                return kept.catalog
            self.observer.phase("discover", f"asking {self._section.use} for its streams")
            catalog = self.connector.discover(self.config, self.timeouts)
            self.connector.keep_catalog(self.base_hash, catalog)
            return catalog
        with open(self._section.catalog, "rb") as file:
            try:
                raw = msgspec.json.decode(file.read())
            except msgspec.DecodeError as e:
                raise ConfigError(
                    f"the catalog file {self._section.catalog} is not JSON: {e}",
                    code="config.catalog",
                    hint="give what the tap's `--discover` prints",
                ) from e
        return self.connector.role.catalog_of(raw)

    def drifted(self, undeclared: Set[str]) -> bool:
        """Takes the properties that records had and the catalog lacks; returns whether the next run
        asks the source for its catalog because of them."""
        asked = self.cached_at is None
        return self.connector.catalog_drift(self.base_hash, undeclared, asked=asked)

    def forget_catalog(self) -> None:
        """Drops the cached catalog, so that the next run asks the source."""
        self.connector.forget_catalog(self.base_hash)

    def abilities(self) -> dict[str, Any]:
        """Returns the abilities that the connector's spec declares, overridden by those of the
        pipeline file."""
        return {**self.connector.spec().abilities, **self._section.protocol_keys}
