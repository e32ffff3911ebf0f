"""What the layers above may ask of a protocol package.

Neighbours: ``protocols/NAME/__init__.py`` exports ``PACKAGE``, a :class:`ProtocolPackage`;
``connectors`` picks the runtime; ``engine.lane`` reads events. Nothing above names a protocol.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from penstock.config.sections import Resources
from penstock.model.catalog import (
    Catalog,
    CheckResult,
    ConfiguredStream,
    ConnectorSpec,
    FieldPath,
    Shard,
    Stream,
    StreamId,
)
from penstock.model.events import (
    Control,
    Counted,
    Error,
    Event,
    Exited,
    Log,
    Measured,
    Reject,
    Tick,
)
from penstock.model.state import SavedState
from penstock.model.types import ChangeWords, DataType, MetadataNames, RowSchema
from penstock.runtimes.contract import Runtime, Timeouts


class StreamWish(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked of a stream; None: not said. Mode names are ``model.catalog`` values."""

    sync_mode: str | None = None
    destination_sync_mode: str | None = None
    cursor_field: FieldPath | None = None
    primary_key: tuple[FieldPath, ...] | None = None
    columns: tuple[str, ...] | None = None


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One read. ``states``: as saved (already without the streams that start anew).
    ``spool_folder``: where a record longer than ``max_record_bytes`` is kept whole, as a reject's
    file; None keeps only its beginning."""

    config: dict[str, Any]
    streams: tuple[ConfiguredStream, ...]
    states: tuple[SavedState, ...] = ()
    timeouts: Timeouts = Timeouts()
    max_record_bytes: int = 256 * 1024 * 1024
    spool_folder: str | None = None
    tick: float = 1.0
    open: bool = False
    """Its streams are known from its messages only: whatever comes is taken, each stream announced
    by a ``Schema`` event before its first record."""
    abilities: dict[str, Any] = {}
    """``ConnectorSpec.abilities``, and over them what the user said of the connector in the
    protocol's own words (Singer: ``catalog_argument``). Empty: nothing is known."""
    tries: dict[StreamId, int] = {}
    """How often a stream was tried before in this run, because its source said that it may be."""
    limit: int | None = None
    """So many records of each stream are wanted, and nothing of them is kept."""
    dry_run: bool = False
    """Nothing of what is read is kept."""
    shards: dict[StreamId, Shard] = {}
    """Which part of a stream is read, where it is divided."""
    unchosen: tuple[Stream, ...] = ()
    """Streams of the catalog that are not read: a protocol in which a stream must be deselected is
    given them so that it can say so."""


class SourceRole(Protocol):
    """A source's conversation. Every method raises ``SourceError`` with the connector's own words.
    ``log`` receives what the connector says beside the answer (Log, Counted, Control events)."""

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: "EventSink") -> ConnectorSpec: ...

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: "EventSink"
    ) -> CheckResult: ...

    def discover(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: "EventSink"
    ) -> Catalog: ...

    def catalog_of(self, raw: Any) -> Catalog:
        """A catalog that the user brings in place of discovery: JSON data in the protocol's own
        form. Raises ``ConfigError``."""
        ...

    def configure(self, stream: Stream, wish: StreamWish) -> ConfiguredStream:
        """The protocol's rules for modes, cursor and key. Raises ``ConfigError``."""
        ...

    def read(self, runtime: Runtime, request: ReadRequest) -> Iterator[Event]:
        """Events in the order they came; the last one is ``Exited``, also after a failure, unless
        the generator is closed early. Closing it ends the connector. Timeouts come as an ``Error``
        event and then ``Exited``; a fault that is ours is raised."""
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

    @property
    def id(self) -> StreamId:
        return self.configured.id


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
    timeouts: Timeouts = Timeouts()
    acks: Acks = Acks.echo
    tick: float = 1.0
    activate_version: bool | None = None
    """Singer's ACTIVATE_VERSION: sent or not; None: where the destination says that it takes it."""
    attempt: int = 1
    """How often it was begun in this run, this time included."""


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
    state: SavedState


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
    (``state.keys``)."""

    seq: int
    keys: tuple[tuple[str, int], ...] = ()


END = -1

Answer = Ack | Log | Error | Counted | Control | Measured | Reject | Exited | Tick
"""``Reject``: a record that was fed and that the destination put aside; it comes before the ack
that covers it, which must not be passed on before the reject is durable."""


class DestinationRole(Protocol):
    """A destination's conversation. Every method raises ``DestinationError`` with the connector's
    own words."""

    told_once: bool
    """It learns of streams and their schemas when it starts, and never again."""

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: "EventSink") -> ConnectorSpec: ...

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: "EventSink"
    ) -> CheckResult: ...

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        """Why it cannot take these streams (a sync mode it does not support, ...), for plan."""
        ...

    def fidelity(self, source_protocol: str, streams: Sequence[WriteStream]) -> list[str]:
        """What narrows or is lost on the way, for plan, each a sentence."""
        ...

    def write(
        self, runtime: Runtime, request: WriteRequest, feed: Iterator[Feed]
    ) -> Iterator[Answer]:
        """Feed it, in order and with back-pressure, until ``feed`` ends, and give what it answers;
        the last answer is ``Exited``. ``feed`` is drawn from another thread. Closing the generator
        ends the connector."""
        ...


class TransformRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a transform over one stream. ``state``: as the source was given it. ``scope``: of
    what covers the keys that it keeps for itself (``state.keys.covers``). ``waiting``: bytes that
    may wait before it, and as many behind it."""

    config: dict[str, Any]
    stream: ConfiguredStream
    scope: str
    state: SavedState | None = None
    timeouts: Timeouts = Timeouts()
    waiting: int = 16 << 20
    dry_run: bool = False
    """Nothing of what comes out is kept."""
    attempt: int = 1
    """How often the stream was begun in this run, this time included."""


