"""What a connector says, as JSON lines: one file a lane, secrets masked before a byte is written.

Neighbours: ``engine.child`` writes; the driver tails it into the run's log and to stderr.
"""

import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.runtimes.masking import Masker

BUFFER_BYTES = 64 << 10


class LogLine(msgspec.Struct, frozen=True):
    """``origin``: ``source``, ``source.stderr`` or ``penstock``."""

    at: str
    level: str
    origin: str
    message: str


class EventLog:
    """Thread-safe: stderr is drained by a thread of its own. Never raises: a disk that takes no
    line costs lines, which ``lost`` counts."""

    def __init__(self, path: Path, masker: Masker) -> None:
        self._mask = masker
        self._lock = threading.Lock()
        self._waiting = bytearray()
        self._torn = False
        self.lost = 0
        self._fd: int | None = None
        with suppress(OSError):
            self._fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def log(self, level: str, message: str, origin: str = "source") -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.take(msgspec.json.encode(LogLine(at, level, origin, self._mask.mask(message))))

    def take(self, line: bytes) -> None:
        """A line that another of these masked and encoded."""
        with self._lock:
            self._waiting += line + b"\n"
            if len(self._waiting) >= BUFFER_BYTES:
                self._write()

    def stderr(self, line: str) -> None:
        self.log("INFO", line, "source.stderr")

    def flush(self) -> None:
        with self._lock:
            self._write()

    def close(self) -> None:
        """What comes later is counted as lost. Idempotent."""
        with self._lock:
            self._write()
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _write(self) -> None:
        """A line that is cut off by a full disk is ended before the next: readers pass over it."""
        lines = self._waiting.count(b"\n")
        body = (b"\n" if lines and self._torn else b"") + self._waiting
        self._waiting.clear()
        view = memoryview(body)
        try:
            while view and self._fd is not None:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._torn = self._torn or len(view) < len(body)
        else:
            self._torn = False
        self.lost += min(bytes(view).count(b"\n"), lines)
