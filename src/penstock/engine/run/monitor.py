"""Does the work between a sync's own steps: reads the clock, checks the lease, copies lanes' logs,
shows progress.

Implements ``engine.sync.ports.Time`` and ``engine.specs.observer.SyncObserver`` at once: whenever
the sync sleeps or checks whether it may continue, it passes on what the lanes wrote to the mailbox.
Neighbours: ``engine.reporting.accounting`` counts, ``engine.channel.heartbeat`` keeps the lease.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from penstock.engine.channel.heartbeat import LeaseHeartbeat
from penstock.engine.channel.mailbox import Activity, Mailbox
from penstock.engine.channel.run_log import RunLog
from penstock.engine.reporting.accounting import Accounting
from penstock.engine.serve import Echo
from penstock.engine.specs.feeder import PushResult
from penstock.engine.specs.lane import Expected, LaneResult
from penstock.engine.specs.observer import RunObserver, counted
from penstock.engine.specs.plan import LaneStart, PlannedStream, SyncOutcome
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.segments import Load, Segment
from penstock.model.state import StoredState
from penstock.short_texts import bounded
from penstock.tables.contract import LoadResult, PlannedDestination

PROGRESS_SECONDS = 1.0


class RunMonitor:
    """The monitor of one run."""

    def __init__(
        self,
        accounting: Accounting,
        pulse: LeaseHeartbeat,
        run_log: RunLog,
        mailbox: Mailbox,
        progress: RunObserver,
        destination: PlannedDestination,
        echo: Echo | None = None,
        java_death: Callable[[], PenstockError | None] = lambda: None,
    ) -> None:
        """``echo``: sends states back to the program that feeds the source (``engine.serve``).
        ``java_death``: returns the error where Spark's Java process died; else None."""
        self._java_death = java_death
        self._destination, self._echo = destination, echo
        self._accounting, self._pulse, self._run_log = accounting, pulse, run_log
        self._mailbox, self._progress = mailbox, progress
        self._epochs: list[int] = []
        self._shown_at = 0.0
        self._activity: Activity | None = None
        self._expected: dict[StreamId | None, Expected] = {}  # last shown
        self._shown: dict[int, set[tuple[str, int, int, int | None]]] = {}  # per epoch, last shown

    # -- engine.sync.ports.Time

    def now(self) -> float:
        return self._pulse.now()

    def sleep(self, seconds: float) -> None:
        self._show()
        self._pulse.sleep(seconds)

    def check(self) -> None:
        self._show()
        self._pulse.check()
        death = self._java_death()
        if death is not None:
            raise death

    def push_started(self, log: Path) -> None:
        """Shows that a destination is being fed, and follows its log file."""
        self._run_log.follow(log)
        self._phase("push", "the destination is fed")

    def fed(self, result: PushResult) -> None:
        self._accounting.fed(result)

    def sent_again(self, stream: StreamId, rows: int) -> None:
        self._accounting.stream(stream).sent_again += rows

    # -- engine.specs.observer.SyncObserver

    def loaded(self, load: Load, result: LoadResult) -> None:
        self._accounting.loaded(load, result)
        self._does("extract" if self._epochs else "finish")
        if self._echo is not None:
            self._echo.loaded(load)

    def states(self, states: Sequence[StoredState]) -> None:
        self._accounting.states(states)
        if self._echo is not None:
            self._echo.committed(states)

    def load_seconds(self, seconds: float) -> None:
        self._accounting.load_seconds(seconds)

    def load_failed(self, stream: StreamId, error: PenstockError) -> None:
        self._accounting.load_failed(stream, error)

    def refused(self, stream: StreamId, rejected: int) -> None:
        self._accounting.refused(stream, rejected)

    def lane_started(self, start: LaneStart) -> None:
        self._epochs.append(start.epoch)
        self._run_log.follow(self._mailbox.log_path(start.epoch))
        if self._echo is not None:
            self._echo.follow(self._mailbox.states_path(start.epoch))
        streams = counted(len(start.streams), "stream")
        self._phase("extract", f"lane {start.lane}: {streams}")
        self._accounting.lane_started(start)

    def rejected_at_destination(self, rejected: Iterable[tuple[StreamId, int]]) -> None:
        self._accounting.rejected_at_destination(rejected)

    def lane_ended(self, start: LaneStart, result: LaneResult) -> None:
        self._shown_at = 0.0
        self._show()
        self._epochs.remove(start.epoch)
        self._accounting.lane_ended(start, result)

    def segments(self, segments: Sequence[Segment]) -> None:
        self._accounting.segments(segments)
        rows = sum(s.rows for segment in segments for s in segment.slices)
        self._phase("load", counted(rows, "row"))

    def stream_planned(self, stream: PlannedStream, *, new: bool) -> None:
        if new:
            self._accounting.met(stream.id)
        self._accounting.place(stream, self._destination)

    def note(self, text: str) -> None:
        self._run_log.write("WARN", bounded(text))
        self._accounting.note(text)

    def finish(self, outcome: SyncOutcome) -> None:
        """Copies the rest of the lanes' logs, and sends back the remaining states where every
        stream is complete."""
        self._run_log.poll()
        whole = not (outcome.errors or outcome.failed or outcome.cancelled)
        if self._echo is not None and whole and self._accounting.all_in(outcome):
            self._echo.rest()

    def _phase(self, name: str, detail: str) -> None:
        self._progress.phase(name, detail)
        self._does(name)

    def _does(self, phase: str) -> None:
        """Writes to the mailbox, for ``engine.inspect.live``, what the run does."""
        if self._activity is None:
            timeline = self._accounting.timeline
            began = time.time() - (time.monotonic() - timeline.began)
            self._activity = Activity(phase="", began=began, spent=timeline.before_lanes())
        if self._activity.phase != phase:
            self._activity.phase = phase
            self._mailbox.put_activity(self._activity)

    def _show(self) -> None:
        if time.monotonic() - self._shown_at < PROGRESS_SECONDS:
            return
        self._shown_at = time.monotonic()
        self._run_log.poll()
        for epoch in self._epochs:
            progress = self._mailbox.progress(epoch)
            before = self._shown.get(epoch, set())
            counts = progress.streams if progress else []
            for of, expected in progress.expected if progress else ():
                if self._expected.get(of) != expected:
                    self._expected[of] = expected
                    name = None if of is None else str(of)
                    self._progress.expected(name, expected.rows, expected.bytes)
            self._shown[epoch] = set(counts)
            for key, rows, size, estimate in counts:
                if (key, rows, size, estimate) in before:
                    continue
                stream = StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))
                rejected = self._accounting.stream(stream).rejected
                self._progress.stream(
                    str(stream), rows, size, progress.states if progress else 0, rejected, estimate
                )
