"""Runs a push task's process: feeds one destination connector from the log, as the driver orders.

Reads a ``PushJob`` from stdin, writes a ``PushResult`` to stdout; orders and acks go through the
mailbox (``engine.channel.feeder_mail``). It stops when its stdin ends (its owner died), when the
driver's lease is old or when the run is cancelled. Not here: what an ack means for states. It
writes covered segments to the mailbox, and the driver saves states. Imports little, like
``engine.worker.lane``. Neighbours: ``tasks.child_process`` starts it, ``engine.worker.feed`` reads
the rows.
"""

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from penstock.engine.channel.feeder_mail import PushMail
from penstock.engine.channel.mailbox import Progress
from penstock.engine.log.feeder_rejects import PushRejects
from penstock.engine.log.log import FileLog
from penstock.engine.specs.failpoints import reach
from penstock.engine.specs.feeder import AckedSegments, PushEnd, PushJob, PushResult
from penstock.engine.specs.lane import NewConfig
from penstock.engine.specs.observer import counted
from penstock.engine.worker.ack_tracker import FedSegments
from penstock.engine.worker.counted_rows import CountedRows
from penstock.engine.worker.feed import OrderFeed
from penstock.engine.worker.process import Stopped, WorkerProcess, exit_words
from penstock.engine.worker.skipped_items import skipped_note
from penstock.errors import Defect, DestinationError, LogError, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import (
    ConnectorExited,
    ConnectorMetrics,
    Control,
    Error,
    LogEvent,
    Reject,
    SkippedItems,
    StreamHalted,
    Tick,
)
from penstock.model.segments import SegmentId
from penstock.protocols import load
from penstock.protocols.connection import Connection
from penstock.protocols.failures import failed
from penstock.protocols.writing import (
    EXIT_ACK,
    GUESSED_ACK,
    NEWEST_ACK,
    Ack,
    Answer,
    DestinationCounts,
    GivesResults,
    StreamAck,
    WriteRequest,
)
from penstock.store.keys import push_task
from penstock.tasks.child_main import carry_out

TICK_SECONDS = 0.2
SHOWN = 10

_SAID = {
    GUESSED_ACK: "the destination gives states back changed or without their envelope: they count"
    " as acks in the order they come, which `acks: strict` turns off",
    NEWEST_ACK: "the destination gave back a state that equals several: as it ended well, it was"
    " taken for the newest, which `acks: strict` turns off",
    EXIT_ACK: "the destination gave no result for rows: exit code 0, after it had read all of its"
    " input, was taken for their ack, which `acks: strict` turns off",
}
_NO_ACKS = ("unknown_state", "bare_state", "state_unmatched")

PRELOADED = (
    "pyarrow.compute",
    "pyarrow.parquet",
    "penstock.codec.parquet_parts",
    "penstock.protocols.stdio.connect",
    "penstock.protocols.airbyte.destination",
    "penstock.protocols.airbyte.package",
    "penstock.protocols.singer.destination",
    "penstock.protocols.singer.package",
)
"""Modules that most feeders import in time: ``tasks.fork_server`` has them loaded."""


