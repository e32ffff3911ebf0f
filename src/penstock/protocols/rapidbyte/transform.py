"""Implements the transform role with a WebAssembly component: tables in, tables out.

A table goes in as one or more frames of at most a batch's bytes. Only a run's successful end shows
that everything has come out: a transform may keep rows back as long as it likes, and its
checkpoints do not show how many. Checkpoints are therefore reported without effect, as in v4. Not
here: the run itself (``rapidbyte.guest.stream_run``), which rows a state covers
(``engine.worker.transforms``). Source: the protocol, sections 3.3, 5, 6 and 7.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import msgspec
import pyarrow as pa

from penstock.codec import frame_types
from penstock.codec.untyped import Table
from penstock.model.catalog import StreamId
from penstock.model.events import ConnectorMetrics, Error, LogEvent
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.component import (
    ComponentRole,
    OpenedComponent,
    open_component,
)
from penstock.protocols.rapidbyte.guest.engine_events import (
    checkpoint_problems,
    log_event,
    metric_events,
    reject_event,
)
from penstock.protocols.rapidbyte.guest.errors import broken_frame, error_of
from penstock.protocols.rapidbyte.guest.events import (
    CheckpointCall,
    ComponentLog,
    DeadLettered,
    Frame,
    Quiet,
    RunEnded,
    StageEvent,
)
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire import messages
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of, frames_of
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.frame_check import decode_frame, frame_errors
from penstock.protocols.rapidbyte.wire.messages import StreamContext
from penstock.protocols.transforming import (
    Given,
    TransformedRows,
    TransformProgress,
    TransformRequest,
)
from penstock.protocols.writing import END
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.store.keys import MemoryKeys

_WAIT_SECONDS = 7 * 86400.0
"""Seconds that a transform may wait for rows of a stream, since its source may read others first.
With rows to work on, it is stopped after ``Timeouts.heartbeat`` without a sign of life."""
_OUTLINE_SECONDS = 60.0


class RapidbyteTransform(ComponentRole):
    """Runs a component as a transform (``TransformConversation`` of
    ``protocols.connection``)."""

    role = "transform"

    def outline(
        self, runtime: ComponentRuntime, request: TransformRequest, columns: Any
    ) -> Any | None:
        component = open_component(runtime)
        stage = component.stage("transform", request.config)
        stage.keys.close()
        bounds = msgspec.structs.replace(stage.bounds, timeout=_OUTLINE_SECONDS)
        stage = replace(stage, keys=MemoryKeys(), bounds=bounds)
        context = context_of(component.settings, request.stream, request.state)
        empty = frame_of(pa.RecordBatch.from_pylist([], schema=columns))
        schema: Any | None = None
        with closing(cast(Any, stream_run.apply(stage, context, [empty], dry_run=True))) as events:
            for event in events:
                if isinstance(event, Frame) and schema is None:
                    schema = _decoded_frame(event, request.stream.id)[0].schema
                if isinstance(event, RunEnded) and event.error is not None:
                    raise event.error
        return schema

    def apply(
        self, runtime: ComponentRuntime, request: TransformRequest, feed: Iterator[Any]
    ) -> Iterator[Given]:
        """See ``TransformConversation.apply``. The component's own errors come as an ``Error`` with
        their fields in ``raw``, violations of the protocol with a ``code``
        (``transform.ended_early``, ``transform.miscounted``)."""
        yield from _TransformRun(open_component(runtime), request, feed).answers()


class _TransformRun:
    """One run of a transform over one stream."""

    def __init__(
        self, component: OpenedComponent, request: TransformRequest, feed: Iterator[Any]
    ) -> None:
        self._component, self._request, self._feed = component, request, feed
        self._stream = request.stream.id
        self._context: StreamContext = context_of(component.settings, request.stream, request.state)
        self._limit = component.settings.limits().max_batch_bytes
        self._fed = self._rows = 0  # frames, and the rows in them
        self._all_fed = False
        self._checkpoints = 0
        self._last_checkpoint = "{}"

    def answers(self) -> Iterator[Given]:
        stage = self._stage()
        stage.keys.begin(self._request.scope)
        dry = self._request.dry_run
        events = cast(Any, stream_run.apply(stage, self._context, self._frames(), dry_run=dry))
        with closing(stage.keys), closing(events):
            for event in events:
                yield from self._answer(event)

    def _stage(self) -> Stage:
        stage = self._component.stage("transform", self._request.config, self._request.timeouts)
        waiting, pressure = self._request.waiting, stage.pressure
        return replace(
            stage,
            owner=self._stream.key,
            bounds=msgspec.structs.replace(
                stage.bounds, timeout=_WAIT_SECONDS, silence=self._request.timeouts.heartbeat
            ),
            pressure=msgspec.structs.replace(
                pressure,
                inbox_bytes=min(pressure.inbox_bytes, waiting),
                outbox_bytes=min(pressure.outbox_bytes, waiting),
            ),
        )

    def _frames(self) -> Iterator[Bytes]:
        """Encodes the feed; runs on the feeding thread. Columns keep the types of the frames that
        they came in. A frame is counted before it is yielded, so that an end behind it includes
        it."""
        for table in self._feed:
            for batch in frame_types.restored_rows(table).combine_chunks().to_batches():
                for frame, rows in frames_of(batch, self._limit):
                    self._fed += 1
                    self._rows += rows
                    yield frame
        self._all_fed = True

    def _answer(self, event: StageEvent) -> Iterator[Given]:
        match event:
            case Frame():
                yield TransformedRows(*_decoded_frame(event, self._stream))
            case CheckpointCall():
                yield from self._checkpoint(event)
            case ComponentLog():
                yield log_event(event)
            case DeadLettered():
                yield reject_event(event, self._stream)
            case RunEnded():
                yield from self._ended(event)
            case Quiet():
                pass

    def _checkpoint(self, checkpoint: CheckpointCall) -> Iterator[Given]:
        problems = checkpoint_problems(checkpoint, "transform", self._context.stream_name)
        yield from problems
        if not problems:
            self._checkpoints += 1
            self._last_checkpoint = checkpoint.text

    def _ended(self, ended: RunEnded) -> Iterator[Given]:
        yield from metric_events(ended, self._stream, self._component.runtime.stats)
        if self._checkpoints:
            series: dict[str, Any] = {
                "name": "transform_checkpoint", "transform": self._component.settings.place,
                "count": self._checkpoints, "last": msgspec.json.decode(self._last_checkpoint),
            }  # fmt: skip
            yield ConnectorMetrics(self._stream, [series])
        if ended.error is not None:
            allowed = self._component.settings.resources.max_retries
            yield error_of(ended, self._stream, "transform", self._request.attempt, allowed)
        elif not self._all_fed or ended.frames_in < self._fed:
            yield _ended_early(self._stream)
        else:
            yield from self._ended_well(ended)

    def _ended_well(self, ended: RunEnded) -> Iterator[Given]:
        """Compares the transform's count of read records with the rows in its input (L8), also
        those that it put aside. A counter that stays at zero is not in use."""
        read = 0 if ended.summary is None else ended.summary.counts["records_in"]
        if 0 < read < self._rows:
            yield _rows_unread(self._stream, read, self._rows)
            return
        if self._rows and not read:
            text = "the transform does not count records: what it read is not compared with"
            yield LogEvent("INFO", f"{text} what it was given")
        yield TransformProgress(END, keys=ended.keys)


def _decoded_frame(frame: Frame, stream: StreamId) -> tuple[Table, int]:
    try:
        table, size = decode_frame(frame.data)
        with frame_errors(frame.data):
            return frame_types.marked(table), size
    except messages.Refusal as e:
        raise broken_frame("transform", e, stream) from None


def _ended_early(stream: StreamId) -> Error:
    return Error(
        "the transform ended before it had taken all rows, and reported no error",
        "system_error",
        stream,
        code="transform.ended_early",
        hint="this is a fault of the connector",
    )


def _rows_unread(stream: StreamId, read: int, given: int) -> Error:
    return Error(
        f"the transform ended without an error and reports that it read {read} of the {given} "
        "rows that it was"
        " given",
        "system_error",
        stream,
        code="transform.miscounted",
        hint="this is a fault of the connector, its log may give the reason; its `records-in` "
        "counts each"
        " row, also one that it leaves out or puts aside",
    )
