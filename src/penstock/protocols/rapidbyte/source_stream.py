"""Reads one stream of a source: converts the events of its run into the engine's events.

Frames stay columns. Not here: which streams are read (``source``), the stream context
(``rapidbyte.declared.stream_context``), the run itself (``rapidbyte.guest.stream_run``). Source:
the protocol, sections 3.1, 5 and 7.
"""

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec import frame_types
from penstock.codec.columns import Columns
from penstock.codec.untyped import Table
from penstock.codec.untyped import compute as pc
from penstock.errors import SourceError, StateError
from penstock.model.catalog import ConfiguredStream, SyncMode
from penstock.model.events import (
    Batch,
    DoubtfulEnd,
    Error,
    Event,
    LogEvent,
    Schema,
    SkippedItems,
    State,
    Status,
    StreamStatus,
    Tick,
)
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.doubts import after_errors
from penstock.protocols.failures import failure
from penstock.protocols.rapidbyte.declared.sharding import divided
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.component import OpenedComponent
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
    RunEnded,
)
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire import messages
from penstock.protocols.rapidbyte.wire.frame_check import decode_frame, frame_errors
from penstock.protocols.rapidbyte.wire.messages import CursorValue, StreamContext
from penstock.protocols.rapidbyte.wire.schema import (
    DELETED_AT,
    OPERATION,
    changed_schema,
    typed_later,
)
from penstock.protocols.reading import ReadRequest

_MOST_AHEAD = 16 << 20
_MOST_FRAMES_AHEAD = 256
"""The most bytes and frames that wait until a later frame shows the type of an undeclared column
with only NULL so far."""


