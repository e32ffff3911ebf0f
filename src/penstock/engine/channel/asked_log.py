"""Keeps the log lines of connectors that run ``spec``, ``check`` and ``discover`` for the run's
log, which begins only when the run is planned.

Not here: lines of lanes and feeders, which have log files of their own (``run_log``). Neighbour:
``engine.run`` gives this observer to everything that calls connectors.
"""

import threading

from penstock.engine.channel.run_log import RunLog
from penstock.engine.specs.observer import RunObserver

MOST_LINES = 10_000  # kept until the run's log begins; further ones are only counted


class AskedLog:
    """Passes everything on to the run's observer, and writes log lines into the run's log too."""

    def __init__(self, observer: RunObserver) -> None:
        self._observer = self.shown = observer
        self._lock = threading.Lock()
        self._log: RunLog | None = None
        self._lines: list[tuple[str, str, str]] = []
        self._more = 0

    def begins(self, log: RunLog) -> None:
        """Writes the lines so far into the run's log; later ones follow as they come."""
        with self._lock:
            self._log, lines = log, self._lines
            self._lines = []
            for level, origin, message in lines:
                log.write(level, message, origin)
            if self._more:
                log.write("WARN", f"{self._more} lines were left out here")

    def log(self, level: str, origin: str, message: str) -> None:
        self._observer.log(level, origin, message)
        with self._lock:
            if self._log is not None:
                self._log.write(level, message, origin)
            elif len(self._lines) < MOST_LINES:
                self._lines.append((level, origin, message))
            else:
                self._more += 1

    def phase(self, name: str, detail: str) -> None:
        self._observer.phase(name, detail)

    def stream(
        self,
        stream: str,
        rows: int,
        bytes: int,
        states: int,
        rejected: int,
        estimate: int | None,
    ) -> None:
        self._observer.stream(stream, rows, bytes, states, rejected, estimate)

    def expected(self, stream: str | None, rows: int | None, bytes: int | None) -> None:
        self._observer.expected(stream, rows, bytes)

    def note(self, text: str) -> None:
        self._observer.note(text)
