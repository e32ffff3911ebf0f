"""Applies built-in transforms in a lane: each batch becomes another one at once.

Counts stay the source's (L8): a batch carries the number of source records that it stands for, and
a reject counts as one record at most. A stream with a failed batch ends incomplete, and no state
that covers it passes any more (L1); the others continue. Neighbours: ``transforms.chain`` applies
the transforms, ``engine.worker.transforms.stages`` puts stages together.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec.columns import Columns
from penstock.codec.untyped import Array, Table
from penstock.codec.untyped import compute as pc
from penstock.engine.specs.lane import StreamJob
from penstock.engine.worker.row_decoding import ArrowRows, StreamDecoders
from penstock.engine.worker.transforms.compared_rows import KeysLeftOut, of_decoded, sent_rows
from penstock.engine.worker.transforms.left_out import LeftOut
from penstock.errors import SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Activate,
    Batch,
    ComparedRows,
    ConnectorExited,
    ConnectorMetrics,
    Event,
    Reject,
    Schema,
    State,
    Status,
    StreamStatus,
)
from penstock.model.types import CHANGES, EXTRACTED_AT, RowSchema
from penstock.protocols.failures import failure
from penstock.transforms.chain import Chain, ChainResult
from penstock.transforms.contract import TransformJob
from penstock.transforms.deletes import delete_columns


class BuiltInStage:
    """A stage of built-in transforms. ``given``: returns the schema of the stage's input.
    ``place``: its position among stages. ``last``: no other follows, so that a row without a key is
    rejected here. ``open``: the source may send streams that are not planned. ``tick``: called
    repeatedly while a batch is processed; may raise to stop. ``of_records``: batches have the
    source's records."""

    def __init__(
        self,
        transforms: Sequence[TransformJob],
        streams: StreamDecoders,
        given: Callable[[StreamJob], RowSchema],
        place: int,
        *,
        last: bool = True,
        open: bool = False,
        tick: Callable[[], None] = lambda: None,
        of_records: bool = False,
    ) -> None:
        self._transforms, self._streams, self._given, self._place = (
            transforms,
            streams,
            given,
            place,
        )
        self._last, self._open, self._tick = last, open, tick
        self._of_records = of_records
        self._chains: dict[StreamId, Chain] = {}
        self._failed: set[StreamId] = set()
        self._left_out: dict[StreamId, LeftOut] = {}  # of rows whose source records are unknown
        self._keys_left_out = KeysLeftOut()

    def schema(self, job: StreamJob) -> RowSchema:
        """Returns the schema of the stage's output."""
        return self._chain(job).schema

    def events(self, events: Generator[Event]) -> Generator[Event]:
        """Yields the events of the transformed rows."""
        with closing(events):
            for event in events:
                if self._failed and self._is_lost(event):
                    continue
                if not isinstance(event, Batch) or event.stream not in self._streams.jobs:
                    if isinstance(event, Reject) and event.stream and event.records is None:
                        self._counts(event.stream).owed += 1
                    if isinstance(event, State):
                        self._keys_left_out.write()
                    yield event
                    continue
                try:
                    yield from self._batch(event, self._streams.jobs[event.stream])
                except SourceError as e:
                    yield from self._over(event.stream, e)
                    if not self._open and self._failed >= self._streams.jobs.keys():
                        yield ConnectorExited(None)  # every stream failed: the source is stopped
                        return

    def measured(self) -> list[ConnectorMetrics]:
        """Returns the transforms' own counts, stream by stream."""
        return [
            ConnectorMetrics(
                stream, [{"name": n, "total": c} for n, c in sorted(chain.counts.items())]
            )
            for stream, chain in self._chains.items()
            if chain.counts
        ]

    def _chain(self, job: StreamJob) -> Chain:
        schema = self._given(job)
        known = self._chains.get(job.id)
        deletes = delete_columns(job.lane.disposition)
        if known is None or (known.given, known.deletes) != (schema, deletes):
            new = self._chains[job.id] = Chain(self._transforms, schema, self._tick, deletes)
            new.counts.update(known.counts if known is not None else {})
            return new
        return known

    def _over(self, stream: StreamId, error: SourceError) -> Iterator[Event]:
        """Yields the events of a stream whose rows are lost: its error, its incomplete end."""
        self._failed.add(stream)
        where = error.where or self._transforms[0].where
        failed = failure(error, stream, "transform")
        yield replace(failed, message=f"{where}: {error.message}", where=where)
        yield StreamStatus(stream, Status.incomplete)

    def _is_lost(self, event: Event) -> bool:
        """Whether the event belongs to a stream that failed, or is a state that covers one."""
        match event:
            case State():
                return event.scope.stream is None or event.scope.stream in self._failed
            case Batch() | Reject() | Schema() | Activate() | StreamStatus():
                return event.stream in self._failed
            case _:
                return False

    def _batch(self, batch: Batch, job: StreamJob) -> Iterator[Event]:
        if not len(batch.bodies):
            if batch.read:
                self._counts(batch.stream).mark(batch)
            yield batch  # without rows: it only counts records
            return
        if batch.compared is not None and batch.compared.probe:
            yield from self._probed(batch, batch.compared, job)
            return
        own = batch.stands_for is None  # each row is a record of the source
        chain = self._chain(job)
        given = self._streams.rows(batch, chain.given, self._place)
        if given.missing is not None:
            yield Schema(batch.stream, {}, missing=given.missing)
            job = self._streams.jobs[batch.stream]
            chain = self._chain(job)
            given = self._streams.rows(batch, chain.given, self._place)
        for index, reason, name in given.rejects:
            raw = bytes(batch.bodies[index])
            records, whole = 1 if own else None, self._whole(batch)
            yield Reject(batch.stream, reason, raw, name, records=records, whole=whole)
        users = given.rows.select([f.name for f in chain.given.fields])
        rows = batch.compared
        if rows is not None:
            rows = of_decoded(rows, {index for index, _, _ in given.rejects})
        key = job.key if self._last else ()
        made = chain.apply(users, key, None if rows is None else sent_rows(rows))
        if rows is not None:
            self._keys_left_out.add(rows, made)
        left, filtered = batch.read, batch.filtered
        if own:
            counted, filtered = _accounted(made, users.num_rows)
            left = users.num_rows - sum(counted)
            bodies, alone = _records(batch, given), _alone(made)
            for turned, records in zip(made.rejected, counted, strict=True):
                raw = turned.text() if turned.index is None else bodies(turned.index)
                whole = turned.index in alone and self._whole(batch)
                yield Reject(
                    batch.stream, turned.reason, raw, turned.field, records=records, whole=whole
                )
        else:
            self._count_made(batch, made, users.num_rows, len(given.rejects))
            for turned in made.rejected:
                raw = turned.text()
                yield Reject(batch.stream, turned.reason, raw, turned.field, records=None)
        times, changes = _carried(given.rows, made.table.num_rows, made.origin)
        out = Batch(
            batch.stream,
            _named(made.table, chain),
            times,
            changes,
            size=batch.size,
            version=batch.version,
            stands_for=left,
            filtered=filtered,
            keys=batch.keys,
        )
        if left and not own:
            self._counts(batch.stream).mark(out)
        yield out

    def _probed(self, batch: Batch, rows: ComparedRows, job: StreamJob) -> Iterator[Batch]:
        """Applies the transforms to unchanged rows, and yields a delete for each row that is left
        out and that the destination has."""
        chain = self._chain(job)
        given = self._streams.rows(batch, chain.given, self._place)
        rows = of_decoded(rows, {index for index, _, _ in given.rejects})
        users = given.rows.select([f.name for f in chain.given.fields])
        made = chain.apply(users, job.key, sent_rows(rows))
        self._keys_left_out.add(rows, made)
        if made.origin is None or made.removed is None or not len(made.removed):
            return
        gone = pc.is_in(made.origin, value_set=made.removed)
        table = made.table.filter(gone)
        times, _ = _carried(given.rows, table.num_rows, made.origin.filter(gone))
        yield Batch(batch.stream, _named(table, chain), times, size=table.nbytes)

    def _count_made(self, batch: Batch, made: ChainResult, rows: int, refused: int) -> None:
        """Counts the results of rows that an earlier transform made. Where the query does not show
        which rows it kept, it kept all, unless none remains."""
        counts, out = self._counts(batch.stream), made.table.num_rows
        kept_all = made.origin is None and out > 0
        counts.given += out + len(made.rejected) if kept_all else rows
        counts.made += out
        counts.refused += len(made.rejected)
        counts.owed += refused

    def _whole(self, batch: Batch) -> bool:
        """Whether each body is a record as the source sent it (``Reject.whole``)."""
        return self._of_records and batch.stands_for is None and not _is_columns(batch)

    def _counts(self, stream: StreamId) -> LeftOut:
        return self._left_out.setdefault(stream, LeftOut())


