"""What a stage takes and gives. The engine knows nothing else of a connector.

Events are plain slotted objects that never leave their process. A :class:`Batch` stands for many
records; no event stands for one record except :class:`Reject`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.model.catalog import FieldPath, StreamId
from penstock.model.state import StateScope
from penstock.model.types import RowSchema


class Status(StrEnum):
    started = "STARTED"
    running = "RUNNING"
    complete = "COMPLETE"
    incomplete = "INCOMPLETE"


@dataclass(slots=True)
class Batch:
    """Records of one stream in arrival order.

    ``bodies``: one JSON object each, raw bytes (buffer-like), or the columns of all of them
    (``codec.columns.Columns``). ``extracted_at``: epoch milliseconds, same length. ``changes``: raw
    JSON of the source's own change lists by row index (sparse).
    """

    stream: StreamId
    bodies: Sequence[Any]
    extracted_at: Sequence[int]
    changes: dict[int, bytes] = field(default_factory=dict[int, bytes])
    size: int = 0  # bytes of the bodies
    version: int | None = None  # the stream's version that they belong to (see Activate)
    stands_for: int | None = None  # source records of which transforms made these; None: as many
    filtered: int = 0  # of these, the ones that transforms left out
    keys: tuple[tuple[str, int], ...] = ()
    """What transforms kept for themselves while they worked on the rows up to here: the place of
    each, and its checkpoint of its own keys (``state.keys``)."""

    @property
    def read(self) -> int:
        """Source records."""
        return len(self.bodies) if self.stands_for is None else self.stands_for


@dataclass(slots=True)
class Showed:
    """What the rows of a transform that is a connector have shown. ``number``: among these,
    from 0. ``columns``: by their names as they stand. ``fresh``: no row of the stream has come out
    of it in this epoch before."""

    number: int
    columns: RowSchema
    fresh: bool = False


@dataclass(slots=True)
class Schema:
    """A stream's schema as told in the middle of a read: a barrier. Records of the stream that came
    before it were made under the schema before. Protocols send it only where it differs from what
    the read was configured with, or was told last. ``primary_key``, ``cursor_field``: None where
    the source said nothing of them. ``showed``: it speaks of what a transform made of the records,
    and of nothing that the source told."""

    stream: StreamId
    json_schema: dict[str, Any]
    primary_key: tuple[FieldPath, ...] | None = None
    cursor_field: FieldPath | None = None
    showed: Showed | None = None


@dataclass(slots=True)
class Activate:
    """From here on only records of this version of the stream exist; those of every other version
    become invisible in one step, once the new ones are durable."""

    stream: StreamId
    version: int


@dataclass(slots=True)
class State:
    """Covers every record of its scope that came before it. ``blob``: the source's own message.
    ``keys``: the checkpoint of its own keys that comes with it (``state.keys``); 0: it has none."""

    scope: StateScope
    blob: str
    keys: int = 0


@dataclass(slots=True)
class Limited:
    """The source waits, for what it reads from lets it ask no more. ``until``: epoch milliseconds;
    None: it did not say."""

    until: int | None = None


@dataclass(slots=True)
class StreamStatus:
    stream: StreamId
    status: Status
    limited: Limited | None = None
    keys: int = 0  # as in State


@dataclass(slots=True)
class Reject:
    """One thing that is no row: ``stream`` None where even that is unknown. ``raw``: its bytes, or
    their beginning where all of them are in the file ``spool``, of ``size`` bytes. ``records``:
    source records that it counts as; None: at most one, of those that batches of its stream stand
    for."""

    stream: StreamId | None
    reason: str
    raw: bytes
    field: str | None = None
    spool: str | None = None
    records: int | None = 1
    size: int = 0


@dataclass(slots=True)
class Control:
    """The connector's new configuration, whole; it may hold secrets: never logged."""

    config: dict[str, Any]


@dataclass(slots=True)
class Estimate:
    """How much the source expects to send in this read; ``stream`` None: of all streams."""

    stream: StreamId | None
    rows: int | None
    bytes: int | None


@dataclass(slots=True)
class Log:
    """``level``: FATAL ERROR WARN INFO DEBUG TRACE."""

    level: str
    message: str
    stack_trace: str | None = None


@dataclass(slots=True)
class Error:
    """A connector's failure: in its own words, or, where there is a ``code``, a limit or a rule of
    ours that it broke (``hint``, ``where``: as in ``PenstockError``). ``raw``: every field that the
    connector gave. ``retry``: it may pass, and trying the stream again after so many seconds is
    safe."""

    message: str
    failure_type: str | None = None
    stream: StreamId | None = None
    raw: dict[str, Any] = field(default_factory=dict[str, Any])
    retry: float | None = None
    code: str | None = None
    hint: str | None = None
    where: str | None = None


@dataclass(slots=True)
class Counted:
    """Things that were counted and not taken: ``what`` is a stable key (``unknown_type:FOO``,
    ``text_line``, ``stream_not_configured:users``, ``unexpected_type:CATALOG``). ``stream``: they
    are rows of it that a destination was fed, and that it left out as it was told to."""

    what: str
    count: int = 1
    stream: StreamId | None = None


@dataclass(slots=True)
class Passed:
    """Records of a stream that was not configured came, and were not taken; a state that comes
    after this may say that they were. ``stream``: as the protocol knows it."""

    stream: StreamId


@dataclass(slots=True)
class Miscounted:
    """With a state the source told how many records it had sent since the state before, and so many
    others ``came``. ``stream`` None: of all streams."""

    stream: StreamId | None
    told: int
    came: int


@dataclass(slots=True)
class Measured:
    """What the connector measured of itself, for the report: JSON objects in its own terms."""

    stream: StreamId | None
    series: list[dict[str, Any]]


@dataclass(slots=True)
class Exited:
    """The connector ended: the last event of a read. ``code`` None: we stopped it."""

    code: int | None
    stderr_tail: str = ""


@dataclass(slots=True)
class Tick:
    """Nothing came for a while: lets the reader of events act on time."""


Event = (
    Batch
    | Schema
    | Activate
    | State
    | StreamStatus
    | Reject
    | Control
    | Estimate
    | Log
    | Error
    | Counted
    | Passed
    | Miscounted
    | Measured
    | Exited
    | Tick
)
