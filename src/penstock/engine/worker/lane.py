"""Runs a lane's process: reads one source once, decodes its records, seals segments, returns the
result.

Reads a ``LaneJob`` from stdin, writes a ``LaneResult`` to stdout; everything else goes through the
log and the mailbox. It stops when its stdin ends (its owner died), when the driver's lease is old
or when it is cancelled. Imports little on purpose: no pyspark, no SQLAlchemy, no command line.
Neighbours: ``tasks.child_process`` starts it, ``engine.worker.lane_events`` handles the
source's events, ``engine.worker.sealer`` decides what is sealed.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

from penstock.engine.channel.mailbox import Mailbox, Progress
from penstock.engine.log.log import FileLog
from penstock.engine.specs.lane import LaneEnd, LaneJob, LaneResult
from penstock.engine.worker.host_states import EveryState, HostStates, NewestStates
from penstock.engine.worker.lane_events import LaneEvents, measured
from penstock.engine.worker.lane_failures import FailureDecision
from penstock.engine.worker.part_writer import ThreadedPartWriter
from penstock.engine.worker.process import Stopped, WorkerProcess, exit_words
from penstock.engine.worker.read_ahead import ReadAhead
from penstock.engine.worker.retried_source import retried_events, write_ids
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.sealer import FatalReject, Sealer
from penstock.engine.worker.staged_source import staged_events
from penstock.engine.worker.warming import Warming
from penstock.errors import Defect, LogError, PenstockError, SourceError
from penstock.files import private
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.events import Event, Status, StreamStatus
from penstock.protocols import load
from penstock.protocols.failures import ENDED_HINTS
from penstock.protocols.reading import ReadRequest
from penstock.store.keys import lane_task
from penstock.tasks.child_main import carry_out
from penstock.tasks.storage import storage


class LimitReached(Exception):
    """Raised when every stream has as many records as the job's ``limit``; never leaves this
    module."""


PRELOADED = (
    "duckdb",
    "pyarrow.compute",
    "pyarrow.parquet",
    "penstock.codec.duckdb_call",
    "penstock.codec.exact_json",
    "penstock.codec.json_schema",
    "penstock.codec.parquet_parts",
    "penstock.protocols.stdio.connect",
    "penstock.protocols.airbyte.package",
    "penstock.protocols.airbyte.source",
    "penstock.protocols.airbyte.spec",
    "penstock.protocols.rapidbyte.spec",
    "penstock.protocols.singer.package",
    "penstock.protocols.singer.source",
    "penstock.protocols.singer.spec",
    "penstock.protocols.spark.spec",
    "penstock.protocols.syncmaven.spec",
)
"""Modules that most lanes import in time: ``tasks.fork_server`` has them loaded."""


class Lane:
    """Runs one epoch of one lane."""

    def __init__(self, job: LaneJob, *, orphaned: threading.Event) -> None:
        self._job = job
        self._mailbox = mailbox = Mailbox(Path(job.log_root), job.run, job.mail_key)
        self._process = WorkerProcess(job, mailbox, job.epoch, lane_task(job.epoch), orphaned)
        self._event_log = self._process.event_log
        self._log = FileLog(Path(job.log_root))
        self._streams = StreamDecoders(job)
        self._events = LaneEvents(job, mailbox, self._event_log, self._streams, self._between)
        self._transforming = None
        self._warming: Warming | None = None
        if job.transforms:
            from penstock.engine.worker.transforms.stages import Transforming

            self._transforming = Transforming(
                job, self._streams, self._process.connect_transform, self._process.go_on
            )

    def run(self) -> LaneResult:
        """Reads the source to its end and returns the result. Raises ``LogError`` (``log.claimed``)
        where another process has claimed the epoch (L4)."""
        self._process.begin(partial(self._log.claim, self._job.epoch))
        self._process.report(Progress())  # it has started
        parts = ThreadedPartWriter(self._log)
        whole = self._job.has_records and not self._job.transforms
        sealer: Sealer = Sealer(
            self._log,
            epoch=self._job.epoch,
            lane=self._job.lane,
            streams=[s.lane for s in self._job.streams],
            decode=self._streams.decode,
            clock=time.monotonic,
            bounds=self._job.bounds,
            on_data_error=self._job.on_data_error,
            any_status=self._job.served,
            now=lambda: datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            write=parts,
            host=self._host_states(),
            widen=lambda stream, missing: self._events.widened(stream, missing, sealer),
            whole=whole,
        )
        if not load(self._job.protocol).columnar:
            self._warming = Warming()
        read = self._source()
        try:
            with storage(self._log.root, "write to"):
                write_ids(self._log.root, self._job.epoch, self._job.retried, sealer)
                end, complete = self._converse(sealer, read)
        except (LogError, FatalReject) as e:
            self._process.secrets.mask_error(e)
            self._events.failures.found(e)
            end, complete = LaneEnd.failed, dict[StreamId, bool]()
        finally:
            parts.close()
        if self._transforming is not None:
            self._events.metrics += map(measured, self._transforming.measured())
        self._process.report(self._progress(sealer))
        if self._warming is not None:
            self._warming.finish()
        self._event_log.close()
        return self._result(end, complete, sealer)

    def _host_states(self) -> HostStates | None:
        """Returns the writer of states for a host; None: the source is no host."""
        if not self._job.served:
            return None
        path = self._mailbox.states_path(self._job.epoch)
        kind = EveryState if self._job.every_state else NewestStates
        return kind(private(path, "ab", buffering=0).write)

    def _result(
        self, end: LaneEnd, complete: Mapping[StreamId, bool], sealer: Sealer
    ) -> LaneResult:
        settled = self._settled(end, complete)
        return LaneResult(
            end=end,
            complete=sorted(s for s, done in complete.items() if done),
            read=sorted(self._events.read.items()),
            errors=[e.as_dict() for e in settled.errors],
            passing=[e.as_dict() for e in settled.passing],
            notes=self._events.notes(),
            metrics=self._events.metrics,
            expected=list(self._events.expected.items()),
            retries=settled.retries,
            in_doubt=self._events.in_doubt,
            stats=self._process.stats("extract")
            | {
                "start": self._process.traffic.first_byte_seconds,
                "source_wait": self._process.traffic.wait_seconds,
                "decode": self._streams.seconds,
                "bytes": float(self._process.traffic.bytes),
                "states": float(sealer.states),
                "segments": float(sealer.segments),
            },
        )

    def _settled(self, end: LaneEnd, complete: Mapping[StreamId, bool]) -> FailureDecision:
        """Separates final errors from those that a retry may fix. Retries no stream where a record
        was refused or the log could not be written."""
        names = [stream.id for stream in self._job.streams]
        kept = end is not LaneEnd.cancelled and bool(complete)
        return self._events.failures.settle([s for s in names if kept and not complete.get(s)])

    def _source(self) -> Callable[[], Iterator[Event]]:
        """Returns a function that begins to read the lane's source."""
        if retried := self._job.retried:
            return partial(retried_events, retried, self._process.traffic)
        if (staged := self._job.staged) is not None:
            return partial(staged_events, staged, self._job.streams[0].id, self._process.traffic)
        if (read := self._job.queried) is not None:
            from penstock.engine.worker.database_source import database_events

            return partial(database_events, read, self._job.streams[0].id, self._process.traffic)
        connection = self._process.connect(self._event_log.stderr)
        return lambda: connection.read(self._request())

    def _converse(
        self, sealer: Sealer, read: Callable[[], Iterator[Event]]
    ) -> tuple[LaneEnd, Mapping[StreamId, bool]]:
        """Reads to the end, or until something stops the lane; seals what may be kept in both
        cases."""
        ahead = ReadAhead(read())
        events: Iterator[Event] = ahead
        if self._transforming is not None:
            events = self._transforming.events(ahead)
        try:
            for event in events:
                self._events.take(event, sealer)
                self._between(sealer)
        except Stopped as e:
            self._event_log.log("WARN", f"the lane stops: {e}")
            return LaneEnd.cancelled, sealer.finish(clean=False)
        except LimitReached:
            for stream in self._events.read:
                sealer.status(StreamStatus(stream, Status.complete))
            return LaneEnd.finished, sealer.finish(clean=True)
        except (LogError, FatalReject):
            raise
        except PenstockError as e:
            self._events.failures.found(e)
            return LaneEnd.failed, sealer.finish(clean=False)
        finally:
            if isinstance(events, Generator):
                events.close()
            ahead.close()
        clean = self._ended_well()
        try:
            complete = sealer.finish(clean=clean)
        except Stopped as e:
            self._event_log.log("WARN", f"the lane stops: {e}")
            return LaneEnd.cancelled, {}
        if clean:
            self._events.miss_versions(complete)
        return (LaneEnd.finished if clean else LaneEnd.failed), complete

    def _request(self) -> ReadRequest:
        return ReadRequest(
            config=self._job.config,
            streams=tuple(s.configured for s in self._job.streams),
            states=self._job.states,
            timeouts=self._job.timeouts,
            max_record_bytes=self._job.max_record_bytes,
            spool_folder=str(self._log.rejects_folder(self._job.epoch)),
            open=self._job.open,
            tries=dict(self._job.tries),
            attempts=self._job.attempts,
            backoff=self._job.backoff,
            refuses=self._job.served and self._job.on_data_error == "fail",
            limit=self._job.limit,
            dry_run=self._job.dry,
            shards={s.id: s.lane.shard for s in self._job.streams if s.lane.shard is not None},
            abilities=self._job.abilities,
            unchosen=self._job.unchosen,
        )

    def _ended_well(self) -> bool:
        """Returns whether the source's end completes its streams without a status (L6); if not, an
        error has the reason."""
        clean = self._events.exit is not None and self._events.exit.code == 0
        spoke = self._process.traffic.spoke
        if clean and self._events.failures:
            # The source reported a failure without its stream: exit code 0 is no proof that a
            # stream without a status is complete (L6).
            clean = False
        elif clean and not spoke and (self._overwrites() or not self._job.served):
            # Even an empty sync prints a message; a silent source must not empty a table (L6).
            clean = False
            self._events.failures.found(_silent())
        elif not clean:
            self._ended_badly()
        return clean

    def _overwrites(self) -> bool:
        dispositions = [job.lane.disposition for job in self._job.streams]
        overwrite = DestinationSyncMode.overwrite
        return any(s.replaces or s.refreshes or s.mode is overwrite for s in dispositions)

    def _between(self, sealer: Sealer) -> None:
        if self._warming is not None:
            self._warming.check()
        self._process.between(partial(self._progress, sealer))
        limit, read = self._job.limit, self._events.read
        if sealer.widening:
            return  # rows wait, and the end must not overtake them
        if limit is not None and read and all(n >= limit for n in read.values()):
            raise LimitReached

    def _progress(self, sealer: Sealer) -> Progress:
        return Progress(
            streams=self._events.progress(),
            states=sealer.states,
            stream_states=[(s.key, n) for s, n in sealer.states_of.items()],
            segments=sealer.segments,
            expected=list(self._events.expected.items()),
        )

    def _ended_badly(self) -> None:
        """Adds an error for a source that did not end cleanly and sent no error itself."""
        exited, failures = self._events.exit, self._events.failures
        if exited is None and not any(e.stream is None for e in failures):
            raise Defect("a source's conversation ended without its exit")
        if exited is not None and not failures:
            how = exit_words(exited)
            hint = ENDED_HINTS["source"]
            failures.found(SourceError(f"the source {how}", code="source.exited", hint=hint))


def _silent() -> PenstockError:
    return SourceError(
        "the source printed nothing at all and ended with exit code 0",
        code="source.silent",
        hint="check that it is a connector of this protocol; its tables were not changed",
    )


def run_lane(job: LaneJob, orphaned: threading.Event) -> LaneResult:
    """Runs one epoch. Raises ``LogError`` (``log.claimed``) where it ran before."""
    return Lane(job, orphaned=orphaned).run()


def main() -> NoReturn:
    """Runs the job on stdin (``tasks.child_main``)."""
    carry_out(LaneJob, run_lane, lambda e: LaneResult(end=LaneEnd.failed, errors=[e]))
