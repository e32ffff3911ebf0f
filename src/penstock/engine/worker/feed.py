"""Carries out the driver's orders as a destination's input: parts read in bounded batches, state
marks, ends of streams.

Runs in the thread that feeds. Not here: what an ack covers (``engine.worker.ack_tracker``), the
destination's message format (``protocols``). Neighbour: ``engine.worker.feeder``.
"""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.codec.json_text import without_json
from penstock.codec.table_rows import part_rows
from penstock.engine.log.log import FileLog
from penstock.engine.specs.failpoints import reach
from penstock.engine.specs.feeder import FeedOrder
from penstock.engine.worker.ack_tracker import FedSegments
from penstock.errors import Defect, LogError
from penstock.model.catalog import StreamId
from penstock.model.events import Tick
from penstock.model.segments import PartRef, Segment, StreamSlice
from penstock.model.state import StoredState
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.writing import Feed, Rows, StateMark, StreamDone, WriteStream
from penstock.tasks.storage import storage

BATCH_BYTES = 4 << 20  # of records as the source sent them
BATCH_ROWS = 65536
POLL_SECONDS = 0.1


class OrderFeed:
    """The input of one destination. ``rows``, ``bytes`` (as the source sent them): what was fed,
    per stream. ``busy``: seconds from reading rows of a part until their last byte is written.
    ``done``: streams that were completed. ``ended_at``: when the last order was fed, by the
    monotonic clock; None before. ``nulls``: by stream and column, how many doubles JSON cannot
    represent; counted where the destination reads JSON (``json``)."""

    def __init__(
        self,
        log: FileLog,
        cover: FedSegments,
        streams: tuple[WriteStream, ...],
        next_order: Callable[[], FeedOrder | None],
        *,
        json: bool = False,
    ) -> None:
        self._log, self._cover, self._next_order = log, cover, next_order
        self._streams = {s.id: s for s in streams}
        self._json = json
        self.rows: dict[StreamId, int] = {}
        self.bytes: dict[StreamId, int] = {}
        self.nulls: Counter[tuple[StreamId, str]] = Counter()
        self.done: set[StreamId] = set()
        self.busy = 0.0
        self.ended_at: float | None = None

    def feed(self) -> Generator[Feed]:
        """Yields what to feed, order by order, until the order that ends. Raises ``LogError`` for a
        part that is missing or damaged."""
        while True:
            order = self._next_order()
            if order is None:
                time.sleep(POLL_SECONDS)
                yield Tick()
                continue
            yield from self._learn(order)
            for segment in order.segments:
                yield from self._segment(segment)
            self.done.update(order.done)
            for stream in order.done:
                if stream in self._streams:  # else an earlier conversation fed it
                    yield StreamDone(stream)
            if order.end:
                self.ended_at = time.monotonic()
                return

    def _learn(self, order: FeedOrder) -> Iterator[Feed]:
        """Yields the order's new descriptions of streams. A stream that is already described keeps
        its object, which the protocol's role holds, and gets the new schemas."""
        for stream in order.streams:
            described = self._streams.setdefault(stream.id, stream)
            described.schemas.update(stream.schemas)
            yield stream

    def _segment(self, segment: Segment) -> Iterator[Feed]:
        self._cover.begin(segment.id)
        for one in segment.slices:
            yield from self._slice(one)
        number = self._cover.fed(segment)
        if number is not None and segment.scope is not None and segment.state is not None:
            yield StateMark(number, StoredState(segment.scope, segment.state))

    def _slice(self, one: StreamSlice) -> Iterator[Feed]:
        known = self._streams.get(one.stream)
        if one.parts and known is not None and one.schema_version not in known.schemas:
            raise Defect(
                f"no order announced schema version {one.schema_version} of {one.stream}",
                code="push.unknown_schema",
            )
        began = time.monotonic()
        schema = known.schemas[one.schema_version] if known and one.parts else None
        doubles = _with_doubles(schema) if schema and self._json else ()
        for part in one.parts:
            self._verify(one.stream, part)
            for batch in batches(self._log.root / part.path, part):
                self.rows[one.stream] = self.rows.get(one.stream, 0) + batch.num_rows
                for field in doubles:
                    lost = without_json(batch.column(field.name), field.type)
                    self.nulls.update({(one.stream, field.source): lost} if lost else {})
                yield Rows(one.stream, one.schema_version, batch)
            self.bytes[one.stream] = self.bytes.get(one.stream, 0) + part.raw_bytes
            reach("mid-push")
        self.busy += time.monotonic() - began

    def _verify(self, stream: StreamId, part: PartRef) -> None:
        """Raises ``LogError``, naming the stream, where the part has changed since it was
        sealed."""
        try:
            self._log.verify([part])
        except LogError as e:
            e.stream = str(stream)
            raise


def _with_doubles(schema: RowSchema) -> tuple[Field, ...]:
    return tuple(f for f in schema.fields if _holds_doubles(f.type))


def _holds_doubles(type_: DataType) -> bool:
    inner = (*(f.type for f in type_.fields), *([type_.item] if type_.item else ()))
    return type_.kind is Kind.number or any(map(_holds_doubles, inner))


def batches(path: Path, part: PartRef) -> Iterator[Any]:
    """Yields a part's rows in record batches (pyarrow) of about :data:`BATCH_BYTES`. Raises
    ``LogError``."""
    fitting = BATCH_BYTES * part.rows // max(part.raw_bytes, 1)
    size = max(1, min(BATCH_ROWS, fitting))
    with storage(path, "read"):
        try:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=size, use_threads=False):
                    yield part_rows(batch, part.shape.names) if part.shape else batch
        except (ValueError, EOFError) as e:  # pyarrow's own errors are ValueErrors
            raise LogError(
                f"the log's file {path} cannot be read: {e}", code="log.corrupt", where=str(path)
            ) from e
