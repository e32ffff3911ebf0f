"""Declares what the layers above may ask of a protocol.

A protocol is a :class:`ProtocolPackage`: its rules for sources, destinations, states, schemas,
manifests and shards, and ``connect(launch, secrets, stats) -> Connection``, which every protocol
honours, whether its connectors print lines or are called. The rules are pure; none talks to a
connector. Not here: how a connector is asked and run (``connection``), with what data
(``reading``, ``writing``, ``transforming``).

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
        """A catalog that the user brings in place of discovery: JSON data in the protocol's own
        form. Raises ``ConfigError``."""
        ...

    def configure(self, stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
        """The protocol's rules for modes, cursor and key. Raises ``ConfigError``."""
        ...


class DestinationRole(Protocol):
    """A protocol's rules for destinations; nothing here talks to one."""

    described_once: bool
    """It learns of streams and their schemas when it starts, and never again."""
    acks_with_states: bool
    """It acks by giving a state back, so that ``acks`` of the pipeline file applies to it."""
    takes_undeclared: bool
    """By default it is sent properties that a stream's schema does not declare. False: its streams
    have fields of their own, and what they are given is named."""

    def own_stream(self, spec: ConnectorSpec, stream: WriteStream) -> str | None:
        """The stream of the destination's own that a stream is written to; None: it has the name
        of its target."""
        ...

    def depends_on_config(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> bool:
        """Whether the destination has to be asked with its configuration (``configured_spec`` of
        its conversation) before :meth:`problems` can tell all of these streams'."""
        ...

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        """Why it cannot take these streams (a sync mode it does not support, ...), for plan."""
        ...

    def fidelity(
        self,
        spec: ConnectorSpec,
        source_protocol: str,
        streams: Sequence[WriteStream],
        options: Mapping[str, Any],
    ) -> list[str]:
        """What narrows or is lost on the way, for plan, each a sentence. ``options``: as in
        ``WriteRequest``."""
        ...


class FixedSpec:
    """The part of :class:`DestinationRole` and of its conversation where a destination's spec is
    the same with every configuration, and has no streams of its own."""

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
    """One line for ``plan``: what holds a connector, and why. ``value`` None: unlimited."""

    name: str
    value: Any
    rule: str


class ManifestRole(Protocol):
    """For protocols whose connectors show what they need to reach and use. Nothing here runs a
    connector's code."""

    def asks(self, launch: Start) -> list[EffectiveLimit]:
        """What its manifest requests. Raises ``ConfigError``, ``SourceError``."""
        ...

    def wide(self, launch: Start) -> list[str]:
        """What it requests that is so much that a user must agree to it, each a few words: what
        the pipeline does not narrow. Raises ``ConfigError``, ``SourceError``."""
        ...

    def effective(
        self, launch: Start, config: dict[str, Any]
    ) -> tuple[list[EffectiveLimit], list[str]]:
        """What it may reach and use in the end, and what there is to say of its manifest. Raises
        ``ConfigError``, ``SourceError``."""
        ...

    def problems(self, spec: ConnectorSpec, streams: Sequence[ConfiguredStream]) -> list[str]:
        """Why, by its manifest, the source cannot read these streams so."""
        ...


class Sharding(msgspec.Struct, frozen=True):
    """In how many shards a stream is read side by side, and each hint with the rule that won."""

    count: int
    hints: tuple[EffectiveLimit, ...] = ()


class ShardRole(Protocol):
    """For protocols whose sources can divide a stream by themselves."""

    def shards(
        self, spec: ConnectorSpec, stream: ConfiguredStream, resources: Resources, slots: int
    ) -> Sharding:
        """One where the source is not known to divide the stream: it would read all of it in each
        shard."""
        ...


class StateRole(Protocol):
    """Pure functions over saved states: what the protocol says a state means."""

    def export(self, states: Sequence[StoredState]) -> Any:
        """What the source is given (``state export``), as JSON data; None: nothing to give."""
        ...

    def parse(self, raw: Any) -> list[StoredState]:
        """The opposite, accepting every form a user may bring. Raises ``StateError``."""
        ...

    def merge(self, saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        """Saved states after ``new`` ones, in order. A source may change the type of its state:
        the new ones replace what they cover."""
        ...

    def reset(self, states: Sequence[StoredState], stream: StreamId) -> list[StoredState]:
        """Without this stream's state. Raises ``StateError`` where that cannot be done."""
        ...

    def names_of(self, stream: Stream) -> tuple[str, ...]:
        """Names other than its own by which a state may call the stream."""
        ...

    def called(self, names: Mapping[StreamId, Collection[str]]) -> "StateRole":
        """The same rules, knowing these streams of the source too, and their :meth:`names_of`."""
        ...

    def reading(self, streams: Collection[StreamId]) -> "StateRole":
        """The same rules in a run that reads these streams only: :meth:`merge` keeps what a saved
        shared state says of single other streams, where the new one has nothing about them and they
        share no position. Sources name in a state the streams that they were requested; the others
        did not move."""
        ...

    def splits(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        """True where these streams' share of the states can be distinguished from the others'.
        False: only the source knows what a state says of them, so that they start from the
        beginning without any of it."""
        ...

    def without(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """Without these streams' states, for streams that start again: a stream's own state goes,
        its entry in a shared state becomes null, the rest of a shared state stays as long as it
        covers another stream; of a state that does not split (:meth:`splits`) nothing is left.
        """
        ...

    def within(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """What is given where only these streams are read: where a position that streams share
        moves on in that run, nothing is left of the others, whose changes it passes over."""
        ...

    def versions(self, states: Sequence[StoredState], stream: StreamId) -> frozenset[int]:
        """The versions of the stream that these states name: a source that is given them goes on
        with one, so that its rows are increments of it."""
        ...

    def describe(self, states: Sequence[StoredState]) -> dict[str, Any]:
        """``{"type", "streams": [{"namespace", "name", "state"}], "shared"}`` for ``state
        show``."""
        ...


@runtime_checkable
class SharedStates(Protocol):
    """A :class:`StateRole` of a protocol in which one state may be of several streams, so that it
    may advance a stream that was not read."""

    def own(self, states: Sequence[StoredState], stream: StreamId) -> str | None:
        """The stream's share of the states, as JSON text for :meth:`with_own`. None: they say
        nothing of it, they cannot be split, or the stream shares a position with others, which
        moves on without it."""
        ...

    def with_own(
        self, states: Sequence[StoredState], stream: StreamId, own: str | None
    ) -> list[StoredState]:
        """The states in which ``own``, of :meth:`own`, is the stream's share; None, or where it
        shares a position now: as :meth:`without`. Equal states where that is its share already."""
        ...

    def stands_alone(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        """Whether these streams' shares can be distinguished from the others' (:meth:`splits`), and
        no position that streams share goes with them."""
        ...


class SchemaRole(Protocol):
    """The protocol's dialect of JSON Schema."""

    def data_type(self, schema: Any) -> DataType:
        """Of one property or of a whole record (then a struct, or json where it cannot be)."""
        ...

    def narrowed(self, schema: Any) -> tuple[str, ...]:
        """The properties of a record with numbers that may have more digits than their type."""
        ...


class ProtocolPackage(Protocol):
    """What a protocol's folder gives. ``source``, ``destination``: None where it knows no such
    role. ``transform`` likewise; there are no rules for one."""

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
    """The annotation that marks a property of a config's schema as secret. None: there is none, and
    the whole config is credentials."""
    deleted_at_field: str | None
    """Top-level property whose non-null value shows that the record was deleted at the source."""
    log_cursor_prefix: str | None
    """How the cursors begin that number the changes of a log, where no sync mode shows that a
    stream is read from one: its records come in the log's order. None: a sync mode says it."""
    keeps_undeclared: bool
    """By default, properties of records that their schema does not declare are kept. False: they
    are counted and left out."""
    columnar: bool
    """Its sources give rows as Arrow columns: none of their records is decoded from JSON."""

    undiscovered: Callable[[StreamId, Mapping[str, DataType | None]], Stream] | None
    """A stream that can be read though the source tells of no streams: its id, and its columns as
    far as they are known (None: not their type). None: there are none such."""

    def connect(
        self,
        launch: Start,
        secrets: Masker,
        stats: ConnectionStats,
        *,
        stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
    ) -> Connection:
        """To a connector in the role that ``launch`` says; it fills ``stats``. ``stderr`` gets each
        line that it prints there, masked, from another thread. ``keys``: where a component keeps
        what is its own. Starts nothing. Raises ``ConfigError`` for what this machine cannot hold it
        to."""
        ...

    def command_name(self, name: str) -> str:
        """Package and executable name in the package registry: ``source-faker`` ->
        ``airbyte-source-faker``."""
        ...

    def package_names(self, name: str) -> tuple[str, ...]:
        """Every package that ``name`` may mean, the most likely first (:meth:`command_name`)."""
        ...

    def script_names(self, name: str) -> tuple[str, ...]:
        """What its executable may be called, the most likely first."""
        ...


class RegistryNames:
    """The names (:class:`ProtocolPackage`) of connectors that a registry has under their own."""

    def command_name(self, name: str) -> str:
        return name

    def package_names(self, name: str) -> tuple[str, ...]:
        return (self.command_name(name),)

    def script_names(self, name: str) -> tuple[str, ...]:
        return (self.command_name(name),)


def source_rules(package: ProtocolPackage) -> SourceRole:
    """Of a protocol of which a source is in use, so that it has them."""
    if package.source is None:
        raise Defect(f"the {package.name} protocol has no sources")
    return package.source
