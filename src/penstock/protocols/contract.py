"""Declares the interface of a protocol for the layers above.

A protocol is a :class:`ProtocolPackage`: its rules for sources, destinations, states, schemas,
manifests and shards, and ``connect(launch, secrets, stats) -> Connection``. Every protocol
implements ``connect``, whether its connectors print lines or are called. The rules are pure; none
talks to a connector. Not here: how a connector is queried and run (``connection``), the data it
exchanges (``reading``, ``writing``, ``transforming``).

Neighbours: ``protocols/NAME/package.py`` holds ``PACKAGE``, a :class:`ProtocolPackage`;
``connectors.launch`` connects. Nothing above names a protocol.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from penstock.config.sections import Resources
from penstock.errors import Defect
from penstock.model.catalog import (
    Catalog,
    ConfiguredStream,
    ConnectorSpec,
    Stream,
    StreamId,
)
from penstock.model.state import StoredState
from penstock.model.types import ChangeWords, DataType, MetadataNames
from penstock.protocols.connection import Connection, EventSink
from penstock.protocols.reading import StreamOverrides
from penstock.protocols.writing import WriteStream
from penstock.runtimes.contract import ConnectionStats, RunTimeouts, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys


class SourceRole(Protocol):
    """A protocol's rules for sources; nothing here talks to one."""

    def catalog_of(self, raw: Any) -> Catalog:
        """Converts a catalog that the user supplies in place of discovery: JSON data in the
        protocol's own form. Raises ``ConfigError``."""
        ...

    def configure(self, stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
        """Applies the protocol's rules for modes, cursor and key. Raises ``ConfigError``."""
        ...


class DestinationRole(Protocol):
    """A protocol's rules for destinations; nothing here talks to one."""

    described_once: bool
    """The connector learns streams and schemas only when it starts."""
    acks_with_states: bool
    """The connector acks by returning a state, so the pipeline file's ``acks`` applies."""
    takes_undeclared: bool
    """By default the connector gets properties that a stream's schema does not declare. False: its
    streams have their own named fields."""

    def own_stream(self, spec: ConnectorSpec, stream: WriteStream) -> str | None:
        """Returns the destination's own stream that a stream is written to; None: it has the name
        of its target."""
        ...

    def depends_on_config(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> bool:
        """Returns whether :meth:`problems` needs the spec that the destination reports with its
        configuration (``configured_spec`` of its conversation) for any of these streams."""
        ...

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        """Returns why it cannot take these streams (an unsupported sync mode, ...), for
        ``plan``."""
        ...

    def fidelity(
        self,
        spec: ConnectorSpec,
        source_protocol: str,
        streams: Sequence[WriteStream],
        options: Mapping[str, Any],
    ) -> list[str]:
        """Returns what loses precision or is dropped on the way, for ``plan``, each a sentence.
        ``options``: as in ``WriteRequest``."""
        ...


class FixedSpec:
    """Implements the part of :class:`DestinationRole` and of its conversation for a destination
    whose spec does not depend on the configuration and that has no streams of its own."""

    acks_with_states = True
    takes_undeclared = True

    def own_stream(self, spec: ConnectorSpec, stream: WriteStream) -> str | None:
        del spec, stream
        return None

    def depends_on_config(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> bool:
        del spec, streams
        return False

    def configured_spec(
        self,
        runtime: Any,
        spec: ConnectorSpec,
        config: dict[str, Any],
        timeouts: RunTimeouts,
        log: EventSink,
    ) -> ConnectorSpec:
        del runtime, config, timeouts, log
        return spec


class EffectiveLimit(msgspec.Struct, frozen=True):
    """One line for ``plan``: a connector's limit, and why. ``value`` None: unlimited."""

    name: str
    value: Any
    rule: str


class ManifestRole(Protocol):
    """For protocols whose connectors declare what they need to reach and use. Nothing here runs a
    connector's code."""

    def asks(self, launch: Start) -> list[EffectiveLimit]:
        """Returns what its manifest requests. Raises ``ConfigError``, ``SourceError``."""
        ...

    def wide(self, launch: Start) -> list[str]:
        """Returns the requests so wide that a user must agree to them, each a few words; only those
        that the pipeline does not narrow. Raises ``ConfigError``, ``SourceError``."""
        ...

    def effective(
        self, launch: Start, config: dict[str, Any]
    ) -> tuple[list[EffectiveLimit], list[str]]:
        """Returns what it may finally reach and use, and notes on its manifest. Raises
        ``ConfigError``, ``SourceError``."""
        ...

    def problems(self, spec: ConnectorSpec, streams: Sequence[ConfiguredStream]) -> list[str]:
        """Returns why, by its manifest, the source cannot read these streams as configured."""
        ...


class Sharding(msgspec.Struct, frozen=True):
    """How many shards of a stream are read in parallel, and each hint with the rule that decided
    it."""

    count: int
    hints: tuple[EffectiveLimit, ...] = ()


class ShardRole(Protocol):
    """For protocols whose sources can divide a stream by themselves."""

    def shards(
        self, spec: ConnectorSpec, stream: ConfiguredStream, resources: Resources, slots: int
    ) -> Sharding:
        """Returns one shard where the source is not known to divide the stream: it would read the
        whole stream in each shard."""
        ...


class StateRole(Protocol):
    """Pure functions over saved states: what a state means in this protocol."""

    def export(self, states: Sequence[StoredState]) -> Any:
        """Returns what the source is given (``state export``), as JSON data; None: nothing."""
        ...

    def parse(self, raw: Any) -> list[StoredState]:
        """Reverses :meth:`export`; accepts every form that a user may supply. Raises
        ``StateError``."""
        ...

    def merge(self, saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        """Merges ``new`` states, in order, into the saved ones. A source may change the type of its
        state: the new ones replace what they cover."""
        ...

    def reset(self, states: Sequence[StoredState], stream: StreamId) -> list[StoredState]:
        """Returns the states without this stream's. Raises ``StateError`` where that is
        impossible."""
        ...

    def names_of(self, stream: Stream) -> tuple[str, ...]:
        """Returns the names, other than its own, that a state may use for the stream."""
        ...

    def called(self, names: Mapping[StreamId, Collection[str]]) -> "StateRole":
        """Returns the same rules, which also know these streams of the source and their
        :meth:`names_of`."""
        ...

    def reading(self, streams: Collection[StreamId]) -> "StateRole":
        """Returns the same rules for a run that reads only these streams. :meth:`merge` then keeps
        a saved shared state's entries of other single streams, where the new state has none for
        them and they share no position. Sources list only the requested streams in a state; the
        others did not move."""
        ...

    def splits(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        """Returns whether these streams' share of the states can be separated from the others'.
        False: only the source can interpret the states, so these streams start from the beginning
        without any state."""
        ...

    def without(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """Removes these streams' states, for streams that restart. A stream's own state goes; its
        entry in a shared state becomes null; the rest of a shared state stays as long as it covers
        another stream. A state that does not split (:meth:`splits`) is removed whole.
        """
        ...

    def within(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """Returns the states for a run that reads only these streams. Where streams share a
        position that advances in that run, nothing of the others is kept, since it passes over
        their changes."""
        ...

    def versions(self, states: Sequence[StoredState], stream: StreamId) -> frozenset[int]:
        """Returns the versions of the stream that these states name. A source that gets them
        continues with one, so that its rows are increments of that version."""
        ...

    def describe(self, states: Sequence[StoredState]) -> dict[str, Any]:
        """Returns ``{"type", "streams": [{"namespace", "name", "state"}], "shared"}`` for ``state
        show``."""
        ...


@runtime_checkable
class SharedStates(Protocol):
    """A :class:`StateRole` of a protocol in which one state may cover several streams, so that it
    may advance a stream that was not read."""

    def own(self, states: Sequence[StoredState], stream: StreamId) -> str | None:
        """Returns the stream's share of the states, as JSON text for :meth:`with_own`. None: they
        have none, they cannot be split, or the stream shares a position with others, which moves on
        without it."""
        ...

    def with_own(
        self, states: Sequence[StoredState], stream: StreamId, own: str | None
    ) -> list[StoredState]:
        """Returns the states with ``own``, a result of :meth:`own`, as the stream's share. Where it
        is None, or the stream now shares a position: as :meth:`without`. Returns equal states where
        that is its share already."""
        ...

    def stands_alone(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        """Returns whether these streams' shares can be separated from the others' (:meth:`splits`)
        and include no position that streams share."""
        ...

    def with_shown(
        self, states: Sequence[StoredState], stream: StreamId, shown: Any
    ) -> list[StoredState] | None:
        """Returns the states in which :meth:`StateRole.describe` shows ``shown`` for the stream.
        None: they have no place for a state of this stream alone."""
        ...


class SchemaRole(Protocol):
    """The protocol's dialect of JSON Schema."""

    def data_type(self, schema: Any) -> DataType:
        """Returns the type of one property or of a whole record (a struct; json where that is
        impossible)."""
        ...

    def narrowed(self, schema: Any) -> tuple[str, ...]:
        """Returns the properties of a record with numbers that may have more digits than their
        type."""
        ...


class ProtocolPackage(Protocol):
    """The contents of a protocol's folder. ``source``, ``destination``: None where the protocol
    lacks that role. ``transform`` likewise; it has no rules."""

    name: str
    source: SourceRole | None
    destination: DestinationRole | None
    transform: object | None
    manifest: ManifestRole | None
    sharding: ShardRole | None
    state: StateRole
    schema: SchemaRole
    metadata_names: MetadataNames
    change_words: ChangeWords
    secret_word: str | None
    """The annotation that marks a property of a config's schema as secret. None: no annotation
    exists, and the whole config counts as secret."""
    deleted_at_field: str | None
    """Top-level property whose non-null value shows that the record was deleted at the source."""
    log_cursor_prefix: str | None
    """Prefixes of cursors that number the changes of a log, whose records come in order, for a
    protocol without a sync mode for it. None: a sync mode shows it."""
    keeps_undeclared: bool
    """By default, properties of records that their schema does not declare are kept. False: they
    are counted and left out."""
    columnar: bool
    """The protocol's sources send rows as Arrow columns, so no record is decoded from JSON."""

    undiscovered: Callable[[StreamId, Mapping[str, DataType | None]], Stream] | None
    """Describes a stream that can be read although the source lists none, from its id and its known
    columns (None: of unknown type). None: the protocol has no such streams."""

    def connect(
        self,
        launch: Start,
        secrets: Masker,
        stats: ConnectionStats,
        *,
        stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
    ) -> Connection:
        """Connects to a connector in the role that ``launch`` names; fills ``stats``. ``stderr``
        gets each line of its stderr, masked, from another thread. ``keys``: where a component keeps
        its own state. Starts nothing. Raises ``ConfigError`` for a limit that this machine cannot
        enforce."""
        ...

    def command_name(self, name: str) -> str:
        """Returns the package and executable name in the package registry: ``source-faker`` ->
        ``airbyte-source-faker``."""
        ...

    def package_names(self, name: str) -> tuple[str, ...]:
        """Returns every package that ``name`` may mean, the most likely first
        (:meth:`command_name`)."""
        ...

    def script_names(self, name: str) -> tuple[str, ...]:
        """Returns the names that its executable may have, the most likely first."""
        ...


class RegistryNames:
    """Implements the names of :class:`ProtocolPackage` for connectors that a registry lists under
    their own names."""

    def command_name(self, name: str) -> str:
        return name

    def package_names(self, name: str) -> tuple[str, ...]:
        return (self.command_name(name),)

    def script_names(self, name: str) -> tuple[str, ...]:
        return (self.command_name(name),)


def source_rules(package: ProtocolPackage) -> SourceRole:
    """Returns the source rules of a protocol that has a source in use, so they exist."""
    if package.source is None:
        raise Defect(f"the {package.name} protocol has no sources")
    return package.source