@dataclass(slots=True)
class Came:
    """Rows that came out: a table (pyarrow) in the transform's own columns. ``size``: bytes."""

    table: Any
    size: int


@dataclass(slots=True)
class Through:
    """All that came of the first ``upto`` tables that it was fed (``END``: of all, and it ended
    well) was given before. ``whole``: and of no later one. ``told``: the transform's own document;
    ``keys``: the checkpoint of its own keys (``state.keys``)."""

    upto: int
    whole: bool = True
    told: dict[str, Any] | None = None
    keys: int = 0


Given = Came | Through | Reject | Log | Error | Counted | Measured


class TransformRole(Protocol):
    """A transform's conversation."""

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: "EventSink") -> ConnectorSpec: ...

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: "EventSink"
    ) -> CheckResult: ...

    def outline(self, runtime: Runtime, request: TransformRequest, columns: Any) -> Any | None:
        """The columns (pyarrow.Schema) that it makes of rows of these, as far as one empty batch
        shows; None: it made nothing of it. Raises ``SourceError`` where it failed."""
        ...

    def apply(
        self, runtime: Runtime, request: TransformRequest, feed: Iterator[Any]
    ) -> Iterator[Given]:
        """Feed it tables (pyarrow) and give what it makes of them; the last answer is
        ``Through(END)`` or an ``Error``. ``feed`` is drawn from another thread; where that raises,
        the transform is told of a failure, never of an end. Closing the generator ends it."""
        ...


class EventSink(Protocol):
    def __call__(self, event: Event, /) -> None: ...


class Held(msgspec.Struct, frozen=True):
    """One line for ``plan``: what holds a connector, and why. ``value`` None: unlimited."""

    name: str
    value: Any
    rule: str


class ManifestRole(Protocol):
    """For protocols whose connectors say what they need to reach and use."""

    def held(self, runtime: Runtime, config: dict[str, Any]) -> tuple[list[Held], list[str]]:
        """What it may reach and use in the end, and what there is to say of its manifest. Raises
        ``ConfigError``, ``SourceError``."""
        ...

    def problems(self, spec: ConnectorSpec, streams: Sequence[ConfiguredStream]) -> list[str]:
        """Why, by its manifest, the source cannot read these streams so."""
        ...


class Sharding(msgspec.Struct, frozen=True):
    """In how many shards a stream is read side by side, and each hint with the rule that won."""

    count: int
    hints: tuple[Held, ...] = ()


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

    def export(self, states: Sequence[SavedState]) -> Any:
        """What the source is given (``state export``), as JSON data; None: nothing to give."""
        ...

    def parse(self, raw: Any) -> list[SavedState]:
        """The opposite, accepting every form a user may bring. Raises ``StateError``."""
        ...

    def merge(self, saved: Sequence[SavedState], new: Sequence[SavedState]) -> list[SavedState]:
        """Saved states after ``new`` ones, in order. Raises ``StateError`` where the protocol
        allows no change of type."""
        ...

    def reset(self, states: Sequence[SavedState], stream: StreamId) -> list[SavedState]:
        """Without this stream's state. Raises ``StateError`` where that cannot be done."""
        ...

    def without(
        self, states: Sequence[SavedState], streams: Collection[StreamId]
    ) -> list[SavedState]:
        """Without these streams' states, for streams that start anew: a stream's own state goes,
        its entry in a shared state becomes null, the rest of a shared state stays; a blob whose
        parts cannot be told apart stays whole."""
        ...

    def describe(self, states: Sequence[SavedState]) -> dict[str, Any]:
        """``{"type", "streams": [{"namespace", "name", "state"}], "shared"}`` for ``state
        show``."""
        ...


class SchemaRole(Protocol):
    """The protocol's dialect of JSON Schema."""

    def data_type(self, schema: Any) -> DataType:
        """Of one property or of a whole record (then a struct, or json where it cannot be)."""
        ...


class ProtocolPackage(Protocol):
    name: str
    source: SourceRole
    destination: DestinationRole | None
    transform: TransformRole | None
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

    prefixes: tuple[str, ...]
    """How connector names begin, a source's first: ``("source-", "destination-")``."""

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
