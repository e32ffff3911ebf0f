"""How driver and lanes talk while a sync runs: small files beside the log, on the storage they
share.

Works on every cluster and through Spark Connect, and survives a SIGKILLed driver: a lane stops when
the lease file has not changed for :data:`LEASE_SECONDS` by the lane's own clock, so clocks need not
agree. Files are written whole and renamed, mode 0600. Neighbours: ``engine.child`` (a lane),
``engine.lanes`` and ``engine.keepalive`` (the driver). One folder a run::

    mailbox/RUN/lease                 a counter, rewritten every few seconds by the driver
    mailbox/RUN/cancel                exists: every lane stops
    mailbox/RUN/progress-EPOCH.json   once a second at most
    mailbox/RUN/config-EPOCH-N.json   a connector's new configuration: secret, removed when stored
    mailbox/RUN/states-EPOCH.jsonl    every state that the lane met, where each goes back
    mailbox/RUN/log-EPOCH.jsonl       what the connector said, tailed into the run's log
    mailbox/RUN/ask-EPOCH-N.json      a lane met a stream or a schema that it was not told of: it
                                      waits for answer-EPOCH-N.json
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock.model.catalog import FieldPath, StreamId
from penstock.model.events import Showed

LEASE_SECONDS = 30.0
BEAT_SECONDS = 5.0


class Progress(msgspec.Struct, kw_only=True):
    """Counts since the epoch began. ``streams``: (stream key, rows, bytes, estimated rows)."""

    streams: list[tuple[str, int, int, int | None]] = []
    states: int = 0
    segments: int = 0


class NewConfig(msgspec.Struct, frozen=True):
    """A connector's new configuration (CONTROL), and the hash of the user's that it came from: it
    holds only as long as the user's stays the same."""

    base_hash: str
    config: dict[str, Any]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The source told a schema in the middle of a read (``model.events.Schema``), or, where
    ``json_schema`` is None, a ``version`` of the stream; or, where ``showed`` is there, rows have
    come out of a transform that do not fit the plan: how does it go on? ``number`` counts an
    epoch's questions from 1."""

    number: int
    stream: StreamId
    json_schema: dict[str, Any] | None = None
    version: int | None = None
    primary_key: tuple[FieldPath, ...] | None = None
    cursor_field: FieldPath | None = None
    showed: Showed | None = None


class Mailbox:
    def __init__(self, log_root: Path, run: str) -> None:
        self.folder = log_root / "mailbox" / run

    def create(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.beat()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put(self, name: str, body: bytes, *, durable: bool = False) -> None:
        temporary = self.folder / f".{name}.tmp"
        fd = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(body)
            if durable:
                f.flush()
                os.fsync(f.fileno())
        os.rename(temporary, self.folder / name)
        if durable:
            fd = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _get(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except OSError:  # not there, or not to be read now: for whoever waits it is the same
            return None

    # -- the driver's side

    def beat(self) -> None:
        self._put("lease", os.urandom(8).hex().encode())

    def cancel(self) -> None:
        self._put("cancel", b"")

    def progress(self, epoch: int) -> Progress | None:
        raw = self._get(f"progress-{epoch}.json")
        return None if raw is None else msgspec.json.decode(raw, type=Progress)

    def configs(self, epoch: int | None = None) -> "Iterator[tuple[Path, NewConfig]]":
        """New configurations in the order they came, of one epoch or of all; the caller stores
        each, then removes its file."""
        pattern = "config-*.json" if epoch is None else f"config-{epoch}-*.json"
        for path in sorted(self.folder.glob(pattern)):
            yield path, msgspec.json.decode(path.read_bytes(), type=NewConfig)

    def ask(self, epoch: int, number: int) -> Ask | None:
        raw = self._get(f"ask-{epoch}-{number}.json")
        return None if raw is None else msgspec.json.decode(raw, type=Ask)

    def put_answer(self, epoch: int, number: int, answer: bytes) -> None:
        self._put(f"answer-{epoch}-{number}.json", answer)

    def states_path(self, epoch: int) -> Path:
        """States as a lane met them, a JSON line each: its scope's key, its text."""
        return self.folder / f"states-{epoch}.jsonl"

    def log_path(self, epoch: int) -> Path:
        return self.folder / f"log-{epoch}.jsonl"

    # -- a lane's side

    def cancelled(self) -> bool:
        return os.path.exists(self.folder / "cancel")

    def put_progress(self, epoch: int, progress: Progress) -> None:
        """Skipped where it cannot be written: it is only shown."""
        with suppress(OSError):
            self._put(f"progress-{epoch}.json", msgspec.json.encode(progress))

    def put_config(self, epoch: int, number: int, config: "NewConfig") -> None:
        """Raises ``OSError``: a connector's new credentials may not be lost in silence, nor in a
        power cut: the old ones may have ended with their first use."""
        self._put(f"config-{epoch}-{number:06d}.json", msgspec.json.encode(config), durable=True)

    def put_ask(self, epoch: int, ask: Ask) -> None:
        self._put(f"ask-{epoch}-{ask.number}.json", msgspec.json.encode(ask))

    def answer(self, epoch: int, number: int) -> bytes | None:
        return self._get(f"answer-{epoch}-{number}.json")

    def lease_watch(self, clock: Callable[[], float]) -> "LeaseWatch":
        return LeaseWatch(self, clock)

    def lease(self) -> bytes | None:
        return self._get("lease")


class LeaseWatch:
    """Is the driver alive? Judged by change, on the watcher's own clock."""

    def __init__(self, mailbox: Mailbox, clock: Callable[[], float]) -> None:
        self._mailbox, self._clock = mailbox, clock
        self._seen = mailbox.lease()
        self._at = clock()

    def expired(self) -> bool:
        lease = self._mailbox.lease()
        if lease is not None and lease != self._seen:
            self._seen, self._at = lease, self._clock()
        return self._clock() - self._at > LEASE_SECONDS
