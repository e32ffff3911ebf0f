"""What the layers above may ask of a protocol package.

Neighbours: ``protocols/NAME/__init__.py`` exports ``PACKAGE``, a :class:`ProtocolPackage`;
``connectors`` picks the runtime; ``engine.lane`` reads events. Nothing above names a protocol.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from penstock.model.catalog import (
    Catalog,
    CheckResult,
    ConfiguredStream,
    ConnectorSpec,
    FieldPath,
    Stream,
    StreamId,
)
from penstock.model.events import Event
from penstock.model.state import SavedState
from penstock.model.types import ChangeWords, DataType, MetadataNames
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

    def configure(self, stream: Stream, wish: StreamWish) -> ConfiguredStream:
        """The protocol's rules for modes, cursor and key. Raises ``ConfigError``."""
        ...

    def read(self, runtime: Runtime, request: ReadRequest) -> Iterator[Event]:
        """Events in the order they came; the last one is ``Exited``, also after a failure, unless
        the generator is closed early. Closing it ends the connector. Timeouts come as an ``Error``
        event and then ``Exited``; a fault that is ours is raised."""
        ...


class EventSink(Protocol):
    def __call__(self, event: Event, /) -> None: ...


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
    state: StateRole
    schema: SchemaRole
    metadata_names: MetadataNames
    change_words: ChangeWords
    secret_word: str
    """The annotation that marks a property of a config's schema as secret."""
    deleted_at_field: str | None
    """Top-level property whose non-null value says that the record was deleted at the source."""

    def command_name(self, name: str) -> str:
        """Package and executable name in the package registry: ``source-faker`` ->
        ``airbyte-source-faker``."""
        ...
