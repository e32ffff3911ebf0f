"""Applies a transform connector in a lane: one run for each stream, from its first batch to its end
at the source, while the source continues.

Rows pass as soon as the transform emits them, in batches that stand for no source record. States,
ends and counts of their stream wait until all rows they cover are emitted
(``engine.worker.transforms.barrier``). The transform is called once for each batch: its output is
written to parts, under the claim of the lane's epoch. Counts stay the source's (L8): the
transform's dead letters count among the records that they wait with. Neighbours: ``connector_run``
is one run, ``protocols`` the conversation, ``stages`` puts stages together.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from penstock.byte_queue import ByteQueue
from penstock.codec import columns
from penstock.codec.columns import Columns
from penstock.codec.untyped import ArrowSchema, Table
from penstock.codec.untyped import compute as pc
from penstock.connectors.launch import Launch
from penstock.engine.specs.failpoints import reach
from penstock.engine.specs.lane import LaneJob, StreamJob
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.transforms.barrier import EventBarrier
from penstock.engine.worker.transforms.connector_run import Answers, LastAnswer, TransformRun
from penstock.engine.worker.transforms.left_out import LeftOut
from penstock.errors import SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Activate,
    Batch,
    ConnectorExited,
    Error,
    Event,
    Reject,
    Schema,
    State,
    Status,
    StreamStatus,
    Tick,
    TransformColumns,
)
from penstock.model.types import EXTRACTED_AT, RowSchema
from penstock.protocols.connection import Connection
from penstock.protocols.transforming import TransformedRows, TransformProgress, TransformRequest
from penstock.protocols.writing import END
from penstock.store.keys import covers
from penstock.transforms.chain import columns_by_output_name, refitted_schema, with_current_names
from penstock.transforms.contract import TransformJob

MOST_RUNS = 64  # instances at the same time
QUEUED_BYTES = 64 << 20  # of tables before all runs, and of answers after them
_LEAST_QUEUED = 1 << 20
_LOOK = 1.0
CLOSE_SECONDS = 30.0  # for all runs to end when the stage is closed


class ComponentStage:
    """A stage of one transform connector. ``given``: returns the schema of the stage's input.
    ``place``: its position among stages; ``number``: among those that are connectors. ``connect``:
    connects to the connector."""

    def __init__(
        self,
        transform: TransformJob,
        job: LaneJob,
        streams: StreamDecoders,
        given: Callable[[StreamJob], RowSchema],
        place: int,
        number: int,
        connect: Callable[[Launch], Connection],
    ) -> None:
        self._settings, self._job, self._streams, self._given = transform, job, streams, given
        self._place, self._number = place, number
        launch = msgspec.convert(transform.launch, Launch)
        self._transform = connect(launch)
        self._same_protocol = launch.protocol == job.protocol
        expected = max(1, min(len(job.streams), MOST_RUNS))
        self._queue_bytes = max(QUEUED_BYTES // (2 * expected), _LEAST_QUEUED)
        self._answers: Answers = ByteQueue(QUEUED_BYTES)
        self._waiting = EventBarrier()
        self._runs: dict[StreamId, TransformRun] = {}  # alive
        self._fed: dict[StreamId, list[int]] = {}  # rows of each table and of those before it
        self._left_out: dict[StreamId, LeftOut] = {}
        self._records: dict[StreamId, int] = {}
        self._failed: set[StreamId] = set()
        self._showed: dict[StreamId, tuple[Any, RowSchema]] = {}
        self._emitted: set[StreamId] = set()
        self._kept: dict[StreamId, int] = {}  # the last checkpoint of its own keys

    def schema(self, job: StreamJob) -> RowSchema:
        """Returns the schema of the stage's output, as planned so far."""
        return job.made[self._number]

    def events(self, events: Generator[Event]) -> Generator[Event]:
        """Yields the events of the transformed rows; ends every run when it is closed."""
        try:
            with closing(events):
                for event in events:
                    yield from self._events()
                    yield from self._taken(event)
        finally:
            self._close()

    # -- the source's side

    def _taken(self, event: Event) -> Iterator[Event]:
        match event:
            case Batch() if event.stream in self._streams.jobs and self._settings.applies(
                event.stream
            ):
                yield from self._batch(event)
            case State():
                self._waiting.state(event)
                yield from self._ready()
            case StreamStatus(status=Status.complete):
                self._end(event.stream)
                self._waiting.status(event)
                yield from self._ready()
            case StreamStatus(status=Status.incomplete):
                yield from self._source_failed(event.stream, "the source did not finish the stream")
                yield event
            case Activate():
                yield from self._ended(event.stream)
                if event.stream not in self._failed:
                    yield event
            case Error():
                if event.stream is not None:
                    yield from self._source_failed(event.stream, event.message)
                yield event
            case Reject(records=None) if event.stream in self._streams.jobs:
                self._counts(event.stream).owed += 1
                yield event
            case ConnectorExited():
                yield from self._exited(event)
            case _:
                yield event

    def _exited(self, event: ConnectorExited) -> Iterator[Event]:
        for stream in list(self._runs):
            if event.code == 0:
                self._end(stream)
            elif not self._runs[stream].ended:
                yield from self._source_failed(stream, "the source ended before it was done")
        while not all(run.broken for run in self._runs.values()):
            yield from self._one_step()
        self._waiting.over()
        yield from self._ready()
        yield event

    def _source_failed(self, stream: StreamId, why: str) -> Iterator[Event]:
        """Fails the run of a stream that the source did not finish. A run whose input had ended
        continues to its end."""
        run = self._runs.get(stream)
        if run is not None and run.ended:
            return
        if run is not None:
            run.fail(why)
            self._failed.add(stream)
            self._waiting.failed(stream)
            yield from self._ready()

    def _batch(self, batch: Batch) -> Iterator[Event]:
        stream, job = batch.stream, self._streams.jobs[batch.stream]
        run = self._runs.get(stream)
        if run is not None and run.version != batch.version and not run.ended:
            yield from self._ended(stream)  # a run must not mix rows of two versions
        if not len(batch.bodies):
            self._count(batch, batch.read)
            yield from self._ready()
            return
        schema = self._given(job)
        rows = self._streams.rows(batch, schema, self._place)
        if rows.missing is not None:
            yield Schema(stream, {}, missing=rows.missing)
            job = self._streams.jobs[stream]
            schema = self._given(job)
            rows = self._streams.rows(batch, schema, self._place)
        own = batch.stands_for is None  # each row is a record of the source
        for index, reason, name in rows.rejects:
            raw = bytes(batch.bodies[index])
            yield Reject(stream, reason, raw, name, records=1 if own else None)
            self._counts(stream).owed += not own
        read = batch.read - (len(rows.rejects) if own else 0)
        users = rows.rows.select([f.name for f in schema.fields])
        if stream in self._failed or self._enough(stream) or not users.num_rows:
            self._count(batch, read)
            yield from self._ready()
            return
        yield from self._feed(batch, job, schema, users, rows.rows)
        self._count(batch, read)
        self._records[stream] = self._records.get(stream, 0) + batch.read
        if self._enough(stream):
            self._end(stream)

    def _feed(
        self, batch: Batch, job: StreamJob, schema: RowSchema, users: Table, rows: Table
    ) -> Iterator[Event]:
        run = self._runs.get(batch.stream)
        if run is not None and run.ended:
            yield from self._ended(batch.stream)
            run = None
        run = run or self._begin(job, schema, batch.version)
        newest = pc.max(rows.column(EXTRACTED_AT)).value
        run.newest = max(run.newest, (newest or 0) // 1000)
        while not run.offer(users, users.nbytes):
            yield from self._one_step(partial(run.has_room, users.nbytes))
        fed = self._fed.setdefault(batch.stream, [])
        fed.append((fed[-1] if fed else 0) + users.num_rows)
        self._waiting.fed(batch.stream)

    def _count(self, batch: Batch, read: int) -> None:
        """Adds a count of source records, which passes once the rows made from them are emitted."""
        count = Batch(
            batch.stream, Columns(pa.table({})), [],
            size=batch.size, version=batch.version, stands_for=read,
            filtered=batch.filtered, keys=batch.keys,
        )  # fmt: skip
        self._waiting.read(count)

    def _counts(self, stream: StreamId) -> LeftOut:
        return self._left_out.setdefault(stream, LeftOut())

    def _ready(self) -> Iterator[Event]:
        """Yields the waiting events that may pass. Counts include how many records the transform
        left out, unless rows of their stream are lost, which nothing covers."""
        for event in self._waiting.ready():
            if isinstance(event, Batch) and event.read and event.stream not in self._failed:
                self._counts(event.stream).mark(event)
            yield event

    def _enough(self, stream: StreamId) -> bool:
        limit = self._job.limit
        return limit is not None and self._records.get(stream, 0) >= limit

    # -- runs

    def _begin(self, job: StreamJob, given: RowSchema, version: int | None) -> TransformRun:
        if len(self._runs) >= MOST_RUNS:
            raise SourceError(
                f"{self._settings.where}: {MOST_RUNS} streams are in the transform at one time",
                code="transform.too_many_streams",
                hint="each has an instance until the source reports that the stream is complete: "
                "sync "
                "fewer streams in one pipeline",
            )
        base = len(self._fed.get(job.id, ()))
        run = TransformRun(
            job.id, self._answers, base=base, version=version, queue_bytes=self._queue_bytes
        )
        self._runs[job.id] = run
        state = next((s for s in self._job.states if s.scope.stream == job.id), None)
        run.start(
            self._transform,
            TransformRequest(
                config=self._settings.config,
                stream=with_current_names(job.configured, given),
                scope=covers(job.id.key, self._settings.place),
                state=state if self._same_protocol else None,
                timeouts=self._settings.timeouts,
                waiting=self._queue_bytes,
                dry_run=self._job.dry,
                attempt=dict(self._job.tries).get(job.id, 0) + 1,
                given=given,
                made=job.made[self._number],
                enriching=self._settings.enriching,
            ),
        )
        return run

    def _end(self, stream: StreamId) -> None:
        run = self._runs.get(stream)
        if run is not None:
            run.end()

    def _ended(self, stream: StreamId) -> Iterator[Event]:
        """Ends a stream's run, and yields everything that it still emits."""
        self._end(stream)
        while stream in self._runs:
            yield from self._one_step()
        yield from self._ready()

    def _one_step(self, other: Callable[[], bool] = bool) -> Iterator[Event]:
        self._answers.wait(_LOOK, other)
        yield from self._events()
        yield Tick()

    def _close(self) -> None:
        for run in self._runs.values():
            run.stop()
        self._answers.abandon()
        until = time.monotonic() + CLOSE_SECONDS
        for run in self._runs.values():
            run.join(max(until - time.monotonic(), 0))

    # -- the transform's side

    def _events(self) -> Iterator[Event]:
        while (item := self._answers.poll()) is not None:
            run, answer = item
            if isinstance(answer, LastAnswer):
                yield from self._over(run)
            elif not run.broken:
                yield from self._answer(run, answer)

    def _answer(self, run: TransformRun, answer: Any) -> Iterator[Event]:
        match answer:
            case TransformedRows():
                yield from self._rows(run, answer)
            case TransformProgress():
                yield from self._through(run, answer)
            case Reject():
                answer.records = None  # its source records are unknown
                self._counts(run.stream).refused += 1
                self._waiting.came(run.stream)
                yield answer
            case Error():
                yield from self._run_failed(run, answer)
            case _:
                yield answer

    def _through(self, run: TransformRun, through: TransformProgress) -> Iterator[Event]:
        stream, fed = run.stream, self._fed.get(run.stream, [])
        if through.upto == END:
            run.well = True
            self._waiting.ended(stream)
            done = len(fed)
        else:
            done = run.base + through.upto
            self._waiting.through(stream, done)
        self._counts(stream).given = fed[done - 1] if done else 0
        if through.keys > self._kept.get(stream, 0):
            self._kept[stream] = through.keys
            kept = Batch(
                stream, Columns(pa.table({})), [],
                version=run.version, stands_for=0, keys=((self._settings.place, through.keys),),
            )  # fmt: skip
            self._waiting.kept(kept)
        yield from self._ready()

    def _over(self, run: TransformRun) -> Iterator[Event]:
        if self._runs.get(run.stream) is run:
            del self._runs[run.stream]
        if not (run.well or run.broken):
            silent = Error("it ended without a message", "system_error", run.stream)
            yield from self._run_failed(run, silent)

    def _run_failed(self, run: TransformRun, error: Error) -> Iterator[Event]:
        run.broken = True
        self._failed.add(run.stream)
        error.message = f"{self._settings.where}: {error.message}"
        yield error
        yield StreamStatus(run.stream, Status.incomplete)
        self._waiting.failed(run.stream)
        yield from self._ready()

    def _rows(self, run: TransformRun, made: TransformedRows) -> Iterator[Event]:
        stream, table = run.stream, made.table
        yield from self._shown(stream, table.schema)
        job = self._streams.jobs[stream]
        known = columns_by_output_name(self._given(job), job.made[self._number])
        names = [known[n].source if n in known else n for n in table.column_names]
        self._waiting.came(stream)
        self._emitted.add(stream)
        self._counts(stream).made += table.num_rows
        if table.num_rows:
            yield Batch(
                stream, Columns(table.rename_columns(names)), [run.newest] * table.num_rows,
                size=made.size, version=run.version, stands_for=0,
            )  # fmt: skip
            reach("mid-transform")

    def _shown(self, stream: StreamId, came: ArrowSchema) -> Iterator[Event]:
        """Yields a schema event where rows do not fit the plan: the driver answers how the stream
        continues."""
        job = self._streams.jobs[stream]
        given, made = self._given(job), job.made[self._number]
        before = self._showed.get(stream)
        if before is not None and before[0].equals(came) and before[1] == made:
            return
        first = stream not in self._emitted
        found = refitted_schema(given, made, _declared(came, given, made), first=first)
        if found is not None:
            showed = TransformColumns(number=self._number, columns=found)
            yield Schema(stream, {}, showed=showed)
        self._showed[stream] = (came, self._streams.jobs[stream].made[self._number])


def _declared(came: ArrowSchema, given: RowSchema, made: RowSchema) -> RowSchema:
    """Returns the columns of a transform's rows. A column that can only hold NULL (Arrow's
    ``null``) does not show its type: it gets the planned one."""
    planned, declared = columns_by_output_name(given, made), columns.row_schema(came)
    fields = (
        msgspec.structs.replace(field, type=planned[field.name].type)
        if pa.types.is_null(came.field(field.name).type) and field.name in planned
        else field
        for field in declared.fields
    )
    return RowSchema(tuple(fields))
