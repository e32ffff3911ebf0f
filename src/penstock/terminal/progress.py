"""Shows a running sync on stderr: bars on a terminal, one line per event elsewhere.

Both observers implement ``engine.specs.observer.RunObserver`` and are called from several threads.
Neighbours: ``output`` owns the streams; ``engine.run`` calls.
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.engine.specs.observer import RunObserver
from penstock.short_texts import bounded, shown
from penstock.terminal import format as text
from penstock.terminal.output import Output
from penstock.terminal.traces import Trace, without_trace

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# From which verbosity a level is shown; unlisted levels are shown at -vv.
_SHOWN_FROM = {"FATAL": 0, "ERROR": 0, "WARN": 0, "INFO": 1}
_LINE_SECONDS = 5.0  # between two lines of one stream
_CONTINUED = "  | "
_WARNINGS = 1_000  # remembered messages, so that each is shown once
_LOG_CHARACTERS = 4000  # shown of a log message; the run's log has all of it
_MANY = 30  # streams: above this number one line or bar shows all


@dataclass(slots=True)
class _Counts:
    rows: int = 0
    bytes: int = 0
    states: int = 0
    rejected: int = 0
    estimate: int | None = None
    estimated_bytes: int | None = None
    shown_at: float = 0.0
    began_at: float = 0.0


@contextmanager
def watching(output: Output) -> Generator[RunObserver]:
    """Yields the observer for this output: bars on a terminal, else lines."""
    lines = LineObserver(output)
    if not output.interactive or output.verbosity < 0:
        yield lines
        return
    bars = BarObserver(output)
    try:
        yield bars
    finally:
        bars.close()


class _Traces:
    """Filters tracebacks, and warnings that were shown before, out of connectors' log lines, below
    ``-vv``. On stderr tracebacks are sent line by line."""

    def __init__(self, verbosity: int) -> None:
        self._all = verbosity >= 2
        self._open: dict[str, Trace] = {}
        self._warned: set[tuple[str, str]] = set()

    def shown(self, level: str, origin: str, message: str) -> str | None:
        """Returns the text to show; None: nothing, as for a warning shown before."""
        if self._all:
            return message
        if level == "WARN":
            if (origin, message) in self._warned:
                return None
            if len(self._warned) < _WARNINGS:
                self._warned.add((origin, message))
        if "\n" in message:
            message = without_trace(message)
        elif self._open.setdefault(origin, Trace()).holds(message):
            return None
        more = len(message) - _LOG_CHARACTERS
        if more > 0:
            return f"{message[:_LOG_CHARACTERS]}… and {more:,} more characters"
        return message


class LineObserver:
    """Prints one line per event, each with the seconds since the start."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began = time.monotonic()
        self._traces = _Traces(output.verbosity)
        self._streams: dict[str, _Counts] = {}
        self._lock = threading.Lock()
        self._all_at = 0.0

    def phase(self, name: str, detail: str) -> None:
        self._line(f"{name:<8} {bounded(detail)}")

    def stream(
        self, stream: str, rows: int, bytes: int, states: int, rejected: int, estimate: int | None
    ) -> None:
        now = time.monotonic()
        with self._lock:
            counts = self._streams.setdefault(stream, _Counts(began_at=now))
            moved = (rows, bytes, states, rejected) != (
                counts.rows, counts.bytes, counts.states, counts.rejected
            )  # fmt: skip
            counts.rows, counts.bytes, counts.states = rows, bytes, states
            counts.rejected, counts.estimate = rejected, estimate
            many = len(self._streams) > _MANY
            due = now - (self._all_at if many else counts.shown_at) >= _LINE_SECONDS
            if not (moved and due):
                return
            counts.shown_at = self._all_at = now
            line = self._total() if many else f"{shown(stream)}: {_figures(counts, now)}"
        self._line(f"{'read':<8} {line}")

    def expected(self, stream: str | None, rows: int | None, bytes: int | None) -> None:
        if stream is None:
            self._line(f"{'expected':<8} {_expected(rows, bytes)} in all")
            return
        with self._lock:
            counts = self._streams.setdefault(stream, _Counts(began_at=time.monotonic()))
            counts.estimate, counts.estimated_bytes = rows, bytes

    def log(self, level: str, origin: str, message: str) -> None:
        shown = self._traces.shown(level, origin, message)
        if shown is not None:
            self._line(f"{level:<8} {origin}: {shown}", _SHOWN_FROM.get(level, 2), level)

    def note(self, text: str) -> None:
        self._line(f"{'note':<8} {text}")

    def _line(self, line: str, verbosity: int = 0, level: str | None = None) -> None:
        if self._output.verbosity >= verbosity:
            self._put(f"[{time.monotonic() - self._began:6.1f}s] {line}", level)

    def _put(self, line: str, level: str | None) -> None:
        """Shows a line. ``level``: of a log line."""
        del level
        self._output.say(line)

    def _total(self) -> str:
        rows = sum(c.rows for c in self._streams.values())
        size = text.size(sum(c.bytes for c in self._streams.values()))
        streams = text.counted(len(self._streams), "stream")
        return f"{streams}: {text.counted(rows, 'row')}, {size}"


