"""Writes a run's log: one JSON-lines file, `runs/RUN/log.jsonl`, mode 0600.

Copies the log files that lanes and feeders write into the mailbox, and takes the driver's own
messages. The first writer of a line masks its secrets (``engine.channel.connector_log``); the
driver's own lines go through the same masker. Neighbour: ``engine.run`` polls it while a sync runs.
"""

from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock.engine.channel.connector_log import EventLog, LogLine
from penstock.engine.specs.observer import RunObserver
from penstock.runtimes.masking import Masker

BLOCK_BYTES = 1 << 20


class RunLog:
    """Collects the log of one run in ``path``, and passes each line of a lane to ``observer``."""

    def __init__(self, path: Path, observer: RunObserver, masker: Masker) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self._own = EventLog(path, masker)
        self._observer = observer
        self._tails: dict[Path, tuple[int, bytes]] = {}

    def follow(self, path: Path) -> None:
        """Adds a lane's or feeder's log file to those that :meth:`poll` reads."""
        self._tails.setdefault(path, (0, b""))

    def poll(self) -> None:
        """Copies the new lines of the followed files."""
        for path, at in self._tails.items():
            with suppress(FileNotFoundError), path.open("rb") as file:
                self._tails[path] = self._take(file, *at)
        self._own.flush()

    def _take(self, file: BinaryIO, offset: int, rest: bytes) -> tuple[int, bytes]:
        """Copies a file's lines from ``offset`` on, block by block: a connector may log more in a
        second than memory should hold. Returns the new offset and the rest, an incomplete line."""
        file.seek(offset)
        while block := file.read(BLOCK_BYTES):
            offset += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                try:
                    entry = msgspec.json.decode(line, type=LogLine)
                except msgspec.DecodeError:
                    continue  # cut off by a full disk; the lane counts it as lost
                self._own.take(line)
                self._observer.log(entry.level, entry.origin, entry.message)
        return offset, rest

    def write(self, level: str, message: str, origin: str = "penstock") -> None:
        """Appends a message of the driver, or of a connector that it calls."""
        self._own.log(level, message, origin)
        self._own.flush()

    def close(self) -> None:
        """Copies what is left and closes the file."""
        self.poll()
        self._own.close()