def _named(table: Table, chain: Chain) -> Columns:
    return Columns(table.rename_columns([f.source for f in chain.schema.fields]))


def _is_columns(batch: Batch) -> bool:
    return isinstance(batch.bodies, Columns)


def _alone(made: ChainResult) -> set[int]:
    """Returns the records whose only result is one rejected row: such a record can be retried
    without a second copy of another row."""
    found = Counter(turned.index for turned in made.rejected if turned.index is not None)
    once = [index for index, count in found.items() if count == 1]
    if made.origin is None or not once:
        return set()
    kept = made.origin.filter(pc.is_in(made.origin, value_set=pa.array(once, pa.int64())))
    return set(once) - set(kept.to_pylist())


def _accounted(made: ChainResult, records: int) -> tuple[list[int], int]:
    """Returns (source records that each rejected row counts as, how many of ``records`` were
    filtered). A record is counted once. Where the origin of rows is unknown, a rejected row counts
    as a record as long as there are any, and records count as filtered only if no row remains."""
    refused: set[int] = set()
    counted: list[int] = []
    unknown = 0
    for turned in made.rejected:
        if turned.index is None:
            counts = unknown < made.entered
            unknown += counts
        else:
            counts = turned.index not in refused
            refused.add(turned.index)
        counted.append(int(counts))
    if made.origin is not None:
        kept = made.origin
        if refused:
            kept = kept.filter(pc.invert(pc.is_in(kept, pa.array(sorted(refused), pa.int64()))))
        passed = pc.count_distinct(kept).as_py()
    else:
        passed = made.entered - unknown if made.table.num_rows else 0
    return counted, records - len(refused) - unknown - passed


def _records(batch: Batch, given: ArrowRows) -> Callable[[int], bytes]:
    """Returns a function that gives the original record of each decoded row."""
    gone = {index for index, _, _ in given.rejects}
    places = [i for i in range(len(batch.bodies)) if i not in gone] if gone else None
    return lambda row: bytes(batch.bodies[row if places is None else places[row]])


def _carried(rows: Table, count: int, origin: Array | None) -> "tuple[list[int], dict[int, bytes]]":
    """Returns extraction times and change lists of the output rows: those of their source records;
    where these are unknown, the newest time and no list."""
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
