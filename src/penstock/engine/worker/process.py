"""Provides what lanes and feeders share: their run, the connection to their connector, the log, the
progress.

Stops the process when its run is over: it was cancelled, the driver's lease is old, or the owner of
the process is gone (L11). Masks secrets in everything that is logged, and reports progress once a
second. Not here: the conversation with the connector. Neighbours: ``engine.worker.lane`` (a source)
and ``engine.worker.feeder`` (a destination) hold one each; ``tasks.child_main`` starts them.
"""

import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.connectors.launch import Launch, connect
from penstock.engine.channel.connector_log import EventLog
from penstock.engine.channel.mailbox import Mailbox, Progress
from penstock.engine.specs.feeder import PushJob
from penstock.engine.specs.lane import KeysAt, LaneJob
from penstock.errors import LogError
from penstock.model.events import ConnectorExited
from penstock.protocols.connection import Connection
from penstock.runtimes.contract import ConnectionStats
from penstock.runtimes.masking import Masker
from penstock.runtimes.worker_name import worker_namer
from penstock.store.keys import OpenKeys
from penstock.tasks.peak import peak_bytes

PROGRESS_SECONDS = 1.0


class Stopped(Exception):
    """Raised where the process must stop; never leaves the process."""


class WorkerProcess:
    """A lane's or a feeder's process. ``mail``: takes progress and log, under ``number``. ``task``:
    the name under which a connector's keys are written. ``event_log``: the connector's log.
    ``secrets``: one masker for everything that writes a log, since connections add secrets to it.
    ``traffic``: seconds and bytes of the connection."""

    def __init__(
        self,
        job: LaneJob | PushJob,
        mail: Mailbox,
        number: int,
        task: str,
        orphaned: threading.Event,
    ) -> None:
        self._job, self._mail, self._number, self._orphaned = job, mail, number, orphaned
        self._run = Mailbox(Path(job.log_root), job.run)
        self._watch = self._run.lease_watch(time.monotonic)
        self._began = self._progress_at = 0.0
        self.secrets, self.traffic = Masker(job.secrets), ConnectionStats()
        self.event_log = EventLog(mail.log_path(number), self.secrets)
        self._keys: OpenKeys | None = None if job.keys is None else _opener(job.keys, task)

    def begin(self, claim: Callable[[str], None]) -> None:
        """Makes this process the only one of its job; ``claim`` gets the process's name. Raises
        ``LogError`` (``log.claimed``) where the run is over, and what ``claim`` raises."""
        self._began = time.monotonic()
        if self._watch.expired() or self._run.lease() is None or self._orphaned.is_set():
            raise LogError("the run that started this job is over", code="log.claimed")
        claim(f"{worker_namer()()}, process {os.getpid()}")

    def connect(self, stderr: Callable[[str], None]) -> Connection:
        """Connects to the job's connector."""
        launch = msgspec.convert(self._job.launch, Launch)
        return connect(launch, self.secrets, self.traffic, stderr=stderr, keys=self._keys)

    def connect_transform(self, launch: Launch) -> Connection:
        """Connects to a transform connector in the same process; its seconds and bytes are not
        counted."""
        stderr, stats = self.event_log.stderr, ConnectionStats()
        return connect(launch, self.secrets, stats, stderr=stderr, keys=self._keys)

    def between(self, progress: Callable[[], Progress]) -> None:
        """Reports progress once a second, and raises :class:`Stopped` where the process must stop;
        called between events."""
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            self.report(progress())
            self.go_on()
        self._owned()

    def go_on(self) -> None:
        """Raises :class:`Stopped` where the process must stop."""
        if self._run.cancelled():
            raise Stopped("the run was cancelled")
        if self._watch.expired():
            raise Stopped("the driver gives no sign of life; its lease is old")
        self._owned()

    def _owned(self) -> None:
        if self._orphaned.is_set():
            raise Stopped("the process that started it is gone")

    def report(self, progress: Progress) -> None:
        """Writes progress and flushes the log."""
        self._mail.put_progress(self._number, progress)
        self.event_log.flush()

    def stats(self, whole: str) -> dict[str, float]:
        """Returns figures for the report: seconds since the begin, under the name ``whole``;
        ``cpu`` seconds; ``peak_bytes``."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            whole: time.monotonic() - self._began,
            "cpu": usage.ru_utime + usage.ru_stime,
            "peak_bytes": float(peak_bytes()),
        }


def exit_words(exited: ConnectorExited) -> str:
    """Describes how a connector ended, with the end of its stderr."""
    tail = exited.stderr_tail.strip()
    said = f"; its last output: {tail}" if tail else ""
    if exited.code is None:
        return f"was stopped{said}"
    if exited.code < 0:
        return f"ended with signal {-exited.code}{said}"
    return f"ended with exit code {exited.code}{said}"


def _opener(at: KeysAt, task: str) -> OpenKeys:
    """Returns a function that opens the store of a connector's own keys for ``task``."""
    from penstock.store.task_keys import open_keys

    return lambda: open_keys(at.url, at.pipeline, task, dry=at.dry)
