"""Handles a source's events one by one: counts records and passes them to the sealer, sends
questions about streams to the driver, and collects the figures for the report.

Not here: the process, and what may stop it (``engine.worker.lane``); what a state covers
(``engine.worker.sealer``). Neighbours: ``engine.channel.mailbox`` carries the questions,
``engine.plan.replan`` answers them.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.codec.arrow import frame_types_of, required
from penstock.codec.columns import Columns
from penstock.engine.channel.connector_log import EventLog
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.specs.lane import (
    Expected,
    LaneJob,
    LaneQuestion,
    LaneStream,
    NewConfig,
    StreamAnswer,
    StreamJob,
)
from penstock.engine.worker.lane_failures import EpochFailures
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.sealer import Sealer
from penstock.engine.worker.skipped_items import skipped_note
from penstock.errors import Defect, PenstockError, SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Activate,
    Batch,
    ConnectorExited,
    ConnectorMetrics,
    Control,
    DoubtfulEnd,
    Error,
    Estimate,
    Event,
    LogEvent,
    RateLimitWait,
    RecordCountMismatch,
    Reject,
    Schema,
    SkippedItems,
    State,
    StreamStatus,
    Tick,
    UnconfiguredRecords,
)
from penstock.model.types import MissingColumns
from penstock.protocols.failures import failed

ASK_SECONDS = 0.02
_SHOWN = 10  # streams in a note
_NOTHING_CAME = "neither a record nor a state nor a status of them came before the end of the input"
_NOTHING_CAME_HINT = (
    "their tables keep what they had; a host that has read an empty stream whole sends its "
    "STREAM_STATUS COMPLETE"
)


class LaneEvents:
    """Handles the events of one epoch. ``between``: called while waiting for the driver's answer;
    raises where the lane must stop. ``read``: records of each stream. ``expected``: the source's
    estimates, per stream or (None) of all streams together. ``exit``: how the source ended."""

    def __init__(
        self,
        job: LaneJob,
        mailbox: Mailbox,
        said: EventLog,
        streams: StreamDecoders,
        between: Callable[[Sealer], None],
    ) -> None:
        self._job, self._mailbox, self._event_log = job, mailbox, said
        self._streams, self._between = streams, between
        self.read = {s.id: 0 for s in job.streams}
        self._bytes = {s.id: 0 for s in job.streams}
        self.expected: dict[StreamId | None, Expected] = {}
        self._limited: dict[StreamId, tuple[int, int | None]] = {}  # times, last end in ms
        # states, records announced, records received
        self._miscounts: dict[StreamId | None, tuple[int, int, int]] = {}
        self._counted: dict[str, int] = {}
        self.metrics: list[dict[str, Any]] = []
        self.failures = EpochFailures()
        self.exit: ConnectorExited | None = None
        self._configs, self._asked = 0, 0
        self._versions: dict[StreamId, int] = {}
        self._announced: dict[StreamId, int] = {}  # versions activated before their first row
        self._shown: set[StreamId] = set()  # streams with rows in this epoch
        self.in_doubt: list[tuple[StreamId, str, str | None]] = []
        self._doubts: list[str] = []  # notes about them

    def take(self, event: Event, sealer: Sealer) -> None:
        """Handles one event. Raises ``SourceError`` (``source.shared_state``), the driver's error
        for a stream that cannot continue, and what the sealer raises."""
        match event:
            case Batch() if event.stream not in self._streams.jobs:
                self._count(f"stream_not_configured:{event.stream}", len(event.bodies))
            case Batch():
                self._records(event, sealer)
            case State():
                self._state(event, sealer)
            case Schema(missing=MissingColumns()):
                self._lacks(event, sealer)
            case Schema():
                self._retold(event, sealer)
            case Activate():
                self._activated(event, sealer)
            case Tick():
                sealer.tick()
            case StreamStatus():
                if event.limited is not None:
                    self._rate_limited(event.stream, event.limited)
                sealer.status(event)
            case Reject():
                if event.stream in self.read:
                    self.read[event.stream] += event.records or 0
                sealer.reject(event)
            case Control():
                self._configs += 1
                new = NewConfig(self._job.config_hash, event.config)
                self._mailbox.put_config(self._job.epoch, self._configs, new)
            case Estimate():
                self._estimated(event)
            case LogEvent():
                said = (event.message, event.stack_trace)
                self._event_log.log(event.level, "\n".join(text for text in said if text))
            case Error():
                self._event_log.log("ERROR", event.message)
                self.failures.add_event(event, failed(event, "source"), own=event.code is None)
            case SkippedItems():
                self._count(event.what, event.count)
            case UnconfiguredRecords(stream):
                self._asking(
                    LaneQuestion(number=self._asked + 1, stream=stream, passed=True), sealer
                )
            case RecordCountMismatch():
                self._miscounted(event)
            case ConnectorMetrics():
                self.metrics.append(measured(event))
            case ConnectorExited():
                self.exit = event
                for doubt in event.doubts:
                    self._doubted(doubt, sealer)
                if self._job.served and event.code == 0:
                    self._left_out(sealer)

    def progress(self) -> list[tuple[str, int, int, int | None]]:
        """Returns the counts of streams with records, in the form of ``mailbox.Progress``."""
        none = Expected()
        return [
            (s.key, n, self._bytes[s], self.expected.get(s, none).rows)
            for s, n in self.read.items()
            if n
        ]

    def notes(self) -> list[str]:
        """Returns the notes for the report."""
        notes = [skipped_note(what, n) for what, n in sorted(self._counted.items())]
        for stream, (states, announced, received) in self._miscounts.items():
            notes.append(
                f"{stream or 'all streams'}: the source reports that it sent {announced:,} records "
                f"before {states:,} of its states, and {received:,} came"
            )
        for stream, (times, until) in self._limited.items():
            last = "" if until is None else f", the last time until {_clock(until)}"
            notes.append(f"{stream}: the source was rate limited {times:,} times{last}")
        if self._event_log.lost:
            notes.append(f"lines of the log that could not be written: {self._event_log.lost}")
        return [*notes, *self._doubts, *self._streams.notes()]

    def _records(self, event: Batch, sealer: Sealer) -> None:
        self._turn(event.stream, event.version, sealer)
        batch = self._within_limit(event)
        if len(batch.bodies):
            self._shows(batch, sealer)
        self.read[batch.stream] += batch.read
        self._bytes[batch.stream] += batch.size
        if batch.read or len(batch.bodies) or batch.keys:
            sealer.batch(batch)

    def _state(self, event: State, sealer: Sealer) -> None:
        if event.scope.stream is None and not self._job.shared_states:
            raise SourceError(
                "the source shares one state between its streams: they cannot be read in "
                "several lanes",
                code="source.shared_state",
                hint="set `lanes: 1`",
            )
        sealer.state(event)

    def _doubted(self, event: DoubtfulEnd, sealer: Sealer) -> None:
        shown = ", ".join(map(str, event.streams[:_SHOWN]))
        more = ", ..." if len(event.streams) > _SHOWN else ""
        self._doubts.append(f"{shown}{more}: {event.reason}")
        if event.complete:
            return
        for stream in event.streams:
            sealer.withhold(stream)
            self.in_doubt.append((stream, event.reason, event.hint))

    def _left_out(self, sealer: Sealer) -> None:
        """Withholds refreshes of streams for which a host sent nothing: the end of its input is no
        exit code, and must not empty a table (L6)."""
        if streams := sealer.unseen_refreshes():
            self._doubted(DoubtfulEnd(streams, _NOTHING_CAME, hint=_NOTHING_CAME_HINT), sealer)

    def _estimated(self, event: Estimate) -> None:
        before = self.expected.get(event.stream, Expected())
        rows, size = event.rows, event.bytes
        self.expected[event.stream] = Expected(
            rows=before.rows if rows is None else rows,
            bytes=before.bytes if size is None else size,
        )

    def _miscounted(self, event: RecordCountMismatch) -> None:
        states, announced, received = self._miscounts.get(event.stream, (0, 0, 0))
        self._miscounts[event.stream] = (
            states + 1,
            announced + event.announced,
            received + event.received,
        )

    def _rate_limited(self, stream: StreamId, limited: RateLimitWait) -> None:
        times, _ = self._limited.get(stream, (0, None))
        self._limited[stream] = (times + 1, limited.until)
        until = "" if limited.until is None else f" until {_clock(limited.until)}"
        self._event_log.log("WARN", f"{stream}: the source is rate limited{until}")

    def _count(self, what: str, count: int) -> None:
        self._counted[what] = self._counted.get(what, 0) + count

    def _retold(self, schema: Schema, sealer: Sealer) -> None:
        """Queries the driver how to continue a stream whose schema the job does not have; records
        wait meanwhile. An unselected stream stays out of the lane."""
        sealer.drain(schema.stream)
        ask = LaneQuestion(
            number=self._asked + 1,
            stream=schema.stream,
            json_schema=schema.json_schema,
            primary_key=schema.primary_key,
            cursor_field=schema.cursor_field,
            version=self._versions.get(schema.stream),
            showed=schema.showed,
            fresh=schema.stream not in self._shown,
        )
        if self._goes_on(ask, sealer):
            self.read.setdefault(schema.stream, 0)
            self._bytes.setdefault(schema.stream, 0)

    def _lacks(self, schema: Schema, sealer: Sealer) -> None:
        """Requests from the driver the columns that records lack which a transform is about to
        take."""
        sealer.drain(schema.stream)
        ask = LaneQuestion(
            number=self._asked + 1,
            stream=schema.stream,
            version=self._versions.get(schema.stream),
            missing=schema.missing,
        )
        self._goes_on(ask, sealer)

    def _shows(self, batch: Batch, sealer: Sealer) -> None:
        """Requests the driver to change the planned non-null columns and frame types where rows
        contradict them, and once where the first rows declare more. For JSON records only the key
        columns are known to be non-null, which decoding checks."""
        stream, bodies = batch.stream, batch.bodies
        job = self._streams.jobs[stream]
        keys = {path[0] for path in job.key}
        known = {f.source for f in job.schema.fields} - keys
        planned = job.schema.required - keys
        columnar = isinstance(bodies, Columns)
        non_null = required(bodies.table) & known if columnar else frozenset[str]()
        wanted = planned & non_null if stream in self._shown else non_null
        types = self._frame_types(batch)
        if wanted != planned or types != job.schema.frame_types:
            sealer.drain(stream)
            ask = LaneQuestion(
                number=self._asked + 1,
                stream=stream,
                version=self._versions.get(stream),
                required=tuple(sorted(wanted)),
                frame_types=types,
                lost=tuple(sorted(planned - non_null)) if columnar else (),
            )
            self._goes_on(ask, sealer)
        self._shown.add(stream)

    def _frame_types(self, batch: Batch) -> dict[str, str]:
        """Returns the frame types under which the stream continues: those of its first rows, as
        long as all later ones have them. A column that is absent from ``batch`` keeps its own."""
        schema = self._streams.jobs[batch.stream].schema
        if not isinstance(batch.bodies, Columns):
            return {}
        came, planned = batch.bodies.table.schema, schema.frame_types
        known = {f.source for f in schema.fields}
        now = {s: t for s, t in planned.items() if s not in came.names}
        now |= {s: t for s, t in frame_types_of(came).items() if s in known}
        if batch.stream not in self._shown:
            return now
        return {s: t for s, t in planned.items() if now.get(s) == t}

    def widened(self, stream: StreamId, missing: MissingColumns, sealer: Sealer) -> LaneStream:
        """Requests from the driver the columns that rows of a stream lack, in the middle of their
        decoding; returns the stream's further plan."""
        ask = LaneQuestion(
            number=self._asked + 1,
            stream=stream,
            version=self._versions.get(stream),
            missing=missing,
        )
        answer = self._asking(ask, sealer)
        if answer is None:
            raise Defect(f"stream {stream} is no longer selected", code="lane.stream")
        lane = self._lane_of(answer)
        self._streams.learn(msgspec.structs.replace(answer, lane=lane))
        return lane

    def _goes_on(self, ask: LaneQuestion, sealer: Sealer) -> bool:
        """Sends a question to the driver and applies its answer to the sealer and the decoder;
        earlier rows keep the old schema. Returns whether the stream is selected."""
        answer = self._asking(ask, sealer)
        if answer is None:
            return False
        self._applied(answer, sealer)
        return True

    def _applied(self, answer: StreamJob, sealer: Sealer) -> None:
        lane = self._lane_of(answer)
        sealer.stream(lane)
        self._streams.learn(msgspec.structs.replace(answer, lane=lane))

    def _lane_of(self, answer: StreamJob) -> LaneStream:
        """Returns the stream's further plan. A version that was activated before its rows, and
        whose stream has a cursor, is an increment that started from the beginning: no message
        follows its rows. So the end of the input completes it, where a state covers all of its
        rows."""
        lane = answer.lane
        early = lane.version is not None and lane.version == self._announced.get(lane.stream)
        if early and lane.fills_generation and answer.configured.stream.default_cursor_field:
            lane = msgspec.structs.replace(
                lane,
                requires_complete_status=False,
                requires_state=lane.requires_complete_status,
            )
        return lane

    def _asking(self, ask: LaneQuestion, sealer: Sealer) -> StreamJob | None:
        self._asked = ask.number
        self._mailbox.put_ask(self._job.epoch, ask)
        while (raw := self._mailbox.answer(self._job.epoch, ask.number)) is None:
            time.sleep(ASK_SECONDS)
            self._between(sealer)
        answer = msgspec.json.decode(raw, type=StreamAnswer)
        if answer.error is not None:
            raise PenstockError.from_dict(answer.error)
        return answer.stream

    def _turn(self, stream: StreamId, version: int | None, sealer: Sealer) -> None:
        """Begins another version of a stream where its records carry a new one. A full refresh is
        one version by itself, under the newest number that was sent."""
        if version is None or version == self._versions.get(stream):
            return
        if self._streams.jobs[stream].configured.fills_generation:
            sealer.refreshed_as(stream, version)
            return
        sealer.drain(stream)
        ask = LaneQuestion(number=self._asked + 1, stream=stream, version=version)
        answer = self._asking(ask, sealer)
        if answer is not None:
            self._versions[stream] = version
            self._applied(answer, sealer)

    def _activated(self, event: Activate, sealer: Sealer) -> None:
        """Handles ACTIVATE_VERSION. One before any row of its version changes nothing yet: the
        table keeps its rows until the new ones are complete. A second message, or the source's
        clean end, completes them (L6)."""
        stream = event.stream
        job = self._streams.jobs.get(stream)
        if event.version != self._versions.get(stream):
            self._announced[stream] = event.version
        if job is None or not self.read[stream]:
            return
        if job.configured.fills_generation:
            sealer.refreshed(stream, event.version)
            return
        sealer.drain(stream)
        job = self._streams.jobs[stream]
        lane = job.lane
        begun = event.version == self._versions.get(stream)  # it has rows in this epoch
        if begun and lane.fills_generation and lane.version == event.version:
            live = msgspec.structs.replace(
                lane, fills_generation=False, requires_complete_status=False
            )
            sealer.activate(live)
            self._streams.learn(msgspec.structs.replace(job, lane=live))

    def miss_versions(self, complete: Mapping[StreamId, bool]) -> None:
        """Adds a failure, at a clean end, for each stream with a version that was read and is
        incomplete. ``complete``: as ``Sealer.finish`` returns it."""
        for stream, version in self._versions.items():
            lane = self._streams.jobs[stream].lane
            if lane.fills_generation and not complete.get(stream):
                self.failures.found(_open_version(lane, version))

    def _within_limit(self, batch: Batch) -> Batch:
        """Returns the batch cut to the records that ``limit`` leaves."""
        limit = self._job.limit
        left = len(batch.bodies) if limit is None else max(limit - self.read[batch.stream], 0)
        if left >= len(batch.bodies):
            return batch
        bodies = batch.bodies[:left]
        changes = {index: raw for index, raw in batch.changes.items() if index < left}
        size = sum(map(len, bodies))
        return Batch(batch.stream, bodies, batch.extracted_at[:left], changes, size)


def _open_version(lane: LaneStream, version: int) -> SourceError:
    stated = ", and no STATE after the last of them" if lane.requires_state else ""
    return SourceError(
        f"stream {lane.stream}: no ACTIVATE_VERSION came after the rows of version {version}"
        f"{stated}: it is not known whether they are all",
        code="source.open_version",
        hint="its table keeps its rows, and no state of these goes back. Where the tap was stopped,"
        " run it again. A tap that sends ACTIVATE_VERSION before its rows only must name its "
        "bookmark (bookmark_properties of SCHEMA) and end with a STATE; or give it the state that "
        "it had, by which it keeps its version; or let one run replace the rows "
        "(destination_sync_mode: overwrite)",
        stream=str(lane.stream),
    )


def _clock(millis: int) -> str:
    try:
        moment = datetime.fromtimestamp(millis / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{millis} ms"
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def measured(event: ConnectorMetrics) -> dict[str, Any]:
    """Returns a connector's measurement in the form of the report's ``metrics``."""
    stream = None if event.stream is None else str(event.stream)
    return {"stream": stream, "series": event.series}
