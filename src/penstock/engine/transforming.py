"""Transforms in a lane: a source's events go in, the events of what was made of them come out.

Everything but records passes as it comes, in its place, so that a state covers exactly what was
made of the records before it. Counts stay the source's: a batch says how many records it stands
for. Neighbours: ``engine.child`` stands this between a source and the sealer; ``transforms`` has
the transforms, ``engine.decoding`` the columns that they are given.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import msgspec

from penstock.codec.columns import Columns
from penstock.codec.untyped import Array, Table
from penstock.codec.untyped import compute as pc
from penstock.engine.decoding import Streams
from penstock.engine.job import StreamJob, TransformJob
from penstock.model.catalog import StreamId
from penstock.model.events import Batch, Event, Measured, Reject
from penstock.model.types import CHANGES, EXTRACTED_AT, RowSchema
from penstock.transforms.open import open_transform


class Chain:
    """The transforms of one stream, one after the other; ``given``: the schema of its records,
    ``schema``: of what comes out."""

    def __init__(self, told: Sequence[TransformJob], schema: RowSchema) -> None:
        self._steps = [
            open_transform(t.use, t.config, where=t.where, on_failure=t.on_failure) for t in told
        ]
        self.given = self.schema = schema
        for step in self._steps:
            self.schema = step.output(self.schema)
        self.counts: dict[str, int] = {}

    def apply(
        self, table: Table
    ) -> "tuple[Table, Array | None, list[tuple[int, str, str | None]]]":
        """(rows, for each of them the row of ``table`` that it comes from where that is known,
        rejected rows of ``table``)."""
        origin: Array | None = None
        known = True
        rejects: list[tuple[int, str, str | None]] = []
        for step in self._steps:
            done = step.apply(table)
            for name, count in done.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            for reject in done.rejects:
                at = reject.index if origin is None else origin[reject.index].as_py()
                rejects.append((at if known else -1, reject.reason, reject.field))
            known &= done.origin is not None
            if done.origin is not None and known:
                origin = done.origin if origin is None else origin.take(done.origin)
            table = done.table
        return table, origin if known else None, rejects


class Transforming:
    """``seconds``: spent in transforms."""

    def __init__(self, told: Sequence[TransformJob], streams: Streams) -> None:
        self._told, self._streams = told, streams
        self._chains: dict[StreamId, Chain] = {}
        self.seconds = 0.0

    def events(self, events: Iterator[Event]) -> Generator[Event]:
        """What comes of these events."""
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
        schema = job.schema if job.given is None else job.given
        known = self._chains.get(job.id)
        if known is None or known.given != schema:
            new = self._chains[job.id] = Chain(self._told, schema)
            new.counts.update(known.counts if known is not None else {})
            return new
        return known

    def _batch(self, batch: Batch, job: StreamJob) -> Iterator[Event]:
        chain = self._chain(job)
        given = self._streams.decode_given(batch)
        for index, reason, name in given.rejects:
            yield Reject(batch.stream, reason, bytes(batch.bodies[index]), name)
        began = time.monotonic()
        users = given.rows.select([f.name for f in chain.given.fields])
        table, origin, rejects = chain.apply(users)
        table = table.rename_columns([f.source for f in chain.schema.fields])
        self.seconds += time.monotonic() - began
        for index, reason, name in rejects:
            yield Reject(batch.stream, reason, Columns(users)[index] if index >= 0 else b"", name)
        left = max(batch.read - len(given.rejects) - len(rejects), 0)
        filtered = 0 if origin is None else left - pc.count_distinct(origin).as_py()
        times, changes = _carried(given.rows, table.num_rows, origin)
        yield Batch(
            batch.stream, Columns(table), times, changes,
            size=batch.size, version=batch.version, stands_for=left, filtered=max(filtered, 0),
        )  # fmt: skip


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
