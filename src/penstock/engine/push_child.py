"""A push task's process: feeds one destination connector from the log, as the driver orders.

Reads a ``PushJob`` from stdin, writes a ``PushResult`` to stdout; orders and acks go through the
mailbox (``engine.push_mail``). It stops when its stdin ends (whoever started it died), when the
driver's lease is old or when the run is cancelled. It decides nothing: what an ack covers is
written down for the driver, who saves states. Light on purpose, as ``engine.child``.
Neighbours: ``engine.task`` starts it, ``engine.push_feed`` draws the rows.
"""

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.connectors.launch import Launch, runtime_for
from penstock.connectors.masked import learning, mask_error, masked_event
from penstock.engine.events_log import EventLog
from penstock.engine.failpoints import reach
from penstock.engine.log import FileLog
from penstock.engine.mailbox import Mailbox, NewConfig, Progress
from penstock.engine.meter import MeteredRuntime, metered
from penstock.engine.peak import peak_bytes
from penstock.engine.push_cover import Cover
from penstock.engine.push_feed import OrderFeed
from penstock.engine.push_job import Acked, PushEnd, PushJob, PushResult
from penstock.engine.push_mail import PushMail
from penstock.engine.push_rejects import PushRejects
from penstock.engine.spawned import carry_out, ports
from penstock.errors import Defect, DestinationError, LogError, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Control,
    Counted,
    Error,
    Event,
    Exited,
    Log,
    Measured,
    Reject,
    Tick,
)
from penstock.model.segments import SegmentId
from penstock.protocols import load as load_protocol
from penstock.protocols.contract import Ack, Answer, WriteRequest
from penstock.protocols.feeding import failed, of_destination
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.state.keys import push_task

TICK_SECONDS = 0.2
PROGRESS_SECONDS = 1.0
SHOWN = 10


class Stopped(Exception):
    """Why the push gives up; never leaves this module."""


