"""Built-in transforms in a lane: each batch becomes another one at once.

Counts stay the source's: a batch says how many records it stands for. Neighbours: ``engine.chain``
applies the transforms, ``engine.transforming`` puts stages together.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec

from penstock.codec.columns import Columns
from penstock.codec.untyped import Array, Table
from penstock.codec.untyped import compute as pc
from penstock.engine.chain import Chain
from penstock.engine.decoding import Streams
from penstock.engine.job import StreamJob, TransformJob
from penstock.model.catalog import StreamId
from penstock.model.events import Batch, Event, Measured, Reject
from penstock.model.types import CHANGES, EXTRACTED_AT, RowSchema


class BuiltInStage:
    """``given``: the schema of what this stage is given. ``place``: its position among stages."""

    def __init__(
        self,
        told: Sequence[TransformJob],
        streams: Streams,
        given: Callable[[StreamJob], RowSchema],
        place: int,
    ) -> None:
        self._told, self._streams, self._given, self._place = told, streams, given, place
        self._chains: dict[StreamId, Chain] = {}
        self._owed: dict[StreamId, int] = {}  # rejects of rows whose records are counted later

    def schema(self, job: StreamJob) -> RowSchema:
        """Of what comes out."""
        return self._chain(job).schema

    def events(self, events: Generator[Event]) -> Generator[Event]:
        with closing(events):
            for event in events:
                if isinstance(event, Batch) and event.stream in self._streams.jobs:
                    yield from self._batch(event, self._streams.jobs[event.stream])
                else:
                    yield event

    def measured(self) -> list[Measured]:
        """What transforms counted, stream by stream."""
        return [
            Measured(stream, [{"name": n, "total": c} for n, c in sorted(chain.counts.items())])
            for stream, chain in self._chains.items()
            if chain.counts
        ]

    def _chain(self, job: StreamJob) -> Chain:
        schema = self._given(job)
        known = self._chains.get(job.id)
        if known is None or known.given != schema:
            new = self._chains[job.id] = Chain(self._told, schema)
            new.counts.update(known.counts if known is not None else {})
            return new
        return known

    def _batch(self, batch: Batch, job: StreamJob) -> Iterator[Event]:
        if not len(batch.bodies):
            batch.stands_for = self._left(batch.stream, batch.read, 0)
            yield batch
            return
        chain = self._chain(job)
        given = self._streams.rows(batch, chain.given, self._place)
        for index, reason, name in given.rejects:
            yield Reject(batch.stream, reason, bytes(batch.bodies[index]), name)
        users = given.rows.select([f.name for f in chain.given.fields])
        table, origin, rejects = chain.apply(users)
        table = table.rename_columns([f.source for f in chain.schema.fields])
        for index, reason, name in rejects:
            yield Reject(batch.stream, reason, Columns(users)[index] if index >= 0 else b"", name)
        left = self._left(batch.stream, batch.read, len(given.rejects) + len(rejects))
        filtered = 0 if origin is None else left - pc.count_distinct(origin).as_py()
        times, changes = _carried(given.rows, table.num_rows, origin)
        yield Batch(
            batch.stream, Columns(table), times, changes,
            size=batch.size, version=batch.version, stands_for=left,
            filtered=max(filtered, batch.filtered),
        )  # fmt: skip

    def _left(self, stream: StreamId, read: int, rejected: int) -> int:
        """Records that are not counted as rejects, here or of rows before."""
        left = read - rejected - self._owed.get(stream, 0)
        self._owed[stream] = max(-left, 0)
        return max(left, 0)


def _carried(rows: Table, count: int, origin: Array | None) -> "tuple[list[int], dict[int, bytes]]":
    """Extraction times and change lists of the rows that were made: those of the records they come
    from; where that is not known, the newest time, and no list."""
    millis = pc.cast(
        pc.floor(pc.divide(pc.cast(rows.column(EXTRACTED_AT), "int64"), 1000)), "int64"
    )
    if origin is None:
        newest = pc.max(millis).as_py() or 0
        return [newest] * count, {}
    lists = rows.column(CHANGES).take(origin)
    places = pc.indices_nonzero(pc.greater(pc.list_value_length(lists), 0)).to_pylist()
    changes: dict[int, Any] = {i: msgspec.json.encode(lists[i].as_py()) for i in places}
    return millis.take(origin).to_pylist(), changes
