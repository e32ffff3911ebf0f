"""Plays a connector in memory, without a process or a component: the twin of a protocol.

It ships, for tests of the layers above the protocols. Its output passes the same ``Connection`` as
any connector's, and is masked there. Not here: a connector that prints lines in memory
(``runtimes.memory``, for tests of a protocol).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.errors import Defect
from penstock.model.catalog import Catalog, CheckResult, ConnectorSpec
from penstock.model.events import Event
from penstock.protocols.connection import Connection, EventSink
from penstock.protocols.contract import FixedSpec
from penstock.protocols.reading import ReadRequest
from penstock.protocols.transforming import Given, TransformRequest
from penstock.protocols.writing import Answer, Feed, WriteRequest
from penstock.runtimes.contract import ConnectionStats, RunTimeouts, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import MemoryKeys, OpenKeys


def _unplayed(*asked: Any) -> Any:
    raise Defect(f"nothing is played for {type(asked[-1]).__name__}")


@dataclass(frozen=True)
class PlayedConnector:
    """A connector's behaviour, by the methods of its role's conversation and with their arguments.
    ``apply`` also gets a port to its own keys."""

    spec: Callable[[RunTimeouts, EventSink], ConnectorSpec] = _unplayed
    check: Callable[[dict[str, Any], RunTimeouts, EventSink], CheckResult] = _unplayed
    discover: Callable[[dict[str, Any], RunTimeouts, EventSink], Catalog] = _unplayed
    read: Callable[[ReadRequest], Iterator[Event]] = _unplayed
    write: Callable[[WriteRequest, Iterator[Feed]], Iterator[Answer]] = _unplayed
    outline: Callable[[TransformRequest, Any], Any] = _unplayed
    apply: Callable[[TransformRequest, Iterator[Any], OpenKeys], Iterator[Given]] = _unplayed


class MemoryProtocol:
    """Implements ``ProtocolPackage.connect`` for a played connector, in any role. It measures
    nothing."""

    def __init__(self, played: PlayedConnector) -> None:
        self._played = played

    def connect(
        self,
        launch: Start,
        secrets: Masker,
        stats: ConnectionStats,
        *,
        stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
    ) -> Connection:
        del stats, stderr
        own = MemoryKeys()
        return Connection(_ROLES, launch.role, (self._played, keys or (lambda: own)), secrets)


_Run = tuple[PlayedConnector, OpenKeys]


class _Talk(FixedSpec):
    """Implements the conversation of every role."""

    def spec(self, runtime: _Run, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        return runtime[0].spec(timeouts, log)

    def check(
        self, runtime: _Run, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult:
        return runtime[0].check(config, timeouts, log)

    def discover(
        self, runtime: _Run, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> Catalog:
        return runtime[0].discover(config, timeouts, log)

    def read(self, runtime: _Run, request: ReadRequest) -> Iterator[Event]:
        yield from runtime[0].read(request)

    def write(self, runtime: _Run, request: WriteRequest, feed: Iterator[Feed]) -> Iterator[Answer]:
        yield from runtime[0].write(request, feed)

    def outline(self, runtime: _Run, request: TransformRequest, columns: Any) -> Any | None:
        return runtime[0].outline(request, columns)

    def apply(
        self, runtime: _Run, request: TransformRequest, feed: Iterator[Any]
    ) -> Iterator[Given]:
        yield from runtime[0].apply(request, feed, runtime[1])


class _Roles:
    source = destination = transform = _Talk()


_ROLES = _Roles()