class PushRun:
    """Carries out one push job, once."""

    def __init__(self, job: PushJob, *, orphaned: threading.Event) -> None:
        self._job = job
        root = Path(job.log_root)
        self._mail = PushMail(root, job.run, job.number, job.mail_key)
        task = push_task(job.run, job.number)
        self._process = WorkerProcess(job, self._mail, job.number, task, orphaned)
        self._event_log = self._process.event_log
        self._cover = FedSegments()
        self._feed = OrderFeed(
            FileLog(root),
            self._cover,
            job.streams,
            self._mail.next_order,
            json=not load(job.protocol).columnar,
        )
        self._errors: list[PenstockError] = []
        self._complaints: list[str] = []
        self._counted: dict[str, int] = {}
        self._filtered: dict[StreamId, int] = {}  # not written yet
        self._metrics: list[dict[str, Any]] = []
        self._rejects = PushRejects(root, self._mail.folder, job.number)
        self._row_counts = CountedRows()
        self._covered: list[SegmentId] = []  # not written yet
        self._keys: dict[str, int] = {}
        self._retries: list[float | None] = []
        self._halted: list[tuple[StreamId, str]] = []
        self._acks = 0
        self._gives_results = False
        self._ended_early = False
        self._exit: ConnectorExited | None = None

    def run(self) -> PushResult:
        """Feeds the destination to its end and returns the result. Raises ``LogError``
        (``log.claimed``) where another process has claimed the job."""
        self._process.begin(self._mail.claim)
        destination = self._process.connect(self._stderr)
        try:
            end = self._converse(destination)
        except PenstockError as e:
            self._process.secrets.mask_error(e)
            end = PushEnd.failed
            self._errors.append(e)
        rejects: tuple[str, ...] = ()
        try:
            self._write_acks()
            rejects, _ = self._rejects.take()
        except LogError as e:
            end = PushEnd.failed
            if e.code not in [known.code for known in self._errors]:
                self._errors.append(e)
        self._process.report(self._progress())
        self._event_log.close()
        return PushResult(
            end=end,
            fed=sorted(self._feed.rows.items()),
            unacked=sorted([*self._cover.left(), *self._covered]),
            errors=[e.as_dict() for e in self._errors],
            retry=self._retry(end),
            notes=self._notes(),
            metrics=self._metrics,
            rejects=list(rejects),
            halted=self._halted,
            gives_results=self._gives_results,
            stats=self._stats(),
        )

    def _retry(self, end: PushEnd) -> float | None:
        """Returns the seconds to wait before another attempt; None: it must not be repeated. It may
        be repeated where the destination declared every failure temporary. Exit code 0 counts as a
        failure where the destination sent such an error and something was not acked."""
        left = bool(self._cover.left() or self._covered)
        if end is not PushEnd.failed and not (end is PushEnd.finished and left):
            return None
        waits = [seconds for seconds in self._retries if seconds is not None]
        if not waits or len(waits) < len(self._errors):
            return None
        return max(waits)

    def _stats(self) -> dict[str, float]:
        """Returns the figures for the report. ``destination_wait``: seconds until the destination
        read its input, and until its end. ``encode``: seconds for reading parts and encoding
        messages."""
        now, ended_at = time.monotonic(), self._feed.ended_at
        traffic = self._process.traffic
        return self._process.stats("push") | {
            "destination_wait": traffic.write_seconds
            + (0.0 if ended_at is None else now - ended_at),
            "encode": max(self._feed.busy - traffic.write_seconds, 0.0),
            "bytes": float(traffic.written),
        }

    def _converse(self, destination: Connection) -> PushEnd:
        request = WriteRequest(
            config=self._job.config,
            streams=self._job.streams,
            source_protocol=self._job.source_protocol,
            pipeline=self._job.pipeline,
            timeouts=self._job.timeouts,
            acks=self._job.acks,
            gives_results=self._job.gives_results,
            tick=TICK_SECONDS,
            options=self._job.options,
            on_data_error=self._job.on_data_error,
            attempt=self._job.attempt,
            attempts=self._job.attempts,
            backoff=self._job.backoff,
        )
        with closing(destination.write(request, self._feed.feed())) as answers:
            try:
                for answer in answers:
                    self._take(answer)
                    self._process.between(self._progress)
            except Stopped as e:
                self._event_log.log("WARN", f"the push stops: {e}", "penstock")
                return PushEnd.cancelled
        return self._push_end()

    def _push_end(self) -> PushEnd:
        exited = self._exit
        if exited is None:
            raise Defect("a destination's conversation ended without its exit")
        read_all = self._feed.ended_at is not None and not self._ended_early
        if exited.code == 0 and read_all:
            if not self._errors and not self._halted:
                self._covered += self._cover.ended_well()
            return PushEnd.finished
        if not self._errors:
            self._errors.append(
                DestinationError(
                    f"the destination {exit_words(exited)}",
                    code="destination.exited",
                    hint="what it had acknowledged is kept; run again to send the rest",
                )
            )
        undone = sorted(s.id for s in self._job.streams if s.id not in self._feed.done)
        if read_all and exited.code is not None and undone and not self._cover.left():
            self._protested(undone)
            return PushEnd.finished
        return PushEnd.failed

    def _protested(self, undone: list[StreamId]) -> None:
        """Notes errors that concern incomplete streams only. The destination has acked everything
        and fails because streams ended incomplete. Most destinations report this as a failure of
        their own, but it is the source's."""
        said = "; ".join(e.message for e in self._errors)
        shown = ", ".join(map(str, undone[:SHOWN])) + (", ..." if len(undone) > SHOWN else "")
        self._complaints.append(
            f"the destination acknowledged everything and then failed, as {shown} did not end"
            f" complete: {said}"
        )
        self._errors = []

    def _take(self, answer: Answer) -> None:
        match answer:
            case Ack():
                self._acks += 1
                self._covered += self._cover.acked(answer.seq)
                self._keys.update(answer.keys)
            case StreamAck():
                self._acks += 1
                self._covered += self._cover.stream_acked(answer.stream)
                self._keys.update(answer.keys)
            case Tick():
                self._write_acks()
            case LogEvent():
                said = (answer.message, answer.stack_trace)
                self._log(answer.level, "\n".join(text for text in said if text))
            case Error():
                self._log("ERROR", answer.message)
                self._ended_early |= answer.code == "destination.ended_early"
                self._errors.append(failed(answer, "destination"))
                self._retries.append(answer.retry)
            case SkippedItems():
                self._counted[answer.what] = self._counted.get(answer.what, 0) + answer.count
                if answer.stream is not None:
                    left_out = self._filtered.get(answer.stream, 0) + answer.count
                    self._filtered[answer.stream] = left_out
            case ConnectorMetrics(stream, series):
                name = None if stream is None else str(stream)
                self._metrics.append({"stream": name, "series": series})
            case Reject():
                self._rejects.add(answer)
            case GivesResults():
                self._gives_results = True
            case DestinationCounts():
                for stream, rows in self._row_counts.rejected(answer):
                    self._rejects.count(stream, rows)
            case StreamHalted():
                self._log("WARN", answer.message)
                self._halted.append((answer.stream, answer.message))
            case Control():
                self._mail.new_config(NewConfig(self._job.config_hash, answer.config))
            case ConnectorExited():
                self._exit = answer

    def _write_acks(self) -> None:
        if self._covered:
            reach("before-ack")
            rejects, rejected = self._rejects.take()
            keys = tuple(self._keys.items())
            acked = AckedSegments(
                segments=tuple(self._covered),
                rejects=rejects,
                rejected=rejected,
                filtered=tuple(sorted(self._filtered.items())),
                keys=keys,
                gives_results=self._gives_results,
            )
            self._mail.ack(acked)
            self._covered, self._filtered = [], {}
            reach("after-ack")

    def _progress(self) -> Progress:
        fed, sizes = dict(self._feed.rows), self._feed.bytes
        rows: list[tuple[str, int, int, int | None]] = [
            (stream.key, count, sizes.get(stream, 0), None) for stream, count in fed.items()
        ]
        return Progress(streams=rows, states=self._acks)

    def _log(self, level: str, message: str) -> None:
        self._event_log.log(level, message, "destination")

    def _stderr(self, line: str) -> None:
        self._event_log.log("INFO", line, "destination.stderr")

    def _notes(self) -> list[str]:
        notes = [*self._complaints]
        notes += [_counted_note(what, n) for what, n in sorted(self._counted.items())]
        notes += self._row_counts.notes()
        notes += [
            f"stream {stream}: {counted(n, 'value')} of {column} sent as null: NaN and infinities,"
            " which JSON does not have"
            for (stream, column), n in sorted(self._feed.nulls.items())
        ]
        if self._event_log.lost:
            notes.append(f"lines of the log that could not be written: {self._event_log.lost}")
        role = load(self._job.protocol).destination
        by_states = role is not None and role.acks_with_states
        if by_states and not self._acks and self._cover.left() and not self._halted:
            others = not self._counted.keys().isdisjoint(_NO_ACKS)
            gave = "no state back that it had been sent" if others else "no state back"
            notes.append(
                f"the destination gave {gave}, so none was saved: what it was sent is sent"
                " again by the next run (`acks: at_end` trusts its exit code instead)"
            )
        return notes


def _counted_note(what: str, count: int) -> str:
    words = _SAID.get(what)
    if words is None:
        return f"destination: {skipped_note(what, count)}"
    return f"{words} ({count} of them)"


def run_push(job: PushJob, orphaned: threading.Event) -> PushResult:
    """Runs one push. Raises ``LogError`` (``log.claimed``) where it ran before."""
    return PushRun(job, orphaned=orphaned).run()


def main() -> NoReturn:
    """Runs the job on stdin (``tasks.child_main``)."""
    carry_out(PushJob, run_push, lambda e: PushResult(end=PushEnd.failed, errors=[e]))
