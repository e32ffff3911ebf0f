"""Counts what a sync does, and makes the run's report (L8).

``read`` counts source records. For an epoch that ended by itself it is the lane's count. For one
that was lost or belongs to an earlier run it is the number in its committed segments (the rest was,
or will be, read again). Neighbours: ``engine.sync.sync`` is counted, ``engine.run`` adds what
happens around it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.notes_of_streams import NotesOfStreams
from penstock.engine.plan.repeats import REPEATS, may_repeat, repeats
from penstock.engine.reporting.timeline import LANE, LOAD, STAGE, Timeline
from penstock.engine.specs.feeder import PushResult
from penstock.engine.specs.lane import Expected, LaneResult
from penstock.engine.specs.observer import RunObserver, counted
from penstock.engine.specs.plan import LaneStart, PlannedStream, SyncOutcome
from penstock.errors import Cancelled, PenstockError, SourceError
from penstock.model.catalog import StreamId
from penstock.model.report import PeakMemory, Report, RunStatus, StreamReport, TimeSpent
from penstock.model.segments import Load, Segment, SegmentId
from penstock.model.state import StoredState
from penstock.short_texts import bounded, bounded_data, named, shown
from penstock.tables.contract import LoadResult, PlannedDestination
from penstock.tasks.peak import peak_bytes

_SHOWN = 10


class Accounting:
    """Counts the calls of ``engine.specs.observer.SyncObserver``, which ``engine.run.monitor``
    passes on; :meth:`report` at the end."""

    def __init__(
        self, progress: RunObserver, completed: Callable[[str], str] = lambda text: text
    ) -> None:
        """``completed``: completes the commands in a note."""
        self._progress, self._completed = progress, completed
        self.streams: dict[StreamId, StreamReport] = {}
        self.time, self.timeline = TimeSpent(), Timeline()
        self._lane_began: dict[int, float] = {}  # by epoch
        self.planned: dict[StreamId, PlannedStream] = {}  # as last planned
        self.lived: dict[StreamId, tuple[float, float]] = {}  # readings of time.monotonic
        self.notes: list[str] = []
        self._of_streams = NotesOfStreams()
        self.metrics: list[dict[str, Any]] = []
        self.start: Literal["warm", "cold"] | None = None  # of Spark's JVM
        self.inexact: set[StreamId] = set()
        self.dry = False  # a dry run loads, sends and saves nothing
        self.at_least_once = False  # True where rows may come twice, whatever this run sees
        # whether rows of a stream may come twice, for streams that were once planned so
        self._repeating: dict[StreamId, bool] = {}
        self._destination: PlannedDestination | None = None
        self._ended: set[int] = set()
        self._in_doubt: dict[StreamId, tuple[str, str | None]] = {}  # why, and what to do
        self._loads: list[Load] = []
        self._expected: set[StreamId] = set()
        self._refreshes: set[StreamId] = set()
        self._lane_peaks: dict[int, int] = {}  # bytes, the largest of a lane's epochs
        self._push_peak = 0  # bytes, the largest of the push tasks, which run one after another
        self._started: dict[int, LaneStart] = {}
        self._expected_of_all = Expected()
        self._segment_reads: dict[tuple[SegmentId, StreamId], int] = {}

    def expect(self, streams: Iterable[StreamId]) -> None:
        """Adds streams that this run syncs; an earlier run sealed the other streams that it
        commits."""
        for stream in streams:
            self._expected.add(stream)
            self.stream(stream)

    def plan_again(self, streams: Iterable[StreamId]) -> None:
        """Replaces the streams that this run syncs. Streams that are gone from the source and had
        no commit leave the report."""
        wanted = set(streams)
        for stream in self._expected - wanted:
            self.planned.pop(stream, None)
            self._repeating.pop(stream, None)
            self._refreshes.discard(stream)
            if not self.streams[stream].committed:
                del self.streams[stream]
        self._expected.clear()
        self.expect(wanted)

    def stream(self, stream: StreamId) -> StreamReport:
        """Returns the report's entry of a stream, created on first use."""
        if stream not in self.streams:
            self.streams[stream] = StreamReport(namespace=stream.namespace, name=stream.name)
        return self.streams[stream]

    def place(self, stream: PlannedStream, destination: PlannedDestination) -> None:
        """Records the table or target of a stream."""
        line = self.stream(stream.id)
        self.planned[stream.id] = stream
        if stream.configured.fills_generation:
            self._refreshes.add(stream.id)
        self._destination = destination
        if may_repeat(stream, destination):
            self._repeating[stream.id] = True
        elif stream.id in self._repeating:
            self._repeating[stream.id] = False
        if isinstance(destination, DestinationEndpoint):
            line.target = destination.written_to(stream)
        else:
            line.table = destination.location(stream.table)

    def places(self) -> dict[StreamId, str]:
        """Returns the table or target of each stream that has one."""
        found = ((stream, line.table or line.target) for stream, line in self.streams.items())
        return {stream: place for stream, place in found if place is not None}

    def _lives(self, stream: StreamId, since: float | None = None) -> None:
        """Notes activity of a stream, from ``since`` (None: now) until now."""
        now = time.monotonic()
        begin, _ = self.lived.get(stream, (now if since is None else since, now))
        self.lived[stream] = begin, now

    # -- engine.specs.observer.SyncObserver

    def loaded(self, load: Load, result: LoadResult) -> None:
        self._loads.append(load)
        self._lives(load.stream)
        line = self.stream(load.stream)
        line.committed += load.covered
        line.written += result.written
        line.superseded += result.superseded
        line.rejected += load.rejected
        line.filtered += load.filtered
        line.bytes += sum(p.raw_bytes for p in load.parts)
        if result.way is not None:
            line.load_ways[result.way.value] = line.load_ways.get(result.way.value, 0) + 1
        for note in result.notes:
            self.note(f"{shown(load.stream)}: {note}")
        if self.dry:
            return
        count = counted(load.covered, "record")
        self._progress.phase("loaded", f"{shown(load.stream)}: {count}")

    def states(self, states: Sequence[StoredState]) -> None:
        for state in states:
            shared = state.scope.stream is None
            for stream in self.streams if shared else [state.scope.stream]:
                if stream is not None:
                    self.stream(stream).states += 1

    def load_failed(self, stream: StreamId, error: PenstockError) -> None:
        line = self.stream(stream)
        line.status, line.error = "failed", error.as_report()

    def refused(self, stream: StreamId, rejected: int) -> None:
        self.stream(stream).rejected += rejected

    def lane_started(self, start: LaneStart) -> None:
        self._started[start.epoch] = start
        self._lane_began[start.epoch] = time.monotonic()
        for stream in start.streams:
            self._lives(stream.id)
            self.stream(stream.id).lane = start.lane
            self.stream(stream.id).attempts += 1

    def met(self, stream: StreamId) -> None:
        """Adds a stream that the source sent first while it was read."""
        self.expect([stream])
        self._lives(stream)
        self.stream(stream).attempts = 1

    def lane_ended(self, start: LaneStart, result: LaneResult) -> None:
        stats, began = result.stats, self._lane_began[start.epoch]
        track = f"lane {start.lane}"
        self.timeline.add(LANE, began, track=track, more={"epoch": start.epoch, **stats})
        if "stage" in stats:
            self.timeline.add(STAGE, began, began + stats["stage"], track=track)
        self.time.extract = max(self.time.extract, stats.get("extract", 0.0))
        self.time.source_wait = max(self.time.source_wait, stats.get("source_wait", 0.0))
        self.time.decode = max(self.time.decode, stats.get("decode", 0.0))
        peak = int(stats.get("peak_bytes", 0))
        self._lane_peaks[start.lane] = max(self._lane_peaks.get(start.lane, 0), peak)
        self.notes += map(bounded, result.notes)
        self.metrics += result.metrics
        for stream, expected in result.expected:
            self._expect_rows(stream, expected)
        if result.again:
            return
        self._ended.add(start.epoch)
        self._in_doubt.update((stream, (why, hint)) for stream, why, hint in result.in_doubt)
        for stream, read in result.read:
            self._lives(stream, began)
            self.stream(stream).read += read
        for error in result.errors:
            named = next((s.id for s in start.streams if str(s.id) == error.get("stream")), None)
            if named is not None:
                self.stream(named).status, self.stream(named).error = "failed", error

    def _expect_rows(self, stream: StreamId | None, expected: Expected) -> None:
        if stream is None:
            self._expected_of_all = expected
        else:
            line = self.stream(stream)
            line.expected_rows, line.expected_bytes = expected.rows, expected.bytes

    def fed(self, result: PushResult) -> None:
        """Adds what a destination connector was fed, and the seconds that this took."""
        self.at_least_once = True
        for stream, rows in result.fed:
            self.stream(stream).written += rows
        self.metrics += result.metrics
        self.notes += map(bounded, result.notes)
        self.load_seconds(result.stats.get("push", 0.0), more=result.stats)
        self.time.destination_wait += result.stats.get("destination_wait", 0.0)
        self._push_peak = max(self._push_peak, int(result.stats.get("peak_bytes", 0)))

    def load_seconds(self, seconds: float, more: dict[str, float] | None = None) -> None:
        """Adds the seconds of a call of the destination that has just ended."""
        now = time.monotonic()
        self.timeline.add(LOAD, now - seconds, now, track=LOAD, more=more)

    def rejected_at_destination(self, rejected: Iterable[tuple[StreamId, int]]) -> None:
        """Counts rows that the destination rejected, among those that it has acked."""
        for stream, rows in rejected:
            self.stream(stream).rejected += rows
            self.stream(stream).committed -= rows

    def segments(self, segments: Sequence[Segment]) -> None:
        """Records the segments that are about to be committed: their counts, and whether their
        delivery is at least once (L2)."""
        for segment in segments:
            for part in segment.slices:
                self._segment_reads[segment.id, part.stream] = part.read
            if not segment.exact:
                self.inexact |= {s.stream for s in segment.slices if s.rows}

    def _read_elsewhere(self, load: Load) -> int:
        """Returns the records of a load that no lane of this run has counted. The load of a
        generation, or one that waits for the end of the sync, spans epochs, some of which may have
        ended in this run."""
        elsewhere = [s for s in load.segments if s.epoch not in self._ended]
        if len(elsewhere) == len(load.segments):
            return load.read
        return sum(self._segment_reads.get((s, load.stream), 0) for s in elsewhere)

    def note(self, text: str) -> None:
        """Adds a note to the report, once, and shows it. A note with the same text about another
        stream gets this stream's name too, and is not shown again."""
        text = bounded(self._completed(text))
        if text in self.notes:
            return
        before, text = self._of_streams.joined(text, map(str, self.streams))
        if before in self.notes:
            self.notes[self.notes.index(before)] = text
        else:
            self.notes.append(text)
            self._progress.note(text)

    # -- the end

    def report(
        self,
        *,
        run: str,
        pipeline: str,
        started_at: str,
        seconds: float,
        outcome: SyncOutcome,
        log: str,
        errors: Sequence[PenstockError] = (),
        jvm_peak_bytes: int = 0,
    ) -> Report:
        """Returns the report. Its error is the first one in time."""
        self.timeline.settle(self.time, seconds)
        for load in self._loads:
            self.stream(load.stream).read += self._read_elsewhere(load)
        for stream in sorted(self.streams.keys() - self._expected, key=str):
            self.note(
                f"{shown(stream)} is not synced by this run: an earlier run had sealed its rows"
            )
        for stream, line in self.streams.items():
            if stream in outcome.complete:
                line.status, line.error = "complete", None
            elif stream in outcome.failed:
                line.status, line.error = "failed", outcome.failed[stream].as_report()
        everything = [*outcome.errors, *errors]
        error = everything[0] if everything else self._unfinished(outcome)
        if self.inexact:
            listed = ", ".join(map(shown, sorted(map(str, self.inexact))))
            self.note(f"at least once: rows that no state covers were loaded ({listed})")
        self._settle_repeats()
        self._note_left_out()
        status, exit_code = self._status_of(outcome, error)
        return Report(
            run=run,
            pipeline=pipeline,
            status=status,
            exit_code=exit_code,
            started_at=started_at,
            seconds=round(seconds, 3),
            guarantee="at-least-once" if self._may_come_twice() else "exactly-once",
            streams=[_named(self.streams[s]) for s in sorted(self.streams, key=lambda s: s.key)],
            time=self.time,
            memory=PeakMemory(
                python_peak_bytes=peak_bytes() + sum(self._lane_peaks.values()) + self._push_peak,
                jvm_peak_bytes=jvm_peak_bytes,
            ),
            notes=self.notes,
            start=self.start,
            metrics=self.metrics,
            expected_rows=self._expected_of_all.rows,
            expected_bytes=self._expected_of_all.bytes,
            error=None if error is None else error.as_report(),
            log=log,
            dry_run=self.dry,
        )

    def _may_come_twice(self) -> bool:
        noted = any(note.startswith(REPEATS) for note in self.notes)  # also before any row came
        repeats = noted or any(self._repeating.values())
        return bool(self.inexact) or self.at_least_once or repeats

    def _settle_repeats(self) -> None:
        """Removes streams from the plan's note on rows that may come twice, if their source sent a
        key before their first row: they now keep one row per key."""
        if self._destination is None or all(self._repeating.values()):
            return
        left = [self.planned[s] for s, comes in self._repeating.items() if comes]
        kept = [n for n in self.notes if not n.startswith(REPEATS)]
        self.notes = [*repeats(left, self._destination), *kept]

    def _note_left_out(self) -> None:
        """Notes the streams whose every row was older than the row in the table."""
        for stream, line in self.streams.items():
            planned = self.planned.get(stream)
            # a history leaves out unchanged rows
            if planned is None or line.superseded <= 0 or planned.disposition.history:
                continue
            rows = sum(load.rows for load in self._loads if load.stream == stream)
            # a query may make any number of rows from those that were read
            if line.written if planned.queried else line.superseded < rows:
                continue
            cursor = ".".join(planned.disposition.cursor)
            self.note(
                f"{shown(stream)}: no row was written: each of {counted(line.superseded, 'row')} "
                f"has a lower cursor {cursor} than the row of its key in the table. If they are "
                "the newer ones, name another cursor_field, or cursor_order: text where the cursor "
                "is text; then `penstock run --recreate` reads the stream from the start"
            )

    def _unfinished(self, outcome: SyncOutcome) -> PenstockError | None:
        """Returns the error for streams that are not complete, where the source ended without any
        other failure."""
        expected = self._expected - outcome.halted
        left = [s for s in expected if self.stream(s).status != "complete"]
        names = sorted(map(str, left))
        if not names or outcome.cancelled:
            return None
        listed = ", ".join(map(shown, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
        doubts = dict.fromkeys(self._in_doubt[s] for s in sorted(left) if s in self._in_doubt)
        if doubts:
            return SourceError(
                f"the source ended with exit code 0, and these streams are not complete: {listed}: "
                + "; ".join(why for why, _ in doubts),
                code="source.incomplete",
                hint=next((hint for _, hint in doubts if hint), None),
            )
        refresh = any(str(s) in names for s in self._refreshes)
        return SourceError(
            f"the source ended without an error and did not report the end of: {listed}",
            code="source.incomplete",
            hint="a source that reports the end of other streams must report COMPLETE of a "
            "refresh before its rows are shown: these tables keep what they had; run again, which "
            "goes on from what is sealed,"
            " or with `--full-refresh` from the start, or report it to the connector's maintainers"
            if refresh
            else "run again: each of them goes on from its saved state",
        )

    def all_in(self, outcome: SyncOutcome) -> bool:
        """Whether every stream of this run is complete."""
        return self._expected <= outcome.complete

    def _status_of(
        self, outcome: SyncOutcome, error: PenstockError | None
    ) -> tuple[RunStatus, int]:
        if outcome.cancelled or isinstance(error, Cancelled):
            return "cancelled", Cancelled.exit_code
        wanted = self._expected - (outcome.halted if error is None else set())
        done = [self.stream(s).status == "complete" for s in wanted]
        if error is None and all(done):
            return "succeeded", 0
        if any(done) and not all(done):
            return "partial", 1
        return "failed", 4 if error is None else error.exit_code


def _named(line: StreamReport) -> StreamReport:
    """Returns a stream's entry in the report with long names and texts cut (``short_texts``)."""
    places = {
        "namespace": line.namespace, "name": line.name, "table": line.table, "target": line.target,
    }  # fmt: skip
    short = {name: value and named(value) for name, value in places.items()}
    return msgspec.structs.replace(line, **short, error=bounded_data(line.error))
