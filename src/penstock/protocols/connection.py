"""Queries and runs one connector, and masks its output (L10).

A :class:`Connection` is the only handle that a layer above has on a connector. It wraps a
protocol's conversations (:class:`SourceConversation`, ...) and the runtime that they use; those
stay in the protocol, because they see output before it is masked. ``protocols.memory`` is the twin
that runs nothing. Not here: the rules of a protocol (``contract``), the data exchanged
(``reading``, ``writing``, ``transforming``). Neighbours: ``masked_events`` masks;
``contract.ProtocolPackage.connect`` makes a connection; ``engine.worker`` uses it.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, Protocol, TypeVar, cast

import msgspec

from penstock.errors import Defect, Role
from penstock.model.catalog import Catalog, CheckResult, ConnectorSpec
from penstock.model.events import Event
from penstock.protocols.masked_events import EventMasker
from penstock.protocols.reading import ReadRequest
from penstock.protocols.transforming import Given, TransformRequest
from penstock.protocols.writing import Answer, Feed, WriteRequest
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.masking import Masker

R = TypeVar("R")
_R = TypeVar("_R", contravariant=True)
_E = TypeVar("_E")


class EventSink(Protocol):
    def __call__(self, event: Event, /) -> None: ...


class SourceConversation(Protocol[_R]):
    """How a protocol talks to a source over its runtime. Every method raises ``SourceError`` with
    the connector's own message. ``log`` receives what the connector reports next to the answer
    (Log, Counted, Control events)."""

    def spec(self, runtime: _R, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec: ...

    def check(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult: ...

    def discover(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> Catalog: ...

    def read(self, runtime: _R, request: ReadRequest) -> Iterator[Event]:
        """Yields events in the order they came. The last one is ``ConnectorExited``, also after a
        failure, unless the generator is closed early. Closing it ends the connector. A timeout
        gives an ``Error`` event and then ``ConnectorExited``; a fault of Penstock's own is
        raised."""
        ...


class DestinationConversation(Protocol[_R]):
    """How a protocol talks to a destination over its runtime. Every method raises
    ``DestinationError`` with the connector's own message."""

    def spec(self, runtime: _R, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec: ...

    def check(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult: ...

    def configured_spec(
        self,
        runtime: _R,
        spec: ConnectorSpec,
        config: dict[str, Any],
        timeouts: RunTimeouts,
        log: EventSink,
    ) -> ConnectorSpec:
        """Returns the spec with what the destination reports only with its configuration."""
        ...

    def write(self, runtime: _R, request: WriteRequest, feed: Iterator[Feed]) -> Iterator[Answer]:
        """Feeds it, in order and with back-pressure, until ``feed`` ends, and yields its answers;
        the last one is ``ConnectorExited``. ``feed`` is drawn from another thread. Closing the
        generator ends the connector."""
        ...


class TransformConversation(Protocol[_R]):
    """How a protocol talks to a transform over its runtime."""

    def spec(self, runtime: _R, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec: ...

    def check(
        self, runtime: _R, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult: ...

    def outline(self, runtime: _R, request: TransformRequest, columns: Any) -> Any | None:
        """Returns the columns (pyarrow.Schema) that it makes from rows with ``columns``, as far as
        one empty batch shows; None: it returned nothing. Raises ``SourceError`` where it failed."""
        ...

    def apply(self, runtime: _R, request: TransformRequest, feed: Iterator[Any]) -> Iterator[Given]:
        """Feeds it tables (pyarrow) and yields what it makes from them; the last answer is
        ``TransformProgress(END)`` or an ``Error``. ``feed`` is drawn from another thread; if that
        raises, the transform gets a failure, never an end of input. Closing the generator ends the
        transform."""
        ...


class Conversations(Protocol[_R]):
    """How a protocol talks to connectors of each role, over a runtime of its own kind."""

    @property
    def source(self) -> SourceConversation[_R] | None: ...

    @property
    def destination(self) -> DestinationConversation[_R] | None: ...

    @property
    def transform(self) -> TransformConversation[_R] | None: ...


class Connection:
    """The engine's only handle on a connector, for any number of calls and runs, also by several
    threads at once. Everything that it emits is masked (L10): events and answers, errors, log
    lines, the end of its stderr. Records, rejects, states, catalogs, specs and the configuration of
    a CONTROL are data, and stay as they are.

    ``secrets``: the known secrets; may be shared, since each connection adds what it learns (a
    CONTROL, the variables that a connector gets). ``runtime``: where it runs, with the same
    ``secrets`` for its stderr. The methods are those of its role's conversation."""

    def __init__(self, protocol: Conversations[R], role: Role, runtime: R, secrets: Masker) -> None:
        conversation = getattr(protocol, role)
        if conversation is None:
            raise Defect(f"this protocol has no {role}s")
        self._conversation: Any = conversation
        self._runtime: Any = runtime
        self._secrets = secrets

    def spec(self, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        with self._secrets.errors():
            return self._conversation.spec(self._runtime, timeouts, self._sink({}, log))

    def check(self, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink) -> CheckResult:
        with self._secrets.errors():
            found = self._conversation.check(
                self._runtime, config, timeouts, self._sink(config, log)
            )
        said = found.message and self._secrets.mask(found.message)
        return msgspec.structs.replace(found, message=said)

    def configured_spec(
        self, spec: ConnectorSpec, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> ConnectorSpec:
        sink = self._sink(config, log)
        with self._secrets.errors():
            return self._conversation.configured_spec(self._runtime, spec, config, timeouts, sink)

    def discover(self, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink) -> Catalog:
        with self._secrets.errors():
            return self._conversation.discover(
                self._runtime, config, timeouts, self._sink(config, log)
            )

    def read(self, request: ReadRequest) -> Generator[Event]:
        return self._masked(request.config, self._conversation.read(self._runtime, request))

    def write(self, request: WriteRequest, feed: Iterator[Feed]) -> Generator[Answer]:
        return self._masked(request.config, self._conversation.write(self._runtime, request, feed))

    def outline(self, request: TransformRequest, columns: Any) -> Any | None:
        with self._secrets.errors():
            return self._conversation.outline(self._runtime, request, columns)

    def apply(self, request: TransformRequest, feed: Iterator[Any]) -> Generator[Given]:
        return self._masked(request.config, self._conversation.apply(self._runtime, request, feed))

    def _sink(self, config: dict[str, Any], log: EventSink) -> EventSink:
        hearing = EventMasker(self._secrets, config)
        return lambda event: log(hearing.masked(event))

    def _masked(self, config: dict[str, Any], events: Iterator[_E]) -> Generator[_E]:
        hearing = EventMasker(self._secrets, config)
        with self._secrets.errors(), closing(cast(Generator[_E], events)):
            for event in events:
                yield hearing.masked(event)
