"""Opens a pipeline's source and destination: resolves the connector, and chooses between the user's
configuration and the one that the connector changed.

Moves no record. Neighbours: ``engine.plan.prepare`` and the verbs that move no data start here;
``connectors`` runs a connector.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import msgspec

from penstock.config.home import Home
from penstock.config.modes import canonical
from penstock.config.pipeline import ConnectorSection, Pipeline
from penstock.config.sections import Resources
from penstock.connectors.connector import RunnableConnector
from penstock.connectors.destination import DestinationConnector
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.engine.specs.lane import NewConfig
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError, Defect
from penstock.model.catalog import (
    Catalog,
    CheckResult,
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import Control, Error, Event, LogEvent, SkippedItems
from penstock.model.segments import WriteDisposition
from penstock.model.staged_rows import DELETED_AT
from penstock.model.targets import clashes, target_of, targets_of
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.connection import EventSink
from penstock.protocols.json_schema.exact_types import object_schema
from penstock.protocols.writing import WriteStream
from penstock.runtimes.contract import RunTimeouts
from penstock.spark import postgres
from penstock.spark.model import Model, columns, frame
from penstock.store.contract import Store
from penstock.tables.contract import SessionNeeds, TableName
from penstock.tables.open import open_table
from penstock.transforms.spark_model import model_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, DESTINATION = "source", "destination"
Save = Callable[[NewConfig], None]


C = TypeVar("C", bound=RunnableConnector)


class Endpoint(Generic[C]):
    """A connector with its configuration. ``connector`` is set by the subclass. ``role``: names its
    configuration in the store and its log lines; ``path``: its path in the pipeline file, where
    that differs. ``save`` stores a configuration that the connector changed while it answered
    (CONTROL)."""

    connector: C

    def __init__(
        self,
        pipeline: Pipeline,
        section: ConnectorSection,
        role: str,
        store: Store,
        observer: RunObserver,
        save: Save,
        path: str | None = None,
    ) -> None:
        self.observer, self.role_name = observer, role
        self._pipeline, self._path = pipeline, path or role
        self.notes: list[str] = []
        self.user_config = section.config
        self.base_hash = _config_hash(section.config)
        self.timeouts = _timeouts(pipeline, section, component=_is_component(section.use))
        override = store.config_override(pipeline.pipeline, role)
        holds = override is not None and override[0] == self.base_hash
        self.config = override[1] if override is not None and holds else section.config
        self.changed_before = holds
        self._save = save

    def validate(self) -> None:
        """Checks the configuration against the connector's own schema, before any other call.
        Problems and ``notes`` name the line of the pipeline file. Raises ``ConfigError``."""
        try:
            self.notes = [self._placed(note) for note in self.connector.validate(self.config)]
        except ConfigError as e:
            problems = [self._placed(problem) for problem in e.problems]
            if e.message in e.problems:
                e.message = problems[e.problems.index(e.message)]
                e.args = (e.message,)
            e.problems = problems
            raise

    def _placed(self, text: str) -> str:
        """Replaces the leading ``config.port: ...`` of a text by its line and its path in the
        pipeline file."""
        path, _, rest = text.partition(": ")
        if not path.startswith("config"):
            return text
        steps = path.split(".")[1:]
        key = (
            self._path
            + ".config"
            + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps)
        )
        line = self._pipeline.position(key)
        return f"{key}: {rest}" if line is None else f"{line}: {key}: {rest}"

    def secrets(self) -> list[str]:
        """Returns the values that must be masked in every log, report and error (L10)."""
        return self.connector.secrets(self.config)

    def take(self, event: Event) -> None:
        """Handles an event that the connector sends beside its answers: logs it, or stores a new
        configuration."""
        match event:
            case LogEvent():
                self.observer.log(event.level, self.role_name, event.message)
            case Error():
                self.observer.log("ERROR", self.role_name, event.message)
            case Control():
                self.change_config(NewConfig(self.base_hash, event.config), self._save)
            case SkippedItems():
                self.observer.log("DEBUG", self.role_name, f"{event.what}: {event.count}")
            case _:
                pass

    def change_config(self, new: NewConfig, save: Save) -> None:
        """Stores the connector's new configuration with ``save``, then uses it."""
        save(new)
        self.config = new.config
        self.connector.changed(self.user_config, self.config)


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


_MARKS = frozenset({Kind.timestamp, Kind.timestamp_ntz, Kind.date, Kind.string})
"""Types of a model's own column that may tell when a row was gone."""


