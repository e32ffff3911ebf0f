"""What a run will do with each stream, as ``engine.plan`` decided it and the others read it.

Data only. ``PlannedStream``: a stream as planned. ``SyncPlan``: what a sync does with all of them.
``LaneStart``: what an epoch of a lane begins with. ``ContinuedStream``: how a stream goes on in the
middle of an epoch. ``Outcome``: what a sync came to. Not here: how it is decided
(``engine.plan.streams``), what a lane's process is told (``lane``).
"""

from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, FieldPath, StreamId
from penstock.model.rejected import MaxRejected
from penstock.model.segments import Shape
from penstock.model.state import SavedState
from penstock.model.types import RowSchema
from penstock.protocols.contract import Held
from penstock.tables.contract import TableName
from penstock.transforms.chain import PlannedChain


class PlannedStream(msgspec.Struct, frozen=True, kw_only=True):
    """``schema``: of the rows; its version is that of the store once the plan is remembered
    (``engine.plan.prepare.remember``). ``columns``: original property -> cleaned column, as far as
    this run knows. ``deferred``: why its loads wait for the end of the sync (a Parquet table that
    is rewritten), or None. ``key``: original paths. ``given``: what transforms are given, where
    there are any; ``schema`` is what they make of it. ``queried``: a load's rows go through queries
    (``engine.deliver.stream_queries``), whose answer the key is of. ``chain``: the transforms as
    planned, which ends in that schema. ``shards``: in how many it is read side by side, into one
    generation. ``max_rejected``: None: the pipeline's.
    ``whole``: no property is known, so a record is one JSON text (:data:`WHOLE_RECORD`)."""

    configured: ConfiguredStream
    schema: RowSchema
    given: RowSchema | None = None
    chain: PlannedChain | None = None
    columns: dict[str, str]
    shape: Shape
    table: TableName
    lane: int = 0
    deferred: str | None = None
    whole: bool = False
    queried: bool = False
    shards: int = 1
    hints: tuple[Held, ...] = ()
    max_rejected: MaxRejected | None = None

    @property
    def id(self) -> StreamId:
        return self.configured.id

    @property
    def lanes(self) -> range:
        """Lanes that read it: shard N is read by lane N."""
        return range(self.shards) if self.shards > 1 else range(self.lane, self.lane + 1)

    @property
    def replaces_table(self) -> bool:
        """A whole generation of it takes the place of the rows that are there."""
        return self.shape.mode is DestinationSyncMode.overwrite or self.shape.replaces

    def configured_for(self, generation: int) -> ConfiguredStream:
        """As a connector is told of it, with the ids of this sync."""
        empties = self.replaces_table and self.configured.fills_generation
        return msgspec.structs.replace(
            self.configured,
            generation_id=generation,
            minimum_generation_id=generation if empties else 0,
            sync_id=self.shape.sync_id,
        )

    @property
    def key(self) -> tuple[FieldPath, ...]:
        dedup = self.shape.mode is DestinationSyncMode.append_dedup
        return self.configured.primary_key if dedup and not self.queried else ()

    @property
    def newest_by(self) -> dict[str, Any] | None:
        """What decides which of two rows of a key a table keeps; None: it keeps both. ``by``:
        ``cursor`` (then ``field``, a path of columns), ``extraction`` (its time, where there is no
        cursor) or ``arrival``."""
        if self.shape.mode is not DestinationSyncMode.append_dedup:
            return None
        if self.shape.arrival:
            return {"by": "arrival", "field": []}
        cursor = list(self.shape.cursor)
        return {"by": "cursor" if cursor else "extraction", "field": cursor}


class LaneStart(msgspec.Struct, frozen=True, kw_only=True):
    """``open``: the lane takes streams that nobody knows yet. ``attempt``: how often it was begun,
    this time included. ``tries``: how often a stream was tried before, because its source said that
    it may be."""

    lane: int
    epoch: int
    streams: tuple[PlannedStream, ...]
    generations: tuple[tuple[StreamId, int], ...]
    states: tuple[SavedState, ...]
    open: bool = False
    attempt: int = 1
    tries: tuple[tuple[StreamId, int], ...] = ()


class SyncPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``load_bytes``, ``load_seconds``: what must be pending before a load is made while sources
    still read, if one of Spark's ``slots`` (None: unknown) is free. ``max_epochs``: how often a
    lane that was lost with its worker is begun again. ``resent``: whoever feeds the source sends
    again what was not acknowledged (``engine.serve``): what an earlier run had only sealed is given
    up, no state goes ahead of a generation that is not whole, and the source's end makes no version
    whole. ``open``: the source shows its streams only while it is read; lane 0 takes whatever
    comes. ``keyed``: connectors keep keys of their own in the store. ``max_rejected``: of streams
    that have no limit of their own."""

    streams: tuple[PlannedStream, ...]
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


class ContinuedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as it goes on being read in an epoch, from here on."""

    stream: PlannedStream
    generation: int
    version: int | None = None
    fills: bool = False  # the version is not visible yet


class Outcome(msgspec.Struct, kw_only=True):
    """``complete``: streams that the source finished and that are committed whole."""

    complete: set[StreamId]
    failed: dict[StreamId, PenstockError]
    errors: list[PenstockError]
    cancelled: bool = False
