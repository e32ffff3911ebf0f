"""Represents a destination that is a connector: the names of its streams, what is sent to it, and
what it cannot take.

Moves no record. Neighbours: ``tables`` are the other destinations, ``engine.plan.prepare`` and the
commands that move no data start here, ``engine.plan.feeder_jobs`` plans what is sent.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.destination import DestinationConnector
from penstock.connectors.reference import parse_ref
from penstock.connectors.resolve import resolve
from penstock.connectors.same_connector import lasting
from penstock.engine.plan.endpoint import (
    DESTINATION,
    Endpoint,
    Save,
    component_settings,
    folder_of,
    running_folder,
)
from penstock.engine.plan.model_target import model_target
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import Defect
from penstock.model.catalog import (
    Change,
    CheckResult,
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.segments import WriteDisposition
from penstock.model.staged_rows import OTHER_FORM, RowForm, form_of
from penstock.model.state import StoredState
from penstock.model.targets import clashes, target_of
from penstock.model.types import EXTRA, RowSchema
from penstock.protocols.writing import WriteStream
from penstock.store.contract import Store
from penstock.tables.contract import NestedTable, SessionNeeds, TableFormat, TableName

D = TypeVar("D")

_AT_END = (
    "`acks: at_end`: the destination's exit code 0 after all rows counts as the ack: no state is"
    " saved before that, and after a crash all rows are sent again"
)


class DestinationEndpoint(Endpoint[DestinationConnector]):
    """A destination connector; implements ``tables.contract.PlannedDestination``, and has what
    ``engine.plan.destination.TableDestination`` has."""

    rewrite_note: str | None = None
    host_note: str | None = None
    has_tables = takes_parts = False
    guarantee = "at-least-once"

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
        self.model_target = model_target(pipeline, store)
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
            timeouts=self.timeouts,
            **self.meant,
        )
        self.connector.changed(self.user_config, self.config)
        self.install_seconds = time.monotonic() - began

    @property
    def place(self) -> "DestinationEndpoint":
        return self

    @property
    def connectors(self) -> "tuple[DestinationEndpoint, ...]":
        return (self,)

    def delivery(
        self, tables: Callable[[TableFormat], D], connector: "Callable[[DestinationEndpoint], D]"
    ) -> D:
        del tables
        return connector(self)

    # -- tables.contract.PlannedDestination

    @property
    def lasting(self) -> str:
        """The destination's reference in the form in which it is stored."""
        return lasting(self.connector.ref, running_folder(self._pipeline.destination))

    def needs(self) -> SessionNeeds:
        return SessionNeeds()

    def check(self) -> None:
        """Checks the configuration against the connector's own schema. Raises ``ConfigError``."""
        self.validate()

    def target(self, stream: StreamId) -> StreamId:
        """Returns the stream's namespace and name at the destination."""
        called = stream if self.model_target is None else self.model_target.of(stream)
        return target_of(called, self._namespace, self._prefix)

    def written_to(self, stream: PlannedStream) -> str:
        """Returns what a stream is written to: a stream of the destination's own, or its target."""
        own = self.connector.own_stream(self.planned(stream, {0: stream.schema}, 0))
        return own or str(self.target(stream.id))

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

    def nested(self, tables: Sequence[TableName]) -> dict[TableName, NestedTable]:
        return {}

    # -- what is sent to it

    def ask(self) -> CheckResult:
        """Runs the connector's check. Raises ``ConfigError``, ``DestinationError``."""
        result = self.connector.check(self.config, self.timeouts)
        return msgspec.structs.replace(result, end=DESTINATION)

    def columns_of(self, table: TableName) -> None:
        """Returns None: it has no tables that Penstock could read."""
        del table

    def problems(self, streams: Sequence[PlannedStream]) -> list[str]:
        """Returns the reasons why the destination cannot take these streams, one sentence each."""
        targets = {s.id: self.target(s.id) for s in streams}
        described = [self.planned(s, {0: s.schema}, 0) for s in streams]
        return [
            *clashes(targets),
            *(text for s in streams for text in self._left_out(s)),
            *self.connector.problems(described, self.config, self.timeouts),
        ]

    def _left_out(self, stream: PlannedStream) -> Iterator[str]:
        """Yields why a mapping is refused that leaves out the column which marks deleted rows, or
        the columns which identify a rejected row."""
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
        """Returns the types and values that the destination narrows or loses, one sentence each."""
        described = [self.planned(s, {0: s.schema}, 0) for s in streams]
        options = self._pipeline.destination.protocol_keys
        notes = self.connector.fidelity(
            source_protocol, described, options, self.config, self.timeouts
        )
        return [*notes, _AT_END] if self._pipeline.destination.acks == "at_end" else notes

    def planned(
        self,
        stream: PlannedStream,
        schemas: dict[int, RowSchema],
        generation: int,
        *,
        filled: WriteDisposition | None = None,
    ) -> WriteStream:
        """Describes a stream to the destination. ``schemas``: by schema version. ``filled``: how
        the rows that are already sealed join, maybe under an older primary key; None: there are
        none yet."""
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

    @property
    def takes_undeclared(self) -> bool:
        """Whether undeclared properties are sent to it by default (``DestinationRole``)."""
        role = self.connector.protocol.destination
        named = EXTRA in self._pipeline.destination.mapping.values()
        return named or role is None or role.takes_undeclared

    def _own(self) -> "_OwnStream":
        section = self._pipeline.destination
        return {
            "into": section.stream, "options": section.options, "mapping": section.mapping,
        }  # fmt: skip

    def form(self) -> RowForm:
        """Returns the form in which a model's rows are sent."""
        section = self._pipeline.destination
        to = msgspec.json.encode((section.stream, section.options), order="deterministic")
        return RowForm(hashlib.sha256(to).hexdigest()[:16], section.mapping)

    def sent_whole(
        self, streams: Sequence[PlannedStream], states: Sequence[StoredState]
    ) -> list[str]:
        """Returns notes about models whose rows are all sent again (``engine.sync.model_diff``).
        ``states``: the saved ones."""
        blobs = {state.scope.stream: state.blob for state in states}
        compared = [s.id for s in streams if Change.changed in s.configured.sends]
        before = {id: form_of(blobs[id]) for id in compared if id in blobs}
        return [
            f"{stream}: {OTHER_FORM}"
            for stream, form in before.items()
            if form is not None and self.form().has_more_than(form)
        ]

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
    """The part of a ``WriteStream`` that names the destination's own stream, and how it is
    written."""

    into: str | None
    options: dict[str, Any]
    mapping: dict[str, str]


def _original(
    paths: Sequence[FieldPath], schemas: Mapping[int, RowSchema]
) -> tuple[tuple[FieldPath, ...], int]:
    """Converts paths of cleaned column names into paths of original property names. ``schemas``: by
    version. Also returns the newest version that has all of them: later versions may lack the
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
