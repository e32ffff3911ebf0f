"""A lane's process: runs one connector once, decodes, seals, and says how it went.

Reads a ``LaneJob`` from stdin, writes a ``LaneResult`` to stdout; everything else goes through the
log and the mailbox. It stops when its stdin ends (whoever started it died), when the driver's
lease is old or when it is cancelled. Light on purpose: no pyspark, no SQLAlchemy, no command line.
Neighbours: ``engine.task`` starts it, ``engine.sealer`` does its bookkeeping.
"""

import os
import resource
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock.codec.decode import warm
from penstock.connectors.launch import Launch, runtime_for
from penstock.connectors.masked import learning, mask_error, masked_event
from penstock.engine.ahead import Ahead
from penstock.engine.decoding import Streams
from penstock.engine.events_log import EventLog
from penstock.engine.job import LaneEnd, LaneJob, LaneResult, StreamAnswer, StreamJob
from penstock.engine.log import FileLog, storage
from penstock.engine.mailbox import Ask, Mailbox, NewConfig, Progress
from penstock.engine.meter import MeteredRuntime, metered
from penstock.engine.peak import peak_bytes
from penstock.engine.sealer import Refused, Sealer
from penstock.engine.spawned import carry_out, ports
from penstock.errors import Defect, LogError, PenstockError, SourceError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.events import (
    Activate,
    Batch,
    Control,
    Counted,
    Error,
    Estimate,
    Event,
    Exited,
    Log,
    Measured,
    Reject,
    Schema,
    State,
    Status,
    StreamStatus,
    Tick,
)
from penstock.protocols import load as load_protocol
from penstock.protocols.contract import ReadRequest
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.state.keys import lane_task