class ModelSource(SourceEndpoint):
    """A source that Spark reads: a query, a table, files. ``open``: returns the run's Spark
    session; None: there is none (``plan``), and the columns are those of the last run. ``spark``:
    the session, once :meth:`discover` has opened it. ``snapshots``: the folder of what was sent
    before, for models that are compared with it."""

    def __init__(
        self,
        pipeline: Pipeline,
        connect: Callable[[EventSink], SourceConnector],
        store: Store,
        observer: RunObserver,
        *,
        save: Save,
    ) -> None:
        super().__init__(pipeline, connect, store, observer, save=save)
        self._store = store
        name, url = self.config.get("stream"), self.config.get("datasource")
        target, named = self.connector.ref.target or "", name if isinstance(name, str) else None
        self.model = (
            postgres.model_of(target, url, named)
            if isinstance(url, str)
            else model_of(target, Path.cwd(), named)
        )
        self.open: Callable[[SessionNeeds], SparkSession] | None = None
        self.spark: SparkSession | None = None
        self.snapshots: Path | None = None

    @property
    def stream(self) -> StreamId:
        return StreamId(None, self.model.name)

    def needs(self) -> SessionNeeds:
        """Returns what the query requires of the Spark session. Raises ``ConfigError``."""
        return _needs(self.model)

    def discover(self, *, refresh: bool = False) -> Catalog:
        """Returns its one stream, with the columns of the query's result. Raises
        ``ConfigError``."""
        del refresh
        fields: tuple[Field, ...] | None = None
        if self.model.database is not None:
            described = postgres.describe(self.model)
            overrides = self._pipeline.stream_settings(self.stream)
            if overrides is not None and overrides.cursor_field:
                postgres.refuse_cursor(self.model, described, overrides.cursor_field[0])
            fields = tuple(c.field for c in described)
        if self.open is not None:
            self.spark = self.open(self.needs())
            fields = fields or columns(frame(self.spark, self.model), self.model)
        if fields is None:
            return Catalog((self._remembered(),))
        types = {f.source: f.type for f in fields}
        if self._removes():
            own = types.setdefault(DELETED_AT, DataType(Kind.timestamp))
            if own.kind not in _MARKS:
                raise ConfigError(
                    f"the column {DELETED_AT!r} of the query is {own.kind.value}: with mode mirror"
                    " it holds the time at which a row was gone",
                    code="source.query",
                    where=self.model.where,
                    hint="CAST it to TIMESTAMP, or leave it out",
                )
        return Catalog((self._stream(types),))

    def _removes(self) -> bool:
        """Whether rows that are gone from the model are sent."""
        overrides = self._pipeline.stream_settings(self.stream)
        mirrors = (
            overrides is not None
            and overrides.mode is not None
            and canonical(overrides.mode) == "mirror"
        )
        return mirrors and bool(overrides and overrides.primary_key) and not self.model.cursor

    def _remembered(self) -> Stream:
        """Returns the stream as the last run had it; before the first run, with the columns that
        the pipeline file names."""
        schema = self._store.newest_schemas(self._pipeline.pipeline, [self.stream])
        known = schema.get(self.stream)
        types = {f.source: f.type for f in known.fields} if known is not None else {}
        text = "its columns are those of the last run" if types else "its columns are known then"
        self.notes.append(f"Spark reads the query when the pipeline runs; {text}")
        overrides = self._pipeline.stream_settings(self.stream)
        named = (
            (*(overrides.primary_key or ()), overrides.cursor_field or ())
            if overrides is not None
            else ()
        )
        for path in named:
            if path:
                types.setdefault(path[0], DataType(Kind.string))
        stream = self._stream(types)
        return msgspec.structs.replace(stream, assumed=known is None)

    def _stream(self, types: Mapping[str, DataType]) -> Stream:
        modes = (SyncMode.full_refresh, SyncMode.incremental)
        return Stream(
            id=self.stream,
            json_schema=object_schema(types),
            sync_modes=modes if self.model.cursor else modes[:1],
            compared=True,
        )


def model_needs(pipeline: Pipeline) -> SessionNeeds:
    """Returns what a pipeline's query requires of the Spark session, without opening anything; of
    any other source: nothing. A reference that is wrong requires nothing: its run says so."""
    try:
        ref = parse_ref(pipeline.source.use)
        queried = ref.kind is RefKind.query and "datasource" not in pipeline.source.config
        model = model_of(ref.target or "", Path.cwd()) if queried else None
    except ConfigError:
        return SessionNeeds()
    return _needs(model) if model is not None else SessionNeeds()


