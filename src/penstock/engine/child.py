"""A lane's process: runs one connector once, decodes, seals, and says how it went.

Reads a ``LaneJob`` from stdin, writes a ``LaneResult`` to stdout; everything else goes through the
log and the mailbox. It stops when its stdin ends (whoever started it died), when the driver's
lease is old or when it is cancelled. Light on purpose: no pyspark, no SQLAlchemy, no command line.
Neighbours: ``engine.task`` starts it, ``engine.lane_events`` takes what the source says,
``engine.sealer`` does the bookkeeping.
"""

import os
import resource
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.codec.decode import warm
from penstock.connectors.launch import Launch, runtime_for
from penstock.connectors.masked import learning, mask_error, masked_event
from penstock.engine.ahead import Ahead
from penstock.engine.decoding import Streams
from penstock.engine.events_log import EventLog
from penstock.engine.job import LaneEnd, LaneJob, LaneResult
from penstock.engine.lane_events import KEPT, LaneEvents, measured
from penstock.engine.log import FileLog, storage
from penstock.engine.mailbox import Mailbox, Progress
from penstock.engine.meter import MeteredRuntime, metered
from penstock.engine.peak import peak_bytes
from penstock.engine.sealer import Refused, Sealer
from penstock.engine.spawned import carry_out, ports
from penstock.errors import Defect, LogError, PenstockError, SourceError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.events import Event, Measured, Status, StreamStatus
from penstock.protocols import load as load_protocol
from penstock.protocols.contract import ReadRequest
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.state.keys import lane_task

PROGRESS_SECONDS = 1.0


class Stopped(Exception):
    """Why the lane gives up; never leaves this module."""


class Enough(Exception):
    """Every stream gave as many records as were asked for; never leaves this module."""


