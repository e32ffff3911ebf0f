"""Holds what a lane has read and not sealed, stream by stream: buffers and tallies.

Data only. Neighbour: ``engine.worker.sealer`` decides what is sealed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol, cast

import pyarrow as pa

from penstock.codec.columns import Columns
from penstock.codec.packed_bodies import Packed
from penstock.engine.log.rejects import RejectLine
from penstock.engine.specs.lane import LaneStream
from penstock.engine.worker.part_writer import Part
from penstock.model.catalog import StreamId
from penstock.model.events import Batch, Status
from penstock.model.types import MissingColumns

REJECT_BYTES = 512  # what a reject takes in memory next to its record


class DecodedRows(Protocol):
    """A decoder's result: ``rows`` for the log, their ``count``, and ``rejects`` as (index, reason,
    field). ``missing``: columns without which values are lost (``codec.decode.DecodedBatch``)."""

    @property
    def count(self) -> int: ...

    @property
    def rows(self) -> Any: ...

    @property
    def rejects(self) -> Sequence[tuple[int, str, str | None]]: ...

    @property
    def missing(self) -> MissingColumns | None: ...


Decode = Callable[[StreamId, Sequence[Any], int, Sequence[int], Mapping[int, bytes]], DecodedRows]
"""Decodes (stream, bodies, first seq, extraction times in ms, source's changes by row) into
rows."""

Widen = Callable[[StreamId, MissingColumns], LaneStream]
"""Gives the decoder of a stream more columns; returns the stream's new plan."""


@dataclass(slots=True)
class SealCounts:
    """Parts, rejects and counts of a stream's decoded records since the last seal."""

    parts: list[Part] = field(default_factory=list[Part])
    read: int = 0
    rejects: list[RejectLine] = field(default_factory=list[RejectLine])
    reject_size: int = 0
    rejected: int = 0
    filtered: int = 0
    reject_files: list[str] = field(default_factory=list[str])
    keys: dict[str, int] = field(default_factory=dict[str, int])  # as in Batch

    def take(self, other: "SealCounts") -> None:
        """Adds another tally."""
        self.parts += other.parts
        self.read += other.read
        self.rejects += other.rejects
        self.reject_size += other.reject_size
        self.rejected += other.rejected
        self.filtered += other.filtered
        self.reject_files += other.reject_files
        self.cover(other.keys.items())

    def cover(self, keys: Iterable[tuple[str, int]]) -> None:
        """Raises the covered checkpoint of each transform's keys to these numbers."""
        for place, number in keys:
            self.keys[place] = max(number, self.keys.get(place, 0))

    @property
    def records(self) -> bool:
        """Whether any source record is counted."""
        return bool(self.parts or self.read or self.rejected or self.filtered)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to seal."""
        return not (self.records or self.keys or self.rejects or self.reject_files)


@dataclass(slots=True)
class EarlierRows:
    """What a stream read under an earlier schema or version, since the last seal."""

    info: LaneStream
    covered: SealCounts
    tail: SealCounts
    complete: bool = False

    @property
    def done(self) -> bool:
        """Whether all of it is covered."""
        return self.tail.empty


@dataclass(slots=True)
class OpenStream:
    """A stream's buffer. The first ``marked`` batches are covered by a state, with ``covered``; the
    others, with ``tail``, are not. ``past``: oldest first, see :meth:`Sealer.stream`. ``owed``:
    rejects that are still to be counted as source records. ``activated``: by the source's last
    message the version of the rows is whole. ``reopened``: rows came after a COMPLETE status.
    ``seen``: a record, a state or a status of it came. ``in_doubt``: nothing completes it."""

    info: LaneStream
    past: list[EarlierRows] = field(default_factory=list[EarlierRows])
    buffer: list[Batch] = field(default_factory=list[Batch])
    marked: int = 0
    size: int = 0
    seq: int = 0
    covered: SealCounts = field(default_factory=SealCounts)
    tail: SealCounts = field(default_factory=SealCounts)
    status: Status | None = None
    keys: int = 0  # the checkpoint that its COMPLETE status covers
    owed: int = 0
    refreshed_as: int | None = None  # see ``StreamSlice``
    activated: bool = False
    reopened: bool = False
    seen: bool = False
    in_doubt: bool = False

    @property
    def complete(self) -> bool:
        """Whether the source reported COMPLETE."""
        return self.activated or self.status is Status.complete


def groups(batches: list[Batch]) -> Iterator[list[Batch]]:
    """Divides batches, in order, into those that :func:`joined` takes together: all of them, or
    adjacent ones whose columns have one type, where Arrow cannot merge a column's types (text, then
    a dictionary of texts) or not without an overflow."""
    columns = [b.bodies.table for b in batches if isinstance(b.bodies, Columns)]
    if len(columns) != len(batches) or _mergeable(columns):
        yield batches
        return
    for _, group in groupby(batches, key=lambda b: cast(Any, b.bodies).table.schema):
        yield list(group)


def _mergeable(tables: list[Any]) -> bool:
    """Whether all columns of a name have one type, or types whose common type holds every value."""
    schemas = [table.schema for table in tables]
    if all(schema.equals(schemas[0]) for schema in schemas[1:]):
        return True
    try:
        pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


def joined(batches: list[Batch]) -> tuple[Sequence[Any], Sequence[int], Mapping[int, bytes]]:
    """Joins batches of one of the :func:`groups` into one: bodies, extraction times in ms, the
    source's changes by row."""
    if len(batches) == 1:
        return batches[0].bodies, batches[0].extracted_at, batches[0].changes
    bodies: list[Any] = []
    times: list[int] = []
    changes: dict[int, bytes] = {}
    for batch in batches:
        for index, raw in batch.changes.items():
            changes[len(times) + index] = raw
        times.extend(batch.extracted_at)
    columns = [b.bodies for b in batches if isinstance(b.bodies, Columns)]
    if len(columns) == len(batches):
        return Columns.joined(columns), times, changes
    packed = [b.bodies for b in batches if isinstance(b.bodies, Packed)]
    if len(packed) == len(batches):
        return Packed.joined(packed), times, changes
    for batch in batches:
        bodies.extend(batch.bodies)
    return bodies, times, changes