def _needs(model: Model) -> SessionNeeds:
    return open_table("delta", "/", {}).needs() if model.delta else SessionNeeds()


class DestinationEndpoint(Endpoint[DestinationConnector]):
    """A destination connector; implements ``tables.contract.PlannedDestination``."""

    def __init__(
        self,
        pipeline: Pipeline,
        home: Home,
        store: Store,
        observer: RunObserver,
        *,
        save: Save,
    ) -> None:
        section = pipeline.destination
        super().__init__(pipeline, section, DESTINATION, store, observer, save)
        self.name = section.use
        self._namespace, self._prefix = section.namespace, section.prefix
        began = time.monotonic()
        self.connector = resolve(
            DestinationConnector,
            parse_ref(section.use),
            home.connectors,
            progress=lambda text: observer.phase("install", text),
            log=self.take,
            extra_secrets=sorted(pipeline.secret_values),
            permissions=section.permissions,
            limits=section.limits,
            settings=component_settings(pipeline, section, DESTINATION),
            base=folder_of(section),
            builds=section.install.builds,
            container=section.container,
            constraints=section.install.constraints,
        )
        self.connector.changed(self.user_config, self.config)
        self.install_seconds = time.monotonic() - began

    # -- tables.contract.PlannedDestination

    def needs(self) -> SessionNeeds:
        return SessionNeeds()

    def check(self) -> None:
        """Checks the configuration against the connector's own schema. Raises ``ConfigError``."""
        self.validate()

    def target(self, stream: StreamId) -> StreamId:
        """Returns the stream's namespace and name at the destination."""
        return target_of(stream, self._namespace, self._prefix)

    def location(self, table: TableName) -> str:
        return str(self.target(StreamId.of(table.namespace, table.name)))

    def single_load_reason(self, mode: DestinationSyncMode) -> str | None:
        del mode
        return None

    def unsupported_reason(self, stream: ConfiguredStream, schema: RowSchema) -> str | None:
        write = WriteStream(
            configured=stream,
            target=self.target(stream.id),
            schemas={0: schema},
            latest=0,
            **self._own(),
        )
        found = self.connector.problems([write], self.config, self.timeouts)
        return found[0].removeprefix(f"stream {stream.id}: ") if found else None

    # -- what it is told

    def ask(self) -> CheckResult:
        """Runs the connector's check. Raises ``ConfigError``, ``DestinationError``."""
        result = self.connector.check(self.config, self.timeouts)
        return msgspec.structs.replace(result, end=DESTINATION)

    def problems(self, streams: Sequence[PlannedStream]) -> list[str]:
        """Returns the reasons why the destination cannot take these streams, a sentence each."""
        targets = targets_of((s.id for s in streams), self._namespace, self._prefix)
        described = [self.planned(s, {0: s.schema}, 0) for s in streams]
        return [
            *clashes(targets),
            *(text for s in streams for text in self._left_out(s)),
            *self.connector.problems(described, self.config, self.timeouts),
        ]

    def _left_out(self, stream: PlannedStream) -> Iterator[str]:
        """Yields why a mapping is refused that leaves out the column which tells a row that is gone
        from one that is there, or by which a rejected row is known."""
        mapping, deleted = self._pipeline.destination.mapping, stream.disposition.deleted_column
        if not mapping:
            return
        sent = frozenset(mapping.values())
        for source in (s for s, name in stream.columns.items() if name == deleted):
            if source not in sent:
                yield (
                    f"stream {stream.id}: destination.mapping leaves out {source!r}: rows that are"
                    " gone would be sent as if they were there; give it a field, or choose a mode"
                    " that sends no removals"
                )
        keys = [path[0] for path in stream.configured.primary_key]
        for key in (k for k in keys if stream.retry_rejected and k not in sent):
            yield (
                f"stream {stream.id}: destination.mapping leaves out {key!r} of the primary key, by"
                " which retry_rejected knows a row: give it a field"
            )

    def fidelity(self, source_protocol: str, streams: Sequence[PlannedStream]) -> list[str]:
        """Returns the types and values that the destination narrows or loses, a sentence each."""
        described = [self.planned(s, {0: s.schema}, 0) for s in streams]
        options = self._pipeline.destination.protocol_keys
        return self.connector.fidelity(
            source_protocol, described, options, self.config, self.timeouts
        )

    def planned(
        self,
        stream: PlannedStream,
        schemas: dict[int, RowSchema],
        generation: int,
        *,
        filled: WriteDisposition | None = None,
    ) -> WriteStream:
        """Describes a stream to the destination. ``schemas``: by schema version. ``filled``: how
        rows join that were sealed, maybe under an older primary key; None: there are none yet."""
        configured, latest = stream.configured_for(generation), max(schemas)
        if filled is not None and filled.primary_key and stream.disposition.primary_key:
            key, latest = _original(filled.primary_key, schemas)
            configured = msgspec.structs.replace(configured, primary_key=key)
        return WriteStream(
            configured=configured,
            target=self.target(stream.id),
            schemas=schemas,
            latest=latest,
            deleted_at=stream.deleted_at,
            full_refresh=filled is not None and filled.anew,
            **self._own(),
        )

    def _own(self) -> "_OwnStream":
        section = self._pipeline.destination
        return {
            "into": section.stream, "options": section.options, "mapping": section.mapping,
        }  # fmt: skip

    def leftover(
        self, stream: StreamId, schemas: dict[int, RowSchema], disposition: WriteDisposition
    ) -> WriteStream:
        """Describes a stream that this run does not sync, whose rows an earlier run sealed."""
        key, latest = _original(disposition.primary_key, schemas)
        return WriteStream(
            configured=ConfiguredStream(
                stream=Stream(id=stream, json_schema={}),
                sync_mode=SyncMode.incremental,
                destination_sync_mode=disposition.mode,
                primary_key=key,
                generation_id=0,
                minimum_generation_id=0,
            ),
            target=self.target(stream),
            schemas=schemas,
            latest=latest,
            deleted_at=_original_name(disposition.deleted_column, schemas[latest]),
            full_refresh=disposition.anew,
            **self._own(),
        )