def _expected(rows: int | None, size: int | None) -> str:
    sizes = [text.counted(rows, "row")] if rows is not None else []
    sizes += [text.size(size)] if size is not None else []
    return f"about {', '.join(sizes)}"


def _figures(counts: _Counts, now: float) -> str:
    shown = [text.counted(counts.rows, "row"), text.size(counts.bytes)]
    if counts.estimate:
        shown[0] += f" of about {counts.estimate:,}"
    if counts.estimated_bytes:
        shown[1] += f" of about {text.size(counts.estimated_bytes)}"
    rate = text.rate(counts.rows, now - counts.began_at)
    shown += [rate] if rate else []
    shown.append(text.counted(counts.states, "state"))
    if counts.rejected:
        shown.append(f"{counts.rejected:,} rejected")
    return ", ".join(shown)


class BarObserver:
    """Draws a bar for each stream; phases, log lines and notes scroll above them."""

    def __init__(self, output: Output) -> None:
        from rich import progress

        self._output = output
        self._lock = threading.Lock()
        self._traces = _Traces(output.verbosity)
        self._tasks: dict[str, TaskID] = {}
        self._counts: dict[str, _Counts] = {}
        self._estimated_bytes: dict[str, int | None] = {}
        self._progress: Progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=20),
            progress.TextColumn("{task.fields[figures]}", markup=False),
            console=output.watching(),
            transient=True,
        )
        self._phase = self._progress.add_task("starting", total=None, figures="")
        self._progress.start()

    def close(self) -> None:
        self._progress.stop()

    def phase(self, name: str, detail: str) -> None:
        shown = self._output.safe_line(f"{name}: {text.short(detail, 70)}")
        self._progress.update(self._phase, description=shown)
        if self._output.verbosity >= 1:
            self._above(f"{name}: {bounded(detail)}")

    def stream(
        self, stream: str, rows: int, bytes: int, states: int, rejected: int, estimate: int | None
    ) -> None:
        now = time.monotonic()
        with self._lock:
            began = self._counts[stream].began_at if stream in self._counts else now
            counts = _Counts(rows, bytes, states, rejected, estimate, began_at=began)
            counts.estimated_bytes = self._estimated_bytes.get(stream)
            self._counts[stream] = counts
            task = self._task(stream)
        fields: dict[str, Any] = {"total": estimate, "completed": rows}
        if task is None:  # too many to show each
            total = sum(c.rows for c in self._counts.values())
            streams = text.counted(len(self._counts), "stream")
            shown = f"{streams}, {text.counted(total, 'row')}"
            self._progress.update(self._phase, figures=shown)
            return
        self._progress.update(task, figures=_figures(counts, now), **fields)

    def _task(self, stream: str) -> "TaskID | None":
        if stream not in self._tasks:
            if len(self._tasks) >= _MANY:
                return None
            shown = text.short(self._output.safe_line(stream), 40)
            self._tasks[stream] = self._progress.add_task(shown, total=None, figures="")
        return self._tasks[stream]

    def expected(self, stream: str | None, rows: int | None, bytes: int | None) -> None:
        if stream is None:
            self._above(f"expected: {_expected(rows, bytes)} in all")
        else:
            self._estimated_bytes[stream] = bytes

    def log(self, level: str, origin: str, message: str) -> None:
        shown = self._traces.shown(level, origin, message)
        if shown is not None and self._output.verbosity >= _SHOWN_FROM.get(level, 2):
            self._above(f"{level} {origin}: {shown}")

    def note(self, text: str) -> None:
        self._above(f"note: {text}")

    def _above(self, line: str) -> None:
        """Prints a line above the bars; a part beyond the terminal's width continues below after a
        mark, so that it does not look like another line."""
        from rich.text import Text

        console = self._progress.console
        first, *rest = Text(self._output.safe_line(line)).wrap(
            console, max(console.width - len(_CONTINUED), 20), tab_size=8
        )
        for part in (first, *(Text(_CONTINUED) + each for each in rest)):
            part.rstrip()
            console.print(part, highlight=False)
