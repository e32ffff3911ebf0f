"""What a running stage tells whoever listens, in the order in which it happened.

Plain slotted objects that never leave their process; ``stream_run`` yields them. One frame is one
complete Arrow IPC stream. Not here: the engine's own events (``engine_events``).
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
    """``number``: of this run, from 1."""

    data: bytes | bytearray | memoryview
    number: int


@dataclass(slots=True)
class Checkpoint:
    """``kind``: 0 source, 1 destination, 2 transform, as the call said. ``frames``: how many frames
    the connector had emitted (a source) or taken (a transform, a destination) before it. ``text``:
    its own document; ``payload`` None: that is no checkpoint, and ``problem`` says why. ``keys``:
    the number of its own keys' checkpoint (``state.keys``)."""

    kind: int
    text: str
    frames: int
    payload: CheckpointPayload | None
    problem: str | None = None
    keys: int = 0


@dataclass(slots=True)
class Logged:
    """``level``: FATAL ERROR WARN INFO DEBUG TRACE."""

    level: str
    message: str


@dataclass(slots=True)
class PutAside:
    letter: DeadLetter


@dataclass(slots=True)
class Ended:
    """The last one. ``summary`` None: it did not end well, and ``error`` says how; ``fault`` is the
    connector's own error, ``told`` the first one that the host gave it. ``waited``: seconds that it
    waited for other stages; ``worked``: seconds of guest work; ``keys``: as in a checkpoint."""

    summary: RunSummary | None
    error: PenstockError | None
    fault: ConnectorFault | None
    told: ConnectorFault | None
    metrics: list[Metric]
    frames_in: int
    frames_out: int
    waited: float
    worked: float
    keys: int = 0


@dataclass(slots=True)
class Quiet:
    """Nothing was told for a while: lets whoever listens act on time."""


Told = Frame | Checkpoint | Logged | PutAside | Quiet | Ended