class Push:
    """One push job, carried out once."""

    def __init__(self, job: PushJob, *, orphaned: threading.Event) -> None:
        self._job, self._orphaned = job, orphaned
        root = Path(job.log_root)
        self._run = Mailbox(root, job.run)
        self._watch = self._run.lease_watch(time.monotonic)
        self._mail = PushMail(root, job.run, job.number)
        self._cover = Cover()
        self._feed = OrderFeed(FileLog(root), self._cover, job.streams, self._mail.next_order)
        self._masker = Masker(job.secrets)
        self._errors: list[PenstockError] = []
        self._complaints: list[str] = []
        self._counted: dict[str, int] = {}
        self._filtered: dict[StreamId, int] = {}  # not written yet
        self._metrics: list[dict[str, Any]] = []
        self._rejects = PushRejects(root, self._mail.folder, job.number)
        self._covered: list[SegmentId] = []  # not written yet
        self._keys: dict[str, int] = {}
        self._retries: list[float | None] = []
        self._acks = 0
        self._ended_early = False
        self._exit: Exited | None = None
        self._progress_at = 0.0

    def run(self) -> PushResult:
        began = time.monotonic()
        if self._watch.expired() or self._run.lease() is None or self._orphaned.is_set():
            raise LogError("the run that asked for this push is over", code="log.claimed")
        self._mail.claim(f"{os.uname().nodename}:{os.getpid()}")
        self._said = EventLog(self._mail.log_path(self._job.number), self._masker)
        launch = msgspec.convert(self._job.launch, Launch)
        at, task = self._job.keys, push_task(self._job.run, self._job.number)
        keys = None if at is None else ports(at, task)
        runtime = metered(runtime_for(launch, self._job.secrets, self._stderr, keys))
        try:
            end = self._converse(runtime)
        except PenstockError as e:
            end = PushEnd.failed
            self._errors.append(of_destination(e))
        rejects: tuple[str, ...] = ()
        try:
            self._write_acks()
            rejects, _ = self._rejects.take()
        except LogError as e:
            end = PushEnd.failed
            if e.code not in [told.code for told in self._errors]:
                self._errors.append(e)
        self._put_progress()
        self._said.close()
        return PushResult(
            end=end,
            fed=sorted(self._feed.rows.items()),
            unacked=sorted([*self._cover.left(), *self._covered]),
            errors=[e.as_dict() for e in self._errors],
            retry=self._retry() if end is PushEnd.failed else None,
            notes=self._notes(),
            metrics=self._metrics,
            rejects=list(rejects),
            stats=self._stats(runtime, began),
        )

    def _retry(self) -> float | None:
        """Where every failure may pass, and nothing else went wrong."""
        waits = [seconds for seconds in self._retries if seconds is not None]
        if not waits or len(waits) < len(self._errors):
            return None
        return max(waits)

    def _stats(self, runtime: MeteredRuntime | ComponentRuntime, began: float) -> dict[str, float]:
        """``destination_wait``: for it to read, and then for its end. ``encode``: reading parts
        and making lines."""
        now, ended_at = time.monotonic(), self._feed.ended_at
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "push": now - began,
            "destination_wait": runtime.write_seconds
            + (0.0 if ended_at is None else now - ended_at),
            "encode": max(self._feed.busy - runtime.write_seconds, 0.0),
            "bytes": float(runtime.written),
            "cpu": usage.ru_utime + usage.ru_stime,
            "peak_bytes": float(peak_bytes()),
        }

    def _converse(self, runtime: MeteredRuntime | ComponentRuntime) -> PushEnd:
        package = load_protocol(self._job.protocol)
        if package.destination is None:
            raise Defect(f"the protocol {self._job.protocol} has no destinations")
        request = WriteRequest(
            config=self._job.config,
            streams=self._job.streams,
            source_protocol=self._job.source_protocol,
            timeouts=self._job.timeouts,
            acks=self._job.acks,
            tick=TICK_SECONDS,
            activate_version=self._job.activate_version,
            attempt=self._job.attempt,
        )
        told = package.destination.write(runtime, request, self._feed.feed())
        answers = learning(self._masker, self._job.config, cast(Iterator[Event], told))
        with closing(answers):
            try:
                for answer in answers:
                    self._take(cast(Answer, masked_event(self._masker, answer)))
                    self._between()
            except Stopped as e:
                self._said.log("WARN", f"the push stops: {e}", "penstock")
                return PushEnd.cancelled
            except PenstockError as e:
                mask_error(self._masker, e)
                raise
        return self._verdict()

    def _verdict(self) -> PushEnd:
        exited = self._exit
        if exited is None:
            raise Defect("a destination's conversation ended without its exit")
        read_all = self._feed.ended_at is not None and not self._ended_early
        if exited.code == 0 and read_all:
            if not self._errors:
                self._covered += self._cover.ended_well()
            return PushEnd.finished
        if not self._errors:
            self._errors.append(_exit_error(exited))
        undone = sorted(s.id for s in self._job.streams if s.id not in self._feed.done)
        if read_all and exited.code is not None and undone and not self._cover.left():
            self._protested(undone)
            return PushEnd.finished
        return PushEnd.failed

    def _protested(self, undone: list[StreamId]) -> None:
        """It has everything and said so; that streams end incomplete is for most destinations a
        failure of their own, but not of theirs."""
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
            case Tick():
                self._write_acks()
            case Log():
                said = (answer.message, answer.stack_trace)
                self._log(answer.level, "\n".join(text for text in said if text))
            case Error():
                self._log("ERROR", answer.message)
                self._ended_early |= answer.raw.get("code") == "destination.ended_early"
                self._errors.append(failed(answer))
                self._retries.append(answer.retry)
            case Counted():
                self._counted[answer.what] = self._counted.get(answer.what, 0) + answer.count
                if answer.stream is not None:
                    left_out = self._filtered.get(answer.stream, 0) + answer.count
                    self._filtered[answer.stream] = left_out
            case Measured(stream, series):
                name = None if stream is None else str(stream)
                self._metrics.append({"stream": name, "series": series})
            case Reject():
                self._rejects.add(answer)
            case Control():
                self._mail.new_config(NewConfig(self._job.config_hash, answer.config))
            case Exited():
                self._exit = answer

    def _between(self) -> None:
        """Between answers: report, and stop where somebody wants it."""
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            self._put_progress()
            if self._run.cancelled():
                raise Stopped("the run was cancelled")
            if self._watch.expired():
                raise Stopped("the driver has not been heard of; its lease is old")
        if self._orphaned.is_set():
            raise Stopped("the process that started it is gone")

    def _write_acks(self) -> None:
        if self._covered:
            reach("before-ack")
            rejects, rejected = self._rejects.take()
            keys = tuple(self._keys.items())
            acked = Acked(
                segments=tuple(self._covered),
                rejects=rejects,
                rejected=rejected,
                filtered=tuple(sorted(self._filtered.items())),
                keys=keys,
            )
            self._mail.ack(acked)
            self._covered, self._filtered = [], {}
            reach("after-ack")

    def _put_progress(self) -> None:
        fed, sizes = dict(self._feed.rows), self._feed.bytes
        rows: list[tuple[str, int, int, int | None]] = [
            (stream.key, count, sizes.get(stream, 0), None) for stream, count in fed.items()
        ]
        self._mail.put_progress(self._job.number, Progress(streams=rows, states=self._acks))
        self._said.flush()

    def _log(self, level: str, message: str) -> None:
        self._said.log(level, message, "destination")

    def _stderr(self, line: str) -> None:
        self._said.log("INFO", line, "destination.stderr")

    def _notes(self) -> list[str]:
        notes = [*self._complaints]
        notes += [f"destination: {what}: {n}" for what, n in sorted(self._counted.items())]
        if self._said.lost:
            notes.append(f"lines of the log that could not be written: {self._said.lost}")
        if not self._acks and self._cover.left():
            notes.append(
                "the destination gave no state back, so none was saved: what it was sent is sent"
                " again by the next run (`acks: at_end` trusts its exit code instead)"
            )
        return notes


def _exit_error(exited: Exited) -> PenstockError:
    """Why a destination that did not end well failed, where it has not said so itself."""
    said = f"; its last words: {exited.stderr_tail.strip()}" if exited.stderr_tail.strip() else ""
    if exited.code is None:
        how = "was stopped"
    elif exited.code < 0:
        how = f"ended with signal {-exited.code}"
    else:
        how = f"ended with exit code {exited.code}"
    return DestinationError(
        f"the destination {how}{said}",
        code="destination.exited",
        hint="what it had acknowledged is kept; run again to send the rest",
    )


def run_push(job: PushJob, orphaned: threading.Event) -> PushResult:
    """One push. Raises ``LogError`` (``log.claimed``) where it ran before."""
    return Push(job, orphaned=orphaned).run()


if __name__ == "__main__":
    carry_out(PushJob, run_push, lambda e: PushResult(end=PushEnd.failed, errors=[e]))