class Lane:
    """One epoch of one lane."""

    def __init__(self, job: LaneJob, *, orphaned: threading.Event) -> None:
        self._job, self._orphaned = job, orphaned
        self._mailbox = Mailbox(Path(job.log_root), job.run)
        self._watch = self._mailbox.lease_watch(time.monotonic)
        self._log = FileLog(Path(job.log_root))
        self._masker = Masker(job.secrets)
        self._said = EventLog(self._mailbox.log_path(job.epoch), self._masker)
        self._progress_at = 0.0
        self._streams = Streams(job)
        self._heard = LaneEvents(job, self._mailbox, self._said, self._streams, self._between)
        self._keys = None if job.keys is None else ports(job.keys, lane_task(job.epoch))
        self._transforming = None
        if job.transforms:
            from penstock.engine.transforming import Transforming

            self._transforming = Transforming(job, self._streams, self._said.stderr, self._keys)

    def run(self) -> LaneResult:
        began = time.monotonic()
        if self._watch.expired() or self._mailbox.lease() is None or self._orphaned.is_set():
            raise LogError("the run that asked for this epoch is over", code="log.claimed")
        self._log.claim(self._job.epoch, f"{os.uname().nodename}:{os.getpid()}")
        self._mailbox.put_progress(self._job.epoch, Progress())  # it has started
        sealer = Sealer(
            self._log,
            epoch=self._job.epoch,
            lane=self._job.lane,
            streams=[s.lane for s in self._job.streams],
            decode=self._streams.decode,
            clock=time.monotonic,
            bounds=self._job.bounds,
            on_data_error=self._job.on_data_error,
            now=lambda: datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
        warming = threading.Thread(target=warm, daemon=True)
        warming.start()
        launch = msgspec.convert(self._job.launch, Launch)
        runtime = metered(runtime_for(launch, self._job.secrets, self._said.stderr, self._keys))
        try:
            with storage(self._log.root, "write to"):
                end, complete = self._converse(sealer, runtime)
        except (LogError, Refused) as e:
            mask_error(self._masker, e)
            self._heard.errors.append(e)
            end, complete = LaneEnd.failed, dict[StreamId, bool]()
        if self._transforming is not None:
            said = (masked_event(self._masker, m) for m in self._transforming.measured())
            self._heard.metrics += [measured(m) for m in said if isinstance(m, Measured)]
        self._put_progress(sealer)
        warming.join(timeout=60)
        self._said.close()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return LaneResult(
            end=end,
            complete=sorted(s for s, done in complete.items() if done),
            read=sorted(self._heard.read.items()),
            errors=[e.as_dict() for e in self._heard.errors],
            notes=self._heard.notes(),
            metrics=self._heard.metrics,
            retries=sorted(self._heard.retries.items()),
            stats={
                "start": runtime.first_byte_seconds,
                "extract": time.monotonic() - began,
                "source_wait": runtime.wait_seconds,
                "decode": self._streams.seconds,
                "bytes": float(runtime.bytes),
                "states": float(sealer.states),
                "segments": float(sealer.segments),
                "cpu": usage.ru_utime + usage.ru_stime,
                "peak_bytes": float(peak_bytes()),
            },
        )

    def _converse(
        self, sealer: Sealer, runtime: MeteredRuntime | ComponentRuntime
    ) -> tuple[LaneEnd, Mapping[StreamId, bool]]:
        """Read to the end, or until something stops us; what may be kept is sealed either way."""
        request = ReadRequest(
            config=self._job.config,
            streams=tuple(s.configured for s in self._job.streams),
            states=self._job.states,
            timeouts=self._job.timeouts,
            max_record_bytes=self._job.max_record_bytes,
            spool_folder=str(self._log.rejects_folder(self._job.epoch)),
            open=self._job.open,
            tries=dict(self._job.tries),
            limit=self._job.limit,
            dry_run=self._job.dry,
            shards={s.id: s.lane.shard for s in self._job.streams if s.lane.shard is not None},
            abilities=self._job.abilities,
            unchosen=self._job.unchosen,
        )
        told = load_protocol(self._job.protocol).source.read(runtime, request)
        ahead = Ahead(learning(self._masker, self._job.config, told))
        events: Iterator[Event] = ahead
        if self._transforming is not None:
            events = self._transforming.events(ahead)
        try:
            for event in events:
                self._heard.take(masked_event(self._masker, event), sealer)
                self._between(sealer)
        except Stopped as e:
            self._said.log("WARN", f"the lane stops: {e}")
            return LaneEnd.cancelled, sealer.finish(clean=False)
        except Enough:
            for stream in self._heard.read:
                sealer.status(StreamStatus(stream, Status.complete))
            return LaneEnd.finished, sealer.finish(clean=True)
        except (LogError, Refused):
            raise
        except PenstockError as e:
            self._heard.errors.append(e)
            return LaneEnd.failed, sealer.finish(clean=False)
        finally:
            if isinstance(events, Generator):
                events.close()
            ahead.close()
        clean = self._heard.exit is not None and self._heard.exit.code == 0
        if clean and self._heard.errors:
            # Something is missing, and whose it was the source did not say: exit code 0 is no
            # proof that a stream without a status is whole (L6).
            clean = False
        elif clean and not runtime.spoke and (self._overwrites() or not self._job.served):
            # Not even an empty sync is silent: this must not pass for one that empties tables (L6).
            clean = False
            self._heard.errors.append(_silent())
        elif not clean:
            self._heard.errors += self._exit_error()
        return (LaneEnd.finished if clean else LaneEnd.failed), sealer.finish(clean=clean)

    def _overwrites(self) -> bool:
        shapes = [job.lane.shape for job in self._job.streams]
        return any(s.replaces or s.mode is DestinationSyncMode.overwrite for s in shapes)

    def _between(self, sealer: Sealer) -> None:
        """Between events: report, and stop where somebody wants it."""
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            self._put_progress(sealer)
            if self._mailbox.cancelled():
                raise Stopped("the run was cancelled")
            if self._watch.expired():
                raise Stopped("the driver has not been heard of; its lease is old")
        if self._orphaned.is_set():
            raise Stopped("the process that started it is gone")
        limit, read = self._job.limit, self._heard.read
        if limit is not None and read and all(n >= limit for n in read.values()):
            raise Enough

    def _put_progress(self, sealer: Sealer) -> None:
        rows = self._heard.progress()
        progress = Progress(streams=rows, states=sealer.states, segments=sealer.segments)
        self._mailbox.put_progress(self._job.epoch, progress)
        self._said.flush()

    def _exit_error(self) -> list[PenstockError]:
        """Why a source that did not end cleanly failed, where it has not said so itself."""
        exited = self._heard.exit
        if any(e.stream is None for e in self._heard.errors) or (exited and exited.code is None):
            return [] if self._heard.errors else [SourceError("the source was stopped")]
        if exited is None or exited.code is None:
            raise Defect("a source's conversation ended without its exit")
        how = f"signal {-exited.code}" if exited.code < 0 else f"exit code {exited.code}"
        said = f"; its last words: {exited.stderr_tail.strip()}" if exited.stderr_tail else ""
        error = SourceError(
            f"the source ended with {how}{said}",
            code="source.exited",
            hint=KEPT,
        )
        return [] if self._heard.errors else [error]


def _silent() -> PenstockError:
    return SourceError(
        "the source printed nothing at all and ended with exit code 0",
        code="source.silent",
        hint="is it a connector of this protocol? Nothing was changed in its tables",
    )


def run_lane(job: LaneJob, orphaned: threading.Event) -> LaneResult:
    """One epoch. Raises ``LogError`` (``log.claimed``) where it ran before."""
    return Lane(job, orphaned=orphaned).run()


if __name__ == "__main__":
    carry_out(LaneJob, run_lane, lambda e: LaneResult(end=LaneEnd.failed, errors=[e]))
