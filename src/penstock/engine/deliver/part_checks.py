"""Verifies that parts are unchanged since they were sealed (L2), before their rows are delivered.

Spark's tasks read whole parts of a table's loads (``engine.run.part_tasks``, L13). A dry run and a
log in memory have no tasks (:class:`CheckInDriver`). A feeder compares the bytes itself as it feeds
them, in its own task (:class:`CheckSizes`). Not here: the consequences (``delivery``). Neighbours:
``tasks.sealed_files`` has the comparison, ``engine.log.log`` makes its errors,
``engine.run.wiring`` chooses.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from penstock.engine.log.log import Log, part_error
from penstock.errors import LogError
from penstock.model.segments import PartRef
from penstock.tasks.sealed_files import DIFFERS, MISSING, UNREADABLE, Finding

Damaged = Mapping[str, LogError]
"""Path of a faulty part (``PartRef.path``) -> why it may not be delivered."""


class RunningCheck(Protocol):
    """A verification that runs."""

    def poll(self) -> Damaged | None:
        """Returns the damaged parts; None, after a short wait, while they are verified. Raises the
        error that ended the verification."""
        ...


class FinishedCheck:
    """Implements :class:`RunningCheck` for a result that is known at once."""

    def __init__(self, damaged: Damaged) -> None:
        self._damaged = damaged

    def poll(self) -> Damaged:
        return self._damaged


class PartCheck(Protocol):
    """Verifies parts."""

    def begin(self, parts: Sequence[PartRef]) -> RunningCheck:
        """Starts verifying the parts; there is at least one."""
        ...


class CheckInDriver:
    """Implements :class:`PartCheck` in this process, through the log: for dry runs and
    simulations."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def begin(self, parts: Sequence[PartRef]) -> FinishedCheck:
        damaged: dict[str, LogError] = {}
        for part in parts:
            try:
                self._log.verify([part])
            except LogError as e:
                damaged[part.path] = e
        return FinishedCheck(damaged)


class CheckSizes:
    """Implements :class:`PartCheck` by the sizes of files alone: the feeder verifies the bytes.
    ``root``: the log's folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, parts: Sequence[PartRef]) -> FinishedCheck:
        found = ((part, self._finding(part)) for part in parts)
        return FinishedCheck({p.path: part_error(self._root, p, f) for p, f in found if f})

    def _finding(self, part: PartRef) -> Finding | None:
        try:
            size = os.stat(self._root / part.path).st_size
        except FileNotFoundError:
            return MISSING, 0
        except OSError as failure:
            return UNREADABLE, failure.errno or 5
        return None if size == part.size else (DIFFERS, size)
