"""Defines a destination's write requests, feed and answers.

Data only. :class:`WriteRequest`: one write of :class:`WriteStream`. :data:`Feed`: rows, state marks
and ends of streams, in order. :data:`Answer`: acks of state marks, rejects, and the connector's
other reports. Not here: the conversation with a destination (``connection``), which streams it can
take (``contract.DestinationRole``). Neighbours: ``reading``, ``transforming``, the same for the
other roles.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, StreamId
from penstock.model.events import (
    ConnectorExited,
    ConnectorMetrics,
    Control,
    Error,
    LogEvent,
    Reject,
    SkippedItems,
    StreamHalted,
    Tick,
)
from penstock.model.state import StoredState
from penstock.model.types import RowSchema
from penstock.runtimes.contract import RunTimeouts


class WriteStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as the destination gets it. ``target``: its name there, with namespace and prefix
    applied; ``configured``: the stream at the source, its generation ids set. ``schemas``: the row
    schemas its parts may have, by version; ``latest``: the version used for its catalog entry or
    first schema message."""

    configured: ConfiguredStream
    target: StreamId
    schemas: dict[int, RowSchema]
    latest: int
    into: str | None = None
    """The destination's own stream to write to, where the pipeline names one."""
    options: dict[str, Any] = {}
    """The pipeline's options for that stream, as the destination defines them."""
    mapping: dict[str, str] = {}
    """The destination's fields, each with the column (its original name) that it is given; where
    there are some, no other column is sent. Empty: every column under its own name."""
    deleted_at: str | None = None
    """The column (its original name) whose value shows that the row was deleted at the source;
    None: no such column."""
    full_refresh: bool = False
    """Every row of the stream follows; none was sent before in this read."""

    @property
    def id(self) -> StreamId:
        return self.configured.id

    def required(self, version: int) -> frozenset[str]:
        """Returns the original names of its key columns that are never null under this version."""
        if self.configured.destination_sync_mode is not DestinationSyncMode.append_dedup:
            return frozenset()
        keys = {path[0] for path in self.configured.primary_key if path}
        return self.schemas[version].required & keys


class Acks(StrEnum):
    """What counts as an ack: echoed states (``echo``: also bare ones; ``strict``: whole messages
    only), or exit code 0 after the end of its input. A destination's result with row counts at the
    end of a stream counts under each; where it gives none, ``strict`` accepts no substitute."""

    echo = "echo"
    strict = "strict"
    at_end = "at_end"


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One write. ``source_protocol``: that of the states in the feed. ``generation`` semantics as
    in the configured streams."""

    config: dict[str, Any]
    streams: tuple[WriteStream, ...]
    source_protocol: str
    pipeline: str = ""
    """The pipeline's name, the same in every run."""
    timeouts: RunTimeouts = RunTimeouts()
    acks: Acks = Acks.echo
    gives_results: bool = False
    """Whether the destination answers the end of a stream with a result (``GivesResults``)."""
    tick: float = 1.0
    options: dict[str, Any] = {}
    """Keys that the protocol declares (``ProtocolSpec.destination_keys``) and the user set."""
    on_data_error: str = "dlq"
    """What happens to a row that the protocol must not send: dlq (a ``Reject``), skip, fail."""
    attempt: int = 1
    """The destination's attempts in this run, this one included."""
    attempts: int = 1
    backoff: float = 0.0
    """As in ``ReadRequest``."""


@dataclass(slots=True)
class Rows:
    """Rows for one stream: an unchanged record batch (pyarrow) of a part, under ``version`` of its
    schema; its columns are those of ``tables.contract``'s parts (values, then metadata)."""

    stream: StreamId
    version: int
    batch: Any


@dataclass(slots=True)
class StateMark:
    """This state covers everything fed so far in its scope. ``seq`` grows by one from 1; acks name
    it."""

    seq: int
    state: StoredState


@dataclass(slots=True)
class StreamDone:
    """The stream was complete at the source, and all its rows have been fed."""

    stream: StreamId


Feed = Rows | StateMark | StreamDone | WriteStream | Tick
"""Input of a destination. ``WriteStream``: a stream that is new or has more schemas than in the
request, before its first rows with them; it replaces that of the request. ``Tick``: nothing new for
a while."""


@dataclass(slots=True)
class Ack:
    """The destination has durably written everything fed before the state mark ``seq`` in its
    scope. Earlier marks of the same scope are acked with it. ``Ack(END)``: everything fed is
    written. ``keys``: what its checkpoints so far cover of its own keys, (scope, number) each
    (``store.keys``)."""

    seq: int
    keys: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class DestinationCounts:
    """The destination's counts of the rows that the next ack covers. ``fed``: these rows, per
    stream. ``written``: how many it reports as written (None: not reported); ``rejected``: how many
    it put aside, of which only the number is known."""

    fed: dict[StreamId, int]
    written: int | None
    rejected: int


@dataclass(slots=True)
class StreamAck:
    """The destination has durably written every row of this stream of the feed, but not the whole
    feed: another stream failed or was halted. It comes after the end of the feed. ``keys``: as in
    :class:`Ack`."""

    stream: StreamId
    keys: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class GivesResults:
    """The destination answered the end of a stream with a result of its own, good or bad. From now
    on a missing result is a failure, whatever the exit code."""


END = -1
"""The value of ``Ack.seq`` and ``transforming.TransformProgress.upto`` for everything that was
sent."""

GUESSED_ACK = "guessed_ack"
"""``SkippedItems.what``: a state that came back changed or without its envelope was taken for an
ack."""

NEWEST_ACK = "newest_ack"
"""``SkippedItems.what``: a state that equals several was taken for the newest of them, as the
destination ended well."""

EXIT_ACK = "exit_ack"
"""``SkippedItems.what``: rows that exit code 0 acknowledged, as the destination gave no result."""


Answer = (
    Ack
    | DestinationCounts
    | GivesResults
    | StreamAck
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
"""``Reject``: a record that was sent and that the destination rejected. It comes before the ack
that covers it; that ack may go on only when the reject is durable."""
