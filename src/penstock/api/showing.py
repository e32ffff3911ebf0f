"""Chooses how a run of the Python interface shows progress: bars on a terminal, one line in a
notebook, the log of an Airflow task, else nothing.

Not here: the bars (``terminal.progress``). Neighbour: ``verbs`` passes the observer to the engine.
"""

import html
import logging
import os
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from penstock.engine.specs.observer import NullObserver, RunObserver, counted
from penstock.terminal.output import Output
from penstock.terminal.progress import LineObserver, watching

AIRFLOW_TASK = "AIRFLOW_CTX_TASK_ID"
"""A variable that Airflow 2 and 3 set for a running task and the programs that it starts, whose
stderr is the task's log."""

_LEVELS = {"FATAL": logging.ERROR, "ERROR": logging.ERROR, "WARN": logging.WARNING}
_UPDATE_SECONDS = 0.5  # between two updates of the notebook's line


@contextmanager
def shown(progress: bool | None, secrets: Iterable[str] = ()) -> Generator[RunObserver]:
    """Yields the observer of a run. ``progress`` None: bars on a terminal, a line in a notebook,
    lines in an Airflow task's log, nothing elsewhere; True: lines on stderr elsewhere; False:
    nothing. ``secrets``: masked."""
    output = Output()
    output.hide(secrets)
    if progress is False:
        yield NullObserver()
    elif (display := _notebook()) is not None:
        yield NotebookObserver(display, output)
    elif AIRFLOW_TASK in os.environ and "airflow" in sys.modules:
        yield LoggedLines(output, logging.getLogger("penstock"))
    elif output.interactive:
        with watching(output) as observer:
            yield observer
    else:
        yield LineObserver(output) if progress or AIRFLOW_TASK in os.environ else NullObserver()


def _notebook() -> Any:
    """Returns the function that shows HTML in the running notebook; None: no notebook runs."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from importlib import import_module

    return import_module("IPython.display")


class LoggedLines(LineObserver):
    """Writes the lines to a logger, so that they reach an Airflow task's log wherever stderr
    goes."""

    def __init__(self, output: Output, logger: logging.Logger) -> None:
        super().__init__(output)
        self._logger = logger
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)

    def _put(self, line: str, level: str | None) -> None:
        self._logger.log(_LEVELS.get(level or "", logging.INFO), "%s", self._output.safe_line(line))


class NotebookObserver:
    """Shows one line of HTML under the cell, which changes in place. Implements ``RunObserver``.
    ``display``: the module ``IPython.display``."""

    def __init__(self, display: Any, output: Output) -> None:
        self._html, self._output = display.HTML, output
        self._handle = display.display(display.HTML(""), display_id=True)
        self._lock = threading.Lock()
        self._shown_at = 0.0
        self._phase = "starting"
        self._rows: dict[str, int] = {}

    def phase(self, name: str, detail: str) -> None:
        self._phase = f"{name}: {detail}"
        self._show(at_once=True)

    def stream(
        self, stream: str, rows: int, bytes: int, states: int, rejected: int, estimate: int | None
    ) -> None:
        del bytes, states, rejected, estimate
        self._rows[stream] = rows
        self._show()

    def expected(self, stream: str | None, rows: int | None, bytes: int | None) -> None:
        del stream, rows, bytes

    def log(self, level: str, origin: str, message: str) -> None:
        del level, origin, message

    def note(self, text: str) -> None:
        del text

    def _show(self, *, at_once: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            if not at_once and now - self._shown_at < _UPDATE_SECONDS:
                return
            self._shown_at = now
            rows = sum(self._rows.values())
        text = f"{self._phase}, {counted(rows, 'row')}" if rows else self._phase
        line = html.escape(self._output.safe_line(text))
        self._handle.update(self._html(f"<code>{line}</code>"))
