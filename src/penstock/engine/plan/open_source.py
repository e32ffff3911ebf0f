"""Opens a pipeline's source: resolves its connector, and installs it if necessary.

Moves no record. Neighbours: ``engine.plan.source_endpoint`` and ``engine.plan.model_source`` are
what it opens; ``connectors.resolve`` finds the connector.
"""

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.engine.plan.endpoint import SOURCE, Save, component_settings, folder_of, timeouts_of
from penstock.engine.plan.model_source import ModelSource
from penstock.engine.plan.named_packages import meant
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError
from penstock.protocols.connection import EventSink
from penstock.store.contract import Store


def source_of(
    pipeline: Pipeline, home: Home, store: Store, observer: RunObserver, *, save: Save
) -> SourceEndpoint:
    """Opens the pipeline's source, and installs the connector if it is not installed. Raises
    ``ConfigError``, ``SourceError``."""

    def connect(log: EventSink) -> SourceConnector:
        return resolve(
            SourceConnector,
            source_reference(pipeline),
            home.connectors,
            progress=lambda text: observer.phase("install", text),
            log=log,
            extra_secrets=sorted(pipeline.secret_values),
            permissions=pipeline.source.permissions,
            limits=pipeline.source.limits,
            settings=component_settings(pipeline, pipeline.source, SOURCE),
            base=folder_of(pipeline.source),
            builds=pipeline.source.install.builds,
            container=pipeline.source.container,
            constraints=pipeline.source.install.constraints,
            timeouts=timeouts_of(pipeline, pipeline.source),
            **meant(store, pipeline.pipeline, pipeline.source.use),
        )

    query = parse_ref(pipeline.source.use).kind is RefKind.query
    made = ModelSource if query else SourceEndpoint
    return made(pipeline, connect, store, observer, save=save)


def source_reference(pipeline: Pipeline) -> ConnectorRef:
    """Parses the reference of the pipeline's source. Raises ``ConfigError`` for a table format."""
    ref = parse_ref(pipeline.source.use)
    if ref.kind is RefKind.table:
        raise ConfigError(
            f"{pipeline.source.use!r} is a table: tables are destinations",
            code="config.source",
            hint="name a connector, such as airbyte:source-faker, or let Spark read the table: "
            "spark:'SELECT * FROM parquet.`/data/lake/users`'",
        )
    return ref
