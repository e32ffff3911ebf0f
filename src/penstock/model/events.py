"""Defines the events that connectors and transforms exchange with the engine.

They are all that the engine sees of a connector. Events are slotted objects that never leave their
process. A :class:`Batch` stands for many records; only a :class:`Reject` stands for a single one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.model.catalog import FieldPath, StreamId
from penstock.model.state import StateScope
from penstock.model.types import MissingColumns, RowSchema


class Status(StrEnum):
    """A stream's status, in the words of Airbyte's protocol."""

    started = "STARTED"
    running = "RUNNING"
    complete = "COMPLETE"
    incomplete = "INCOMPLETE"


@dataclass(slots=True)
class ComparedRows:
    """What is known about the rows of a batch that were compared with what was sent before.

    ``keys``: an Arrow table of their primary keys, in columns named by position (``c0``, ...).
    ``held``: Arrow booleans, whether the destination has a row with the same key. ``folder``: of
    their set. ``at``: when they were read, epoch milliseconds. ``removes``: a row that is left out
    is removed at the destination. ``probe``: the rows are unchanged and are not sent; only what
    transforms leave out counts."""

    keys: Any
    held: Any
    folder: str
    at: int
    removes: bool = False
    probe: bool = False


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
    version: int | None = None  # the stream's version of the rows (see Activate)
    stands_for: int | None = None  # source records that became these rows; None: as many
    filtered: int = 0  # source records that transforms dropped
    keys: tuple[tuple[str, int], ...] = ()
    """For each transform that keeps keys (``store.keys``): its place, and the checkpoint of its
    keys after these rows."""
    compared: ComparedRows | None = None  # of a model whose transforms report which rows they keep

    @property
    def read(self) -> int:
        """The number of source records that the batch stands for."""
        return len(self.bodies) if self.stands_for is None else self.stands_for


@dataclass(slots=True)
class TransformColumns:
    """The columns of a transform connector's rows, if they differ from the plan. ``number``: the
    transform's index among the connectors of the chain, from 0. ``columns``: under the transform's
    names."""

    number: int
    columns: RowSchema


@dataclass(slots=True)
class Schema:
    """A stream's new schema in the middle of a read. A barrier: earlier records of the stream have
    the earlier schema. Protocols emit it only if it differs from the last one, at first from the
    read's configuration. ``primary_key``, ``cursor_field``: None if the source did not state them.
    ``showed``: the event describes a transform's output, and no change at the source; ``missing``:
    columns that records need, also without a change at the source."""

    stream: StreamId
    json_schema: dict[str, Any]
    primary_key: tuple[FieldPath, ...] | None = None
    cursor_field: FieldPath | None = None
    showed: TransformColumns | None = None
    missing: MissingColumns | None = None


@dataclass(slots=True)
class Activate:
    """ACTIVATE_VERSION: from here on only records of this version of the stream exist; rows of
    every other version become invisible in one step, once the new ones are durable."""

    stream: StreamId
    version: int


@dataclass(slots=True)
class State:
    """A state, which covers every earlier record of its scope. ``blob``: the source's own message.
    ``keys``: the source's checkpoint of its keys that belongs to it (``store.keys``); 0: none.
    ``named``: the only streams that the source continues; rows of others are sent again. None: all
    in the scope."""

    scope: StateScope
    blob: str
    keys: int = 0
    named: frozenset[StreamId] | None = None


@dataclass(slots=True)
class RateLimitWait:
    """The source waits because its API limits the rate of requests. ``until``: epoch milliseconds;
    None: unknown."""

    until: int | None = None


@dataclass(slots=True)
class StreamStatus:
    """A stream's status. ``limited``: it is running, but waits for a rate limit."""

    stream: StreamId
    status: Status
    limited: RateLimitWait | None = None
    keys: int = 0  # as in State


