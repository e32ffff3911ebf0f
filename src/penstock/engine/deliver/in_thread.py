"""Runs one function in a daemon thread, so that the driver can look after its lanes meanwhile.

Neighbours: ``table_loader`` commits in one, ``engine.run.part_tasks`` verifies parts in one.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

JOIN_SECONDS = 0.2  # of a poll, which returns as soon as the function has


class InThread(Generic[T]):
    """Starts ``work`` at once, in a thread ``name``. A program that is stopping does not wait for
    the thread: the next run repeats unfinished work."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T | None = None
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as e:  # raised again by poll()
            self._raised = e

    def poll(self) -> T | None:
        """Returns what ``work`` returned, or raises what it raised; None, after a short wait, while
        it runs."""
        self._thread.join(JOIN_SECONDS)
        if self._raised is not None:
            raise self._raised
        return self._result
