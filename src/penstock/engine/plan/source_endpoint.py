"""Represents the source of a pipeline: discovers its streams through its connector, before or
during the read.

Moves no record. Neighbours: ``engine.plan.open_source`` makes it, ``engine.plan.model_source`` is
the source that Spark reads, ``engine.plan.prepare`` and the commands that move no data start here,
``engine.plan.catalog_check`` waits for a discovery during the read.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.connectors.source import SourceConnector
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.plan.background_discovery import BackgroundDiscovery
from penstock.engine.plan.endpoint import SOURCE, Endpoint, Save
from penstock.engine.plan.given_catalog import given
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.specs.lane import LaneReader
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import Catalog, StreamId
from penstock.model.events import Control, Event
from penstock.model.staged_rows import RowForm
from penstock.model.state import StoredState
from penstock.model.types import DataType
from penstock.protocols.connection import EventSink
from penstock.store.contract import Store
from penstock.tables.contract import SessionNeeds
from penstock.tasks.submit import Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.model import Model

_RENEWS = re.compile(r"refresh_?token|oauth", re.IGNORECASE)
"""Property names that show that the source renews its credentials, which a second process would
invalidate."""
_CONSUMES = re.compile(
    r"kafka|sqs|pub-?sub|kinesis|rabbitmq|amqp|mqtt|pulsar|eventhub", re.IGNORECASE
)
"""Connector names that show that a discovery may consume messages of the read."""


class SourceEndpoint(Endpoint[SourceConnector]):
    """The source. ``connect``: returns the connector, which sends events other than its answers to
    the sink. ``discovered``: when a discovery before the read began and ended (readings of
    ``time.monotonic``); None: there was none. ``kept``: :meth:`discover` returned the catalog of an
    earlier run; ``undiscovered``: because the discovery failed. ``typed``: column types that are
    kept for later runs, as the source does not declare them. ``unread``: columns that a plan needs
    are known only once the source is read, so that no transform is planned."""

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
        self._v4 = pipeline.dialect == "rapidbyte-v4"
        self.discovered: tuple[float, float] | None = None
        self.kept = False
        self.undiscovered: SourceError | None = None
        self.unread = False
        self.typed: dict[StreamId, dict[str, DataType]] = {}
        self._catalog = Catalog(())
        self._beside: BackgroundDiscovery | None = None
        self._thread = threading.current_thread()
        self._controls: list[Control] = []
        began = time.monotonic()
        self.connector = connect(self.take)
        self.connector.changed(self.user_config, self.config)
        self.install_seconds = time.monotonic() - began
        self.package = self.connector.protocol

    def take(self, event: Event) -> None:
        if isinstance(event, Control) and threading.current_thread() is not self._thread:
            self._controls.append(event)  # only the run's thread uses the store
            return
        super().take(event)

    def discover(self, *, first: bool = True, recovers: bool = False) -> Catalog:
        """Returns the source's current catalog, or that of the user's catalog file. ``first``
        False: where the source may be read during its discovery, begins a discovery and returns the
        catalog of the last one. ``recovers``: if the discovery fails, returns that catalog, so that
        sealed rows are delivered without the source (L5). Raises ``ConfigError``,
        ``SourceError``."""
        self.kept = False
        if self._section.catalog is not None:
            self._catalog = self._of_file(self._section.catalog)
            return self._catalog
        kept = self.connector.kept_catalog(self.base_hash)
        usable = kept is not None and not kept.catalog.open
        if kept is not None and usable and not first and self.discovers_first() is None:
            self.begin_discovery()
            self.kept, self._catalog = True, kept.catalog
            return self._catalog
        self.observer.phase("discover", f"discovering the streams of {self._section.use}")
        began = time.monotonic()
        try:
            self._catalog = self._asked()
        except SourceError as e:
            if kept is None and self._v4 and self.package.undiscovered and _declined(e):
                self.notes.append(f"the source's streams cannot be discovered: {e.message}")
                self._catalog = Catalog(())
            elif kept is None or not usable or not recovers:
                raise
            else:
                self.kept, self.undiscovered, self._catalog = True, e, kept.catalog
        self.discovered = began, time.monotonic()
        return self._catalog

    def may_open(
        self,
        spark: "Callable[[SessionNeeds], SparkSession]",
        snapshots: Path,
        handed_over: "Model | None" = None,
    ) -> None:
        """Gives the source the means to use the run's Spark. ``spark``: opens the session;
        ``snapshots``: the folder of the rows sent before, for models that are compared with them;
        ``handed_over``: the model that a program passes in place of the reference's. A connector
        needs none of them."""

    def reader(
        self,
        lanes: LaneReader,
        mailbox: Mailbox,
        streams: Sequence[PlannedStream],
        rules: StreamRules,
        form: RowForm | None,
        saved: Callable[[], Sequence[StoredState]],
        submit: Submit,
    ) -> LaneReader:
        """Returns the reader of a sync's lanes: ``lanes``, which reads each in a process of its
        own, or a reader that uses it. ``form``: the form in which a destination connector gets the
        rows; ``saved``: returns the saved states; ``submit``: runs other Penstock processes in
        tasks."""
        del mailbox, streams, rules, form, saved, submit
        return lanes

    def _asked(self) -> Catalog:
        if self._beside is not None:
            return self.discovered_beside()
        catalog = self.connector.discover(self.config, self.timeouts)
        self.connector.keep_catalog(self.base_hash, catalog)
        return catalog

    def _of_file(self, path: str) -> Catalog:
        with open(path, "rb") as file:
            try:
                raw = msgspec.json.decode(file.read())
            except msgspec.DecodeError as e:
                raise ConfigError(
                    f"the catalog file {path} is not JSON: {e}",
                    code="config.catalog",
                    hint="give what the tap's `--discover` prints",
                ) from e
        return self.connector.role.catalog_of(raw)

    def discovers_first(self) -> str | None:
        """Returns why the source is discovered before each read; None: once a discovery has
        returned, later ones run during the read."""
        kept = self.connector.kept_catalog(self.base_hash)
        if self._section.discover is not None:
            return "the pipeline sets it" if self._section.discover == "first" else None
        spec = self.connector.spec()
        if kept is not None and kept.first:
            return "a read of it failed during a discovery"
        if self.changed_before:
            return "it changes its configuration"
        if spec.abilities.get("advanced_auth") or _has_name(spec.config_schema, _RENEWS):
            return "its specification has a refresh token or OAuth"
        if _has_name(self.config, _RENEWS):
            return "its configuration has a refresh token or OAuth"
        if _CONSUMES.search(self.connector.ref.text) is not None:
            return "its messages are gone once they are read"
        return None

    def kept_beside(self) -> bool:
        """Whether its catalog is kept for the next run: that of an installed source that lists its
        streams."""
        kept = self.connector.kept_catalog(self.base_hash)
        return kept is not None and not kept.catalog.open

    def begin_discovery(self) -> None:
        """Begins a discovery during the read."""
        config = self.config
        self._beside = BackgroundDiscovery(lambda: self.connector.discover(config, self.timeouts))

    def discovering(self) -> bool:
        """Whether the discovery during the read is under way."""
        return self._beside is not None and self._beside.running()

    def discovered_beside(self) -> Catalog:
        """Waits for the discovery during the read, and keeps its catalog. Raises what it raised."""
        assert self._beside is not None
        try:
            catalog = self._beside.result()
        finally:
            controls, self._controls = self._controls, []
            for control in controls:
                self.take(control)
        self.connector.keep_catalog(self.base_hash, catalog)
        return catalog

    def discover_first(self) -> None:
        """Saves that later runs discover the source before they read it."""
        self.connector.keep_catalog(self.base_hash, self._catalog, first=True)

    def given(self, catalog: Catalog | None = None) -> str:
        """Returns what a catalog gives to the source; None: the one that :meth:`discover` returned
        last."""
        catalog = self._catalog if catalog is None else catalog
        return given(self._pipeline, catalog, self.base_hash)

    def abilities(self) -> dict[str, Any]:
        """Returns the abilities that the connector's spec declares, overridden by those of the
        pipeline file."""
        return {**self.connector.spec().abilities, **self._section.protocol_keys}


def _declined(error: SourceError) -> bool:
    """Whether the connector itself answered with an error that a second call would not change. A
    version 4 file, whose host never discovers, treats this as no failure."""
    own = error.connector or {}
    return "category" in own and not own.get("retryable") and own.get("host_fault") is None


def _has_name(value: Any, names: re.Pattern[str]) -> bool:
    """Whether an object in ``value``, at any depth, has a key that matches."""
    if isinstance(value, Mapping):
        found = cast(Mapping[str, Any], value)
        return any(names.search(k) is not None or _has_name(v, names) for k, v in found.items())
    if isinstance(value, list):
        return any(_has_name(each, names) for each in cast(list[Any], value))
    return False
