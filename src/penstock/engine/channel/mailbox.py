"""Exchanges progress, cancellation, questions and answers between the driver and running lanes:
small files next to the log, on the storage they share.

Works on every cluster and through Spark Connect, and survives a SIGKILLed driver: a lane stops when
the lease file has not changed for :data:`LEASE_SECONDS` by the lane's own clock, so clocks need not
agree. Files are written whole and renamed, mode 0600. Neighbours: ``engine.worker.lane`` (a lane),
``engine.run.lane_runner`` and ``engine.channel.heartbeat`` (the driver). One folder a run::

    mailbox/RUN/lease                 random bytes, rewritten every few seconds by the driver
    mailbox/RUN/cancel                exists: every lane stops
    mailbox/RUN/progress-EPOCH.json   once a second at most
    mailbox/RUN/config-EPOCH-N        a connector's new configuration: encrypted, until it is stored
    mailbox/RUN/states-EPOCH.jsonl    every state that the lane read, where each is sent back
    mailbox/RUN/log-EPOCH.jsonl       the connector's log, tailed into the run's log
    mailbox/RUN/ask-EPOCH-N.json      the source sent a stream or a schema that is not in the lane's
                                      job: the lane waits for answer-EPOCH-N.json
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.engine.specs.lane import Expected, LaneQuestion, NewConfig
from penstock.errors import LogError
from penstock.files import make_folder, replace
from penstock.model.catalog import StreamId
from penstock.tasks.job_file import hide, show

LEASE_SECONDS = 30.0
BEAT_SECONDS = 5.0
_CONFIG = re.compile(r"config-\d+-\d+")  # not the copies that a sync tool leaves


class Progress(msgspec.Struct, kw_only=True):
    """Counts since the epoch began. ``streams``: (stream key, rows, bytes, estimated rows).
    ``stream_states``: (stream key, states of the stream alone). ``expected``: the source's
    estimates, per stream or (None) of all streams together."""

    streams: list[tuple[str, int, int, int | None]] = []
    stream_states: list[tuple[str, int]] = []
    expected: list[tuple[StreamId | None, Expected]] = []
    states: int = 0
    segments: int = 0


class Activity(msgspec.Struct, kw_only=True):
    """What a run does. ``phase``: ``extract``, ``load``, ``push`` or ``finish``. ``began``: when
    the run did, in seconds since 1970. ``spent``: the seconds of the phases before the first
    lane, by their names in the report (``TimeSpent``)."""

    phase: str
    began: float
    spent: dict[str, float] = {}


class Mailbox:
    """Reads and writes the files of one run. ``key``: encrypts configurations; the state store has
    it, the log does not, and a task gets it with its job."""

    def __init__(self, log_root: Path, run: str, key: bytes = b"") -> None:
        self.log_root, self.run, self.key = log_root, run, key
        self.folder = log_root / "mailbox" / run

    def create(self) -> None:
        """Creates the run's folder and its lease file."""
        make_folder(self.folder, 0o700)  # or a power cut takes it with a configuration
        self.beat()

    def remove(self) -> None:
        """Deletes the run's folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _get(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except OSError:  # absent, or not readable at the moment: the caller retries in both cases
            return None

    # -- the driver's side

    def put_activity(self, activity: Activity) -> None:
        """Writes what the run does; skipped where it cannot be written, since it is only
        displayed."""
        with suppress(OSError):
            replace(self.folder / "activity.json", msgspec.json.encode(activity))

    def activity(self) -> Activity | None:
        """Returns what the run does; None: it has not written it."""
        raw = self._get("activity.json")
        return None if raw is None else msgspec.json.decode(raw, type=Activity)

    def beat(self) -> None:
        """Rewrites the lease file with new random bytes."""
        replace(self.folder / "lease", os.urandom(8).hex().encode())

    def cancel(self) -> None:
        """Requests every lane and push task of the run to stop."""
        replace(self.folder / "cancel", b"")

    def progress(self, epoch: int) -> Progress | None:
        """Returns a lane's last progress; None: it has not written any."""
        raw = self._get(f"progress-{epoch}.json")
        return None if raw is None else msgspec.json.decode(raw, type=Progress)

    def configs(self, epoch: int | None = None) -> "Iterator[tuple[Path, NewConfig]]":
        """Yields the new configurations in the order they were written, of one epoch or of all; the
        caller stores each, then removes its file. Raises ``LogError`` (``log.corrupt``) where one
        was not encrypted with this key."""
        pattern = "config-*" if epoch is None else f"config-{epoch}-*"
        found = [path for path in self.folder.glob(pattern) if _CONFIG.fullmatch(path.name)]
        for path in sorted(found, key=_config_number):
            text = show(path.read_bytes(), self.key)
            if text is None:
                raise LogError(
                    "a configuration that the connector changed cannot be read: it was not written "
                    "under this pipeline's key",
                    code="log.corrupt",
                    where=str(path),
                    hint="find out what else writes to the log's folder: only this pipeline may",
                )
            yield path, msgspec.json.decode(text, type=NewConfig)

    def take_configs(self, epoch: int, save: "Callable[[NewConfig], None]") -> None:
        """Calls ``save`` with the newest new configuration of this epoch, then deletes the epoch's
        files."""
        found = list(self.configs(epoch))
        if found:
            save(found[-1][1])
        for path, _ in found:
            path.unlink(missing_ok=True)

    def ask(self, epoch: int, number: int) -> LaneQuestion | None:
        """Returns a lane's question; None: it has not been written."""
        raw = self._get(f"ask-{epoch}-{number}.json")
        return None if raw is None else msgspec.json.decode(raw, type=LaneQuestion)

    def put_answer(self, epoch: int, number: int, answer: bytes) -> None:
        """Writes the answer to a lane's question."""
        replace(self.folder / f"answer-{epoch}-{number}.json", answer)

    def states_path(self, epoch: int) -> Path:
        """Returns the file of an epoch's states in the order they were read, a JSON line each: the
        scope's key, the state's text. Lines ``{"counts": [[taken, rejected], ...]}`` in between
        have the counts of the earlier states that have none yet."""
        return self.folder / f"states-{epoch}.jsonl"

    def log_path(self, epoch: int) -> Path:
        """Returns the file of an epoch's connector log."""
        return self.folder / f"log-{epoch}.jsonl"

    # -- a lane's side

    def cancelled(self) -> bool:
        """Whether the run was cancelled."""
        return os.path.exists(self.folder / "cancel")

    def put_progress(self, epoch: int, progress: Progress) -> None:
        """Writes progress; a file that cannot be written is skipped, since progress is only
        displayed."""
        with suppress(OSError):
            replace(self.folder / f"progress-{epoch}.json", msgspec.json.encode(progress))

    def put_config(self, epoch: int, number: int, config: "NewConfig") -> None:
        """Writes a connector's new configuration, encrypted and synced: the old credentials may
        have ended with their first use, so the new ones must survive a power failure. Raises
        ``OSError``."""
        hidden = hide(msgspec.json.encode(config), self.key)
        replace(self.folder / f"config-{epoch}-{number:06d}", hidden, durable=True)

    def put_ask(self, epoch: int, ask: LaneQuestion) -> None:
        """Writes a question."""
        replace(self.folder / f"ask-{epoch}-{ask.number}.json", msgspec.json.encode(ask))

    def answer(self, epoch: int, number: int) -> bytes | None:
        """Returns the driver's answer to a question; None: it has not been written."""
        return self._get(f"answer-{epoch}-{number}.json")

    def lease_watch(self, clock: Callable[[], float]) -> "LeaseWatch":
        """Returns a watch over the lease file. ``clock``: monotonic seconds."""
        return LeaseWatch(self, clock)

    def lease(self) -> bytes | None:
        """Returns the content of the lease file; None: there is none."""
        return self._get("lease")


def _config_number(path: Path) -> tuple[int, ...]:
    """Returns (epoch, number), by which configurations sort from oldest to newest, since epochs
    grow."""
    return tuple(int(part) for part in path.name.split("-")[1:])


class LeaseWatch:
    """Decides whether the driver is alive, by changes of the lease file, on the watcher's own
    clock."""

    def __init__(self, mailbox: Mailbox, clock: Callable[[], float]) -> None:
        self._mailbox, self._clock = mailbox, clock
        self._seen = mailbox.lease()
        self._at = clock()

    def expired(self) -> bool:
        """Whether the lease file has not changed for :data:`LEASE_SECONDS`."""
        lease = self._mailbox.lease()
        if lease is not None and lease != self._seen:
            self._seen, self._at = lease, self._clock()
        return self._clock() - self._at > LEASE_SECONDS