PROGRESS_SECONDS = 1.0
ASK_SECONDS = 0.05
_OURS = ("code", "hint", "where")
_KEPT = "what it had finished is kept; run again to go on from the saved state"


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
        self._read = {s.id: 0 for s in job.streams}
        self._bytes = {s.id: 0 for s in job.streams}
        self._estimates: dict[StreamId, int] = {}
        self._counted: dict[str, int] = {}
        self._metrics: list[dict[str, Any]] = []
        self._retries: dict[StreamId, float] = {}
        self._errors: list[PenstockError] = []
        self._configs, self._asked = 0, 0
        self._versions: dict[StreamId, int] = {}
        self._states: int | None = None
        if job.served:
            path = self._mailbox.states_path(job.epoch)
            self._states = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._exit: Exited | None = None
        self._progress_at = 0.0
        self._streams = Streams(job)
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
            self._errors.append(e)
            end, complete = LaneEnd.failed, dict[StreamId, bool]()
        if self._transforming is not None:
            said = (masked_event(self._masker, m) for m in self._transforming.measured())
            self._metrics += [measured(m) for m in said if isinstance(m, Measured)]
        self._put_progress(sealer)
        warming.join(timeout=60)
        self._said.close()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return LaneResult(
            end=end,
            complete=sorted(s for s, done in complete.items() if done),
            read=sorted(self._read.items()),
            errors=[e.as_dict() for e in self._errors],
            notes=self._notes(),
            metrics=self._metrics,
            retries=sorted(self._retries.items()),
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
                self._take(masked_event(self._masker, event), sealer)
                self._between(sealer)
        except Stopped as e:
            self._said.log("WARN", f"the lane stops: {e}")
            return LaneEnd.cancelled, sealer.finish(clean=False)
        except Enough:
            for stream in self._read:
                sealer.status(StreamStatus(stream, Status.complete))
            return LaneEnd.finished, sealer.finish(clean=True)
        except (LogError, Refused):
            raise
        except PenstockError as e:
            self._errors.append(e)
            return LaneEnd.failed, sealer.finish(clean=False)
        finally:
            if isinstance(events, Generator):
                events.close()
            ahead.close()
        clean = self._exit is not None and self._exit.code == 0
        if clean and self._errors:
            # Something is missing, and whose it was the source did not say: exit code 0 is no
            # proof that a stream without a status is whole (L6).
            clean = False
        elif clean and not runtime.spoke and (self._overwrites() or not self._job.served):
            # Not even an empty sync is silent: this must not pass for one that empties tables (L6).
            clean = False
            self._errors.append(_silent())
        elif not clean:
            self._errors += self._exit_error()
        return (LaneEnd.finished if clean else LaneEnd.failed), sealer.finish(clean=clean)

    def _overwrites(self) -> bool:
        shapes = [job.lane.shape for job in self._job.streams]
        return any(s.replaces or s.mode is DestinationSyncMode.overwrite for s in shapes)

    def _take(self, event: Event, sealer: Sealer) -> None:
        match event:
            case Batch() if event.stream not in self._streams.jobs:
                self._count(f"stream_not_configured:{event.stream}", len(event.bodies))
            case Batch():
                self._turn(event.stream, event.version, sealer)
                batch = self._within_limit(event)
                self._read[batch.stream] += batch.read
                self._bytes[batch.stream] += batch.size
                if batch.read or len(batch.bodies) or batch.keys:
                    sealer.batch(batch)
            case State():
                if event.scope.stream is None and not self._job.shared_states:
                    raise SourceError(
                        "the source shares one state between its streams: they cannot be read in "
                        "several lanes",
                        code="source.shared_state",
                        hint="set `lanes: 1`",
                    )
                if self._states is not None:
                    line = msgspec.json.encode([event.scope.key, event.blob])
                    os.write(self._states, line + b"\n")
                sealer.state(event)
            case Schema():
                self._retold(event, sealer)
            case Activate():
                self._activated(event, sealer)
            case Tick():
                sealer.tick()
            case StreamStatus():
                sealer.status(event)
            case Reject():
                if event.stream in self._read:
                    self._read[event.stream] += event.records or 0
                sealer.reject(event)
            case Control():
                self._configs += 1
                new = NewConfig(self._job.config_hash, event.config)
                self._mailbox.put_config(self._job.epoch, self._configs, new)
            case Estimate():
                if event.stream is not None and event.rows is not None:
                    self._estimates[event.stream] = event.rows
            case Log():
                said = (event.message, event.stack_trace)
                self._said.log(event.level, "\n".join(text for text in said if text))
            case Error():
                self._said.log("ERROR", event.message)
                self._errors.append(_source_error(event))
                if event.stream is not None and event.retry is not None:
                    self._retries[event.stream] = event.retry
            case Counted():
                self._count(event.what, event.count)
            case Measured():
                self._metrics.append(measured(event))
            case Exited():
                self._exit = event

    def _count(self, what: str, count: int) -> None:
        self._counted[what] = self._counted.get(what, 0) + count

    def _retold(self, told: Schema, sealer: Sealer) -> None:
        """A schema that the driver has not heard of: it says how the stream goes on. Records wait
        meanwhile. A stream that is not wanted stays unknown."""
        answer = self._asking(
            Ask(
                number=self._asked + 1,
                stream=told.stream,
                json_schema=told.json_schema,
                primary_key=told.primary_key,
                cursor_field=told.cursor_field,
                version=self._versions.get(told.stream),
                showed=told.showed,
            ),
            sealer,
        )
        if answer is not None:
            sealer.stream(answer.lane)
            self._streams.learn(answer)
            self._read.setdefault(told.stream, 0)
            self._bytes.setdefault(told.stream, 0)

    def _asking(self, ask: Ask, sealer: Sealer) -> StreamJob | None:
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
        """Records of another version begin. A full refresh is one version by itself."""
        job = self._streams.jobs[stream]
        if (
            version is None
            or version == self._versions.get(stream)
            or job.configured.fills_generation
        ):
            return
        ask = Ask(number=self._asked + 1, stream=stream, version=version)
        answer = self._asking(ask, sealer)
        if answer is not None:
            self._versions[stream] = version
            self._streams.learn(answer)
            sealer.stream(answer.lane)

    def _activated(self, event: Activate, sealer: Sealer) -> None:
        """Before any row of its version it says nothing yet: the table keeps its rows until the new
        ones are all here, which a second one, or the source's good end, says (L6)."""
        stream = event.stream
        job = self._streams.jobs.get(stream)
        if job is None or not self._read[stream]:
            return
        if job.configured.fills_generation:
            sealer.complete(stream)
            return
        lane = job.lane
        came = event.version == self._versions.get(stream)  # rows of it, in this epoch
        if came and lane.fills_generation and lane.version == event.version:
            live = msgspec.structs.replace(lane, fills_generation=False, must_say=False)
            sealer.activate(live)
            self._streams.learn(msgspec.structs.replace(job, lane=live))

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
        limit = self._job.limit
        if limit is not None and self._read and all(n >= limit for n in self._read.values()):
            raise Enough

    def _within_limit(self, batch: Batch) -> Batch:
        """Its first records, as many as ``limit`` leaves."""
        limit = self._job.limit
        left = len(batch.bodies) if limit is None else max(limit - self._read[batch.stream], 0)
        if left >= len(batch.bodies):
            return batch
        bodies = batch.bodies[:left]
        changes = {index: raw for index, raw in batch.changes.items() if index < left}
        size = sum(map(len, bodies))
        return Batch(batch.stream, bodies, batch.extracted_at[:left], changes, size)

    def _put_progress(self, sealer: Sealer) -> None:
        rows = [
            (s.key, n, self._bytes[s], self._estimates.get(s)) for s, n in self._read.items() if n
        ]
        progress = Progress(streams=rows, states=sealer.states, segments=sealer.segments)
        self._mailbox.put_progress(self._job.epoch, progress)
        self._said.flush()

    def _exit_error(self) -> list[PenstockError]:
        """Why a source that did not end cleanly failed, where it has not said so itself."""
        exited = self._exit
        if any(e.stream is None for e in self._errors) or (exited and exited.code is None):
            return [] if self._errors else [SourceError("the source was stopped")]
        if exited is None or exited.code is None:
            raise Defect("a source's conversation ended without its exit")
        how = f"signal {-exited.code}" if exited.code < 0 else f"exit code {exited.code}"
        said = f"; its last words: {exited.stderr_tail.strip()}" if exited.stderr_tail else ""
        error = SourceError(
            f"the source ended with {how}{said}",
            code="source.exited",
            hint=_KEPT,
        )
        return [] if self._errors else [error]

    def _notes(self) -> list[str]:
        notes = [f"{what}: {n}" for what, n in sorted(self._counted.items())]
        if self._said.lost:
            notes.append(f"lines of the log that could not be written: {self._said.lost}")
        return [*notes, *self._streams.notes()]


def _source_error(event: Error) -> PenstockError:
    """A source's failure: in its own words, or a limit or a rule of ours that it broke (``raw`` has
    a ``code`` that begins with ``source.`` or ``transform.``, and maybe a ``hint``, a ``where`` and
    the ``connector``'s fields)."""
    code, hint = event.raw.get("code"), event.raw.get("hint")
    own = "category" in event.raw  # the connector's own error, which has a code of its own
    ours = isinstance(code, str) and code.startswith(("source.", "transform.")) and not own
    if not ours:
        code = f"source.{event.failure_type or 'failed'}"
    told = {k: v for k, v in event.raw.items() if not (ours and k in _OURS)}
    return SourceError(
        event.message,
        code=code,
        hint=(hint or _KEPT) if ours else None,
        where=event.raw.get("where") if ours else None,
        stream=None if event.stream is None else str(event.stream),
        connector=(told.get("connector", told) if ours else told) or None,
    )


def measured(event: Measured) -> dict[str, Any]:
    """For the report."""
    stream = None if event.stream is None else str(event.stream)
    return {"stream": stream, "series": event.series}


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
