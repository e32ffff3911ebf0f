"""What a connector says, as JSON lines: one file a lane, secrets masked before a byte is written.

Neighbours: ``engine.child`` writes; the driver tails it into the run's log and to stderr.
"""

import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.runtimes.masking import Masker


class LogLine(msgspec.Struct, frozen=True):
    """``origin``: ``source``, ``source.stderr`` or ``penstock``."""

    at: str
    level: str
    origin: str
    message: str


class EventLog:
    """Thread-safe: stderr is drained by a thread of its own."""

    def __init__(self, path: Path, masker: Masker) -> None:
        fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._file = os.fdopen(fd, "ab")
        self._mask = masker
        self._lock = threading.Lock()

    def log(self, level: str, message: str, origin: str = "source") -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = msgspec.json.encode(LogLine(at, level, origin, self._mask.mask(message)))
        with self._lock:
            if not self._file.closed:
                self._file.write(line + b"\n")

    def take(self, line: bytes) -> None:
        """A line that another of these masked and encoded."""
        with self._lock:
            if not self._file.closed:
                self._file.write(line + b"\n")

    def stderr(self, line: str) -> None:
        self.log("INFO", line, "source.stderr")

    def flush(self) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()