class StreamRead:
    """Reads one stream. ``state``: the one saved by the last run. ``doubts``: about its end."""

    def __init__(
        self,
        component: OpenedComponent,
        request: ReadRequest,
        stream: ConfiguredStream,
        state: StoredState | None,
    ) -> None:
        self._component, self._request, self._stream = component, request, stream
        self._schema: Mapping[str, Any] = stream.stream.json_schema
        self._state = state
        self._frames: Any = None  # the Arrow schema of the last frame
        self._ahead: list[tuple[Table, int]] = []  # rows that wait for a column's type
        evolution = component.settings.schema_evolution
        # Only its first rows show which columns an undiscovered stream no longer has.
        self._removing = stream.stream.assumed and evolution.removed_column == "fail"
        self._letters = 0
        self._errors, self._first_error = 0, ""  # in the component's log
        self.doubts: tuple[DoubtfulEnd, ...] = ()
        self._last: State | None = None  # a checkpoint without a later frame
        self._began = time.monotonic()

    @cached_property
    def _context(self) -> StreamContext:
        """Returns the stream context of the run. Raises ``StateError``."""
        settings, request = self._component.settings, self._request
        context = context_of(settings, self._stream, self._state, request.limit)
        return divided(context, request.shards.get(self._stream.id), settings.resources)

    def events(self) -> Generator[Event]:
        """Reads the stream. A failure comes as an ``Error`` of this stream, so that others can go
        on (L7)."""
        yield StreamStatus(self._stream.id, Status.started)
        try:
            yield from self._read()
        except (SourceError, StateError) as e:
            yield failure(e, self._stream.id, "source")
            yield StreamStatus(self._stream.id, Status.incomplete)

    def _read(self) -> Iterator[Event]:
        stage = self._component.stage("source", self._request.config, self._request.timeouts)
        stats = self._component.runtime.stats
        stage.keys.begin(self._stream.id.key)
        with closing(stage.keys), closing(self._run(stage)) as events:
            waited = time.monotonic()
            for event in events:
                stats.wait_seconds += time.monotonic() - waited
                yield from self._converted(event)
                if self._over():
                    yield self._timed_out()
                    return
                waited = time.monotonic()

    def _run(self, stage: Stage) -> Any:
        request = self._request
        return stream_run.read(
            stage, self._context, request.tick, dry_run=request.dry_run, max_records=request.limit
        )

    def _converted(self, event: Any) -> Iterator[Event]:
        match event:
            case Frame():
                yield from self._frame(event)
            case CheckpointCall():
                yield from self._given()
                yield from self._checkpoint(event)
            case ComponentLog():
                if event.level == "ERROR":
                    self._errors += 1
                    self._first_error = self._first_error or event.message
                yield log_event(event)
            case DeadLettered():
                self._letters += 1
                yield reject_event(event, self._stream.id)
            case RunEnded():
                yield from self._given()
                yield from self._ended(event)
            case _:
                yield Tick()

    def _frame(self, frame: Frame) -> Iterator[Event]:
        try:
            table, size = decode_frame(frame.data)
            with frame_errors(frame.data):
                table = frame_types.marked(table)
                if self._stream.sync_mode is SyncMode.cdc:
                    table = _with_deletes(table)
        except messages.Refusal as e:
            raise broken_frame("source", e, self._stream.id) from None
        self._component.runtime.stats.bytes += len(frame.data)
        self._ahead.append((table, size))
        waiting = sum(size for _, size in self._ahead)
        full = waiting > _MOST_AHEAD or len(self._ahead) > _MOST_FRAMES_AHEAD
        yield from self._given(all_of_it=full)

    def _given(self, *, all_of_it: bool = True) -> Iterator[Event]:
        """Yields the waiting rows, in order, up to the first with a column of unknown type.
        ``all_of_it``: those too; such a column is then text."""
        while self._ahead:
            schemas = [table.schema for table, _ in self._ahead]
            schema = typed_later(self._schema, schemas)
            if schema is None and not all_of_it:
                return
            table, size = self._ahead.pop(0)
            yield from self._rows(table, size, schemas[0] if schema is None else schema)

    def _rows(self, table: Table, size: int, schema: Any) -> Iterator[Event]:
        """Yields the rows. ``schema``: their columns, with their known types."""
        removing = self._removing and table.num_rows > 0
        if removing or self._frames is None or not schema.equals(self._frames):
            self._frames, self._removing = schema, self._removing and not removing
            new = changed_schema(self._schema, schema, removing=removing)
            if new is not None:
                self._schema = new
                yield Schema(self._stream.id, new)
        now = int(time.time() * 1000)
        if table.num_rows:
            self._last = None
            yield Batch(self._stream.id, Columns(table), [now] * table.num_rows, size=size)

    def _checkpoint(self, checkpoint: CheckpointCall) -> Iterator[Event]:
        problems = checkpoint_problems(checkpoint, "source", self._context.stream_name)
        payload = checkpoint.payload
        if problems or payload is None:
            yield from problems
        elif payload.cursor_field is None or payload.cursor_value is None:
            yield SkippedItems("checkpoint without a cursor")
        elif payload.cursor_value.text() is None:
            yield SkippedItems("checkpoint whose cursor is null")
        else:
            yield from self._state_of(payload.cursor_field, payload.cursor_value, checkpoint)

    def _state_of(
        self, name: str, value: CursorValue, checkpoint: CheckpointCall
    ) -> Iterator[Event]:
        """Yields the state of a checkpoint: the connector's own document. As in v4 its value
        belongs to the configured cursor column, whatever name the connector uses (``ID`` for
        ``id``)."""
        cursor = self._context.cursor_info
        if cursor is not None and (value.type == "lsn") is not (cursor.cursor_type == "lsn"):
            text = f"a checkpoint that is not this stream's: {value.type} for {cursor.cursor_type}"
            yield LogEvent("WARN", text)
            yield SkippedItems("foreign:checkpoint")
            return
        blob = messages.unwrap_envelope(checkpoint.text)
        if cursor is not None and name != cursor.cursor_field:
            document = {**msgspec.json.decode(blob), "cursor_field": cursor.cursor_field}
            blob = msgspec.json.encode(document)
        scope = StateScope(StateType.stream, self._stream.id)
        self._last = State(scope, blob.decode(), checkpoint.keys)
        yield self._last

    def _ended(self, ended: RunEnded) -> Iterator[Event]:
        yield from metric_events(ended, self._stream.id, self._component.runtime.stats)
        if ended.error is None:
            yield from self._skipped(ended)
            yield StreamStatus(self._stream.id, Status.complete, keys=ended.keys)
            if self._errors:
                doubt = after_errors([self._stream.id], self._errors, self._first_error)
                self.doubts = (doubt,)
            return
        attempt = self._request.tries.get(self._stream.id, 0) + 1
        allowed = self._component.settings.resources.max_retries
        yield error_of(ended, self._stream.id, "source", attempt, allowed)
        yield StreamStatus(self._stream.id, Status.incomplete)

    def _skipped(self, ended: RunEnded) -> Iterator[Event]:
        """Counts the records that the source reports as skipped without a dead letter: they were
        read and filtered (L8). v4's Postgres source skips records larger than its limit. The last
        checkpoint covers them too."""
        counted = 0 if ended.summary is None else ended.summary.counts["records_skipped"]
        skipped = counted - self._letters
        if skipped <= 0:
            return
        stream = self._stream.id
        yield LogEvent("WARN", f"{stream}: the source skipped {skipped} records by itself")
        yield SkippedItems(f"skipped_by_source:{stream}", skipped)
        none = Columns(pa.table({}))
        yield Batch(stream, none, [], stands_for=skipped, filtered=skipped)
        if self._last is not None:
            yield self._last

    def _over(self) -> bool:
        total = self._request.timeouts.total
        return total is not None and time.monotonic() - self._began > total

    def _timed_out(self) -> Error:
        total = self._request.timeouts.total
        return Error(
            f"the source was still running after {total:g} s",
            "system_error",
            self._stream.id,
            code="source.timeout",
            hint="raise timeouts.total",
        )


def _with_deletes(table: Table) -> Table:
    """Adds the column ``DELETED_AT`` to change rows of v4 (cdc): the time now for a delete, else
    null. The engine recognises deletes by it. In any other mode ``OPERATION`` is an ordinary
    column, of a table that holds changes."""
    if OPERATION not in table.column_names or DELETED_AT in table.column_names:
        return table
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", tz="UTC"))
    operation = pc.utf8_trim_whitespace(pc.cast(table.column(OPERATION), pa.string()))
    deleted = pc.equal(pc.utf8_lower(operation), "delete")
    return table.append_column(DELETED_AT, pc.if_else(deleted, now, pa.scalar(None, now.type)))
