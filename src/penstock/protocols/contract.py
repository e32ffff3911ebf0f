"""Declares what the layers above may ask of a protocol, and of a connector that speaks one.

The seam is ``ProtocolPackage.connect(launch, secrets, stats) -> Connection``: every protocol
honours it, whether its connectors print lines or are called (``protocols.memory`` is the twin that
runs nothing). A :class:`Connection` is all that a layer above holds of a connector; what it gives
is masked (L10). The conversations themselves (:class:`SourceConversation`, ...) are a protocol's
own, for they see what was said as it was said.

Neighbours: ``protocols/NAME/package.py`` holds ``PACKAGE``, a :class:`ProtocolPackage`;
``connectors.launch`` connects; ``engine.worker.lane`` reads events. Nothing above names a protocol.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeVar, cast

import msgspec

from penstock.config.sections import Resources
from penstock.errors import Defect, PenstockError, Role, error_class
from penstock.model.catalog import (
    Catalog,
    CheckResult,
    ConfiguredStream,
    ConnectorSpec,
    DestinationSyncMode,
    FieldPath,
    Shard,
    Stream,
    StreamId,
)
from penstock.model.events import (
    ConnectorExited,
    ConnectorMetrics,
    Control,
    Error,
    Event,
    LogEvent,
    Reject,
    SkippedItems,
    StreamHalted,
    Tick,
)
from penstock.model.state import StoredState
from penstock.model.types import ChangeWords, DataType, MetadataNames, RowSchema
from penstock.protocols.masked_events import EventMasker
from penstock.runtimes.contract import ConnectionStats, RunTimeouts, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys

R = TypeVar("R")
_R = TypeVar("_R", contravariant=True)
_E = TypeVar("_E")


class StreamOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked of a stream; None: not said. Mode names are ``model.catalog`` values.
    ``replaces``: as in ``ConfiguredStream``. ``said``: who chose the modes, where it was not the
    pipeline (a clause for ``plan``). ``appends``: why rows are appended by default though a primary
    key is known. ``unrecorded``: the stream was synced before modes were written down, so that the
    defaults of that time hold: full_refresh where no cursor is known, append for increments.
    ``mode``: the one word that the user said for both modes, in its canonical spelling."""

    sync_mode: str | None = None
    destination_sync_mode: str | None = None
    cursor_field: FieldPath | None = None
    primary_key: tuple[FieldPath, ...] | None = None
    columns: tuple[str | FieldPath, ...] | None = None
    replaces: bool = False
    said: str | None = None
    appends: str | None = None
    unrecorded: bool = False
    mode: str | None = None


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One read. ``states``: as saved (already without the streams that start anew).
    ``spool_folder``: where a record longer than ``max_record_bytes`` is kept whole, as a reject's
    file; None keeps only its beginning."""

    config: dict[str, Any]
    streams: tuple[ConfiguredStream, ...]
    states: tuple[StoredState, ...] = ()
    timeouts: RunTimeouts = RunTimeouts()
    max_record_bytes: int = 256 * 1024 * 1024
    spool_folder: str | None = None
    tick: float = 1.0
    open: bool = False
    """Its streams are known from its messages only: whatever comes is taken, each stream announced
    by a ``Schema`` event before its first record."""
    abilities: dict[str, Any] = {}
    """``ConnectorSpec.abilities``, and over them the keys that the protocol declares
    (``ProtocolSpec.source_keys``) and the user set. Empty: nothing is known."""
    tries: dict[StreamId, int] = {}
    """How often a stream was tried before in this run, because its source said that it may be."""
    attempts: int = 1
    """How often a stream may be tried in this run, the first time included, where the protocol has
    no number of its own."""
    backoff: float = 0.0
    """Seconds before the second attempt; each one after it waits three times as long."""
    limit: int | None = None
    """So many records of each stream are wanted, and nothing of them is kept."""
    dry_run: bool = False
    """Nothing of what is read is kept."""
    refuses: bool = False
    """The input is a host's, who must hear of what cannot be taken: a record before its schema, or
    a schema that is none, ends the read."""
    shards: dict[StreamId, Shard] = {}
    """Which part of a stream is read, where it is divided."""
    unchosen: tuple[Stream, ...] = ()
    """Streams of the catalog that are not read: a protocol in which a stream must be deselected is
    given them so that it can say so."""


class SourceRole(Protocol):
    """A protocol's rules for sources; nothing here talks to one."""

    def catalog_of(self, raw: Any) -> Catalog:
        """A catalog that the user brings in place of discovery: JSON data in the protocol's own
        form. Raises ``ConfigError``."""
        ...

    def configure(self, stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
        """The protocol's rules for modes, cursor and key. Raises ``ConfigError``."""
        ...


class SourceConversation(Protocol[_R]):
    """How a protocol talks to a source over its runtime. Every method raises ``SourceError`` with
    the connector's own words. ``log`` receives what the connector says beside the answer (Log,
    Counted, Control events)."""

    def spec(self, runtime: _R, timeouts: RunTimeouts, log: "EventSink") -> ConnectorSpec: ...

    def check(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: "EventSink"
    ) -> CheckResult: ...

    def discover(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: "EventSink"
    ) -> Catalog: ...

    def read(self, runtime: _R, request: ReadRequest) -> Iterator[Event]:
        """Events in the order they came; the last one is ``ConnectorExited``, also after a failure,
        unless the generator is closed early. Closing it ends the connector. Timeouts come as an
        ``Error`` event and then ``ConnectorExited``; a fault that is ours is raised."""
        ...


class WriteStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as the destination is told of it. ``target``: its name there, with namespace and
    prefix applied; ``configured``: the stream at the source, its generation ids set.
    ``schemas``: the row schemas its parts may have, by version; ``latest``: the version that its
    catalog entry or first schema message is made of."""

    configured: ConfiguredStream
    target: StreamId
    schemas: dict[int, RowSchema]
    latest: int
    into: str | None = None
    """The destination's own stream to write to, where the pipeline names one."""
    options: dict[str, Any] = {}
    """What the pipeline says to that stream, in the destination's words."""
    mapping: dict[str, str] = {}
    """The destination's fields, each with the column (its original name) that it is given; where
    there are some, no other column is sent. Empty: every column under its own name."""
    full_refresh: bool = False
    """All rows of the stream follow, and none of them was sent in this read before."""

    @property
    def id(self) -> StreamId:
        return self.configured.id

    def required(self, version: int) -> frozenset[str]:
        """Original names of the columns of its key that are never null under this version."""
        if self.configured.destination_sync_mode is not DestinationSyncMode.append_dedup:
            return frozenset()
        keys = {path[0] for path in self.configured.primary_key if path}
        return self.schemas[version].required & keys


class Acks(StrEnum):
    """What counts as an ack: states the destination gives back (``echo``: also bare ones;
    ``strict``: whole messages only), or exit code 0 after the end of its input."""

    echo = "echo"
    strict = "strict"
    at_end = "at_end"


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One write. ``source_protocol``: whose states it is fed. ``generation`` semantics as in the
    configured streams."""

    config: dict[str, Any]
    streams: tuple[WriteStream, ...]
    source_protocol: str
    pipeline: str = ""
    """Its name, the same in every run."""
    timeouts: RunTimeouts = RunTimeouts()
    acks: Acks = Acks.echo
    tick: float = 1.0
    options: dict[str, Any] = {}
    """Keys that the protocol declares (``ProtocolSpec.destination_keys``) and the user set."""
    on_data_error: str = "dlq"
    """What becomes of a row that the protocol must not send: dlq (a ``Reject``), skip, fail."""
    attempt: int = 1
    """How often it was begun in this run, this time included."""
    attempts: int = 1
    backoff: float = 0.0
    """As in ``ReadRequest``."""


@dataclass(slots=True)
class Rows:
    """Rows for one stream: a record batch (pyarrow) as it stands in a part, of ``version`` of its
    schema; its columns are those of ``tables.contract``'s parts (values, then metadata)."""

    stream: StreamId
    version: int
    batch: Any


@dataclass(slots=True)
class StateMark:
    """Everything fed so far in this scope is covered by this state. ``seq`` grows by one from 1;
    it is what an ack names."""

    seq: int
    state: StoredState


@dataclass(slots=True)
class StreamDone:
    """The stream was complete at the source, and all its rows have been fed."""

    stream: StreamId


Feed = Rows | StateMark | StreamDone | WriteStream | Tick
"""What a destination is fed. ``WriteStream``: a stream that the request lacks, or whose schemas
grew, before its first rows of that schema (what the request holds of it is the same from then on).
``Tick``: nothing new for a while."""


@dataclass(slots=True)
class Ack:
    """The destination has durably written everything fed before the state mark ``seq`` in its
    scope. Marks before it in the same scope are acked with it. ``Ack(END)``: all that was fed.
    ``keys``: what its checkpoints so far cover of its own keys, (scope, number) each
    (``store.keys``)."""

    seq: int
    keys: tuple[tuple[str, int], ...] = ()


END = -1

GUESSED_ACK = "guessed_ack"
"""``SkippedItems.what``: a state that came back changed or without its envelope was taken for an
ack."""

NEWEST_ACK = "newest_ack"
"""``SkippedItems.what``: a state that equals several was taken for the newest of them, as the
destination ended well."""


Answer = (
    Ack
    | LogEvent
    | Error
    | SkippedItems
    | Control
    | ConnectorMetrics
    | Reject
    | StreamHalted
    | ConnectorExited
    | Tick
)
"""``Reject``: a record that was fed and that the destination put aside; it comes before the ack
that covers it, which must not be passed on before the reject is durable."""


class DestinationRole(Protocol):
    """A protocol's rules for destinations; nothing here talks to one."""

    described_once: bool
    """It learns of streams and their schemas when it starts, and never again."""

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        """Why it cannot take these streams (a sync mode it does not support, ...), for plan."""
        ...

    def fidelity(self, source_protocol: str, streams: Sequence[WriteStream]) -> list[str]:
        """What narrows or is lost on the way, for plan, each a sentence."""
        ...


class DestinationConversation(Protocol[_R]):
    """How a protocol talks to a destination over its runtime. Every method raises
    ``DestinationError`` with the connector's own words."""

    def spec(self, runtime: _R, timeouts: RunTimeouts, log: "EventSink") -> ConnectorSpec: ...

    def check(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: "EventSink"
    ) -> CheckResult: ...

    def write(self, runtime: _R, request: WriteRequest, feed: Iterator[Feed]) -> Iterator[Answer]:
        """Feed it, in order and with back-pressure, until ``feed`` ends, and give what it answers;
        the last answer is ``ConnectorExited``. ``feed`` is drawn from another thread. Closing the
        generator ends the connector."""
        ...


class EnrichmentUse(msgspec.Struct, frozen=True, kw_only=True):
    """How a transform that answers row by row is used. ``use``: its reference, as written.
    ``pipeline``: its name, the same in every run. ``options``: for the connector, in its own words.
    ``processes``: that work at once; ``ahead``: requests that each is sent before it has answered
    the first. ``on_error``: a row that it has no answer to is a ``Reject``, or passes as it is.
    ``columns``: types of properties that it adds. ``cache_seconds``: how long an answer is good,
    for rows of the same ``cache_key`` (original names; empty: the stream's primary key, or all
    columns where it has none); None: none is kept. ``kept``: properties that a row has still where
    its answer leaves them out: the mark of a row that is gone."""

    use: str
    pipeline: str = ""
    options: dict[str, Any] = {}
    processes: int = 1
    ahead: int = 1
    on_error: Literal["reject", "pass"] = "reject"
    columns: dict[str, DataType] = {}
    cache_seconds: float | None = None
    cache_key: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class TransformRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a transform over one stream. ``state``: as the source was given it. ``scope``: of
    what covers the keys that it keeps for itself (``store.keys.covers``). ``waiting``: bytes that
    may wait before it, and as many behind it. ``given``, ``made``: the planned schemas of what it
    is fed and of what it makes, where they are known. ``enriching``: for a connector that answers
    row by row."""

    config: dict[str, Any]
    stream: ConfiguredStream
    scope: str
    state: StoredState | None = None
    timeouts: RunTimeouts = RunTimeouts()
    waiting: int = 16 << 20
    dry_run: bool = False
    """Nothing of what comes out is kept."""
    attempt: int = 1
    """How often the stream was begun in this run, this time included."""
    given: RowSchema | None = None
    made: RowSchema | None = None
    enriching: EnrichmentUse | None = None


@dataclass(slots=True)
class TransformedRows:
    """Rows that came out: a table (pyarrow) in the transform's own columns. ``size``: bytes."""

    table: Any
    size: int


@dataclass(slots=True)
class TransformProgress:
    """All that came of the first ``upto`` tables that it was fed (``END``: of all, and it ended
    well) was given before. ``whole``: and of no later one. ``checkpoint``: the transform's own
    document; ``keys``: the checkpoint of its own keys (``store.keys``)."""

    upto: int
    whole: bool = True
    checkpoint: dict[str, Any] | None = None
    keys: int = 0


Given = (
    TransformedRows
    | TransformProgress
    | Reject
    | LogEvent
    | Error
    | SkippedItems
    | ConnectorMetrics
    | Tick
)


class TransformConversation(Protocol[_R]):
    """How a protocol talks to a transform over its runtime."""

    def spec(self, runtime: _R, timeouts: RunTimeouts, log: "EventSink") -> ConnectorSpec: ...

    def check(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: "EventSink"
    ) -> CheckResult: ...

    def outline(self, runtime: _R, request: TransformRequest, columns: Any) -> Any | None:
        """The columns (pyarrow.Schema) that it makes of rows of these, as far as one empty batch
        shows; None: it made nothing of it. Raises ``SourceError`` where it failed."""
        ...

    def apply(self, runtime: _R, request: TransformRequest, feed: Iterator[Any]) -> Iterator[Given]:
        """Feed it tables (pyarrow) and give what it makes of them; the last answer is
        ``TransformProgress(END)`` or an ``Error``. ``feed`` is drawn from another thread; where
        that raises, the transform is told of a failure, never of an end. Closing the generator ends
        it."""
        ...


class EventSink(Protocol):
    def __call__(self, event: Event, /) -> None: ...


class Conversations(Protocol[_R]):
    """How a protocol talks to connectors of each role, over a runtime of its own kind."""

    @property
    def source(self) -> SourceConversation[_R] | None: ...

    @property
    def destination(self) -> DestinationConversation[_R] | None: ...

    @property
    def transform(self) -> TransformConversation[_R] | None: ...


class Connection:
    """One connector that can be asked and run any number of times, also by several threads at once:
    all that is had of it above the protocols. What it gives is masked, and there is no way to what
    is not (L10): its events and answers, its errors, what it logs, the last words of its stderr.
    Records, rejects, states, catalogs, specs and the configuration of a CONTROL are data, and stay
    as they are.

    ``secrets``: what is known to be secret; may be shared, for each connection adds what it learns
    (a CONTROL, the variables that a connector is given). ``runtime``: where it runs, with the same
    ``secrets`` for its stderr. The methods are those of its role's conversation."""

    def __init__(self, protocol: Conversations[R], role: Role, runtime: R, secrets: Masker) -> None:
        talk = getattr(protocol, role)
        if talk is None:
            raise Defect(f"this protocol has no {role}s")
        self._talk: Any = talk
        self._runtime: Any = runtime
        self._secrets = secrets

    def spec(self, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        with self._secrets.errors():
            return self._talk.spec(self._runtime, timeouts, self._sink({}, log))

    def check(self, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink) -> CheckResult:
        with self._secrets.errors():
            found = self._talk.check(self._runtime, config, timeouts, self._sink(config, log))
        said = found.message and self._secrets.mask(found.message)
        return msgspec.structs.replace(found, message=said)

    def discover(self, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink) -> Catalog:
        with self._secrets.errors():
            return self._talk.discover(self._runtime, config, timeouts, self._sink(config, log))

    def read(self, request: ReadRequest) -> Generator[Event]:
        return self._masked(request.config, self._talk.read(self._runtime, request))

    def write(self, request: WriteRequest, feed: Iterator[Feed]) -> Generator[Answer]:
        return self._masked(request.config, self._talk.write(self._runtime, request, feed))

    def outline(self, request: TransformRequest, columns: Any) -> Any | None:
        with self._secrets.errors():
            return self._talk.outline(self._runtime, request, columns)

    def apply(self, request: TransformRequest, feed: Iterator[Any]) -> Generator[Given]:
        given = self._masked(request.config, self._talk.apply(self._runtime, request, feed))
        with closing(given):
            for answer in given:
                if isinstance(answer, TransformProgress) and answer.checkpoint is not None:
                    yield replace(answer, checkpoint=self._secrets.mask_data(answer.checkpoint))
                else:
                    yield answer

    def _sink(self, config: dict[str, Any], log: EventSink) -> EventSink:
        hearing = EventMasker(self._secrets, config)
        return lambda event: log(hearing.masked(event))

    def _masked(self, config: dict[str, Any], events: Iterator[_E]) -> Generator[_E]:
        hearing = EventMasker(self._secrets, config)
        with self._secrets.errors(), closing(cast(Generator[_E], events)):
            for event in events:
                yield hearing.masked(event)


class EffectiveLimit(msgspec.Struct, frozen=True):
    """One line for ``plan``: what holds a connector, and why. ``value`` None: unlimited."""

    name: str
    value: Any
    rule: str


class ManifestRole(Protocol):
    """For protocols whose connectors say what they need to reach and use. Nothing here runs a
    connector's code."""

    def asks(self, launch: Start) -> list[EffectiveLimit]:
        """What its manifest asks for. Raises ``ConfigError``, ``SourceError``."""
        ...

    def wide(self, launch: Start) -> list[str]:
        """What it asks for that is so much that a user must agree to it, each a few words: what
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
        """Saved states after ``new`` ones, in order. Raises ``StateError`` where the protocol
        allows no change of type."""
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
        shared state says of single other streams, where the new one says nothing of them and they
        share no position. Sources name in a state the streams that they were asked for; the others
        did not move."""
        ...

    def splits(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        """True where these streams' share of the states can be told from the others'. False: only
        the source knows what a state says of them, so that they begin anew without any of it."""
        ...

    def without(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """Without these streams' states, for streams that start anew: a stream's own state goes,
        its entry in a shared state becomes null, the rest of a shared state stays as long as it
        speaks for another stream; of a state that does not split (:meth:`splits`) nothing is left.
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


class SchemaRole(Protocol):
    """The protocol's dialect of JSON Schema."""

    def data_type(self, schema: Any) -> DataType:
        """Of one property or of a whole record (then a struct, or json where it cannot be)."""
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
    secret_word: str
    """The annotation that marks a property of a config's schema as secret."""
    deleted_at_field: str | None
    """Top-level property whose non-null value says that the record was deleted at the source."""

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


class TargetHost(Protocol):
    """What a host hears that runs us as its target (``penstock serve target``)."""

    STATE: str
    """A line of stdout, with ``{}`` where the state goes."""

    def about(self, version: str, config_schema: dict[str, Any]) -> dict[str, Any]:
        """What we are and take."""
        ...


class DestinationHost(Protocol):
    """What a host hears that runs us as its destination (``penstock serve destination``). Texts
    are lines of stdout."""

    STATE: str
    """A line of stdout, with ``{}`` where the state goes."""

    def spec(self, config_schema: dict[str, Any]) -> str: ...

    def status(self, fault: str | None) -> str:
        """``fault``: why it would not work, or None."""
        ...

    def failed(self, message: str, hint: str | None, code: str, exit_code: int) -> str:
        """A write that failed; ``code``, ``exit_code``: of the fault."""
        ...

    def configured(self, raw: bytes) -> tuple[Catalog, tuple[ConfiguredStream, ...]]:
        """The host's configured catalog. Raises ``ConfigError``."""
        ...

    def refreshes(self, streams: Sequence[ConfiguredStream]) -> dict[StreamId, int]:
        """The host's generation of each stream whose older rows go."""
        ...


ENDED_HINTS = {
    "source": "what it had finished is kept; run again to go on from the saved state",
    "transform": "what it had finished is kept; run again to go on from the saved state",
    "destination": "see in the log what it said last; what it had acknowledged is kept, run again"
    " for the rest",
}
"""What to do after a failure of which nothing better is known, by role."""


def failed(error: Error, role: Role) -> PenstockError:
    """A connector's failure as an error of the tree."""
    known = error.code is not None or role == "destination"
    return error_class(role)(
        error.message,
        code=error.code or f"{role}.{error.failure_type or 'failed'}",
        hint=error.hint or (ENDED_HINTS[role] if known else None),
        where=error.where,
        stream=None if error.stream is None else str(error.stream),
        connector=error.raw or None,
    )


def failure(error: PenstockError, stream: StreamId, role: Role) -> Error:
    """What ended a stream's conversation, as the event that tells it; its code begins with the
    role."""
    code = error.code
    if code.startswith("connector."):
        code = f"{role}.{code.removeprefix('connector.')}"
    raw = error.connector or {}
    return Error(
        error.message, "system_error", stream, raw, code=code, hint=error.hint, where=error.where
    )