@dataclass(slots=True)
class Reject:
    """A record, line or row that cannot become a row (L8). ``stream`` None: unknown. ``raw``: its
    bytes; if they are in the file ``spool``, of ``size`` bytes, only their beginning. ``records``:
    how many source records it counts as, 0 if another reject has counted it; None: at most one,
    which a batch of its stream counts already (``Batch.stands_for``). ``key``: its primary key by
    the source's names, set when a destination rejects it, whose bytes may have other names.
    ``whole``: ``raw`` is a record as the source sent it, which can be decoded again."""

    stream: StreamId | None
    reason: str
    raw: bytes
    field: str | None = None
    spool: str | None = None
    records: int | None = 1
    size: int = 0
    key: dict[str, Any] | None = None
    whole: bool = False


@dataclass(slots=True)
class Control:
    """CONTROL: the connector's complete new configuration. It may hold secrets: never logged
    (L10)."""

    config: dict[str, Any]


@dataclass(slots=True)
class Estimate:
    """How many rows and bytes the source expects to send in this read; ``stream`` None: of all
    streams together."""

    stream: StreamId | None
    rows: int | None
    bytes: int | None


@dataclass(slots=True)
class LogEvent:
    """A log line of the connector. ``level``: FATAL ERROR WARN INFO DEBUG TRACE."""

    level: str
    message: str
    stack_trace: str | None = None


@dataclass(slots=True)
class Error:
    """A connector's failure. ``message``: the connector's own, or, with a ``code``, Penstock's
    about a limit or rule that the connector broke (``hint``, ``where``: as in ``PenstockError``).
    ``raw``: every field of the connector's error. ``retry``: the failure may be temporary, and the
    stream can safely be read again after so many seconds."""

    message: str
    failure_type: str | None = None
    stream: StreamId | None = None
    raw: dict[str, Any] = field(default_factory=dict[str, Any])
    retry: float | None = None
    code: str | None = None
    hint: str | None = None
    where: str | None = None


@dataclass(slots=True)
class StreamHalted:
    """The destination accepts no more rows of this stream in this run, without an error. Rows
    without an ack are sent again by the next run."""

    stream: StreamId
    message: str


@dataclass(slots=True)
class SkippedItems:
    """Counts items that were skipped. ``what``: a stable key of their kind (``unknown_type:FOO``,
    ``text_line``, ``stream_not_configured:users``, ``unexpected_type:CATALOG``). ``stream``: the
    items are its rows, which a destination connector left out by configuration."""

    what: str
    count: int = 1
    stream: StreamId | None = None


@dataclass(slots=True)
class UnconfiguredRecords:
    """Records of a stream that is not configured arrived and were skipped; a later state may claim
    them as read. ``stream``: its name in the protocol."""

    stream: StreamId


@dataclass(slots=True)
class RecordCountMismatch:
    """The record count in a state's message differs from the records that arrived since the
    previous state: the source ``announced`` so many, and so many were ``received``. ``stream``
    None: of all streams."""

    stream: StreamId | None
    announced: int
    received: int


@dataclass(slots=True)
class ConnectorMetrics:
    """The connector's own metrics, for the report: JSON objects of its own form."""

    stream: StreamId | None
    series: list[dict[str, Any]]


@dataclass(slots=True)
class DoubtfulEnd:
    """The messages do not prove that these streams were read whole, for ``reason`` (a clause).
    ``complete``: they count as complete all the same; otherwise exit code 0 does not complete them
    (L6), and ``hint`` is what to do."""

    streams: tuple[StreamId, ...]
    reason: str
    complete: bool = False
    hint: str | None = None


@dataclass(slots=True)
class ConnectorExited:
    """The connector ended: the last event of a read. ``code``: its exit code; None: Penstock
    stopped it. ``doubts``: those about streams that may not have been read whole."""

    code: int | None
    stderr_tail: str = ""
    doubts: tuple[DoubtfulEnd, ...] = ()


@dataclass(slots=True)
class Tick:
    """Emitted while no other event arrives, so that the reader of events can check its deadlines
    (L11)."""


Event = (
    Batch
    | Schema
    | Activate
    | State
    | StreamStatus
    | Reject
    | Control
    | Estimate
    | LogEvent
    | Error
    | SkippedItems
    | UnconfiguredRecords
    | RecordCountMismatch
    | ConnectorMetrics
    | ConnectorExited
    | Tick
)
