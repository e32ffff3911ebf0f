"""What a connector says, as JSON lines: one file a lane, secrets masked before a byte is written.

Neighbours: ``engine.worker.lane`` writes; the driver tails it into the run's log and to stderr.
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
LOG_BYTES = 32 << 20  # of a log from its beginning; of what follows its end is kept
TAIL_BYTES = 1 << 20


class LogLine(msgspec.Struct, frozen=True):
    """``origin``: ``source``, ``source.stderr`` or ``penstock``."""

    at: str
    level: str
    origin: str
    message: str


class EventLog:
    """Thread-safe: stderr is drained by a thread of its own. Never raises: a disk that takes no
    line costs lines, which ``lost`` counts. Once ``limit`` bytes were written only the newest lines
    are kept, and written at the end, after a line that says how many were left out."""

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
        self.take(msgspec.json.encode(LogLine(_now(), level, origin, self._mask.mask(message))))

    def take(self, line: bytes) -> None:
        """A line that another of these masked and encoded."""
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
        self.log("INFO", line, "source.stderr")

    def flush(self) -> None:
        with self._lock:
            self._write()

    def close(self) -> None:
        """What comes later is counted as lost. Idempotent."""
        with self._lock:
            self._write_newest()
            self._write()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write_newest(self) -> None:
        if self._omitted:
            text = f"{self._omitted} lines were left out here: the log is full"
            told = LogLine(_now(), "WARN", "penstock", text)
            self._waiting += msgspec.json.encode(told) + b"\n"
        for line in self._newest:
            self._waiting += line + b"\n"
        self._newest.clear()
        self._newest_bytes = self._omitted = 0

    def _write(self) -> None:
        """A line that is cut off by a full disk is ended before the next: readers pass over it."""
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
