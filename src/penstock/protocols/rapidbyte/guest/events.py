"""Declares the events of a running stage, which ``stream_run`` yields in the order they happened.

Plain slotted objects that never leave their process. One frame is one complete Arrow IPC stream.
Not here: the engine's own events (``engine_events`` converts).
"""

from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.protocols.rapidbyte.guest.metrics import Metric
from penstock.protocols.rapidbyte.wire.messages import (
    CheckpointPayload,
    ConnectorFault,
    DeadLetter,
    RunSummary,
)


@dataclass(slots=True)
class Frame:
    """A frame that the component emitted. ``number``: its position in this run, from 1."""

    data: bytes | bytearray | memoryview
    number: int


@dataclass(slots=True)
class CheckpointCall:
    """A call of ``checkpoint``. ``kind``: 0 source, 1 destination, 2 transform, as in the call.
    ``frames``: how many frames the connector had emitted (a source) or taken (a transform, a
    destination) before it. ``text``: its document; ``payload`` None: it is malformed, and
    ``problem`` has the reason. ``keys``: the number of the checkpoint of the connector's own keys
    (``store.keys``)."""

    kind: int
    text: str
    frames: int
    payload: CheckpointPayload | None
    problem: str | None = None
    keys: int = 0


@dataclass(slots=True)
class ComponentLog:
    """A line of the component's log, without secrets. ``level``: ERROR WARN INFO DEBUG TRACE."""

    level: str
    message: str


@dataclass(slots=True)
class DeadLettered:
    """A call of ``emit-dlq-record``."""

    letter: DeadLetter


@dataclass(slots=True)
class RunEnded:
    """The last event of a run. ``summary`` None: the run failed, with ``error``; ``fault``: the
    connector's own error; ``host_fault``: the first error that a host function gave it. ``waited``:
    seconds that it waited for other stages; ``worked``: seconds of guest work; ``keys``: as in
    ``CheckpointCall``."""

    summary: RunSummary | None
    error: PenstockError | None
    fault: ConnectorFault | None
    host_fault: ConnectorFault | None
    metrics: list[Metric]
    frames_in: int
    frames_out: int
    waited: float
    worked: float
    keys: int = 0


@dataclass(slots=True)
class Quiet:
    """No event came for the caller's ``tick`` seconds; lets the caller act on time."""


StageEvent = Frame | CheckpointCall | ComponentLog | DeadLettered | Quiet | RunEnded
