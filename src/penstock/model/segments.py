"""Defines what the log and the ledger store: parts, segments, loads, groups of loads.

A *part* is a Parquet file of one stream. A *segment* holds what one state covers: parts,
rejects, counts and the state, for one scope, sealed in one atomic step (L2). Segments sealed at
the same moment share a manifest file. A *load* commits the parts of one stream from some segments
to one table, under a number (L3). A *group* is the set of loads that must all be committed before
the states of its segments may be saved (L1).
"""

from enum import StrEnum

import msgspec

from penstock.model.catalog import DestinationSyncMode, FieldPath, Shard, StreamId
from penstock.model.state import StateScope, StoredState
from penstock.model.types import MetadataNames

# Marks a segment's shared (GLOBAL, LEGACY) state among the streams that consume the segment.
SHARED_STATE = StreamId("\0state", "\0state")


class SegmentId(msgspec.Struct, frozen=True, order=True):
    """Identifies a segment. ``epoch``: unique in its pipeline and growing; ``seq``: grows within
    the epoch."""

    epoch: int
    seq: int


class TableShape(msgspec.Struct, frozen=True):
    """Marks a part that has the columns of a table in place of the internal ones (``model.types``):
    the stream's, then the metadata columns under ``names``. ``digest``: of all that the file has in
    common with a table's: columns, types, sync id, generation."""

    names: MetadataNames
    digest: str


class PartLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How a lane writes the parts of a stream in their table's layout. ``columns``: the stream's,
    in the table's order; ``described``: metadata of the file that readers of the table expect."""

    shape: TableShape
    columns: tuple[str, ...]
    sync_id: int | None
    generation: int
    described: dict[str, str]


class PartRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Refers to a part. ``path``: relative to the pipeline's log. ``crc``: CRC-32 of the file.
    ``size``: its bytes. ``raw_bytes``: bytes of its records as the source sent them. ``shape``: set
    for a part that a table can take unchanged; None: it has the internal columns. ``first``: for a
    part with a shape, the sequence number of its first row (``model.types.SEQ``), from which those
    of the other rows are counted; None: unknown (written by an earlier version of Penstock)."""

    path: str
    rows: int
    raw_bytes: int
    size: int
    crc: int
    shape: TableShape | None = None
    first: int | None = None


class CursorOrder(StrEnum):
    """How cursors in text are compared (``tables.newest``). ``by_value``: numbers and times by
    their values, other text not at all; ``text``: all text byte by byte."""

    by_value = "value"
    text = "text"


class WriteDisposition(msgspec.Struct, frozen=True, kw_only=True):
    """How rows join their table (the write disposition), fixed when they are sealed: a change of
    the pipeline file between runs does not change a recovered segment. Paths hold cleaned column
    names. ``replaces``: the generation replaces the table's rows, also under a mode other than
    overwrite. ``arrival``: of two rows of a key the one that arrived later wins, whatever their
    cursors and extraction times (cdc); ``delete_cursor``: the cursor that a delete has all the
    same. ``sync_id``, ``generation_id``: for the metadata columns; ``generation_id`` None: the
    ledger's number of the generation. ``anew``: the rows come from a read that sends everything
    again, because what was sent before was forgotten (``--full-refresh``) or lost. ``refreshes``:
    the generation is a refresh of a stream (``--recreate``): it replaces the table's rows whatever
    the mode, and until it is published no state that covers it is saved. ``mixed_keys``: columns of
    the key of which the table has rows as text and rows as JSON. ``retried``: the rows were rejects
    that a user retried (``engine.specs.retry``): in a table that keeps one row per key they count
    as older than its rows. ``history``: the table keeps every version of a key
    (``tables.history``); ``ends_history``: from then on it does not, and loses all versions but the
    current ones."""

    mode: DestinationSyncMode
    primary_key: tuple[FieldPath, ...] = ()
    cursor: FieldPath = ()
    deleted_column: str | None = None
    sync_id: int | None = None
    generation_id: int | None = None
    replaces: bool = False
    arrival: bool = False
    anew: bool = False
    refreshes: bool = False
    delete_cursor: FieldPath = ()
    cursor_order: CursorOrder = CursorOrder.by_value
    mixed_keys: tuple[str, ...] = ()
    retried: bool = False
    history: bool = False
    ends_history: bool = False

    def joins_like(self, other: "WriteDisposition") -> bool:
        """Returns whether both are equal apart from the sync id, ``anew`` and ``delete_cursor``, so
        that their rows may fill one generation."""
        change = msgspec.structs.replace
        one, two = (
            change(each, sync_id=None, anew=False, delete_cursor=()) for each in (self, other)
        )
        return one == two


class StreamSlice(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's share of a segment. ``read``: source records, of which ``rejected`` and
    ``filtered`` have no rows in its parts; transforms may have made any number of rows of the
    others. ``complete``: nothing of this generation (or of this sync) follows."""

    stream: StreamId
    disposition: WriteDisposition = msgspec.field(name="shape")
    schema_version: int
    generation: int
    fills_generation: bool
    parts: tuple[PartRef, ...] = ()
    read: int = 0
    rejected: int = 0
    filtered: int = 0
    keys: tuple[tuple[str, int], ...] = ()  # as in ``events.Batch``, of its rows
    complete: bool = False
    shard: Shard | None = None  # if set, ``complete`` is about this shard only
    version: int | None = None
    """The version (ACTIVATE_VERSION) of the incremental stream in this generation. Later rows of
    the stream belong to the same generation, and are visible at once."""
    refreshed_as: int | None = None
    """The newest version of a full refresh's rows. Rows of that version in later increments join
    them."""

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.parts)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One sealed segment. ``state`` None: sealed under the previous state; then ``exact`` is False
    if a later sync would read the same rows again (at-least-once). ``rejects``: paths of JSON-lines
    files in the log. ``keys``: the source's checkpoint of its keys that the segment covers; 0:
    none. ``before``: how many :attr:`shares` its epoch sealed before it, which reveals a lost
    manifest (L3); None: written by an earlier version of Penstock."""

    id: SegmentId
    lane: int
    scope: StateScope | None
    slices: tuple[StreamSlice, ...]
    state: str | None = None
    exact: bool = True
    rejects: tuple[str, ...] = ()
    keys: int = 0
    before: int | None = None

    @property
    def shares(self) -> int:
        """How often the segment must be consumed: once per stream, and once for a shared state."""
        shared = self.scope is not None and self.scope.stream is None
        return len({s.stream for s in self.slices}) + shared


class PlannedOn(msgspec.Struct, frozen=True):
    """The basis on which a load was planned. ``version``: of its table; -1: there was none.
    ``boot``: of the machine (``tables.disks.boot``)."""

    version: int
    boot: str


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One commit into one table: never regrouped, and repeated unchanged after a crash (L3).

    ``key``: the id under which the table stores ``number``: the id that the pipeline's state got
    when it was created, and the stream. Numbers of a key grow and never restart. ``follows``: the
    number that the table must have before this load (0: none); None: any. ``token``: random, drawn
    with the number and stored by the table with it, to distinguish another home's load of the same
    number; empty: written by an earlier version of Penstock. ``planned``: None if its table has no
    versions. ``shards``: for a stream that is read in shards, each epoch with the lane whose shard
    it read; empty: the rows came one after the other."""

    key: str
    number: int
    stream: StreamId
    disposition: WriteDisposition = msgspec.field(name="shape")
    segments: tuple[SegmentId, ...]
    parts: tuple[PartRef, ...]
    schema_version: int
    generation: int
    replaces: bool = False  # this load replaces the table's rows (a published generation)
    read: int = 0
    rejected: int = 0
    filtered: int = 0
    follows: int | None = None
    token: str = ""
    planned: PlannedOn | None = None
    shards: tuple[tuple[int, int], ...] = ()

    @property
    def mode(self) -> DestinationSyncMode:
        return self.disposition.mode

    @property
    def generation_id(self) -> int:
        """The number of its generation in the metadata column."""
        given = self.disposition.generation_id
        return self.generation if given is None else given

    @property
    def replaces_rows(self) -> bool:
        """Returns whether no row of the table stays. A history keeps its rows, unless a refresh
        begins it again."""
        return self.replaces and (not self.disposition.history or self.disposition.refreshes)

    @property
    def reaches_table(self) -> bool:
        """Whether there is anything to commit; a load of rejects alone leaves its table
        untouched."""
        return bool(self.parts) or self.replaces

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.parts)

    @property
    def covered(self) -> int:
        """The number of source records that its commit covers."""
        return self.read - self.rejected - self.filtered


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Loads that are committed together, and the states that are saved after the last of them (L1).
    ``epoch``: the newest segment's; after a state reset, states of groups of earlier epochs are not
    saved.
    ``consumes``: the shares of segments that the group takes."""

    id: int
    loads: tuple[Load, ...]
    states: tuple[StoredState, ...]
    epoch: int
    consumes: tuple[tuple[SegmentId, StreamId], ...]


class ConsumedSlice(msgspec.Struct, frozen=True):
    """A stream's share of a segment that a group has taken, or that was abandoned."""

    segment: SegmentId
    stream: StreamId
