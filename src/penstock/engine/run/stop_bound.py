"""Bounds the time from the request to stop a run to its end (L11).

A run stops at its next step. A step may wait for Java, and Java for a task that never ends. So
:data:`STOP_SECONDS` after the request, Spark's Java process is killed and the call returns. Nothing
is lost: the load is in the ledger, and the next run repeats it. Not here: a lane that does not stop
(``engine.run.lane_runner``), the end of the process (``cli.run``). Neighbour: ``engine.run.run``.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

STOP_SECONDS = 90.0
"""Seconds; more than the bound of a lane (``engine.run.lane_runner.STOP_SECONDS``)."""
_LOOK_SECONDS = 0.5


class StopBound:
    """Calls ``kill`` once, if ``cancel`` has been set for :data:`STOP_SECONDS` inside this context
    manager."""

    def __init__(self, cancel: threading.Event, kill: Callable[[], None]) -> None:
        self._cancel, self._kill = cancel, kill
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="stop-bound", daemon=True).start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.is_set():
            if self._cancel.wait(_LOOK_SECONDS):
                if not self._over.wait(STOP_SECONDS):
                    self._kill()
                return
