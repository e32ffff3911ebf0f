"""Defines what a run does with each stream: ``engine.plan`` decides it, the other folders read it.

Data only. ``PlannedStream``: a stream as planned. ``SyncPlan``: what a sync does with all of them.
``LaneStart``: the input of a lane's epoch. ``ContinuedStream``: how a stream continues in the
middle of an epoch. ``SyncOutcome``: the result of a sync. Not here: how it is decided
(``engine.plan.streams``), the job of a lane's process (``lane``).
"""

from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, FieldPath, StreamId
from penstock.model.rejected import MaxRejected
from penstock.model.segments import WriteDisposition
from penstock.model.state import StoredState
from penstock.model.table_columns import stored
from penstock.model.types import DataType, Kind, RowSchema, UndeclaredPolicy
from penstock.protocols.contract import EffectiveLimit
from penstock.tables.contract import TableName
from penstock.transforms.chain import PlannedChain

SHORTEST_POLL = 0.02  # seconds


class PlannedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as planned. ``schema``: of the rows; its version is the store's once
    ``engine.plan.prepare.remember`` has saved it. ``columns``: original property -> cleaned column,
    as far as this run knows; ``nested``: the names of fields inside them
    (``engine.plan.nested_names``). ``deferred``: why its loads wait for the end of the sync (a
    Parquet table that is rewritten), or None. ``key``: original paths. ``given``: the schema before
    the transforms, where there are any; ``schema`` is the one after them. ``queried``: a load's
    rows go through queries (``engine.deliver.stream_queries``), whose result ``key`` refers to.
    ``chain``: the transforms as planned, from ``given`` to ``schema``. ``shards``: into how many
    shards its read is split; they fill one generation. ``max_rejected`` None: the pipeline's.
    ``whole``: not every property is known, so that one column takes the record as JSON.
    ``retry_rejected``: in how many later runs a rejected row is sent again. ``deleted_at``: the
    property of its rows that marks them as deleted at the source; None: they have none.
    ``undeclared``: the policy for properties that its schema does not declare. ``ignored``,
    ``narrowed``, ``closed``: as in ``engine.plan.stream_columns.SourceColumns``. ``mark``: the
    property that marks deletes, where it gets a column though its schema does not declare it.
    ``exact``: the key columns that are decimals in a new table, since the source declares them as
    numbers. ``declared``: the source's types of the columns that are decoded by their table's type
    (``engine.plan.table_types``), by original name."""

    configured: ConfiguredStream
    schema: RowSchema
    given: RowSchema | None = None
    chain: PlannedChain | None = None
    columns: dict[str, str]
    nested: dict[str, str] = {}
    disposition: WriteDisposition
    table: TableName
    lane: int = 0
    deferred: str | None = None
    whole: bool = False
    queried: bool = False
    shards: int = 1
    hints: tuple[EffectiveLimit, ...] = ()
    max_rejected: MaxRejected | None = None
    retry_rejected: int = 0
    deleted_at: str | None = None
    ignored: tuple[FieldPath, ...] = ()
    narrowed: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    undeclared: UndeclaredPolicy = UndeclaredPolicy.drop
    closed: tuple[FieldPath, ...] = ()
    mark: str | None = None
    declared: dict[str, DataType] = {}

    @property
    def id(self) -> StreamId:
        return self.configured.id

    @property
    def lanes(self) -> range:
        """The lanes that read it: shard N is read by lane N."""
        return range(self.shards) if self.shards > 1 else range(self.lane, self.lane + 1)

    @property
    def replaces_table(self) -> bool:
        """Whether a whole generation of this stream replaces the rows of its table."""
        written = self.disposition
        overwrites = written.mode is DestinationSyncMode.overwrite
        return overwrites or (written.replaces and not written.history) or written.refreshes

    def refreshed(self) -> "PlannedStream":
        """Returns the stream as it continues after its refresh was published; the same stream where
        it had none."""
        if not self.configured.refreshes:
            return self
        return msgspec.structs.replace(
            self,
            configured=msgspec.structs.replace(self.configured, refreshes=False),
            disposition=msgspec.structs.replace(self.disposition, refreshes=False),
        )

    def configured_for(self, generation: int) -> ConfiguredStream:
        """Returns the configured stream for a connector, with the ids of this sync."""
        empties = self.replaces_table and self.configured.fills_generation
        return msgspec.structs.replace(
            self.configured,
            generation_id=generation,
            minimum_generation_id=generation if empties else 0,
            sync_id=self.disposition.sync_id,
        )

    @property
    def key(self) -> tuple[FieldPath, ...]:
        """Returns the primary key that must not be null (original paths); empty unless it
        deduplicates rows."""
        dedup = self.disposition.mode is DestinationSyncMode.append_dedup
        return self.configured.primary_key if dedup and not self.queried else ()

    @property
    def newest_by(self) -> dict[str, Any] | None:
        """Returns how a table decides which of two rows of a key is newer; None: it keeps both.
        ``by``: ``cursor`` (then ``field``, a path of columns, and for a column of text ``order``,
        as ``CursorOrder``) or ``arrival``."""
        if self.disposition.mode is not DestinationSyncMode.append_dedup:
            return None
        cursor = list(self.disposition.cursor)
        if self.disposition.arrival or not cursor:
            return {"by": "arrival", "field": []}
        found: dict[str, Any] = {"by": "cursor", "field": cursor}
        column = next((f for f in self.schema.fields if f.name == cursor[0]), None)
        for name in cursor[1:]:
            inside = () if column is None else column.type.fields
            column = next((f for f in inside if f.name == name), None)
        if column is None or stored(column.type).kind is Kind.string:
            found["order"] = self.disposition.cursor_order.value
        return found


class UnreadStreams(msgspec.Struct, frozen=True, kw_only=True):
    """The streams whose share of the saved state may not be theirs. ``again``: streams that this
    run reads and the last one did not, each with the share of its own last run
    (``store.remembered``); ``names``: those under which the store has them. ``passed``: those of
    them for which the source sent rows that were not selected. ``left``: streams that this run does
    not read; ``placeless``: those of them without a share of their own: they were never read, or
    their changes meanwhile are gone at the source."""

    again: dict[StreamId, str | None] = {}
    names: frozenset[StreamId] = frozenset()
    passed: frozenset[StreamId] = frozenset()
    left: tuple[StreamId, ...] = ()
    placeless: frozenset[StreamId] = frozenset()


class LaneStart(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a lane's epoch. ``open``: the lane takes streams that are not planned.
    ``attempt``: counts the epochs of the lane in this sync, from 1. ``tries``: how often each
    stream was tried before, where its source declared a retry safe."""

    lane: int
    epoch: int
    streams: tuple[PlannedStream, ...]
    generations: tuple[tuple[StreamId, int], ...]
    states: tuple[StoredState, ...]
    open: bool = False
    attempt: int = 1
    tries: tuple[tuple[StreamId, int], ...] = ()


class SyncPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a sync does. ``load_bytes``, ``load_seconds``: while sources are still read, a load is
    made once this many bytes are pending, or for this long, if one of Spark's ``slots`` (None:
    unknown) is free. ``max_epochs``: how often a lane that was lost with its worker is begun again.
    ``resent``: the program that feeds the source sends again what was not acknowledged
    (``engine.serve``): what an earlier run sealed and did not commit is given up, no state is saved
    before an incomplete generation is complete, and the source's end alone completes no version.
    ``open``: the source reveals its streams only while it is read; lane 0 takes whatever it sends.
    ``keyed``: connectors keep keys of their own in the store. ``max_rejected``: of streams without
    a limit of their own. ``unread``: streams that an earlier run or this one does not read.
    ``poll_seconds``: the longest pause between two looks at the lanes; ``scan_seconds``: between
    two looks at what they sealed."""

    streams: tuple[PlannedStream, ...]
    unread: UnreadStreams = UnreadStreams()
    open: bool = False
    keyed: bool = False
    resent: bool = False
    max_rejected: MaxRejected = MaxRejected()
    lanes: int = 1
    max_epochs: int = 3
    slots: int | None = None
    load_bytes: int = 512 << 20
    load_seconds: float = 300.0
    poll_seconds: float = 0.2
    scan_seconds: float = 2.0

    def poll_after(self, seconds: float) -> float:
        """Returns the pause between two looks at lanes that have run for ``seconds``: a short sync
        must not wait for a look, and a long one must not look often."""
        return min(self.poll_seconds, max(SHORTEST_POLL, seconds / 20))


class ContinuedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as it continues in the middle of an epoch."""

    stream: PlannedStream
    generation: int
    version: int | None = None
    fills: bool = False  # rows of the version are not in the table until it is complete


class SyncOutcome(msgspec.Struct, kw_only=True):
    """The result of a sync. ``complete``: streams that the source completed and that are entirely
    committed. ``halted``: streams that are incomplete without a failure: the destination took no
    more of them, or of a stream whose state they share. ``changed``: a discovery found that the
    source is now given another catalogue: what was read with the old one was given up, and only the
    recovery was done."""

    complete: set[StreamId]
    failed: dict[StreamId, PenstockError]
    errors: list[PenstockError]
    halted: set[StreamId] = set()
    cancelled: bool = False
    changed: bool = False
