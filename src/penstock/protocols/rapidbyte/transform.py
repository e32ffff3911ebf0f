"""The transform role: what the engine asks of a transform, of a WebAssembly component.

Tables go in as frames, each cut to what a batch may have, so that a checkpoint's count of frames is
a count of tables. Not here: the conversation itself (``rapidbyte.guest.stream_run``), which rows a
state covers (the lane's business). Source: the protocol, sections 3.3, 5, 6 and 7.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import msgspec
import pyarrow as pa

from penstock.codec.untyped import Table
from penstock.model.catalog import StreamId
from penstock.model.events import Error
from penstock.protocols.contract import (
    END,
    Came,
    Given,
    Through,
    TransformRequest,
)
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.component import ComponentRole, Opened, opened
from penstock.protocols.rapidbyte.guest.engine_events import faults, line, measured, rejected
from penstock.protocols.rapidbyte.guest.errors import broken_frame, error_of
from penstock.protocols.rapidbyte.guest.events import (
    Checkpoint,
    Ended,
    Frame,
    Logged,
    PutAside,
    Quiet,
    Told,
)
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire import messages
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of, split_frames
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.frame_check import decode_frame
from penstock.protocols.rapidbyte.wire.messages import StreamContext
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.state.keys import MemoryKeys

_PATIENCE = 7 * 86400.0
"""Seconds that it may wait for rows of a stream whose source reads others meanwhile. With rows to
work on it is given up after ``Timeouts.heartbeat`` without a sign of life."""
_OUTLINE_SECONDS = 60.0


class RapidbyteTransform(ComponentRole):
    """``TransformConversation`` of ``protocols.contract``."""

    role = "transform"

    def outline(
        self, runtime: ComponentRuntime, request: TransformRequest, columns: Any
    ) -> Any | None:
        what = opened(runtime)
        stage = what.stage("transform", request.config)
        stage.keys.close()
        bounds = msgspec.structs.replace(stage.bounds, patience=_OUTLINE_SECONDS)
        stage = replace(stage, keys=MemoryKeys(), bounds=bounds)
        context = context_of(what.settings, request.stream, request.state)
        empty = frame_of(pa.RecordBatch.from_pylist([], schema=columns))
        found: Any | None = None
        with closing(cast(Any, stream_run.apply(stage, context, [empty], dry_run=True))) as told:
            for item in told:
                if isinstance(item, Frame) and found is None:
                    found = _opened_frame(item, request.stream.id)[0].schema
                if isinstance(item, Ended) and item.error is not None:
                    raise item.error
        return found

    def apply(
        self, runtime: ComponentRuntime, request: TransformRequest, feed: Iterator[Any]
    ) -> Iterator[Given]:
        """See ``TransformConversation.apply``. Its own failures and broken rules come as an
        ``Error`` with their fields in ``raw``, or a ``code`` (``transform.ended_early``)."""
        yield from _Applying(opened(runtime), request, feed).answers()


class _Applying:
    """One run."""

    def __init__(self, what: Opened, request: TransformRequest, feed: Iterator[Any]) -> None:
        self._what, self._request, self._feed = what, request, feed
        self._stream = request.stream.id
        self._context: StreamContext = context_of(what.settings, request.stream, request.state)
        self._limit = what.settings.limits().max_batch_bytes
        self._ends: list[int] = []  # frames up to the end of each table
        self._all_fed = False

    def answers(self) -> Iterator[Given]:
        stage = self._stage()
        stage.keys.begin(self._request.scope)
        dry = self._request.dry_run
        told = cast(Any, stream_run.apply(stage, self._context, self._frames(), dry_run=dry))
        with closing(stage.keys), closing(told):
            for item in told:
                yield from self._answer(item)

    def _stage(self) -> Stage:
        stage = self._what.stage("transform", self._request.config, self._request.timeouts)
        waiting, pressure = self._request.waiting, stage.pressure
        return replace(
            stage,
            owner=self._stream.key,
            bounds=msgspec.structs.replace(
                stage.bounds, patience=_PATIENCE, silence=self._request.timeouts.heartbeat
            ),
            pressure=msgspec.structs.replace(
                pressure,
                inbox_bytes=min(pressure.inbox_bytes, waiting),
                outbox_bytes=min(pressure.outbox_bytes, waiting),
            ),
        )

    def _frames(self) -> Iterator[Bytes]:
        """From the thread that feeds. A table's end is known before its last frame can be taken."""
        frames = 0
        for table in self._feed:
            cut = [
                frame
                for batch in table.combine_chunks().to_batches()
                for frame in split_frames([frame_of(batch)], self._limit)
            ]
            frames += len(cut)
            self._ends.append(frames)
            yield from cut
        self._all_fed = True

    def _answer(self, told: Told) -> Iterator[Given]:
        match told:
            case Frame():
                yield Came(*_opened_frame(told, self._stream))
            case Checkpoint():
                yield from self._checkpoint(told)
            case Logged():
                yield line(told)
            case PutAside():
                yield rejected(told, self._stream)
            case Ended():
                yield from self._ended(told)
            case Quiet():
                pass

    def _checkpoint(self, told: Checkpoint) -> Iterator[Given]:
        wrong = faults(told, "transform", self._context.stream_name)
        yield from wrong
        if not wrong:
            upto = bisect_right(self._ends, told.frames)
            whole = told.frames == (self._ends[upto - 1] if upto else 0)
            document = msgspec.json.decode(messages.unwrap_envelope(told.text))
            yield Through(upto, whole, document, told.keys)

    def _ended(self, told: Ended) -> Iterator[Given]:
        yield from measured(told, self._stream, self._what.runtime.stats)
        if told.error is not None:
            allowed = self._what.settings.resources.max_retries
            yield error_of(told, self._stream, "transform", self._request.attempt, allowed)
        elif not self._all_fed or told.frames_in < (self._ends[-1] if self._ends else 0):
            yield _ended_early(self._stream)
        else:
            yield Through(END, keys=told.keys)


def _opened_frame(told: Frame, stream: StreamId) -> tuple[Table, int]:
    try:
        return decode_frame(told.data)
    except messages.Refusal as e:
        raise broken_frame("transform", e, stream) from None


def _ended_early(stream: StreamId) -> Error:
    return Error(
        "the transform ended before it had taken all rows, and said that all was well",
        "system_error",
        stream,
        code="transform.ended_early",
        hint="this is a fault of the connector",
    )
