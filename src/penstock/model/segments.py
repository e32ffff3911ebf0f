"""The log's and the ledger's vocabulary: parts, segments, load groups, loads.

A *part* is a Parquet file of one stream. A *segment* is what one state covers: parts, rejects,
counts and the state, for one scope, sealed in one atomic step (L2). Segments that are sealed in the
same instant share a manifest file. A *load* takes the parts of one stream out of some segments into
one table, under a number (L3). A *group* is the loads that must all be committed before the states
of its segments may be saved (L1).
"""

import msgspec

from penstock.model.catalog import DestinationSyncMode, FieldPath, Shard, StreamId
from penstock.model.state import SavedState, StateScope

# Consumed beside a segment's streams once its shared (GLOBAL, LEGACY) state is in a group.
SHARED_STATE = StreamId("\0state", "\0state")


class SegmentId(msgspec.Struct, frozen=True, order=True):
    """Epochs are unique in a pipeline and grow; ``seq`` grows within an epoch."""

    epoch: int
    seq: int


class PartRef(msgspec.Struct, frozen=True):
    """``path`` is relative to the pipeline's log. ``crc``: CRC-32 of the file. ``size``: its bytes.
    ``raw_bytes``: bytes of the records as the source sent them."""

    path: str
    rows: int
    raw_bytes: int
    size: int
    crc: int


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How rows join their table, fixed when they are sealed: a pipeline file that changes between
    runs does not change what a recovered segment means. Paths hold cleaned column names.
    ``replaces``: a generation takes the place of what the table holds, also under another mode than
    overwrite. ``arrival``: of two rows of a key the one that came later holds, whatever their
    cursor and their time of extraction say (cdc)."""

    mode: DestinationSyncMode
    primary_key: tuple[FieldPath, ...] = ()
    cursor: FieldPath = ()
    deleted_column: str | None = None
    sync_id: int | None = None
    replaces: bool = False
    arrival: bool = False

    def joins_like(self, other: "Shape") -> bool:
        """Equal but for the sync that they belong to."""
        return msgspec.structs.replace(self, sync_id=None) == msgspec.structs.replace(
            other, sync_id=None
        )


class StreamSlice(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's share of a segment. ``read``: source records, of which ``rejected`` and
    ``filtered`` are not in its parts; the others are its rows, as many as transforms made of them.
    """

    stream: StreamId
    shape: Shape
    schema_version: int
    generation: int
    fills_generation: bool
    parts: tuple[PartRef, ...] = ()
    read: int = 0
    rejected: int = 0
    filtered: int = 0
    keys: tuple[tuple[str, int], ...] = ()  # as in ``events.Batch``, of its rows
    complete: bool = False  # nothing of this generation (or of this sync) follows
    shard: Shard | None = None  # then ``complete`` speaks for this shard only
    version: int | None = None
    """Of a generation that is one version of an incremental stream (ACTIVATE_VERSION): rows of the
    stream may follow it, in the same generation and visible at once."""
    refreshed_as: int | None = None
    """The newest version that the source gave the rows of a full refresh: rows of it that come in
    increments later join them."""

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.parts)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """``state`` None: sealed under the previous state; then ``exact`` is False wherever a later
    sync would read the same rows again. ``rejects``: paths of JSON-lines files in the log.
    ``keys``: the source's checkpoint of its own keys that this segment covers; 0: none.
    ``before``: how many :attr:`shares` its epoch sealed before it, so that a manifest that is lost
    is missed; None: written by an earlier version."""

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
        """How often it is consumed: by each stream, and for a shared state."""
        shared = self.scope is not None and self.scope.stream is None
        return len({s.stream for s in self.slices}) + shared


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One commit into one table: never regrouped, repeated as it stands (L3).

    ``key`` is the id under which the table remembers ``number``: the state's birth id and the
    stream. Numbers of a key grow and never restart. ``follows``: the number that the table must
    have before it (0: none); None: whichever it has. ``token``: given at random with the number,
    and remembered by the table with it: another home's load of the same number has another one.
    Empty: written by an earlier version."""

    key: str
    number: int
    stream: StreamId
    shape: Shape
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

    @property
    def mode(self) -> DestinationSyncMode:
        return self.shape.mode

    @property
    def reaches_table(self) -> bool:
        """Else it has nothing but rejects, and its table never hears of it."""
        return bool(self.parts) or self.replaces

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.parts)

    @property
    def covered(self) -> int:
        """Source records that its commit covers."""
        return self.read - self.rejected - self.filtered


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Loads that move together, and the states saved once all of them are committed.
    ``epoch``: of the newest segment, compared with the floor that a state reset sets."""

    id: int
    loads: tuple[Load, ...]
    states: tuple[SavedState, ...]
    epoch: int
    consumes: tuple[tuple[SegmentId, StreamId], ...]


class Consumed(msgspec.Struct, frozen=True):
    """A stream's share of a segment that a group took or that was abandoned."""

    segment: SegmentId
    stream: StreamId
