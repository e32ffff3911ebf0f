"""Writes a connector's log messages as JSON lines, one file a lane, with secrets masked first
(L10).

Neighbours: ``engine.worker.lane`` writes; the driver (``run_log``) tails it into the run's log and
to stderr.
"""

import os
import threading
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec

from penstock.files import private
from penstock.runtimes.masking import Masker

BUFFER_BYTES = 64 << 10
LOG_BYTES = 32 << 20  # kept from the log's beginning; of the rest the last TAIL_BYTES are kept
TAIL_BYTES = 1 << 20


class LogLine(msgspec.Struct, frozen=True):
    """One log message. ``at``: time as ISO 8601. ``origin``: ``source``, ``source.stderr``,
    ``destination``, ``destination.stderr`` or ``penstock``."""

    at: str
    level: str
    origin: str
    message: str


class EventLog:
    """Writes a log file of bounded size. Thread-safe: stderr is drained by a thread of its own.
    Never raises: lines that cannot be written are counted in ``lost``. After ``limit`` bytes only
    the newest lines (:data:`TAIL_BYTES`) are kept, and written at the end, after a line that counts
    the omitted ones."""

    def __init__(self, path: Path, masker: Masker, limit: int = LOG_BYTES) -> None:
        self._mask = masker
        self._left = limit
        self._newest: deque[bytes] = deque()
        self._newest_bytes = 0
        self._omitted = 0
        self._lock = threading.Lock()
        self._waiting = bytearray()
        self._torn = False
        self.lost = 0
        self._file: IO[bytes] | None = None
        with suppress(OSError):
            self._file = private(path, "ab", buffering=0)

    def log(self, level: str, message: str, origin: str = "source") -> None:
        """Masks secrets in a message and appends it."""
        self.take(msgspec.json.encode(LogLine(_now(), level, origin, self._mask.mask(message))))

    def take(self, line: bytes) -> None:
        """Appends a line that another :class:`EventLog` masked and encoded."""
        with self._lock:
            if self._left > 0:
                self._left -= len(line) + 1
                self._waiting += line + b"\n"
                if len(self._waiting) >= BUFFER_BYTES:
                    self._write()
                return
            self._newest.append(line)
            self._newest_bytes += len(line) + 1
            while self._newest_bytes > TAIL_BYTES:
                self._newest_bytes -= len(self._newest.popleft()) + 1
                self._omitted += 1

    def stderr(self, line: str) -> None:
        """Appends a line of a source's stderr."""
        self.log("INFO", line, "source.stderr")

    def flush(self) -> None:
        """Writes the buffered lines to the file."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Writes everything and closes the file; later lines are counted in ``lost``.
        Idempotent."""
        with self._lock:
            self._write_newest()
            self._write()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write_newest(self) -> None:
        if self._omitted:
            text = f"{self._omitted} lines were left out here: the log is full"
            notice = LogLine(_now(), "WARN", "penstock", text)
            self._waiting += msgspec.json.encode(notice) + b"\n"
        for line in self._newest:
            self._waiting += line + b"\n"
        self._newest.clear()
        self._newest_bytes = self._omitted = 0

    def _write(self) -> None:
        """Writes the buffer. A line that a full disk cut off is ended before the next one: readers
        skip it."""
        lines = self._waiting.count(b"\n")
        body = (b"\n" if lines and self._torn else b"") + self._waiting
        self._waiting.clear()
        view = memoryview(body)
        try:
            while view and self._file is not None:
                view = view[os.write(self._file.fileno(), view) :]
        except OSError:
            self._torn = self._torn or len(view) < len(body)
        else:
            self._torn = False
        self.lost += min(bytes(view).count(b"\n"), lines)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