class _OwnStream(TypedDict):
    """Of a ``WriteStream``: which of the destination's own streams it is written to, and how."""

    into: str | None
    options: dict[str, Any]
    mapping: dict[str, str]


def _original(
    paths: Sequence[FieldPath], schemas: Mapping[int, RowSchema]
) -> tuple[tuple[FieldPath, ...], int]:
    """Converts paths of cleaned column names into paths of original property names. ``schemas``: by
    version. Returns also the newest version that has all of them: later ones may be without the
    column of an older key, and a destination takes no key that its schema lacks."""
    for version in sorted(schemas, reverse=True):
        found = [_original_in(path, schemas[version]) for path in paths]
        if None not in found:
            return tuple(path for path in found if path is not None), version
    raise Defect(f"no schema has the primary key {paths}")


def _original_name(column: str | None, schema: RowSchema) -> str | None:
    found = None if column is None else _original_in((column,), schema)
    return None if found is None else found[0]


def _original_in(path: FieldPath, schema: RowSchema) -> FieldPath | None:
    fields, names = schema.fields, list[str]()
    for step in path:
        field = next((f for f in fields if f.name == step), None)
        if field is None:
            return None
        names.append(field.source)
        fields = field.type.fields
    return tuple(names)


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
        )

    query = parse_ref(pipeline.source.use).kind is RefKind.query
    made = ModelSource if query else SourceEndpoint
    return made(pipeline, connect, store, observer, save=save)


def component_settings(pipeline: Pipeline, section: ConnectorSection, place: str) -> dict[str, Any]:
    """Returns ``Component.settings``: the pipeline's settings for a WebAssembly connector.
    ``place``: the connector's role, with its index where there are several."""
    destination = pipeline.destination
    asked: dict[str, Any] = {
        "place": place,
        "assume_manifest": section.assume_manifest,
        "resources": pipeline.resources or Resources(),
        "on_data_error": destination.on_data_error,
        "schema_evolution": destination.schema_evolution,
        "original_names": pipeline.dialect != "penstock",
    }
    return msgspec.to_builtins(asked)


def folder_of(section: ConnectorSection) -> Path | None:
    """Returns the folder that a local connector runs in; None: the current one."""
    return None if section.folder is None else Path(section.folder)


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


def _is_component(use: str) -> bool:
    return parse_ref(use).kind is RefKind.component


def _timeouts(pipeline: Pipeline, section: ConnectorSection, *, component: bool) -> RunTimeouts:
    """Returns the timeouts of a connector. A component's ``timeout_seconds`` bounds its work, not
    the time it waits, and its runtime enforces it; so it is left out."""
    asked = pipeline.timeouts
    limit = section.limits.timeout_seconds if section.limits and not component else None
    bounds = [b for b in (asked.total, limit) if b is not None]
    return RunTimeouts(asked.start, asked.heartbeat, min(bounds, default=None), asked.stop)


def _config_hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()
