"""Converts the events of a destination's runs into answers for the engine: acks, log lines,
rejects, metrics, errors.

Called from the threads of the runs; one queue holds the answers until they are taken. A checkpoint
acknowledges the frames that its run took before it, a successful end all frames of the run; neither
does where the destination itself counts fewer records (L8). A run that replaces rows acknowledges
only by its successful end, since its rows are not visible before. Neighbours: ``ack_tracker``
(positions), ``run_counts`` (counters), ``writer`` (runs). Source: the protocol, sections 4.2, 5 and
7.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress

from penstock.byte_queue import ByteQueue, QueueAbandoned, QueueEnd, TooLong
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import Error, LogEvent, SkippedItems, Tick
from penstock.protocols.failures import failure
from penstock.protocols.rapidbyte.guest.engine_events import (
    checkpoint_problems,
    log_event,
    metric_events,
    reject_event,
)
from penstock.protocols.rapidbyte.guest.errors import (
    ended_early,
    error_of,
    record_rejected,
    records_failed,
    rows_missing,
)
from penstock.protocols.rapidbyte.guest.events import (
    CheckpointCall,
    ComponentLog,
    DeadLettered,
    Frame,
    Quiet,
    RunEnded,
    StageEvent,
)
from penstock.protocols.rapidbyte.wire.messages import RunSummary
from penstock.protocols.rapidbyte.write.ack_tracker import AckTracker
from penstock.protocols.rapidbyte.write.run_counts import RunCounts
from penstock.protocols.rapidbyte.write.run_pool import StreamRun
from penstock.protocols.rapidbyte.write.write_context import (
    WriteSettings,
    replaces,
    table_name,
    write_mode,
)
from penstock.protocols.writing import Ack, Acks, Answer, WriteRequest

_WAITING = 16 << 20  # bytes of answers that wait to be taken
_SMALL = 256  # bytes that an answer counts at least


class Answers:
    """Collects the answers of one write. ``failed``: whether any stream has failed."""

    def __init__(self, terms: WriteSettings, request: WriteRequest) -> None:
        self._terms, self._request = terms, request
        self._answers: ByteQueue[Answer] = ByteQueue(_WAITING)
        self._lock = threading.Lock()
        self._failed: set[StreamId] = set()
        self._keys: dict[str, int] = {}  # key scope -> its last checkpoint that covers rows
        self._counted = False  # a run has used its counters
        self._said: set[str] = set()  # streams with a once-only log line
        self.acks = AckTracker()

    @property
    def failed(self) -> bool:
        return bool(self._failed)

    def has_failed(self, stream: StreamId) -> bool:
        return stream in self._failed

    def next(self, seconds: float) -> Answer | None:
        """Returns the next answer; ``Tick`` after ``seconds`` without one; None: there are no
        more."""
        try:
            answer = self._answers.get(seconds)
        except TooLong:
            return Tick()
        return None if isinstance(answer, QueueEnd) else answer

    def close(self) -> None:
        """Ends the queue: no answer follows."""
        self._answers.end()

    def abandon(self) -> None:
        """Drops the queue: answers are no longer taken. A thread that adds one gets
        ``QueueAbandoned``."""
        self._answers.abandon()

    def ack(self, seqs: Iterable[int]) -> None:
        """Queues acks of these states, with the checkpoints of the connector's keys that go with
        them."""
        for seq in seqs:
            self._tell(Ack(seq, tuple(self._keys.items())))

    def fail(self, stream: StreamId, error: PenstockError) -> None:
        """Queues the failure of a stream, for a defect that the host detected. Only the first
        failure of a stream counts."""
        self._fail(failure(error, stream, "destination"))

    # -- from a run's thread

    def on_event(self, run: StreamRun, event: StageEvent) -> None:
        """Converts one event of a run."""
        match event:
            case CheckpointCall():
                self._checkpoint(run, event)
            case ComponentLog():
                self._tell(log_event(event), len(event.message))
            case DeadLettered():
                self._dead_letter(run, event)
            case RunEnded():
                self._ended(run, event)
            case Frame() | Quiet():
                pass  # a destination emits no frames: its host refuses them

    def on_over(self, run: StreamRun, failure: PenstockError | None) -> None:
        """Handles the end of a run's thread. ``failure``: what was raised in place of a
        ``RunEnded``."""
        if failure is not None and not run.broken:
            with suppress(QueueAbandoned):
                self.fail(run.stream.id, failure)

    def _checkpoint(self, run: StreamRun, event: CheckpointCall) -> None:
        stream, acks = run.stream, self._request.acks
        name, strict = table_name(stream.target), acks is Acks.strict
        problems = checkpoint_problems(
            event, "destination", name, str(stream.target), strict=strict
        )
        for problem in problems:
            self._tell(problem)
        if problems or acks is Acks.at_end or replaces(stream):
            return
        if self._counts_all(run, event):
            self._cover(stream.id, event.keys, run.base + event.frames)

    def _counts_all(self, run: StreamRun, event: CheckpointCall) -> bool:
        """Returns whether a checkpoint counts all rows that its run had taken. Where it counts
        fewer, nothing is acknowledged before the end of the run, whose counters decide. Dead
        letters prove nothing here: ``records_processed`` may or may not contain their records, a
        record may have several, and a row that is only buffered must not be taken for one of
        them."""
        counted = 0 if event.payload is None else event.payload.records_processed
        taken = run.rows(event.frames)
        if counted >= taken:
            return True
        self._say_once(
            f"a checkpoint of {run.stream.id} counts {counted} of the {taken} records that were"
            " taken before it: such a checkpoint acknowledges nothing, the end of the run does",
            of=run.stream.id.key,
        )
        return False

    def _dead_letter(self, run: StreamRun, event: DeadLettered) -> None:
        """Converts a dead letter. One from the empty run counts as none of this run's rows: its
        record was kept by the destination from an earlier run, which has counted it."""
        stream = run.stream.id
        first = not run.opening and run.put_aside(event.letter)
        reject = reject_event(event, stream)
        reject.records = int(first)
        if self._terms.settings.on_data_error == "skip":
            if first or run.opening:
                counted = stream if first else None
                self._tell(SkippedItems(f"skipped:{event.letter.error_category}", stream=counted))
        elif self._terms.settings.on_data_error == "fail":
            self.fail(stream, record_rejected(stream, reject.reason))
        else:
            self._tell(reject, len(reject.raw))

    def _ended(self, run: StreamRun, ended: RunEnded) -> None:
        stream = run.stream.id
        for event in metric_events(ended, stream, self._terms.runtime.stats):
            self._tell(event)
        if run.broken:
            return  # its feed had failed first
        if ended.error is not None:
            allowed = self._terms.settings.resources.max_retries
            attempt = self._request.attempt
            self._fail(error_of(ended, stream, "destination", attempt, allowed))
        elif not run.ended or ended.frames_in < run.given:
            self.fail(stream, ended_early(stream))
        elif ended.summary is None or self._wrote_all(run, ended.summary):
            self._cover(stream, ended.keys, run.base + run.given)

    def _wrote_all(self, run: StreamRun, summary: RunSummary) -> bool:
        """Returns whether the counters of a run agree that all of its rows were written, rejected
        or skipped; fails the stream where they do not."""
        stream, mode = run.stream.id, write_mode(run.stream)
        given = run.rows(run.given)
        refused, alike = run.refused, run.alike
        counts = RunCounts.of(summary, given, refused, alike, counted=self._counted)
        self._counted |= counts.written > 0
        if counts.unlisted and self._terms.settings.on_data_error != "skip":
            self.fail(stream, records_failed(stream, counts.failed, given, refused + alike))
            return False
        if counts.unlisted:
            self._tell(SkippedItems("skipped:records_failed", counts.unlisted, stream))
        if counts.missing and (mode != "upsert" or not counts.written):
            self.fail(stream, rows_missing(stream, counts.written, given, refused))
            return False
        if counts.equal:
            self._tell(SkippedItems("skipped:equal_dead_letters", counts.equal, stream))
        if counts.missing:
            self._tell(SkippedItems(f"records_merged_or_not_written:{stream}", counts.missing))
        elif given and not counts.counts:
            text = "the destination does not count records: what it wrote is not compared with"
            self._say_once(f"{text} what it was given")
        return True

    def _say_once(self, text: str, *, of: str = "") -> None:
        """Writes a log line once for each stream ``of``; empty: once for all."""
        with self._lock:
            if of in self._said:
                return
            self._said.add(of)
        self._tell(LogEvent("INFO", text))

    def _cover(self, stream: StreamId, keys: int, frames: int) -> None:
        """Acks the states that are covered once the stream's first ``frames`` frames are
        durable."""
        if stream in self._failed:
            return
        if keys:
            self._keys[stream.key] = max(keys, self._keys.get(stream.key, 0))
        self.ack(self.acks.covered(stream, frames))

    def _fail(self, error: Error) -> None:
        with self._lock:
            if error.stream is None or error.stream in self._failed:
                return
            self._failed.add(error.stream)
        self._tell(error)

    def _tell(self, answer: Answer, size: int = 0) -> None:
        """Queues an answer. Raises ``QueueAbandoned`` where answers are no longer taken."""
        self._answers.put(answer, size + _SMALL, self._request.timeouts.heartbeat)
